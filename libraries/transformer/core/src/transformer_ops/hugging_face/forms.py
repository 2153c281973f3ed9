"""What modules of known code compute, each with the ``forward`` that computes it by operators.

A form has the names of the attributes that the code reads. They are read in every call, as they may change, and so is
what may have been put around a module that an operator computes without calling it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .activations import look_up_activations, operator_for, operator_name, swiglu_of_silu, why_no_operator
from .form import Form
from .hooks import has_hooks_inside

_ops = torch.ops.transformer_ops


@dataclass(frozen=True)
class Norm(Form):
    """RMS norm, or layer norm without a bias, over the last dimension.

    Attributes:
        eps: the attribute's name.
        mode: ``casting_mode`` of :func:`transformer_ops.rms_norm`; ``"layer_norm"`` for that.
        offset: added to the weight.
        switch: the name of the attribute that says whether there is a weight; empty if there always is one.
        has_weight: False for a norm that never has one.
    """

    eps: str
    mode: str
    offset: float = 0.0
    switch: str = ""
    has_weight: bool = True
    is_last = True

    def operator(self, _module: Any) -> str:
        return "layer_norm" if self.mode == "layer_norm" else "rms_norm"

    def obstacle(self, module: Any) -> str:
        if not self._has_weight(module):
            return ""
        weight = module._parameters.get("weight")
        if weight is None:
            return "its weight is no parameter, as of a pruned or reparametrized module"
        return "" if weight.dim() == 1 else f"its weight has {weight.dim()} dimensions"

    def forward(self, own: Callable[..., Any]) -> Callable[..., Any]:
        def forward(module: Any, x: Tensor) -> Tensor:
            weight = module.weight if self._has_weight(module) else None
            has_two_dtypes = weight is not None and weight.dtype != x.dtype
            if has_two_dtypes or has_hooks_inside(module) or "_norm" in module.__dict__:
                return own(module, x)  # type: ignore[no-any-return]
            if self.mode == "layer_norm":
                return _ops.layer_norm(x, weight, None, getattr(module, self.eps))  # type: ignore[no-any-return]
            return _ops.rms_norm(x, weight, getattr(module, self.eps), self.offset, self.mode)  # type: ignore[no-any-return]

        # The argument's name, by which a caller may give it, is that of the module's own.
        return _with_the_first_name(own, forward)

    def sample(self, module: Any) -> tuple[Any, ...] | None:
        if not self._has_weight(module):
            return (torch.randn(3, 8),)
        return (torch.randn(3, module.weight.numel()).to(module.weight),)

    def _has_weight(self, module: Any) -> bool:
        return bool(getattr(module, self.switch)) if self.switch else self.has_weight


@dataclass(frozen=True)
class Gated(Form):
    """A feed-forward block, ``down(activation(gate(x)) * up(x))``.

    Attributes:
        gate: the name of the projection; of one whose result has the gate first and then the other half if there is no
            ``up``.
        up: the name of the other one, or empty.
        down: the name of the last projection.
        activation: the name of the activation; empty for :func:`torch.nn.functional.silu`.
    """

    gate: str
    up: str
    down: str
    activation: str

    def operator(self, module: Any) -> str:
        return operator_name(getattr(module, self.activation)) if self.activation else "swiglu"

    def obstacle(self, module: Any) -> str:
        look_up_activations()
        return why_no_operator(getattr(module, self.activation)) if self.activation else ""

    def forward(self, own: Callable[..., Any]) -> Callable[..., Any]:
        look_up_activations()

        def forward(module: Any, x: Tensor) -> Tensor:
            activation = getattr(module, self.activation) if self.activation else None
            operator = operator_for(activation) if activation is not None else swiglu_of_silu
            if operator is None:
                return own(module, x)  # type: ignore[no-any-return]
            gate = getattr(module, self.gate)(x)
            gate, up = (gate, getattr(module, self.up)(x)) if self.up else gate.chunk(2, dim=-1)
            if gate.dtype == up.dtype and gate.shape == up.shape:
                product = operator(gate, up)
            else:
                product = (activation or nn.functional.silu)(gate) * up
            return getattr(module, self.down)(product)  # type: ignore[no-any-return]

        return _with_the_first_name(own, forward)

    def sample(self, module: Any) -> tuple[Any, ...] | None:
        weight = getattr(getattr(module, self.gate), "weight", None)
        return (
            (torch.randn(3, weight.shape[-1]).to(weight),) if isinstance(weight, Tensor) and weight.dim() == 2 else None
        )


def _with_the_first_name(own: Callable[..., Any], forward: Callable[[Any, Tensor], Tensor]) -> Callable[..., Any]:
    """``forward``, whose tensor may be given by the name that it has in ``own``."""
    name = own.__code__.co_varnames[1]

    def choose(module: Any, *args: Any, **kwargs: Any) -> Tensor:
        if len(args) == 1 and not kwargs:
            return forward(module, args[0])
        if not args and len(kwargs) == 1 and name in kwargs:
            return forward(module, kwargs[name])
        return own(module, *args, **kwargs)  # type: ignore[no-any-return]

    return choose
