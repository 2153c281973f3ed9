"""Activations of gated feed-forward blocks that an operator computes together with the product."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from .hooks import has_hooks, loaded, shipped_class, why_not_left_out

_ops = torch.ops.transformer_ops


class Activation(NamedTuple):
    """What takes the place of ``activation(gate) * up``.

    Attributes:
        name: of the operator.
        compute: called with ``gate`` and ``up``, tensors of one shape and dtype.
        forward: of the class, as it was shipped.
        is_plain: whether a module of the class computes what its class is named for: it has options.
    """

    name: str
    compute: Callable[[Tensor, Tensor], Tensor]
    forward: Any
    is_plain: Callable[[Any], bool]


def _is_silu(activation: Any) -> bool:
    return not getattr(activation, "inplace", False)  # which overwrites what the projection returned


def _is_gelu(activation: Any) -> bool:
    inner = activation.act
    return inner is nn.functional.gelu or getattr(inner, "__func__", None) is type(activation)._gelu_python


def _is_tanh_gelu(activation: Any) -> bool:
    inner = getattr(activation, "act", None)  # transformers before 5 has no options
    if isinstance(inner, partial):
        return inner.func is nn.functional.gelu and not inner.args and inner.keywords == {"approximate": "tanh"}
    return inner is None or getattr(inner, "__func__", None) is type(activation)._gelu_tanh_python


swiglu_of_silu: Callable[[Tensor, Tensor], Tensor] = _ops.swiglu
"""The operator for :func:`torch.nn.functional.silu`, which has no module that somebody could look at."""

_swiglu = "swiglu", swiglu_of_silu, _is_silu
_tanh_geglu = "geglu", partial(_ops.geglu, approximate="tanh"), _is_tanh_gelu
_BY_CLASS: dict[tuple[str, str], tuple[str, Callable[..., Any], Callable[[Any], bool]]] = {
    ("torch.nn.modules.activation", "SiLU"): _swiglu,
    ("transformers.activations", "SiLUActivation"): _swiglu,
    ("transformers.activations", "GELUTanh"): _tanh_geglu,
    ("transformers.activations", "PytorchGELUTanh"): _tanh_geglu,  # its name before transformers 5
    ("transformers.activations", "GELUActivation"): ("geglu", partial(_ops.geglu, approximate="none"), _is_gelu),
}


_known: dict[type, Activation] = {}


def look_up_activations() -> None:
    """Find the classes that are loaded, and as their library ships them."""
    found = {
        cls: Activation(operator, compute, cls.forward, is_plain)
        for (module, name), (operator, compute, is_plain) in _BY_CLASS.items()
        if (cls := shipped_class(name, loaded(module)))
    }
    _known.update(found)  # never empty: another thread's model may be computing
    for cls in list(_known):
        if cls not in found:
            _known.pop(cls, None)


def operator_for(activation: Any) -> Callable[[Tensor, Tensor], Tensor] | None:
    """The operator for ``activation(gate) * up``; None where somebody would notice that the activation is not called.

    It is asked in every call of a feed-forward block.
    """
    found = _known.get(type(activation))
    if (
        found is None
        or has_hooks(activation)
        or "forward" in activation.__dict__
        or "_call_impl" in activation.__dict__
        or activation._compiled_call_impl is not None
        or type(activation).forward is not found.forward
        or not found.is_plain(activation)
    ):
        return None
    return found.compute


def operator_name(activation: nn.Module) -> str:
    """Of the operator for an activation that has one."""
    return _known[type(activation)].name


def why_no_operator(activation: Any) -> str:
    """Why no operator takes the place of an activation; empty if one does."""
    look_up_activations()
    name = type(activation).__name__
    found = _known.get(type(activation))
    if found is None:
        is_namesake = name in {known for _, known in _BY_CLASS}
        return f"its activation is {type(activation).__module__}.{name}" if is_namesake else f"its activation is {name}"
    if reason := why_not_left_out(activation):
        return f"its activation, {name}, {reason}"
    return "" if found.is_plain(activation) else f"its activation, {name}, has options of its own"
