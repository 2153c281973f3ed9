"""Checks of the kernel itself: values, layouts, memory, errors."""

from __future__ import annotations

import gc
import math
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from opwheel._torch import private
from opwheel.dispatch import Rows
from opwheel.dispatch.overload import Overload, tensors_in
from opwheel.memory.usage import kept_by, quick_garbage_collection
from torch import Tensor
from torch.utils import _pytree as pytree

from ...invariance.inputs import LAYOUTS, room_for
from ...opinfo.lookup import op_info_of
from ...opinfo.samples import Sample
from ..guarded_memory import Guards, guarded_memory
from .agreement import (
    agree,
    agree_on_written,
    check_raises,
    has_derivatives,
    has_fractions,
    raises,
    real_parts,
    run_kernel,
    run_reference,
    scaled,
    widened,
)
from .applicable import NotApplicableError, of_the_reference, shown
from .cases import Samples, with_other_numbers

MANY_CALLS = 100
MANY_ROWS = 10_000
MOST_ELEMENTS = 1 << 22  # of an argument
LEAST_BLOCK = 16  # bytes; the C library hands out no fewer


def values(overload: Overload, samples: Samples) -> None:
    """The kernel's results and what it writes are the reference's, whatever the memory held before."""
    given, expected = samples.values(), samples.values()
    with uninitialized_memory_filled():
        got = run_kernel(overload, given)
    want = run_reference(overload, expected)
    if overload.is_random:
        assert [(t.shape, t.dtype) for t in got] == [(t.shape, t.dtype) for t in want]
        return
    if not overload.mutates:
        exact = _in_float64(overload, samples) or want
        pairs = zip(want, exact, strict=True)
        want = tuple(e.to(w.dtype) if w.is_floating_point() and e.shape == w.shape else w for w, e in pairs)
        floats = [t.dtype for t in overload.all_tensors(given) if t.is_floating_point()]
        agree(overload, "values", got, want, max((torch.finfo(dtype).eps for dtype in floats), default=0.0))
    before = samples.values()
    for i in overload.tensor_positions:
        is_written = i in overload.written
        name = f"'{overload.names[i]}', which is {'' if is_written else 'not '}written to"
        source = expected if is_written else before
        agree(overload, name, list(tensors_in([given[i]])), list(tensors_in([source[i]])))


def _in_float64(overload: Overload, samples: Samples) -> tuple[Any, ...] | None:
    """The reference's results there; None where it computes in other dtypes alone."""
    try:
        return run_reference(overload, widened(samples.values()))
    except Exception as error:
        samples.left_out.append(f"in float64: the reference raises {shown(error)}")
        return None


def many_rows(overload: Overload, samples: Samples) -> None:
    """The sample's rows again and again give the same results: kernels share out thousands of rows among threads."""
    if not isinstance(overload.rule, Rows) or overload.is_random:
        return
    own = overload.rule.own
    given = samples.values()
    tensors = {i: given[i] for i, name in enumerate(overload.names) if name in own}
    rows = min(math.prod(x.shape[: x.dim() - own[overload.names[i]]]) for i, x in tensors.items())
    largest = max(x.numel() for x in tensors.values())
    if not rows or not largest:
        return
    times = min(MANY_ROWS // rows, MOST_ELEMENTS // largest)
    want = [result.expand(times, *result.shape) for result in run_kernel(overload, given)]
    repeated = [x.expand(times, *x.shape).contiguous() if i in tensors else x for i, x in enumerate(given)]
    with uninitialized_memory_filled():
        got = run_kernel(overload, tuple(repeated))
    agree(overload, f"{times * rows} rows", got, want)


def large_numbers(overload: Overload, samples: Samples) -> None:
    """Numbers a hundred times as large: the kernel is right where the reference in their dtype is."""
    if overload.is_random or overload.mutates:
        return
    given = with_other_numbers(overload, samples.values(), lambda x: scaled(x.detach(), 100))
    with of_the_reference("numbers a hundred times as large"):
        found, exact = (run_reference(overload, values) for values in (given, widened(given)))
    want = [e.to(f.dtype) if e.shape == f.shape else f for f, e in zip(found, exact, strict=True)]
    try:
        agree(overload, "the reference", found, want)
    except AssertionError as error:
        raise NotApplicableError("numbers a hundred times as large: the reference is not right there") from error
    inexact = [x.dtype for x in found if has_fractions(x)]
    coarsest = max((torch.finfo(dtype).eps for dtype in inexact), default=0.0)
    agree(overload, "numbers a hundred times as large", run_kernel(overload, given), want, 4 * coarsest)


def repeatable(overload: Overload, samples: Samples) -> None:
    """The same call gives the same results, also in several threads at once."""
    if overload.is_random:
        return
    want = run_kernel(overload, samples.values())
    found: list[Any] = []
    given = [samples.values() for _ in range(4)]  # not in the threads: their random numbers are the process's
    threads = [threading.Thread(target=lambda v=v: found.append(run_kernel(overload, v))) for v in given]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == len(threads), "a call in a thread failed"
    for got in found:
        agree(overload, "in a thread", got, want)


def layouts(overload: Overload, samples: Samples) -> None:
    """Arguments with gaps, an offset or transposed: the same values, and nothing is written out of their bounds."""
    if overload.is_random:
        return
    want = run_kernel(overload, expected := samples.values())
    for name in LAYOUTS:
        rooms: list[tuple[Tensor, Tensor, Tensor]] = []

        def laid_out(value: Any, name: str = name, rooms: list[Any] = rooms) -> Any:
            return _in_room(value, name, rooms) if isinstance(value, Tensor) else value

        given = pytree.tree_map(laid_out, samples.values())
        got = run_kernel(overload, given)
        agree(overload, f"{name} arguments", got, want)
        for room, mask, before in rooms:
            assert torch.equal(room[mask], before[mask]), f"{name} arguments: written outside of an argument"
        agree_on_written(overload, f"{name} arguments", given, expected)


def bounds(overload: Overload, samples: Samples) -> None:
    """Nothing is written out of the bounds of arguments, results and the kernel's working memory, on a CPU."""
    with guarded_memory() as guards:
        given = samples.values()
        results = run_kernel(overload, given)
        for i in overload.tensor_positions:
            _check_guards(guards, tensors_in([given[i]]), f"argument '{overload.names[i]}'")
        for i, result in enumerate(results):
            _check_guards(guards, [result], f"result {i}")
    assert not guards.anywhere, f"the kernel writes {guards.anywhere} memory that it works with"


def _check_guards(guards: Guards, tensors: Iterable[Tensor], name: str) -> None:
    for tensor in tensors:
        place = guards.damage(tensor)
        assert not place, f"the kernel writes {place} {name}"


def _in_room(value: Tensor, layout: str, rooms: list[Any]) -> Tensor:
    """The value as a part of a larger tensor, which is noted with a mask of what is around it."""
    room, view = room_for(value, layout, _poison(value.dtype))
    inside = torch.zeros_like(room, dtype=torch.bool)
    inside.as_strided(view.shape, view.stride(), view.storage_offset()).fill_(True)
    view.copy_(value)
    before = room.clone()
    rooms.append((room, ~inside, before))
    return view


def _poison(dtype: torch.dtype) -> Any:
    return True if dtype is torch.bool else 77


def versions(overload: Overload, samples: Samples) -> None:
    """What is written to counts as modified, and nothing else does."""
    given = samples.values()
    tensors = [(i, t, t._version) for i in overload.tensor_positions for t in tensors_in([given[i]])]
    run_kernel(overload, given)
    for i, t, before in tensors:
        is_written = i in overload.written
        assert (t._version > before) == is_written, (
            f"the version counter of '{overload.names[i]}' went from {before} to {t._version}, but it is "
            f"{'' if is_written else 'not '}written to"
        )


def aliases(overload: Overload, samples: Samples) -> None:
    """Results are new tensors: neither arguments nor one another."""
    given = samples.values()
    results = run_kernel(overload, given)
    arguments = _memories(overload.all_tensors(given))
    new = sum(result.numel() > 0 for result in results)
    assert len(arguments | _memories(results)) == len(arguments) + new, "a result shares memory"


def _memories(tensors: Iterable[Tensor]) -> set[int]:
    return {private.storage_address(tensor.untyped_storage()) for tensor in tensors if tensor.numel()}


def freed(overload: Overload, samples: Samples) -> None:
    """Nothing is kept once results and gradients are gone."""
    with quick_garbage_collection():
        given = samples.values(requires_grad=has_derivatives(overload))
        results = run_kernel(overload, given)
        if any(r.requires_grad for r in results):
            torch.autograd.backward([real_parts(r).sum() for r in results if r.requires_grad])
        watched = [weakref.ref(t) for t in (*overload.all_tensors(given), *results)]
        del given, results
        gc.collect()
    assert not any(ref() is not None for ref in watched), "a tensor of the call is still alive after it"


def growth(overload: Overload, samples: Samples) -> None:
    """A call leaves no memory allocated, on a CPU: neither PyTorch's, for tensors, nor any other of the C library's.

    PyTorch counts what its allocator allocates and frees. A string or a shape that is never freed is small, but it
    lies between large blocks of the C library's heap that then can't be joined, so that the process may grow by those.
    """
    given = [samples.values() for _ in range(2)]
    run_kernel(overload, given[0])  # fills what is kept on purpose, such as code for a first call
    profiled = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True)
    with quick_garbage_collection(), profiled as counted:
        run_kernel(overload, given[1])
        gc.collect()  # what a kernel in Python leaves behind may refer to itself, as in Triton's interpreter
    left = sum(event.self_cpu_memory_usage for event in counted.key_averages())
    assert left == 0, f"{left} bytes are still allocated after a call, and its results are gone"

    def many_calls() -> None:
        for _ in range(MANY_CALLS):
            run_kernel(overload, given[0])

    tolerated = LEAST_BLOCK * MANY_CALLS - 1
    left = kept_by(many_calls, tolerated) or 0
    assert left <= tolerated, f"{MANY_CALLS} calls leave {left} bytes allocated, besides tensors' memory, each time"


def errors(overload: Overload, samples: Samples) -> None:
    """What is declared to be refused is refused, and so are samples, a tensor changed, that the reference refuses.

    The reference refuses what is declared as well, but for tensors without elements: it computes where there is no
    kernel.
    What is refused for its values alone would be the last that an accelerator does in this process: see refusals.py.
    """
    declared = op_info_of(overload).errors
    if declared is not None and samples.index == 0:
        for one in declared(samples.device):
            if one.by_values and samples.device.type != "cpu":
                continue
            check_raises(one.error, one.match, partial(overload.op, *one.sample.args, **one.sample.kwargs))
            if samples.device.type == "cpu" and _reference_computes(overload, one.sample):
                raise AssertionError(f"{one.sample!r} is declared to be refused, and the reference computes something")
    for i in overload.tensor_positions:
        for what, change in _CHANGES.items():
            given, again = (_with_changed(samples.values(), i, change) for _ in range(2))
            if given is None or again is None or not _refuses(overload, given, samples):
                continue
            if not raises(partial(run_kernel, overload, again)):
                raise AssertionError(
                    f"'{overload.names[i]}' has {what}: the reference refuses it, the kernel computes something"
                )


def _reference_computes(overload: Overload, sample: Sample) -> bool:
    """Whether it does; of tensors without elements, which one that broadcasts may take, it is not asked."""
    try:
        given = overload.bind(sample.args, sample.kwargs)
    except TypeError:  # they are no arguments of it
        return False
    return all(tensor.numel() for tensor in overload.all_tensors(given)) and not raises(
        partial(run_reference, overload, given)
    )


_OTHER_DTYPES = {torch.float64: torch.float32, torch.float32: torch.float64, torch.int64: torch.int32}
# What a kernel that does not look would read too much or too little of; None where there is nothing to change.
_CHANGES: dict[str, Callable[[Tensor], Tensor | None]] = {
    "one more in its last dimension": lambda x: torch.cat([x, x[..., -1:]], -1) if x.dim() and x.shape[-1] else None,
    "one less in its last dimension": lambda x: x[..., :-1] if x.dim() and x.shape[-1] > 1 else None,
    "one more in its first dimension": lambda x: torch.cat([x, x[-1:]]) if x.dim() > 1 and x.shape[0] else None,
    "a dimension less": lambda x: x[0] if x.dim() and x.shape[0] else None,
    "a dimension more": lambda x: x.unsqueeze(0),
    "another dtype": lambda x: x.to(_OTHER_DTYPES[x.dtype]) if x.dtype in _OTHER_DTYPES else None,
}


def _with_changed(
    values: tuple[Any, ...], position: int, change: Callable[[Tensor], Tensor | None]
) -> tuple[Any, ...] | None:
    given = values[position]
    changed = change(given) if isinstance(given, Tensor) else None
    return None if changed is None else (*values[:position], changed, *values[position + 1 :])


def _refuses(overload: Overload, changed: tuple[Any, ...], samples: Samples) -> bool:
    """Whether the reference refuses the arguments; on an accelerator, for something else than values in tensors."""

    def refused(values: tuple[Any, ...], device: str) -> bool:
        there = pytree.tree_map_only(Tensor, lambda x: x.to(device), values)
        return raises(partial(run_reference, overload, there))

    if samples.device.type == "cpu":
        return raises(partial(run_reference, overload, changed))
    # There are no values on the device "meta"; some references want them, and refuse everything there.
    return refused(changed, "cpu") and refused(changed, "meta") and not refused(samples.values(), "meta")


@contextmanager
def uninitialized_memory_filled() -> Iterator[None]:
    """New tensors hold nan, or the largest number, until they are written to."""
    settings: Any = torch.utils.deterministic
    was, fill = torch.are_deterministic_algorithms_enabled(), settings.fill_uninitialized_memory
    settings.fill_uninitialized_memory = True
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.use_deterministic_algorithms(True, warn_only=True)
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(was)
            settings.fill_uninitialized_memory = fill
