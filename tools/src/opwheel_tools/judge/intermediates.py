"""What rounding of intermediate results does to a result: another order of operations rounds others."""

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


class Rounding(TorchDispatchMode):
    """Moves what arithmetic gives in float64 by a part of itself, up or down at random.

    Args:
        size: the part: a unit in the last place of the dtype that a kernel computes in.
        generator: of the directions.
    """

    def __init__(self, size: float, generator: torch.Generator) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._size = size
        self._generator = generator

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call it."""
        del types
        found = func(*args, **(kwargs or {}))
        is_rounded = func.overloadpacket.__name__ in _NAMES and func.namespace == "aten"
        return tree_map_only(Tensor, self._moved, found) if is_rounded else found

    def _moved(self, x: Tensor) -> Tensor:
        if x.dtype not in (torch.float64, torch.complex128) or x.layout is not torch.strided:
            return x
        signs = torch.randint(0, 2, x.shape, generator=self._generator) * 2 - 1
        return x * (1 + signs * self._size)
