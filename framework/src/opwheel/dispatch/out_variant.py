"""The declaration of ``name.out``, made from that of ``name``: the same results, written into a tensor of the caller's.

For rules other than Elementwise(), whose variants come from their loops.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from .declaration import Operator
from .overlap import check_elements_apart
from .overload import Overload
from .rules import Opaque


class OutVariant(Opaque):
    """The rule of an out variant that is made from its operator's declaration."""

    def functionalize(self, overload: Overload) -> Callable[..., Any]:
        """A call of the operator that gives a new result, and a copy into ``out``.

        PyTorch would keep the out variant in the graph, where inductor drops a clone that makes ``out`` apart from the
        arguments (pytorch/pytorch#198031).
        """
        functional = overload.sibling(overload.name.removesuffix(".out"))
        assert functional is not None  # whose declaration this one is made from

        def kernel(*args: Any, out: Tensor, **kwargs: Any) -> None:
            result = functional.op(*args, **kwargs)
            _check_out(out, result)
            check_elements_apart(overload, out)
            out.copy_(result)

        return kernel


def out_variant(operator: Operator) -> Operator:
    """The out variant of an operator with one result: without gradients, its other arguments as they are.

    What computes it gets a tensor ``out`` of the result's shape, dtype and device, and raises RuntimeError for another:
    nothing is resized.
    """
    return Operator(
        name=f"{operator.name}.out",
        reference=_writing(operator.reference),
        rule=OutVariant(),
        derivatives=None,
        fake=_writing(operator.fake) if operator.fake else None,
    )


def _writing(compute: Callable[..., Any]) -> Callable[..., None]:
    def write(*args: Any, out: Tensor, **kwargs: Any) -> None:
        result = compute(*args, **kwargs)
        _check_out(out, result)
        out.copy_(result)

    return write


def _check_out(out: Tensor, result: Tensor) -> None:
    for what in ("shape", "dtype", "device"):
        given, expected = getattr(out, what), getattr(result, what)
        if given != expected:
            shown = (tuple(one) if what == "shape" else one for one in (given, expected))
            problem = "argument 'out' has {} {}, but the result has {}".format(what, *shown)
            raise RuntimeError(f"{problem}; pass a tensor like the result, which is not resized or converted")
