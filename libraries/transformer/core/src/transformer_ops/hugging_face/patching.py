"""Models of Hugging Face's transformers, computed by these operators.

What an operator takes the place of is known by its code (:mod:`.known_code`), whatever its class is called. A module
gets a subclass of its class with another ``forward``; nothing that other models share is changed. What the operator
takes in without calling it, such as the activation, is looked at in every call: hooks and other changes may come later.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache, wraps
from typing import Any

from torch import nn

from .causal_lm import CausalLM, Head, causal_lm_loss, head_of
from .form import Form
from .hooks import has_hooks_inside, hidden_method, loaded
from .known_code import TESTED, form_of, is_registered, sample_differs, why_unknown
from .rotations import HALVES, PAIRS, Attention, RotaryEmbedding

_FAMILIAR = re.compile("(RMSNorm|MLP|Attention|RotaryEmbedding|ForCausalLM)$")


class Patch:
    """What :func:`patch` has replaced in a model.

    Attributes:
        replaced: the operator, or two as in ``"rope and attention"``, by the name of the module that calls them, which
            is empty for the model itself.
        not_replaced: by the module's name, why no operator takes its place although its class, or a base of it, has a
            name such as transformers' classes that it can take the place of.
        note: what is not certain, such as that transformers is of a release that has not been tested; or empty.
    """

    def __init__(self) -> None:
        self.replaced: dict[str, str] = {}
        self.not_replaced: dict[str, str] = {}
        self.note = _untested_release()
        self._modules: list[nn.Module] = []

    def restore(self) -> None:
        """Make the model compute as it did before, as :func:`unpatch` does. A second call does nothing."""
        _restore(self._modules)
        self._modules.clear()

    def operators(self) -> dict[str, int]:
        """How many modules call each operator."""
        return dict(Counter(operator for names in self.replaced.values() for operator in names.split(" and ")))

    def __str__(self) -> str:
        groups = (names.items() for names in (self.operators(), Counter(self.not_replaced.values())))
        replaced, not_replaced = (", ".join(f"{count} {what}" for what, count in group) for group in groups)
        text = f"{replaced}; not replaced: {not_replaced}" if not_replaced else replaced
        return f"{text}; {self.note}" if self.note else text


def _untested_release() -> str:
    release = getattr(loaded("transformers"), "__version__", None)
    if release is None or release in TESTED:
        return ""
    return f"transformers {release} has not been tested ({', '.join(TESTED)} have): replaced is what has the same code"


def patch(model: nn.Module, *, defer_logits: bool = True) -> Patch:
    """Let a model of Hugging Face's transformers compute by these operators, in place.

    Replaced are norms, gated activations, rotary embeddings, and the head with the loss of ``...ForCausalLM``: modules
    whose code is code that is known, whatever the class is called. Causal attention by PyTorch's function, without a
    mask and of as many keys as queries, is computed by :func:`attention` in float32 and float64 on a CPU, where it is
    faster. Parameters, state dicts and other models stay as they are; copies and pickles of the model are patched, too.
    The model's own code runs where a norm's weight or the angles have another dtype than the input, as under autocast,
    and in each call of a module in which an activation or a rotary embedding has been changed, or has got hooks, since:
    these are called then.

    Where the model is called with ``labels``, the loss is computed without all logits in memory, by
    :func:`fused_linear_cross_entropy`. ``out.logits`` is a tensor all the same, whose values are computed when somebody
    uses it, and which raises a :class:`RuntimeError` if the head's weights have changed by then, as by the optimizer.
    Compiled models compute their logits, and the loss by :func:`cross_entropy`.

    Args:
        model: a model of transformers, or a module that has some of its modules in it.
        defer_logits: whether logits wait until somebody uses them; False: they are computed with the loss.

    Returns:
        A :class:`Patch`: ``print`` shows what was replaced and what was not, ``restore()`` undoes it.

    Raises:
        ValueError: nothing can be replaced, or a module is patched. Nothing has been replaced then.
    """
    done = Patch()
    forms = _forms(model)
    for name, module in model.named_modules():
        if _is_patched(module):
            raise ValueError(f"{name or 'the model'} is patched already")
    obstacles = {name: _obstacle(module, forms[type(module)]) for name, module in model.named_modules()}
    # By the name of what has a rotary embedding: why its angles are not known.
    angles = {
        name.rpartition(".")[0]: obstacles[name]
        for name, module in model.named_modules()
        if isinstance(forms[type(module)], RotaryEmbedding)
    }
    is_seen_inside = any(map(has_hooks_inside, model.modules()))
    for name, module in model.named_modules():
        form, obstacle = forms[type(module)], obstacles[name]
        if form is None:
            if _has_familiar_name(type(module)):
                done.not_replaced[name] = f"{type(module).__name__} ({why_unknown(type(module))})"
            continue
        if not obstacle and is_seen_inside and form.is_last:
            obstacle = _SEEN_INSIDE
        if not obstacle and isinstance(form, Attention) and form.rotation.tables in (HALVES, PAIRS):
            obstacle = next((angles[parent] for parent in _parents(name) if parent in angles), _NO_ANGLES)
        if obstacle:
            done.not_replaced[name] = f"{type(module).__name__} ({obstacle})"
            continue
        if operator := form.operator(module):
            done.replaced[name] = operator
        done._modules.append(module)
        if isinstance(form, CausalLM) and defer_logits:
            _add_head(done, name, module)
    if not done.replaced:
        raise ValueError(f"no module of {type(model).__name__} can be replaced{done}")
    for module in done._modules:
        module.__class__ = _patched(type(module))
        if isinstance(form_of(_own(type(module))), CausalLM):
            vars(module)["_loss_function"] = causal_lm_loss
    return done


def _forms(model: nn.Module) -> dict[type, Form | None]:
    """What modules of each class in the model compute, but for heads, which are linear layers like others."""
    forms = {cls: form_of(cls) for cls in {type(module) for module in model.modules()}}
    return {cls: None if isinstance(form, Head) else form for cls, form in forms.items()}


def _add_head(done: Patch, name: str, model: nn.Module) -> None:
    """Let the head of a model be computed with its loss, if that is possible."""
    head = head_of(model)
    obstacle = Head().obstacle(head) if head is not None else "the model does not say which module it is"
    if obstacle or head is None:
        where = next((inner for inner, module in model.named_modules() if module is head), "its head")
        done.not_replaced[f"{name}.{where}" if name else where] = f"{type(head).__name__} ({obstacle})"
        return
    done.replaced[name] = "fused_linear_cross_entropy"
    if not any(module is head for module in done._modules):
        done._modules.append(head)


def _has_familiar_name(cls: type) -> bool:
    """Whether the class, or a base of it, has a name such as those of which modules are replaced."""
    return any(_FAMILIAR.search(base.__name__) and not base.__module__.startswith("torch.") for base in cls.__mro__)


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
        if _Patched not in type(module).__bases__:
            raise ValueError(f"the class {type(module).__name__} was made from a patched one, as by fully_shard()")
    for module in patched:
        module.__class__ = _own(type(module))
        if vars(module).get("_loss_function") is causal_lm_loss:
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
    return isinstance(module, _Patched)


def _own(patched: type) -> type:
    """The class that :func:`_patched` was called with."""
    return patched.__bases__[1]


def _patched(own: Any) -> type:
    """A subclass of the same name, that computes ``forward`` by operators if the code of ``own`` is known."""
    # A pickle may be of another version's class, whose code is not.
    return _subclass(own, own.forward, form_of(own))


@cache  # by the function as well, which others may replace in the class
def _subclass(own: Any, forward: Any, form: Form | None) -> type:
    by_operators: Any = form and form.forward(forward)

    # What has kept a bound method of a module, such as a wrapper, calls this after the module is restored, too.
    @wraps(forward)
    def choose(self: Any, *args: Any, **kwargs: Any) -> Any:
        current = own.forward
        is_replaced = by_operators and isinstance(self, _Patched) and current is forward
        return (by_operators if is_replaced else current)(self, *args, **kwargs)

    names = {"__module__": own.__module__, "__qualname__": own.__qualname__, "forward": choose}
    return type(own.__name__, (_Patched, own), names)


def _parents(name: str) -> Iterator[str]:
    """Of ``a.b.c``: ``a.b``, ``a`` and the empty name of the model."""
    while name:
        name = name.rpartition(".")[0]
        yield name


_SEEN_INSIDE = "register_backward_hook() was called, whose hooks see the gradients of operators inside"
_NO_ANGLES = "no rotary embedding of known code is in what is patched: patch the whole model"


def _obstacle(module: Any, form: Form | None) -> str:
    """What keeps an operator from taking the place of a part of the module; empty if nothing does."""
    if form is None:
        return ""
    if method := hidden_method(module):
        return f"it has a {method} of its own, as by hooks of accelerate: patch() first"
    if obstacle := form.obstacle(module):
        return obstacle
    return sample_differs(module, form, type(module).forward) if is_registered(type(module)) else ""
