"""What is called: a function with named arguments, and results that have names, too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

Arguments = Mapping[str, Any]


class Subject:
    """A function of named arguments, some of which it may write to.

    Args:
        function: called with the arguments by name; returns a tensor, a tuple of tensors or None.
        results: names of what it returns.
        written: names of the arguments that it writes to.
    """

    def __init__(
        self, function: Callable[..., Any], results: tuple[str, ...] = ("result",), written: tuple[str, ...] = ()
    ) -> None:
        self.function = function
        self.results = results
        self.written = written

    def __call__(self, arguments: Arguments) -> dict[str, Tensor]:
        """Everything that a call gives, by name: results, and arguments that it writes to. The given ones stay."""
        given = {name: _copied(value) if name in self.written else value for name, value in arguments.items()}
        returned = self.function(**given)
        each = returned if isinstance(returned, tuple) else () if returned is None else (returned,)
        outputs = dict(zip(self.results, each, strict=True)) | {name: given[name] for name in self.written}
        return {name: tensor.detach() for name, tensor in outputs.items()}


def _copied(value: Tensor) -> Tensor:
    """A tensor of the same values and strides."""
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device).copy_(value)
