"""Whether a kernel in Python returned what its operator promises.

What is promised is what the rule's fake kernel gives: shape, dtype, strides and device without computing. Nobody else
would notice: PyTorch takes what a kernel returns, and compiled code is made for what the fake kernel says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .._torch import private
from .kernel_errors import LAUNCH
from .overlap import apart
from .overload import Overload, as_tuple, tensors_in

_Values = tuple[Any, ...]

MOST_KINDS = 1000  # of calls of a kernel that are compared: a string may be another one in every call


class ResultError(RuntimeError):
    """What an author's function returned is not what the operator promises."""

    code = "OPWHEEL-E003"


def checked(
    overload: Overload, kernel: Callable[..., Any], check: bool | None, owner: Callable[[], str]
) -> Callable[..., Any]:
    """The kernel, with results that are compared with those of the rule's fake kernel.

    Args:
        overload: that the kernel computes.
        kernel: for the dispatcher.
        check: as ``Policy.check``. True: every call; False: none; None: the first call of each kind, which is the
            dtypes, the numbers of dimensions, and which sizes are 0 or 1.
        owner: says, for the message, whose kernel it is.
    """
    seen: set[tuple[Any, ...]] = set()

    def call(*args: Any, **kwargs: Any) -> Any:
        values = overload.bind(args, kwargs)
        kind = tuple([_kind(value) for value in values]) if check is None else None
        is_compared = check if kind is None else kind not in seen and len(seen) < MOST_KINDS
        promise = _promise(overload, values) if is_compared else None
        try:
            results = kernel(*args, **kwargs)
            if promise is not None:
                _compare(overload, values, results, *promise)
        except ResultError as error:
            # The code says that the call must not be made again: it may have written.
            code = f"{LAUNCH} " if overload.mutates else ""
            raise ResultError(f"{code}{error}; the kernel is {owner()}") from error
        if is_compared and kind is not None:
            seen.add(kind)
        return results

    return call


def check_written(overload: Overload, values: tuple[Any, ...], results: Any) -> None:
    """What a function of an operator that only writes may return: nothing, or what it wrote to.

    Raises:
        ResultError: it has returned something else, which would be lost.
    """
    written = list(tensors_in(values[i] for i in overload.written))
    for result in as_tuple(results):
        if not any(result is one or (isinstance(result, Tensor) and private.is_alias(result, one)) for one in written):
            names = " and ".join(f"'{overload.names[i]}'" for i in overload.written)
            raise ResultError(
                f"{overload.qualified_name}: its kernel returned {describe(result)}, which would be lost, expected "
                f"None: the result is to be written into {names}"
            )


def check_count(overload: Overload, given: tuple[Any, ...]) -> None:
    """Refuse what are not as many dense tensors as the schema has results.

    Raises:
        ResultError: saying what they are.
    """
    expected = len(overload.schema.returns)
    if len(given) != expected or not all(isinstance(one, Tensor) and one.layout is torch.strided for one in given):
        shown = ", ".join(map(describe, given)) or "nothing"
        raise ResultError(f"{overload.qualified_name}: its kernel returned {shown}; the schema has {expected} Tensors")


def copy_results(name: str, given: tuple[Any, ...], outputs: tuple[Tensor, ...]) -> None:
    """Round what a function of an element-wise operator returned into the operator's results.

    Raises:
        ResultError: it is not one floating-point tensor for each, of its shape, on its device, that has its precision.
    """
    if len(given) != len(outputs):
        raise ResultError(f"{name}: its kernel returned {len(given)} values, the schema has {len(outputs)}")
    for i, (output, result) in enumerate(zip(outputs, given, strict=True)):
        if not isinstance(result, Tensor) or not _can_be_rounded(result, output):
            raise ResultError(
                f"{name}: its kernel returned {describe(result)} as result {i}, expected {describe(output)}, or a "
                "wider floating-point dtype"
            )
    for output, result in zip(outputs, given, strict=True):
        output.copy_(result)


def _can_be_rounded(result: Tensor, output: Tensor) -> bool:
    return (
        result.shape == output.shape
        and result.device == output.device
        and result.layout is output.layout
        and result.is_floating_point()
        and torch.promote_types(result.dtype, output.dtype) == result.dtype
    )


def describe(value: Any, device: torch.device | None = None) -> str:
    """What was returned, or is expected: ``float32[3, 4] on cpu`` for a tensor, else the name of its class."""
    if not isinstance(value, Tensor):
        return "None" if value is None else type(value).__name__
    layout = "" if value.layout is torch.strided else f" of layout {str(value.layout).removeprefix('torch.')}"
    return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)} on {device or value.device}{layout}"


def owner_of(function: Callable[..., Any]) -> str:
    """A function, as a message names it."""
    return f"{getattr(function, '__module__', None)}.{getattr(function, '__qualname__', type(function).__qualname__)}"


def _kind(value: Any) -> Any:
    """What a call has in common with others that a kernel treats alike: values are left out, sizes are 0, 1 or more."""
    if isinstance(value, Tensor):
        return value.dtype, *[min(size, 2) for size in value.shape]
    if isinstance(value, (list, tuple)):
        return min(len(value), 2), frozenset([_kind(one) for one in value])
    return value if isinstance(value, (bool, str, torch.dtype)) else type(value)


def _promise(overload: Overload, values: tuple[Any, ...]) -> tuple[_Values, _Values] | None:
    """Results as the fake kernel gives them, and the arguments as it leaves them; None where it cannot tell.

    On the device "meta", not under FakeTensorMode: no mode that the caller is in is to see it, and it costs less.
    """
    stand_ins = tuple([_stand_in(value, "meta") for value in values])
    if (named := overload.device_argument) is not None:
        stand_ins = (*stand_ins[:named], torch.device("meta"), *stand_ins[named + 1 :])
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        try:
            return as_tuple(overload.rule.fake(overload, stand_ins)), stand_ins
        except Exception:  # a reference that looks at values; a fake of the operator's own may do without
            return _with_unknown_sizes(overload, values) if overload.operator.fake else None


def _with_unknown_sizes(overload: Overload, values: tuple[Any, ...]) -> tuple[_Values, _Values] | None:
    """The same for a fake kernel that asks for sizes which depend on values."""
    with private.fake_mode_with_unknown_sizes():
        stand_ins = tuple([_stand_in(value, None) for value in values])
        try:
            return as_tuple(overload.call(overload.op, stand_ins)), stand_ins
        except Exception:
            return None


def _stand_in(value: Any, device: str | None) -> Any:
    """The argument without memory. There are no generators of random numbers for such tensors."""
    if isinstance(value, Tensor):
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=device or value.device)
    if isinstance(value, (list, tuple)):
        return [_stand_in(one, device) for one in value]
    return None if isinstance(value, torch.Generator) else value


def _compare(
    overload: Overload, values: tuple[Any, ...], results: Any, expected: tuple[Any, ...], stand_ins: tuple[Any, ...]
) -> None:
    """Compare results, and what is written to, with the promise.

    Raises:
        ResultError: naming the first that differs, what it is and what is expected.
    """
    is_one = len(overload.schema.returns) == 1
    given = (results,) if is_one else as_tuple(results)
    check_count(overload, given)
    source = "fake" if overload.operator.fake else "reference"
    devices = _devices(overload, values)
    for name, result, wanted in zip(overload.result_names, given, expected, strict=True):
        if _differs(result, wanted, devices):
            shown = describe(wanted, devices[0] if wanted.device.type == "meta" else None)
            raise ResultError(
                f"{overload.qualified_name}: its kernel returned {describe(result)} as '{name}', expected {shown}, as "
                f"the operator's {source} gives"
            )
        if not _same_strides(result, wanted):
            raise ResultError(
                f"{overload.qualified_name}: its kernel returned '{name}' with strides {result.stride()}, expected "
                f"{wanted.stride()}, as {overload.rule!r} has them"
            )
    for i in overload.written:
        for one, wanted in zip(tensors_in([values[i]]), tensors_in([stand_ins[i]]), strict=True):
            if _differs(one, wanted, devices):
                raise ResultError(
                    f"{overload.qualified_name}: its kernel left '{overload.names[i]}' as {describe(one)}, expected "
                    f"{describe(wanted, one.device)}, as the operator's {source} leaves it"
                )
    for name, result, own in zip(overload.result_names, given, apart(given, overload.all_tensors(values)), strict=True):
        if result is not own:
            raise ResultError(
                f"{overload.qualified_name}: its kernel returned '{name}' in the memory of an argument or of another "
                "result, expected a new tensor, as the schema says: return a clone"
            )


def _devices(overload: Overload, values: tuple[Any, ...]) -> list[torch.device]:
    """Where results are that the fake kernel has beside its arguments: with one of these, or on a named device."""
    named = None if overload.device_argument is None else values[overload.device_argument]
    devices = [] if named is None else [torch.device(named)]
    devices += [tensor.device for tensor in overload.all_tensors(values)]
    return devices or [torch.get_default_device()]


def _differs(result: Tensor, wanted: Tensor, devices: list[torch.device]) -> bool:
    """Whether dtype, shape or device differ, as far as they are known."""
    allowed = devices if wanted.device.type == "meta" else [wanted.device]
    return (
        result.dtype != wanted.dtype
        or result.dim() != wanted.dim()
        or any(isinstance(size, int) and size != own for size, own in zip(wanted.shape, result.shape, strict=True))
        or not any(_same_device(result.device, device) for device in allowed)
    )


def _same_device(device: torch.device, other: torch.device) -> bool:
    return device.type == other.type and (device.index == other.index or None in (device.index, other.index))


def _same_strides(result: Tensor, wanted: Tensor) -> bool:
    """Whether strides agree where they lead from one element to another."""
    steps = zip(result.shape, result.stride(), wanted.stride(), strict=True)
    return not result.numel() or all(
        size < 2 or not isinstance(stride, int) or own == stride for size, own, stride in steps
    )
