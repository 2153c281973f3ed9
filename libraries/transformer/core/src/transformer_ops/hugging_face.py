"""Models of Hugging Face's transformers, computed by these operators.

A model's modules are known by the names of their classes, so that transformers is not imported. A module gets a
subclass of its class with another ``forward``; nothing that other models share is changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache, partial, wraps
from types import CellType, FunctionType
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
    "PytorchGELUTanh": partial(_ops.geglu, approximate="tanh"),  # its name before transformers 5
    "GELUActivation": partial(_ops.geglu, approximate="none"),
}


class Patch:
    """What :func:`patch` has replaced in a model.

    Attributes:
        replaced: the operator by the name of the module that calls it, which is empty for the model itself.
        not_replaced: by the module's name, why an operator does not take its place although its class is known.
    """

    def __init__(self) -> None:
        self.replaced: dict[str, str] = {}
        self.not_replaced: dict[str, str] = {}
        self._modules: list[nn.Module] = []

    def restore(self) -> None:
        """Make the model compute as it did before, as :func:`unpatch` does. A second call does nothing."""
        _restore(self._modules)
        self._modules.clear()

    def __str__(self) -> str:
        groups = (Counter(names.values()).items() for names in (self.replaced, self.not_replaced))
        replaced, not_replaced = (", ".join(f"{count} {what}" for what, count in group) for group in groups)
        return f"{replaced}; not replaced: {not_replaced}" if not_replaced else replaced


def patch(model: nn.Module) -> Patch:
    """Let a Llama, Qwen or Gemma model of Hugging Face's transformers compute by these operators, in place.

    Replaced are RMS norms, gated activations, rotary embeddings, and the loss of ``...ForCausalLM``, in models of
    :data:`FAMILIES` and in subclasses that keep their ``forward``. Parameters, state dicts and other models stay as
    they are; copies and pickles of the model are patched, too. Where a norm's weight or the angles have another dtype
    than the input, as under autocast, or an activation is none of these operators', the model's own code runs.

    Args:
        model: one of transformers' models of these families, or a module that has some in it.

    Returns:
        A :class:`Patch`: ``print`` shows what was replaced and what was not, ``restore()`` undoes it.

    Raises:
        ValueError: nothing can be replaced, or a module is patched or has a ``forward`` in its own dictionary. Nothing
            has been replaced then.
    """
    done = Patch()
    for name, module in model.named_modules():
        if not _known(type(module))[1]:
            continue
        if _is_patched(module):
            raise ValueError(f"{name or 'the model'} is patched already")
        operator, obstacle = _operator_for(module)
        if obstacle:
            done.not_replaced[name] = f"{type(module).__name__} ({obstacle})"
            continue
        if operator != "cross_entropy" and "forward" in vars(module):
            raise ValueError(f"{name or 'the model'} has a forward of its own, as hooks of accelerate: patch() first")
        done.replaced[name] = operator
        done._modules.append(module)
    if not done.replaced:
        families = ", ".join(FAMILIES.values())
        raise ValueError(f"no module of {type(model).__name__} can be replaced; known are those of {families}{done}")
    for module in done._modules:
        if _known(type(module))[1] == "ForCausalLM":
            vars(module)["_loss_function"] = _causal_lm_loss
        else:
            module.__class__ = _patched(type(module))
    return done


def unpatch(model: nn.Module) -> None:
    """Make a patched model, or a copy of one, compute by its own code again.

    What others have put around a module's ``forward`` since stays, and calls the module's own code.

    Args:
        model: a module; what is not patched in it stays as it is.

    Raises:
        ValueError: a module's class has been made from the patched one, as ``fully_shard`` does. Nothing has changed
            then.
    """
    _restore(model.modules())


def _restore(modules: Iterable[nn.Module]) -> None:
    patched = [module for module in modules if _is_patched(module)]
    for module in patched:
        if isinstance(module, _Patched) and _Patched not in type(module).__bases__:
            raise ValueError(f"the class {type(module).__name__} was made from a patched one, as by fully_shard()")
    for module in patched:
        if isinstance(module, _Patched):
            module.__class__ = _own(type(module))
        else:
            del vars(module)["_loss_function"]


class _Patched:
    """A base of the classes that :func:`_patched` makes, which pickle would not find: they have the names of others."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        made = super().__reduce_ex__(protocol)
        if _Patched not in type(self).__bases__ or isinstance(made, str):
            return made
        construct, arguments, *state = made
        arguments = tuple(_own(type(self)) if argument is type(self) else argument for argument in arguments)
        return _construct_patched, (construct, *arguments), *state


def _construct_patched(construct: Callable[..., Any], *arguments: Any) -> Any:
    module = construct(*arguments)
    module.__class__ = _patched(type(module))
    return module


def _is_patched(module: nn.Module) -> bool:
    return isinstance(module, _Patched) or vars(module).get("_loss_function") is _causal_lm_loss


def _own(patched: type) -> type:
    """The class that :func:`_patched` was called with."""
    return patched.__bases__[1]


def _patched(own: type) -> type:
    """A subclass of the same name, of a class with a known ``forward``, that computes it by operators."""
    known, _ = _known(own)
    return _subclass(own, known.__name__, known.forward)


@cache  # by the function as well, which others may replace in the class
def _subclass(own: Any, known: str, forward: Any) -> type:
    by_operators = _FORWARDS[known](forward) or forward  # a pickle may be of another version's forward

    # What has kept a bound method of a module, such as a wrapper, calls this after the module is restored, too.
    @wraps(forward)
    def choose(self: Any, *args: Any, **kwargs: Any) -> Any:
        return (by_operators if isinstance(self, _Patched) else forward)(self, *args, **kwargs)

    names = {"__module__": own.__module__, "__qualname__": own.__qualname__, "forward": choose}
    return type(own.__name__, (_Patched, own), names)


def _known(cls: type) -> tuple[Any, str]:
    """The class itself or its first base that an operator may take the place of, and its name without the family's."""
    for base in cls.__mro__:
        package, _, family = base.__module__.rpartition(".modeling_")
        if package == f"transformers.models.{family}" and family in FAMILIES:
            for kind in ("RMSNorm", "MLP", "Attention", "ForCausalLM"):
                if base.__name__ == FAMILIES[family] + kind:
                    return base, kind
    return None, ""


def _operator_for(module: Any) -> tuple[str, str]:
    """The operator that takes a part of the module, or what keeps it from that."""
    known, kind = _known(type(module))
    if kind == "ForCausalLM":
        own = getattr(getattr(module, "loss_function", None), "__name__", "") == "ForCausalLMLoss"
        return "cross_entropy", "" if own else "its loss_function is not ForCausalLMLoss"
    if type(module).forward is not known.forward:
        return "", f"its forward is not that of {known.__name__}"
    if kind == "RMSNorm":
        return "rms_norm", ""
    if kind == "MLP":
        name = type(module.act_fn).__name__
        operator = "swiglu" if _ACTIVATIONS.get(name) is _ops.swiglu else "geglu"
        return operator, "" if name in _ACTIVATIONS else f"its activation is {name}"
    return "rope", "" if _rotated(known.forward) else "its forward does not call apply_rotary_pos_emb"


def _norm_of_llama(own: Any) -> Any:
    def forward(self: Any, hidden_states: Tensor) -> Tensor:
        if hidden_states.dtype != self.weight.dtype:
            return own(self, hidden_states)  # type: ignore[no-any-return]
        return _ops.rms_norm(hidden_states, self.weight, self.variance_epsilon)  # type: ignore[no-any-return]

    return forward


def _norm_of_gemma(own: Any) -> Any:
    def forward(self: Any, x: Tensor) -> Tensor:
        if x.dtype != self.weight.dtype:
            return own(self, x)  # type: ignore[no-any-return]
        return _ops.rms_norm(x, self.weight, self.eps, 1.0, "gemma")  # type: ignore[no-any-return]

    return forward


def _gated(own: Any) -> Any:
    def forward(self: Any, x: Tensor) -> Tensor:
        activation = _ACTIVATIONS.get(type(self.act_fn).__name__)
        if activation is None:
            return own(self, x)  # type: ignore[no-any-return]
        return self.down_proj(activation(self.gate_proj(x), self.up_proj(x)))  # type: ignore[no-any-return]

    return forward


def _rotated(own: Any) -> Any:
    """The same function, whose global name ``apply_rotary_pos_emb`` is the operator; None if it has no such name."""
    inner = getattr(own, "__wrapped__", None)
    if inner is not None:  # a decorator's, which has the function in a cell
        changed = _rotated(inner)
        if changed is None or inner not in (cell.cell_contents for cell in own.__closure__ or ()):
            return None
        closure = tuple(CellType(changed) if cell.cell_contents is inner else cell for cell in own.__closure__)
        return _copy(own, own.__globals__, closure)
    if "apply_rotary_pos_emb" not in own.__code__.co_names:
        return None
    # Without the module's name: torch.compile would look there for what is global.
    names = {key: value for key, value in own.__globals__.items() if key != "__name__"}
    names["apply_rotary_pos_emb"] = _rope(own.__globals__["apply_rotary_pos_emb"])
    return _copy(own, names, own.__closure__)


def _copy(function: Any, names: dict[str, Any], closure: Any) -> Any:
    copied = FunctionType(function.__code__, names, function.__name__, function.__defaults__, closure)
    copied.__kwdefaults__ = function.__kwdefaults__
    return copied


def _rope(own: Any) -> Any:
    def apply_rotary_pos_emb(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, unsqueeze_dim: int = 1) -> Any:
        if not q.dtype == k.dtype == cos.dtype == sin.dtype:
            return own(q, k, cos, sin, unsqueeze_dim)
        return _ops.rope(q, k, cos, sin, None, unsqueeze_dim)

    return apply_rotary_pos_emb


_FORWARDS = {
    family + kind: forward
    for family in FAMILIES.values()
    for kind, forward in (
        ("RMSNorm", _norm_of_gemma if family.startswith("Gemma") else _norm_of_llama),
        ("MLP", _gated),
        ("Attention", _rotated),
    )
}


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
    if isinstance(num_items_in_batch, Tensor):
        num_items_in_batch = num_items_in_batch.to(loss.device)
    return loss if num_items_in_batch is None else loss / num_items_in_batch
