"""What is refused, and that the message says what was given and what is supported."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from opwheel._torch import private
from opwheel.dispatch.overload import Overload
from opwheel.registry import BackendStatus

from .memory import FREED, make
from .samples import DTYPES, arguments

pytestmark = pytest.mark.subsystem("errors")

REFUSED = (
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.complex64,
    torch.complex128,
    torch.float8_e4m3fn,
)


@pytest.mark.parametrize("refused", REFUSED, ids=str)
def test_dtype(functional: Overload, refused: torch.dtype, device: torch.device) -> None:
    for position, name in enumerate(functional.arguments):
        if name not in functional.tensor_arguments:
            continue
        args = list(arguments(functional, (3, 4), torch.float32, device))
        args[position] = torch.ones((3, 4), device=device).to(refused)
        for call_args in (args, [a.to("meta") if isinstance(a, torch.Tensor) else a for a in args]):
            with pytest.raises(RuntimeError) as caught:
                functional.op(*call_args)
            message = str(caught.value)
            assert functional.name in message
            assert f"'{name}'" in message
            assert str(refused) in message
            assert all(str(dtype) in message for dtype in DTYPES)


def test_sparse(functional: Overload, device: torch.device) -> None:
    args = tuple(
        value.to_sparse() if isinstance(value, torch.Tensor) else value
        for value in arguments(functional, (3, 4), torch.float32, device)
    )
    with pytest.raises(RuntimeError, match=r"to_dense"):
        functional.op(*args)


@pytest.mark.parametrize("layout", [torch.strided, pytest.param(torch.jagged, marks=pytest.mark.takes_long)], ids=str)
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_nested(overload: Overload, layout: torch.layout, device: torch.device) -> None:
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=layout, device=device)
    for refused, call in each_replaced(overload, nested, device):
        with pytest.raises(RuntimeError, match=f"argument '{refused}' is a nested tensor.*torch.strided"):
            call()


def test_none(overload: Overload, device: torch.device) -> None:
    for mode in (torch.enable_grad, torch.no_grad, torch.inference_mode):
        with mode():
            for refused, call in each_replaced(overload, None, device):
                with pytest.raises((TypeError, RuntimeError), match=f"{overload.name}: argument '{refused}' is None"):
                    call()


def each_replaced(overload: Overload, value: Any, device: torch.device) -> Iterator[tuple[str, Callable[[], Any]]]:
    """For each tensor its name and a call with ``value`` in its place."""
    for name in (*overload.tensor_arguments, *(["out"] if overload.is_out else [])):
        args = arguments(overload, (3, 4), torch.float32, device)
        given = {**dict(zip(overload.arguments, args, strict=True)), name: value}
        if overload.is_out:
            given = {"out": torch.zeros((3, 4), device=device), **given}
        yield name, functools.partial(overload.op, **given)


def test_shapes_that_do_not_broadcast(functional: Overload, device: torch.device) -> None:
    if len(functional.tensor_arguments) == 1:
        pytest.skip("one tensor always fits itself")
    shapes = [(3, 4), (2, 4), (3, 4)][: len(functional.tensor_arguments)]
    with pytest.raises(RuntimeError, match=r"\(3, 4\).*\(2, 4\)"):
        functional.op(*arguments(functional, shapes, torch.float32, device))


def test_more_elements_than_pytorch_counts(overload: Overload, device: torch.device) -> None:
    """Each element is 8 bytes in size, and 2^65 is more than fits into a 64-bit number."""
    huge = torch.ones(1, dtype=torch.float64, device=device).expand(2**31, 2**31)
    args = tuple(huge if name in overload.tensor_arguments else 1.5 for name in overload.arguments)
    out = torch.empty(0, dtype=torch.float64, device=device)
    with pytest.raises(RuntimeError, match=r"Storage size calculation overflowed with sizes=.2147483648, 2147483648"):
        overload.op(*args, out=out) if overload.is_out else overload.op(*args)
    assert out.shape == (0,)


@pytest.mark.parametrize("kind", FREED)
def test_memory_that_was_given_back(overload: Overload, kind: str, device: torch.device) -> None:
    for name in (*overload.tensor_arguments, *(["out"] if overload.is_out else [])):
        args = dict(zip(overload.arguments, arguments(overload, (3, 4), torch.float32, device), strict=True))
        if overload.is_out:
            args["out"] = torch.zeros((3, 4), device=device)
        args[name] = make(kind, args[name])
        with pytest.raises(RuntimeError, match=f"'{name}' has no memory"):
            overload.op(**args)


def test_mixed_devices(functional: Overload, device: torch.device) -> None:
    if len(functional.tensor_arguments) == 1:
        pytest.skip("one tensor is always on one device")
    others = ["meta"] if device.type == "cpu" else ["meta", "cpu"]
    for other in others:
        args = list(arguments(functional, (3, 4), torch.float32, device))
        args[functional.arguments.index(functional.tensor_arguments[1])] = torch.ones((3, 4), device=other)
        with pytest.raises(RuntimeError) as caught:
            functional.op(*args)
        assert other in str(caught.value)
        assert device.type in str(caught.value)


def test_the_kernel_itself_checks_devices(functional: Overload, backend: BackendStatus, device: torch.device) -> None:
    """However the tensors got there: a kernel that trusts the dispatcher reads memory of another device."""
    key = private.keyset(backend.dispatch_key)
    for name in functional.tensor_arguments:
        args = list(arguments(functional, (3, 4), torch.float32, device))
        args[functional.arguments.index(name)] = torch.ones((3, 4), device="meta")
        with pytest.raises(RuntimeError, match="meta"):
            functional.op.redispatch(key, *args)


def test_too_many_dimensions(functional: Overload, device: torch.device) -> None:
    args = arguments(functional, (1,) * 64, torch.float32, device)
    assert functional.op(*args) is not None
    args = tuple(v.as_strided((1,) * 65, (1,) * 65) if isinstance(v, torch.Tensor) else v for v in args)
    with pytest.raises(RuntimeError, match="64"):
        functional.op(*args)
