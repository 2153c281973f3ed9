"""The reference that an opwheel library declares of an operator, called as the operator is."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from opwheel.dispatch import overloads_of
from opwheel.dispatch.decompositions import decompose
from opwheel.dispatch.overload import Overload
from torch import Tensor


def overload_of(operator: str) -> Overload | None:
    """What an opwheel library declares of the operator with this name; None where none does."""
    namespace, _, name = operator.partition("::")
    try:
        known = overloads_of(torch.library.Library(namespace, "FRAGMENT"))
    except (KeyError, ValueError):
        return None
    return known.get(name.removesuffix(".default"))


def reference_of(operator: str) -> Callable[..., Any]:
    """The declared reference with what rule, schema and formulas add: broadcasting, dtypes, writing, no gradients.

    Raises:
        KeyError: no opwheel library declares the operator.
    """
    overload = overload_of(operator)
    if overload is None:
        raise KeyError(operator)

    @wraps(overload.operator.reference)
    def reference(*args: Any, **kwargs: Any) -> Any:
        values = overload.bind(args, kwargs)
        result = decompose(overload, values)
        if not (overload.is_in_place or overload.is_out) or isinstance(result, tuple):
            return result
        target = values[overload.written[0]]
        if isinstance(result, Tensor) and result is not target:  # the reference of the functional operator
            target.copy_(result)
        return target

    return reference
