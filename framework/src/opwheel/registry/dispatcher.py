"""What PyTorch's dispatcher holds for a namespace: to see what a plugin registered and what it left behind.

PyTorch's functions say whether there is a kernel, but not whether another one has taken its place. That is only in the
text of its dump, a line for each kernel. :func:`why_unreadable` checks that this PyTorch writes it as it is read here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import pairwise
from typing import Any

from .._namespace import NAMESPACE
from .._once import once
from .._torch.private import (
    define_operator,
    dispatch_keys,
    has_fallback,
    kernel_registrations,
    kernels_without_schema,
    operators_defined_in_python,
    operators_of,
    register_kernel,
    uses_fallback,
    why_registrations_are_not_seen,
)
from .._torch.private import has_kernel as torch_has_kernel

# PyTorch's dump of what is registered for each operator, a line for each kernel.
Registrations = dict[str, str]

# An operator and a dispatch key; the key "" stands for the operator's definition.
Pair = tuple[str, str]

# Stands for the operator where a kernel serves all that have none of their own: PyTorch's fallback for a key.
EVERY = "*"

_INACTIVE = " (inactive)"  # what is said of a kernel that a later one has replaced
_NO_KEYS = ("name", "schema", "debug", "alias analysis kind")  # the other lines of a dump


def registrations(namespace: str, operators: Iterable[str]) -> Registrations:
    """Everything that is registered now for these operators, and whatever else can be seen without listing all.

    That is what torch.library has defined, kernels for operators that nobody has defined, and the fallbacks.
    """
    defined = (name.removeprefix(f"{namespace}::") for name in operators_defined_in_python(namespace))
    dumps = {operator: kernel_registrations(f"{namespace}::{operator}") for operator in {*operators, *defined}}
    for name, dump in kernels_without_schema().items():
        if name.startswith(f"{namespace}::"):
            dumps[name.removeprefix(f"{namespace}::")] = dump
    dumps[EVERY] = "\n".join(f"{name}: a fallback" for name, key in _dispatch_keys().items() if has_fallback(key))
    return {operator: dump for operator, dump in dumps.items() if dump}


@cache
def _dispatch_keys() -> dict[str, Any]:
    return dispatch_keys()


def operator_names(namespace: str) -> set[str]:
    """Every operator that has a schema or a kernel now. Takes milliseconds: it lists all of PyTorch's."""
    return {name.removeprefix(f"{namespace}::") for name in operators_of(namespace)}


def difference(after: Registrations, before: Registrations) -> dict[Pair, str]:
    """Where something was added, with the source line that did it as far as PyTorch knows it.

    An operator that is new has a pair with key "".
    """
    found = {(operator, ""): "" for operator in after.keys() - before.keys()}
    for operator, dump in after.items():
        earlier = before.get(operator, "")
        if dump == earlier:  # most are
            continue
        for line in _kernels(dump) - _kernels(earlier):
            key, colon, text = line.partition(": ")
            if colon and key not in _NO_KEYS:
                found[operator, key.removesuffix("[alias]")] = _place(text)
    return found


def _kernels(dump: str) -> Counter[str]:
    # The same kernel may be there twice.
    return Counter(dump.replace(_INACTIVE, "").splitlines())


def _place(text: str) -> str:
    return text.partition("registered at ")[2].partition(" :: ")[0]


def foreign(dumps: Registrations) -> dict[Pair, str]:
    """Kernels from elsewhere than the operator's definition, as :func:`difference` gives them; fallbacks are not."""
    own = {operator: _definition(dump) for operator, dump in dumps.items()}
    found = difference({operator: dump for operator, dump in dumps.items() if operator != EVERY}, {})
    return {(operator, key): place for (operator, key), place in found.items() if key and place != own[operator]}


def _definition(dump: str) -> str:
    return next((_place(line) for line in dump.splitlines() if line.startswith("debug: ")), "")


def is_active(dump: str, key: str, place: str) -> bool:
    """Whether a kernel that was registered in that source line is still the one that runs."""
    starts = (f"{key}: registered at {place} ", f"{key}[alias]: registered at {place} ")
    return any(line.startswith(starts) for line in dump.splitlines())


@once
def why_unreadable() -> str:
    """Why one cannot see what is registered in this PyTorch; empty if one can.

    Looks at an operator that is there for this alone: its definition, a kernel, another one in its place, and one at an
    alias of keys. (PyTorch warns of a kernel that replaces another at all keys but Meta.)
    """
    if missing := why_registrations_are_not_seen():
        return missing
    operator = f"{NAMESPACE}::registrations"
    registered = [define_operator(f"{operator}(Tensor x) -> Tensor")]
    dumps = [kernel_registrations(operator)]
    for key in ("Meta", "Meta", "Autograd"):
        registered.append(register_kernel(operator, key, lambda x: x))
        dumps.append(kernel_registrations(operator))
    place = _definition(dumps[0])
    seen = [difference({"": after}, {"": before}) for before, after in pairwise(dumps)]
    fallbacks = (key for key, value in _dispatch_keys().items() if key != "Meta" and has_fallback(value))
    if (
        place
        and seen == [{("", "Meta"): place}, {("", "Meta"): place}, {("", "Autograd"): place}]
        and dumps[-1].count(_INACTIVE) == 1
        and all(is_active(dumps[-1], key, place) for key in ("Meta", "Autograd"))
        and uses_fallback(operator, next(fallbacks, ""))
        and not uses_fallback(operator, "Meta")
    ):
        return ""
    return (
        "one cannot see which kernels plugins register: PyTorch lists them in other words than this opwheel reads, and "
        "a kernel that replaces another's would not be noticed"
    )


def has_kernel(namespace: str, operator: str, key: str) -> bool:
    """Whether a kernel for exactly this dispatch key is registered."""
    return torch_has_kernel(f"{namespace}::{operator}", key)


def is_dispatch_key(namespace: str, operator: str, key: str) -> bool:
    """Whether PyTorch knows the key; any operator serves to ask."""
    try:
        torch_has_kernel(f"{namespace}::{operator}", key)
    except RuntimeError:
        return False
    return True


def describe(pairs: Iterable[Pair]) -> str:
    """Pairs in words."""
    found = set(pairs)
    undefined = {operator for operator, key in found if key == ""}
    texts = [f"{operator} (not an operator of this library)" for operator in undefined]
    for operator, key in found:
        if operator == EVERY:
            texts.append(f"a fallback for every operator at {key}")
        elif operator not in undefined:
            texts.append(f"{operator} at {key}")
    return ", ".join(sorted(texts))


def listed(added: Mapping[Pair, str]) -> str:
    """Pairs in words, with the source lines."""
    places = ", ".join(sorted(set(added.values()) - {""}))
    return describe(added) + (f" (at {places})" if places else "")
