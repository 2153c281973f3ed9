"""Calls that a user gives: what a function of inputs yields, as tensors and the rest of the arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from . import calls


class CaseError(Exception):
    """Something that is no call."""

    code = None


class Case(NamedTuple):
    """A call.

    Args:
        tensors: of the arguments.
        template: positional and keyword arguments, as :func:`opwheel_tools.judge.calls.encode` writes them.
        state: of a module, names of the parameters and buffers that are the last of the tensors.
        saved: for tensors that a forward operator has given, Python that makes them of ``t``, the others.
        saving: the name of that operator, or empty.
    """

    tensors: list[Tensor]
    template: Any
    state: tuple[str, ...] = ()
    saved: dict[int, str] = {}  # noqa: RUF012  # never written
    saving: str = ""

    @property
    def inputs(self) -> int:
        """How many of the tensors are arguments."""
        return len(self.tensors) - len(self.state)

    def function(self, callee: Callable[..., Any]) -> Callable[..., Any]:
        """The call as a function of its tensors alone.

        Args:
            callee: takes the arguments; a module takes its state as ``callee.with_state``.
        """
        template, names, inputs = self.template, self.state, self.inputs

        def of(*tensors: Tensor) -> Any:
            args, kwargs = calls.decode(template, tensors)
            if not names:
                return callee(*args, **kwargs)
            state = dict(zip(names, tensors[inputs:], strict=True))
            return callee.with_state(state, args, kwargs)  # type: ignore[attr-defined]

        return of

    def with_state(self, state: dict[str, Tensor]) -> Case:
        """The same call with the state of a module."""
        return self._replace(tensors=[*self.tensors, *state.values()], state=tuple(state))

    def save(self, path: Path) -> None:
        """Write it; tensors keep their strides, and what they share."""
        torch.save(self._asdict(), path)

    @classmethod
    def load(cls, path: Path) -> Case:
        """Read what :meth:`save` wrote, without running code."""
        content = torch.load(path, weights_only=True)
        return cls(**content)


def cases_of(inputs: Any) -> list[Case]:
    """The calls that a user's inputs are.

    Args:
        inputs: a function without parameters, or what it gives: tuples of arguments, ``SampleInput`` or
            :class:`opwheel_tools.Sample` objects, or one list of arguments, as KernelBench's ``get_inputs`` has it.

    Raises:
        CaseError: there is none, or an argument is none that can be passed to another process.
    """
    torch.manual_seed(0)
    try:
        given = inputs() if callable(inputs) else inputs
        given = given if isinstance(given, Tensor) or not isinstance(given, Iterable) else list(given)
    except Exception as error:
        raise CaseError(f"the inputs raise {type(error).__name__}: {error}") from error
    if not isinstance(given, list):
        raise CaseError(f"the inputs are a {type(given).__name__}; yield a tuple of arguments for each call")
    if not any(isinstance(one, tuple) or hasattr(one, "kwargs") for one in given):
        given = [tuple(given)] if given else []
    found = [_case(*_arguments(one)) for one in given]
    if not found:
        raise CaseError("the inputs are empty; yield a tuple of arguments for each call")
    return found


def _arguments(one: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if hasattr(one, "kwargs"):
        first = (one.input,) if hasattr(one, "input") else ()
        return (*first, *one.args), dict(one.kwargs)
    return tuple(one), {}


def _case(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Case:
    tensors: list[Tensor] = []
    try:
        return Case(tensors, calls.encode((args, kwargs), tensors))
    except TypeError as error:
        raise CaseError(f"{error}; give tensors, numbers, strings, dtypes, and lists of these") from error
