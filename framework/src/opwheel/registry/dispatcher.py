"""What PyTorch's dispatcher holds for a namespace: to see what a backend registered and what it left behind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from .._torch_private import has_kernel as torch_has_kernel
from .._torch_private import kernel_registrations, kernels_without_schema, operators_of

# PyTorch's dump of what is registered for each operator, a line for each kernel.
Registrations = dict[str, str]

_NO_KEYS = ("name", "schema", "debug", "alias analysis kind")  # the other lines of a dump


def registrations(namespace: str, operators: Iterable[str]) -> Registrations:
    """Everything that is registered now for these operators, and kernels for operators that nobody has defined."""
    dumps = {operator: kernel_registrations(f"{namespace}::{operator}") for operator in operators}
    for name, dump in kernels_without_schema().items():
        if name.startswith(f"{namespace}::"):
            dumps[name.removeprefix(f"{namespace}::")] = dump
    return dumps


def operator_names(namespace: str) -> set[str]:
    """Every operator that has a schema or a kernel now. Takes milliseconds: it lists all of PyTorch's."""
    return {name.removeprefix(f"{namespace}::") for name in operators_of(namespace)}


def difference(after: Registrations, before: Registrations) -> set[tuple[str, str]]:
    """The (operator, dispatch key) pairs to which something was added; an operator that is new has one with key ""."""
    found = {(operator, "") for operator in after.keys() - before.keys()}
    for operator, dump in after.items():
        for line in _kernels(dump) - _kernels(before.get(operator, "")):
            key, colon, _ = line.partition(": ")
            if colon and key not in _NO_KEYS:
                found.add((operator, key.removesuffix("[alias]")))
    return found


def _kernels(dump: str) -> Counter[str]:
    # The same kernel may be there twice. It is inactive when a later one has replaced it.
    return Counter(dump.replace(" (inactive)", "").splitlines())


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
