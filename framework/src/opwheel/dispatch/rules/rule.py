"""The interface of rules."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from ..overload import Overload


class Rule(ABC):
    """What is done with the calls of an operator, apart from computing them.

    Attributes:
        fuses: whether inductor does best with the reference in the place of a call.
        has_batches: whether :meth:`batches` says which dimensions are free.
        has_variants: whether the rule carries out and in-place variants itself; else ``name.out`` is declared like any
            other operator that writes (:mod:`..out_variant`).

    ``values`` are a call's arguments in the schema's order, defaults filled in. Each method but ``check`` is called
    with arguments that its overload's schema admits.
    """

    fuses = False
    has_batches = False
    has_variants = False

    @abstractmethod
    def check(self, overload: Overload) -> None:
        """Refuse, when it is registered, an overload that the rule cannot carry.

        Raises:
            ValueError: naming the schema, the argument and a way out (:func:`refuse`).
        """

    @abstractmethod
    def decompose(self, overload: Overload, values: tuple[Any, ...]) -> Any:
        """The results from ATen operators, differentiable and batchable by whatever PyTorch does that with.

        It stands in for the kernel where PyTorch has to see inside: forward mode, ``torch.func``, ``vmap`` without a
        rule, decomposition tables.
        """

    @abstractmethod
    def reference(self, overload: Overload, values: tuple[Any, ...]) -> Any:
        """The results as a kernel gives them, in dtype and strides: where no backend has one and ATen may compute."""

    @abstractmethod
    def fake(self, overload: Overload, values: tuple[Any, ...]) -> Any:
        """Empty results for fake arguments, with the shape, dtype and strides that a kernel's have."""

    @abstractmethod
    def vmap(self, overload: Overload, size: int, in_dims: tuple[Any, ...], values: tuple[Any, ...]) -> Any:
        """Results and their batch dimensions of a call with ``size`` examples in one.

        Args:
            overload: what is called.
            size: of the batch dimension.
            in_dims: for each value where its batch dimension is; None where it has none; a list for a list.
            values: of the arguments, with their batch dimensions.

        Returns:
            ``(results, out_dims)``, or None: decompose instead.
        """

    def placements(self, overload: Overload) -> tuple[str, ...]:
        """What DTensor can compute without communication by this claim, in the notation of :mod:`..placements`."""
        del overload
        return ()

    @abstractmethod
    def python_kernel(self, overload: Overload, function: Callable[..., Any]) -> Callable[..., Any]:
        """The kernel for the dispatcher from a function of an operator's author in Python, with checks around it."""

    def batches(self, overload: Overload, values: tuple[Any, ...]) -> list[dict[str, int]]:
        """The free dimensions of one call: for each the dimension of every argument and result that has it, by name."""
        del overload, values
        return []

    def functionalize(self, overload: Overload) -> Callable[..., Any] | None:
        """A kernel that removes mutation from a graph; None where PyTorch does it (``auto_functionalized``)."""
        del overload
        return None


def refuse(overload: Overload, problem: str, way_out: str) -> NoReturn:
    """Refuse a declaration.

    Raises:
        ValueError: with the schema, what is wrong with it, and what to write instead.
    """
    raise ValueError(f"{overload.namespace}::{overload.schema_text}: {problem}; {way_out}")
