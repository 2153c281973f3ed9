"""Models of Hugging Face's transformers, computed by these operators.

A model's modules are known by the names of their classes, so that transformers is not imported. A module gets a
``forward`` of its own, which hides that of its class; nothing that other models share is changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor, nn

from .losses import cross_entropy

_ops = torch.ops.transformer_ops

FAMILIES = {
    "llama": "Llama",
    "qwen2": "Qwen2",
    "qwen3": "Qwen3",
    "gemma": "Gemma",
    "gemma2": "Gemma2",
    "gemma3": "Gemma3",
}
"""The folder of a model in transformers, and what its classes' names begin with."""

_ACTIVATIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "SiLU": _ops.swiglu,
    "SiLUActivation": _ops.swiglu,
    "GELUTanh": partial(_ops.geglu, approximate="tanh"),
    "GELUActivation": partial(_ops.geglu, approximate="none"),
}


class Patch:
    """What :func:`patch` has replaced in a model.

    Attributes:
        replaced: the operator by the name of the module that calls it, which is empty for the model itself.
    """

    def __init__(self) -> None:
        self.replaced: dict[str, str] = {}
        self._undo: list[Callable[[], None]] = []

    def restore(self) -> None:
        """Make the model compute as it did before. A second call does nothing."""
        while self._undo:
            self._undo.pop()()

    def __str__(self) -> str:
        counts = Counter(self.replaced.values())
        return ", ".join(f"{count} {operator}" for operator, count in counts.items())

    def _set(self, name: str, module: nn.Module, attribute: str, value: Any, operator: str) -> None:
        # In the module's own dictionary: the class keeps what it has.
        vars(module)[attribute] = value
        self.replaced[name] = operator
        self._undo.append(partial(vars(module).pop, attribute, None))


def patch(model: nn.Module) -> Patch:
    """Let a Llama, Qwen or Gemma model of Hugging Face's transformers compute by these operators, in place.

    Replaced are RMS norms, gated activations, rotary embeddings, and the loss of ``...ForCausalLM``, in models of
    :data:`FAMILIES`. Parameters, state dicts and other models stay as they are. Where a norm's weight or the angles
    have another dtype than the input, as under autocast, the model's own code runs.

    Args:
        model: one of transformers' models of these families, or a module that has some in it.

    Returns:
        A :class:`Patch`: ``print`` shows what was replaced, ``restore()`` undoes it.

    Raises:
        ValueError: nothing in the model is known, or a module already has a ``forward`` of its own.
    """
    done = Patch()
    for name, module in model.named_modules():
        operator, forward = _forward_for(module)
        if forward is None:
            continue
        if "forward" in vars(module):
            done.restore()
            raise ValueError(f"{name} already has a forward of its own; is the model patched?")
        done._set(name, module, "forward", forward, operator)
    for name, module in model.named_modules():
        loss = getattr(module, "loss_function", None) if _kind(module).startswith("ForCausalLM") else None
        if getattr(loss, "__name__", "") == "ForCausalLMLoss" and "_loss_function" not in vars(module):
            done._set(name, module, "_loss_function", _causal_lm_loss, "cross_entropy")
    if not done.replaced:
        known = ", ".join(FAMILIES.values())
        raise ValueError(f"{type(model).__name__} has no module that is known; known are those of {known}")
    return done


def _kind(module: nn.Module) -> str:
    """The class's name without the family's: ``RMSNorm``; empty if the module is of none."""
    package, _, family = type(module).__module__.rpartition(".modeling_")
    if package != f"transformers.models.{family}" or family not in FAMILIES:
        return ""
    name = type(module).__name__
    return name.removeprefix(FAMILIES[family]) if name.startswith(FAMILIES[family]) else ""


def _forward_for(module: nn.Module) -> tuple[str, Any]:
    """The operator, and the method that takes the place of the module's; None if there is no such method."""
    kind = _kind(module)
    if kind == "RMSNorm":
        return "rms_norm", MethodType(_norm_of_gemma if hasattr(module, "eps") else _norm_of_llama, module)
    if kind == "MLP":
        activation = _ACTIVATIONS.get(type(module.act_fn).__name__)
        operator = "swiglu" if activation is _ops.swiglu else "geglu"
        return operator, activation and MethodType(partial(_gated, activation), module)
    forward = type(module).forward
    if kind == "Attention" and "apply_rotary_pos_emb" in forward.__code__.co_names:
        return "rope", MethodType(_with_rope(forward), module)
    return "", None


def _norm_of_llama(module: Any, hidden_states: Tensor) -> Tensor:
    if hidden_states.dtype != module.weight.dtype:
        return type(module).forward(module, hidden_states)  # type: ignore[no-any-return]
    return _ops.rms_norm(hidden_states, module.weight, module.variance_epsilon)  # type: ignore[no-any-return]


def _norm_of_gemma(module: Any, x: Tensor) -> Tensor:
    if x.dtype != module.weight.dtype:
        return type(module).forward(module, x)  # type: ignore[no-any-return]
    return _ops.rms_norm(x, module.weight, module.eps, 1.0, "gemma")  # type: ignore[no-any-return]


def _gated(activation: Callable[[Tensor, Tensor], Tensor], module: Any, x: Tensor) -> Tensor:
    return module.down_proj(activation(module.gate_proj(x), module.up_proj(x)))  # type: ignore[no-any-return]


def _with_rope(forward: Any) -> Any:
    """The same function, whose global name ``apply_rotary_pos_emb`` is the operator."""
    own = forward.__globals__["apply_rotary_pos_emb"]

    def apply_rotary_pos_emb(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, unsqueeze_dim: int = 1) -> Any:
        if not q.dtype == k.dtype == cos.dtype == sin.dtype:
            return own(q, k, cos, sin, unsqueeze_dim)
        return _ops.rope(q, k, cos, sin, None, unsqueeze_dim)

    # Without the module's name: torch.compile would look there for what is global.
    names = {key: value for key, value in forward.__globals__.items() if key != "__name__"}
    names["apply_rotary_pos_emb"] = apply_rotary_pos_emb
    changed = FunctionType(forward.__code__, names, forward.__name__, forward.__defaults__, forward.__closure__)
    changed.__kwdefaults__ = forward.__kwdefaults__
    return changed


def _causal_lm_loss(
    logits: Tensor,
    labels: Tensor,
    vocab_size: int,
    num_items_in_batch: Tensor | int | None = None,
    ignore_index: int = -100,
    shift_labels: Tensor | None = None,
    **_: Any,
) -> Tensor:
    """Transformers' ``ForCausalLMLoss``: position i predicts label i + 1. Logits stay in their dtype."""
    if shift_labels is None:
        shift_labels = nn.functional.pad(labels, (0, 1), value=ignore_index)[..., 1:]
    reduction = "mean" if num_items_in_batch is None else "sum"
    target = shift_labels.reshape(-1).to(logits.device)
    loss = cross_entropy(logits.reshape(-1, vocab_size), target, ignore_index=ignore_index, reduction=reduction)
    assert isinstance(loss, Tensor)
    return loss if num_items_in_batch is None else loss / num_items_in_batch
