"""Models of Hugging Face's transformers, computed by these operators.

What an operator takes the place of is known by identity: classes and functions that transformers defines, unchanged
(:mod:`.unchanged`). A module gets a subclass of its class with another ``forward``; nothing that other models share is
changed. What the operator takes in without calling it, such as the activation, is looked at in every call: hooks and
other changes may come later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache, wraps
from types import CellType, FunctionType, ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from .gated_activations import look_up_activations, operator_for, operator_name, why_no_operator
from .losses import cross_entropy
from .unchanged import (
    has_hooks,
    has_hooks_inside,
    hidden_method,
    is_shipped_function,
    loaded,
    shipped_class,
    why_not_left_out,
)

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

_KINDS = ("RMSNorm", "MLP", "Attention", "RotaryEmbedding", "ForCausalLM")


class Patch:
    """What :func:`patch` has replaced in a model.

    Attributes:
        replaced: the operator by the name of the module that calls it, which is empty for the model itself.
        not_replaced: by the module's name, why no operator takes its place although its class, or a base of it, has the
            name of one of transformers'.
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
    :data:`FAMILIES`: modules whose class is transformers' own, unchanged. Parameters, state dicts and other models stay
    as they are; copies and pickles of the model are patched, too. The model's own code runs where a norm's weight or
    the angles have another dtype than the input, as under autocast, and in each call of a module in which an activation
    or a rotary embedding has been changed, or has got hooks, since: these are called then.

    Args:
        model: one of transformers' models of these families, or a module that has some in it.

    Returns:
        A :class:`Patch`: ``print`` shows what was replaced and what was not, ``restore()`` undoes it.

    Raises:
        ValueError: nothing can be replaced, or a module is patched. Nothing has been replaced then.
    """
    done = Patch()
    known = {name: module for name, module in model.named_modules() if _known(type(module))}
    angles: dict[str, str] = {}  # by the name of what has a rotary embedding: why its angles are not known
    for name, module in known.items():
        if _is_patched(module):
            raise ValueError(f"{name or 'the model'} is patched already")
        if _kind(module) == "RotaryEmbedding":
            angles[name.rpartition(".")[0]] = _obstacle(module)
    is_seen_inside = any(map(has_hooks_inside, model.modules()))
    for name, module in known.items():
        obstacle = _obstacle(module)
        if not obstacle and is_seen_inside and _kind(module) in ("RMSNorm", "ForCausalLM"):  # which may be the last
            obstacle = _SEEN_INSIDE
        if not obstacle and _kind(module) == "Attention":
            obstacle = next((angles[parent] for parent in _parents(name) if parent in angles), _NO_ANGLES)
        if obstacle:
            done.not_replaced[name] = f"{type(module).__name__} ({obstacle})"
            continue
        if _kind(module) != "RotaryEmbedding":  # which computes as before
            done.replaced[name] = _operator(module)
        done._modules.append(module)
    if not done.replaced:
        families = ", ".join(FAMILIES.values())
        raise ValueError(f"no module of {type(model).__name__} can be replaced; known are those of {families}{done}")
    for module in done._modules:
        if _kind(module) == "ForCausalLM":
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


def _patched(own: Any) -> type:
    """A subclass of the same name, of a class with a known ``forward``, that computes it by operators."""
    known = _known(own)
    assert known is not None
    # A pickle may be of another version's class.
    return _subclass(own, known, known.base.forward, known.is_unchanged)


@cache  # by the function as well, which others may replace in the class
def _subclass(own: Any, known: _Known, forward: Any, is_unchanged: bool) -> type:
    base: Any = known.base
    by_operators: Any = _FORWARDS[known.name](forward) if is_unchanged else None

    # What has kept a bound method of a module, such as a wrapper, calls this after the module is restored, too.
    @wraps(forward)
    def choose(self: Any, *args: Any, **kwargs: Any) -> Any:
        current = base.forward
        is_replaced = by_operators and isinstance(self, _Patched) and current is forward
        return (by_operators if is_replaced else current)(self, *args, **kwargs)

    names = {"__module__": own.__module__, "__qualname__": own.__qualname__, "forward": choose}
    return type(own.__name__, (_Patched, own), names)


class _Known(NamedTuple):
    """A class that is transformers' own, or has taken its name or place."""

    base: Any
    name: str
    kind: str
    home: ModuleType | None

    @property
    def is_unchanged(self) -> bool:
        # Whatever is around the forward of attention goes on being called: _rotated() looks at what is inside.
        return self.base is shipped_class(self.name, self.home, but=("forward",) if self.kind == "Attention" else ())


def _known(cls: type) -> _Known | None:
    """The class itself or its first base that is, or looks like, a class that an operator may take the place of."""
    for base in cls.__mro__:
        for family, prefix in FAMILIES.items():
            module = f"transformers.models.{family}.modeling_{family}"
            home = loaded(module)
            for kind in _KINDS:
                name = prefix + kind
                if base is getattr(home, name, None) or (base.__module__, base.__name__) == (module, name):
                    return _Known(base, name, kind, home)
    return None


def _kind(module: nn.Module) -> str:
    known = _known(type(module))
    return known.kind if known else ""


def _parents(name: str) -> Iterator[str]:
    """Of ``a.b.c``: ``a.b``, ``a`` and the empty name of the model."""
    while name:
        name = name.rpartition(".")[0]
        yield name


_SEEN_INSIDE = "register_backward_hook() was called, whose hooks see the gradients of operators inside"
_NO_ANGLES = "no rotary embedding of transformers is in what is patched: patch the whole model"


def _operator(module: Any) -> str:
    kind = _kind(module)
    if kind == "MLP":
        return operator_name(module.act_fn)
    return {"RMSNorm": "rms_norm", "Attention": "rope", "ForCausalLM": "cross_entropy"}[kind]


def _obstacle(module: Any) -> str:
    """What keeps an operator from taking the place of a part of the module; empty if nothing does."""
    known = _known(type(module))
    assert known is not None
    if known.kind == "ForCausalLM":
        return _obstacle_to_loss(module)
    if _without_sharding(type(module)) is not known.base:
        return f"its class is a subclass of {known.name}"
    if not known.is_unchanged:
        return f"its class, or a function of it, is not transformers' own {known.name}"
    if method := hidden_method(module):
        return f"it has a {method} of its own, as by hooks of accelerate: patch() first"
    if known.kind == "RMSNorm":
        is_parameter = module._parameters.get("weight") is not None
        return "" if is_parameter else "its weight is no parameter, as of a pruned or reparametrized module"
    if known.kind == "MLP":
        return why_no_operator(module.act_fn)
    if known.kind == "RotaryEmbedding":
        reason = why_not_left_out(module)
        return f"it {reason}" if reason else ""
    return "" if _rotated(type(module).forward) else "its forward does not call transformers' own apply_rotary_pos_emb"


def _without_sharding(cls: type) -> type:
    """The class that ``fully_shard`` was called with, or the class itself."""
    sharded = getattr(loaded("torch.distributed.fsdp"), "FSDPModule", None)
    is_made = len(cls.__bases__) == 2 and cls.__bases__[0] is sharded and "forward" not in vars(cls)
    return cls.__bases__[1] if is_made else cls


def _obstacle_to_loss(module: Any) -> str:
    functions, models = loaded("transformers.loss.loss_utils"), loaded("transformers.modeling_utils")
    names = ("ForCausalLMLoss", "fixed_cross_entropy")
    are_shipped = functions and all(is_shipped_function(getattr(functions, one, None), functions) for one in names)
    if not are_shipped or getattr(module, "loss_function", None) is not functions.ForCausalLMLoss:  # type: ignore[union-attr]
        return "its loss_function is not ForCausalLMLoss"
    own = getattr(getattr(models, "PreTrainedModel", None), "loss_function", None)
    return "" if getattr(type(module), "loss_function", None) is own else "its class has a loss_function of its own"


def _norm_of_llama(own: Any) -> Any:
    def forward(self: Any, hidden_states: Tensor) -> Tensor:
        if hidden_states.dtype != self.weight.dtype or has_hooks_inside(self):
            return own(self, hidden_states)  # type: ignore[no-any-return]
        return _ops.rms_norm(hidden_states, self.weight, self.variance_epsilon)  # type: ignore[no-any-return]

    return forward


def _norm_of_gemma(own: Any) -> Any:
    def forward(self: Any, x: Tensor) -> Tensor:
        if x.dtype != self.weight.dtype or has_hooks_inside(self) or "_norm" in self.__dict__:
            return own(self, x)  # type: ignore[no-any-return]
        return _ops.rms_norm(x, self.weight, self.eps, 1.0, "gemma")  # type: ignore[no-any-return]

    return forward


def _gated(own: Any) -> Any:
    look_up_activations()

    def forward(self: Any, x: Tensor) -> Tensor:
        operator = operator_for(self.act_fn)
        if operator is None:
            return own(self, x)  # type: ignore[no-any-return]
        gate, up = self.gate_proj(x), self.up_proj(x)
        fit = gate.dtype == up.dtype and gate.shape == up.shape
        return self.down_proj(operator(gate, up) if fit else self.act_fn(gate) * up)  # type: ignore[no-any-return]

    return forward


# Of a table of angles: the version of the tensor when its second half was the same as the first, all that rope reads.
_EQUAL_HALVES = "_transformer_ops_equal_halves"


def _version(table: Tensor) -> int:
    # Of tensors that are compiled, or of inference_mode, there is no version to look at.
    return 0 if torch.compiler.is_compiling() or table.is_inference() else table._version


def _marking(own: Any) -> Any:
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        tables = own(self, *args, **kwargs)
        if not has_hooks(self):  # which may change them
            for table in tables:
                setattr(table, _EQUAL_HALVES, _version(table))
        return tables

    return forward


def _rotated(own: Any) -> Any:
    """The same function with the operator for what it calls ``apply_rotary_pos_emb``; None if that is not known."""
    inner = getattr(own, "__wrapped__", None)
    if inner is not None:  # a decorator's, which has the function in a cell
        changed = _rotated(inner)
        if changed is None or inner not in (cell.cell_contents for cell in own.__closure__ or ()):
            return None
        closure = tuple(CellType(changed) if cell.cell_contents is inner else cell for cell in own.__closure__)
        return _copy(own, own.__code__, closure)
    home = loaded(own.__module__)
    names = own.__code__.co_names
    if home is None or _NAME not in names or not is_shipped_function(own, home):
        return None
    if not all(is_shipped_function(getattr(home, one, None), home) for one in (_NAME, "rotate_half")):
        return None
    # Another name for it, in the module where the function looks: what others replace there later counts.
    setattr(home, _OPERATOR_NAME, _rope(home))
    code = own.__code__.replace(co_names=tuple(_OPERATOR_NAME if name == _NAME else name for name in names))
    return _copy(own, code, own.__closure__)


_NAME = "apply_rotary_pos_emb"
_OPERATOR_NAME = "_apply_rotary_pos_emb_by_transformer_ops"


def _copy(function: Any, code: Any, closure: Any) -> Any:
    copied = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, closure)
    copied.__kwdefaults__ = function.__kwdefaults__
    return copied


@cache
def _rope(home: Any) -> Any:
    shipped, rotate_half = home.apply_rotary_pos_emb, home.rotate_half

    def apply_rotary_pos_emb(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, *rest: Any, **options: Any) -> Any:
        own = home.apply_rotary_pos_emb
        if own is not shipped or home.rotate_half is not rotate_half or rest or options or not _fit(q, k, cos, sin):
            return own(q, k, cos, sin, *rest, **options)
        return _ops.rope(q, k, cos, sin, None, 1)

    return apply_rotary_pos_emb


def _fit(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> bool:
    """Whether these are what a rotary embedding of transformers gives, and what the operator takes."""
    return (
        q.dtype == k.dtype == cos.dtype == sin.dtype
        and q.shape[-1] == k.shape[-1] == cos.shape[-1] == sin.shape[-1]
        and all(getattr(table, _EQUAL_HALVES, None) == _version(table) for table in (cos, sin))
    )


_FORWARDS: dict[str, Callable[[Any], Any]] = {
    family + kind: forward
    for family in FAMILIES.values()
    for kind, forward in (
        ("RMSNorm", _norm_of_gemma if family.startswith("Gemma") else _norm_of_llama),
        ("MLP", _gated),
        ("Attention", _rotated),
        ("RotaryEmbedding", _marking),
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
    """Transformers' ``ForCausalLMLoss``: position i predicts label i + 1. Of logits of every dtype it is float32."""
    if shift_labels is None:
        shift_labels = nn.functional.pad(labels, (0, 1), value=ignore_index)[..., 1:]
    reduction = "mean" if num_items_in_batch is None else "sum"
    target = shift_labels.reshape(-1).to(logits.device)
    loss = cross_entropy(logits.reshape(-1, vocab_size), target, ignore_index=ignore_index, reduction=reduction)
    assert isinstance(loss, Tensor)
    loss = loss.float()
    if isinstance(num_items_in_batch, Tensor):
        num_items_in_batch = num_items_in_batch.to(loss.device)
    return loss if num_items_in_batch is None else loss / num_items_in_batch
