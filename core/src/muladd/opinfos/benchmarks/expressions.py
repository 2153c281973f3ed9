"""``a * b + c`` as plain functions: what torch.compile and torch.library.custom_op are given."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from opwheel_tools.bench.suite import Form
from torch import Tensor

import muladd


def _new(a: Tensor, b: Tensor, c: float | Tensor) -> Tensor:
    return a * b + c


def _out(a: Tensor, b: Tensor, c: float | Tensor, out: Tensor) -> None:
    out.copy_(a * b + c)


def _in_place(a: Tensor, b: Tensor, c: float | Tensor) -> None:
    a.copy_(a * b + c)


def _muladd(a: Tensor, b: Tensor, c: float | Tensor) -> Tensor:
    return muladd.muladd(a, b, c)


def compiled(form: Form) -> Callable[..., Any]:
    """The expression under torch.compile, for the shapes of one case."""
    functions: dict[Form, Callable[..., Any]] = {Form.OUT: _out, Form.IN_PLACE: _in_place}
    return _compile(functions.get(form, _new))


def compiled_muladd() -> Callable[..., Any]:
    """``muladd.muladd`` under torch.compile."""
    return _compile(_muladd)


def _compile(function: Callable[..., Any]) -> Callable[..., Any]:
    # Static shapes: the best that the compiler can do.
    return torch.compile(function, fullgraph=True, dynamic=False)


@functools.cache
def custom_operator(form: Form, *, tensor_c: bool) -> Callable[..., Any]:
    """The expression as an operator defined in Python."""
    c = "Tensor c" if tensor_c else "float c"
    kind = "tensor" if tensor_c else "number"
    if form is Form.OUT:
        return torch.library.custom_op(
            f"muladd_bench::out_{kind}",
            _out,
            mutates_args=("out",),
            schema=f"(Tensor a, Tensor b, {c}, Tensor(a!) out) -> ()",
        )
    if form is Form.IN_PLACE:
        return torch.library.custom_op(
            f"muladd_bench::in_place_{kind}",
            _in_place,
            mutates_args=("a",),
            schema=f"(Tensor(a!) a, Tensor b, {c}) -> ()",
        )
    if form is not Form.NEW:
        return custom_operator(Form.NEW, tensor_c=tensor_c)
    operator = torch.library.custom_op(
        f"muladd_bench::new_{kind}", _new, mutates_args=(), schema=f"(Tensor a, Tensor b, {c}) -> Tensor"
    )
    operator.register_autograd(_backward, setup_context=_save)
    return operator


def _save(ctx: Any, inputs: tuple[Tensor, Tensor, object], output: Tensor) -> None:  # noqa: ARG001  # called by name
    ctx.save_for_backward(*inputs[:2])


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
    a, b = ctx.saved_tensors
    return grad * b, grad * a, None
