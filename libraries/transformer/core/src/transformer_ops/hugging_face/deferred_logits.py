"""Logits that are computed when somebody looks at them: what a head returns where a loss takes its place.

To everybody but the loss they are a tensor: any operator on them computes them first.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from .rotations import version

_ops = torch.ops.transformer_ops

# What a tensor tells without its values.
_DESCRIPTION = (
    *(getattr(Tensor, name).__get__ for name in ("shape", "dtype", "device", "ndim", "layout")),
    *(Tensor.size, Tensor.dim, Tensor.numel, Tensor.is_floating_point),
)
# What a loss can do with them as well, by the name of the tensor's method.
_WITHOUT_NUMBER = {torch.tanh: "tanh", Tensor.tanh: "tanh", Tensor.float: "float"}
_WITH_NUMBER = {
    **dict.fromkeys((Tensor.mul, Tensor.__mul__, Tensor.__rmul__, torch.mul), "mul"),
    **dict.fromkeys((Tensor.div, Tensor.__truediv__, torch.div), "div"),
}
_Step = tuple[Any, ...]
"""A method's name, and the number that it is called with, if any."""

_CHANGED = (
    "the logits of this step cannot be computed any more: the weights of the model's head, or what it was called with, "
    "have changed since; read out.logits before the optimizer's step and before backward() of a sharded model, or call "
    "patch(model, defer_logits=False)"
)


class DeferredLogits(Tensor):
    """``linear(hidden, weight, bias)``, then divided, multiplied or capped, as a tensor of that shape and dtype."""

    _head: tuple[Tensor, ...]
    _versions: tuple[int, ...]
    _steps: tuple[_Step, ...]
    _autocast: torch.dtype | None
    _has_gradients: bool
    _result: Tensor | None

    @staticmethod
    def of(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> DeferredLogits:
        """What a linear layer of this weight returns, ``(..., classes)``, under the autocast of the caller."""
        kind = hidden.device.type
        autocast = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
        shape = (*hidden.shape[:-1], weight.shape[0])
        logits = _empty(shape, autocast or hidden.dtype, hidden.device)
        logits._head = (hidden, weight) if bias is None else (hidden, weight, bias)
        logits._versions = tuple(map(version, logits._head))
        logits._steps = ()
        logits._autocast = autocast
        logits._has_gradients = torch.is_grad_enabled()
        return logits

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _DESCRIPTION:
            return super().__torch_function__(func, types, args, kwargs or {})  # type: ignore[no-untyped-call]
        if args and not kwargs and isinstance(args[0], DeferredLogits) and args[0]._result is None:
            step = _step(func, args[1:])
            if step is not None:
                return args[0]._followed_by(step)
        args, kwargs = pytree.tree_map_only(DeferredLogits, DeferredLogits.computed, (args, kwargs or {}))
        return func(*args, **kwargs)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, _types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        args, kwargs = pytree.tree_map_only(DeferredLogits, DeferredLogits.computed, (args, kwargs or {}))
        return func(*args, **kwargs)

    def computed(self) -> Tensor:
        """The logits.

        Raises:
            RuntimeError: what they are computed from has changed since the forward pass.
        """
        if self._result is None:
            hidden, weight, *bias = self._operands()
            with torch.set_grad_enabled(self._has_gradients), _without_autocast(hidden):
                values = nn.functional.linear(hidden, weight, *bias)
                for name, *number in self._steps:
                    values = getattr(values, name)(*number)
            self._result = values
        return self._result

    def loss(self, target: Tensor, ignore_index: int, reduction: str) -> Tensor | None:
        """Their cross entropy, ``"mean"`` or ``"sum"``, without computing them; None if that is not possible."""
        scale_and_cap = _scale_and_cap(self._steps)
        if self._result is not None or scale_and_cap is None or target.numel() * self.shape[-1] != self.numel():
            return None
        scale, cap = scale_and_cap
        hidden, weight, *bias = self._operands()
        if bias and scale != 1:  # which is for the rows
            return None
        with _without_autocast(hidden):
            rows = hidden.reshape(-1, hidden.shape[-1])
            rows = rows if scale == 1 else rows * scale
            return _ops.fused_linear_cross_entropy(  # type: ignore[no-any-return]
                *(rows, weight, target.reshape(-1), bias[0] if bias else None),
                *(ignore_index, 0.0, 0.0, reduction, cap),
            )

    def _operands(self) -> tuple[Tensor, ...]:
        if not all(map(has_memory, self._head)) or tuple(map(version, self._head)) != self._versions:
            raise RuntimeError(_CHANGED)
        return self._head if self._autocast is None else tuple(one.to(self._autocast) for one in self._head)

    def _followed_by(self, step: _Step) -> DeferredLogits:
        logits = _empty(self.shape, torch.float32 if step[0] == "float" else self.dtype, self.device)
        vars(logits).update({**vars(self), "_steps": (*self._steps, step)})
        return logits


def has_memory(tensor: Tensor) -> bool:
    """Whether a tensor has its elements in memory; not those of torch.func, nor one that has been sharded since."""
    try:
        return tensor.untyped_storage().size() > 0 or tensor.numel() == 0
    except NotImplementedError:
        return False


def _empty(shape: Any, dtype: torch.dtype, device: torch.device) -> DeferredLogits:
    logits = Tensor._make_wrapper_subclass(DeferredLogits, shape, dtype=dtype, device=device)
    logits._result = None
    return logits


def _without_autocast(hidden: Tensor) -> AbstractContextManager[Any]:
    return torch.autocast(hidden.device.type, enabled=False)


def _step(func: Any, arguments: tuple[Any, ...]) -> _Step | None:
    """What an operator of a model does with logits, if it is one that a loss can do as well."""
    if not arguments and func in _WITHOUT_NUMBER:
        return (_WITHOUT_NUMBER[func],)
    if len(arguments) != 1 or func not in _WITH_NUMBER or not isinstance(arguments[0], (int, float)):
        return None
    return (_WITH_NUMBER[func], arguments[0]) if arguments[0] else None


def _scale_and_cap(steps: tuple[_Step, ...]) -> tuple[float, float] | None:
    """The steps as ``cap * tanh(scale * x / cap)``, where a cap of 0 is none; None if they are something else."""
    steps = tuple(step for step in steps if step[0] != "float")
    names, cap = [name for name, *_ in steps], 0.0
    if "tanh" in names:
        position = names.index("tanh")
        if names[position + 1 :] != ["mul"] or not steps[-1][1] > 0:
            return None
        cap = steps[-1][1]
        steps = (*steps[:position], ("mul", cap))
    above = prod(step[1] for step in steps if step[0] == "mul")
    below = prod(step[1] for step in steps if step[0] == "div")
    return above / below, float(cap)
