"""What rounding of intermediate results does to a result: another order of operations rounds others.

Those that are subnormal, or nearly so, may be lost: vectors of exponentials give zero there, and so do processors that
are told to.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

_ROUND = """
acos add addbmm addcdiv addcmul addmm asin atan atan2 baddbmm bmm convolution cos cosh cumprod cumsum div dot erf erfc
exp exp2 expm1 gelu lerp lgamma linalg_vector_norm log log10 log1p log2 logaddexp logcumsumexp logsumexp mean mm mul mv
norm pow prod reciprocal rsqrt rsub sigmoid silu sin sinh softplus sqrt std sub sum tan tanh var xlogy
_log_softmax _softmax gelu_backward sigmoid_backward silu_backward softplus_backward tanh_backward
_log_softmax_backward_data _softmax_backward_data
"""
_NAMES = frozenset(_ROUND.split())
# A factor inside of these is a difference, of which rounding leaves 0 or nothing true, or may be lost.
_DIFFERENCES = ("gelu", "gelu_backward")
_SIGMOIDS = ("silu", "silu_backward")
_LOST = 8.0  # times the smallest normal number


class Rounding(TorchDispatchMode):
    """Moves what arithmetic gives in float64 by a part of itself, up or down at random.

    Args:
        dtype: that a kernel computes in; the part is a unit in its last place, and all of a number that may be lost.
        generator: of the directions.
    """

    def __init__(self, dtype: torch.dtype, generator: torch.Generator) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        info = torch.finfo(dtype)
        self._size, self._least = info.eps, _LOST * info.smallest_normal
        self._generator = generator

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call it."""
        del types
        found = func(*args, **(kwargs or {}))
        if func.namespace != "aten" or (name := func.overloadpacket.__name__) not in _NAMES:
            return found
        if name in (*_DIFFERENCES, *_SIGMOIDS) and found.dtype is torch.float64:
            size = self._size if name in _DIFFERENCES else self._least * (1 + args[-1].abs())
            found = found + self._signs(found) * args[0] * size
        return tree_map_only(Tensor, self._moved, found)

    def _moved(self, x: Tensor) -> Tensor:
        if x.dtype not in (torch.float64, torch.complex128) or x.layout is not torch.strided:
            return x
        part = (x.abs() < self._least).double().clamp(min=self._size)  # in float64, which has such small parts
        return x * (1 + self._signs(x) * part)

    def _signs(self, x: Tensor) -> Tensor:
        return torch.randint(0, 2, x.shape, generator=self._generator).double() * 2 - 1
