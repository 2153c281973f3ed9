"""One call of an operator with the tensors of a sample: the statements that are timed with them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from opwheel.dispatch.overload import Overload, as_tuple
from torch import Tensor

from ..opinfo import Sample

Function = Callable[..., Any]
"""Takes the values of all arguments of the schema, in its order."""


class SampleCall:
    """The values of an operator's arguments, in memory of their own."""

    def __init__(self, overload: Overload, sample: Sample) -> None:
        """``sample``: made for this call alone; operators in place change it."""
        self.text = f"{sample!r}"
        self.values = overload.bind(sample.args, sample.kwargs)
        self.tensors = overload.all_tensors(self.values)
        self.inputs = [tensor for tensor in self.tensors if tensor.requires_grad]

    def forward(self, function: Function) -> Callable[[], Any]:
        """The call itself."""
        return partial(function, *self.values)

    def with_backward(self, function: Function) -> Callable[[], Any]:
        """The call and the gradients of all inputs that require one."""
        arriving = _Arriving()

        def forward_and_backward() -> Any:
            results = tuple(result for result in as_tuple(function(*self.values)) if result.requires_grad)
            return torch.autograd.grad(results, self.inputs, arriving.at(results), allow_unused=True)

        return forward_and_backward

    def functional(self, function: Function) -> Callable[[], Any]:
        """The same with ``torch.func.vjp``, for all tensors of floating point."""
        positions = [i for i, v in enumerate(self.values) if isinstance(v, Tensor) and v.is_floating_point()]
        tensors = [self.values[i].detach() for i in positions]

        def of(*given: Tensor) -> tuple[Tensor, ...]:
            every = list(self.values)
            for i, one in zip(positions, given, strict=True):
                every[i] = one
            return tuple(result for result in as_tuple(function(*every)) if result.is_floating_point())

        arriving = _Arriving()

        def forward_and_backward() -> Any:
            pulled: Any = torch.func.vjp(of, *tensors)
            results, pull_back = pulled
            return pull_back(arriving.at(results))

        return forward_and_backward

    @property
    def has_lists(self) -> bool:
        """Whether some argument is a list, which :meth:`functional` does not look into."""
        return any(isinstance(value, (list, tuple)) for value in self.values)


class _Arriving:
    """Gradients of results. The first call makes them, and it is not timed: they are another operator's work."""

    def __init__(self) -> None:
        self._gradients: tuple[Tensor, ...] = ()

    def at(self, results: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        self._gradients = self._gradients or tuple(torch.ones_like(result) for result in results)
        return self._gradients
