"""A check for each claim about bits; each raises :class:`~.bits.DifferenceError` where two calls differ."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .bits import check_same
from .inputs import (
    LAYOUTS,
    Numbers,
    divisions,
    laid_out,
    part,
    resized,
    rows_in,
    split_rows,
    widened,
)
from .subject import Arguments, Subject

MOST_ELEMENTS = 1 << 17  # of all arguments
# On both sides of the widths of vector registers, unrolled loops and blocks.
BORDERS = (1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 64, 65, 127, 128, 129)
THREADS = (1, 2, 3)
AT_ONCE = 4


class Sizes(NamedTuple):
    """How large the arguments are made.

    Args:
        rows: of a batch that parts are compared with.
        many: the same, once; 0: no such call.
        positions: of a sequence that prefixes are compared with.
        divided: rows that are divided into leading dimensions, a number with many divisors.
        widths: of last dimensions, if they are larger than those given.
    """

    rows: int = 67
    many: int = 1027
    positions: int = 131
    divided: int = 60
    widths: tuple[int, ...] = (9, 33, 131)


class Call:
    """One call of a subject, whose results' bits are to be the same in other circumstances.

    Args:
        subject: what is called.
        arguments: by name; tensors without gradients.
        dimensions: what the claim is about: of arguments and results, by name. For claims that have none, the dimension
            of rows that may be more, if there is one.
        numbers: which tensors may hold other values.
        sizes: how large the arguments are made.

    Attributes:
        left_out: what was not tried, and why.
    """

    def __init__(
        self,
        subject: Subject,
        arguments: Arguments,
        dimensions: Mapping[str, int],
        numbers: Numbers | None = None,
        sizes: Sizes = Sizes(),  # noqa: B008  # cannot be changed
    ) -> None:
        self.subject = subject
        self.arguments = arguments
        self.dimensions = dimensions
        self.numbers = numbers or Numbers()
        self.sizes = sizes
        self.left_out: list[str] = []

    @property
    def has_rows(self) -> bool:
        """Whether there may be more rows: there are some, and they are not empty."""
        named = [self.arguments[name] for name in self.dimensions if name in self.arguments]
        return rows_in(self.arguments, self.dimensions) is not None and all(tensor.numel() for tensor in named)

    def resized(self, rows: int) -> dict[str, Any]:
        """The arguments with so many rows, or with fewer where they would be too large; as they are without rows."""
        if not self.has_rows:
            return dict(self.arguments)
        named = [name for name in self.dimensions if name in self.arguments]
        sizes = {name: self.arguments[name].shape[self.dimensions[name]] for name in named}
        of_a_row = sum(self.arguments[name].numel() // size for name, size in sizes.items())
        return resized(self.arguments, self.dimensions, min(rows, max(2, MOST_ELEMENTS // of_a_row)), self.numbers)

    def in_widths(self, arguments: Arguments) -> Iterator[tuple[str, Arguments]]:
        """The arguments, and the same with a longer last dimension, wherever there is one of the same size."""
        yield "", arguments
        for name, dim in self.dimensions.items():
            value = arguments.get(name)
            if isinstance(value, Tensor) and dim not in (-1, value.dim() - 1) and value.shape[-1]:
                for width in self.sizes.widths:
                    if width > value.shape[-1]:
                        yield f", {width} wide", widened(arguments, value.shape[-1], width, self.numbers)
                return

    def outputs(self, what: str, arguments: Arguments) -> dict[str, Tensor] | None:
        """The results; None, and a note, where the subject refuses the width: the next ones are not tried then."""
        if not what:
            return self.subject(arguments)
        try:
            return self.subject(arguments)
        except Exception as error:
            self.left_out.append(f"arguments{what}: {type(error).__name__}: {error}")
            return None


def batch(call: Call) -> None:
    """Parts of the arguments give the same parts of the results: single rows, many rows, from odd places on."""
    if call.has_rows:
        _compare_parts(call, call.in_widths(call.resized(call.sizes.rows)), _parts)
        if call.sizes.many:
            _compare_parts(call, [("", call.resized(call.sizes.many))], _few_parts)


def prefix(call: Call) -> None:
    """The first elements of the arguments give the first elements of the results."""
    if call.has_rows:
        wide = call.in_widths(call.resized(call.sizes.positions))
        _compare_parts(call, wide, lambda size: ((0, stop) for stop in BORDERS if stop < size))
    else:
        call.left_out.append("prefixes of dimensions with different sizes")


def _parts(size: int) -> Iterator[tuple[int, int]]:
    """Where parts of so many elements begin and end."""
    yield from ((place, place + 1) for place in (0, size // 2, size - 1))
    yield from ((0, stop) for stop in BORDERS[1:] if stop < size)
    yield from ((start, size) for start in (1, size - 2) if 0 < start < size)
    yield from ((5, 5 + count) for count in (2, 7, 16) if 5 + count < size)


def _few_parts(size: int) -> Iterator[tuple[int, int]]:
    """The same of many elements."""
    yield from ((place, place + 1) for place in (0, size - 1))
    yield from ((3, 3 + stop) for stop in (64, size // 2))


def _compare_parts(
    call: Call, cases: Iterable[tuple[str, Arguments]], parts: Callable[[int], Iterator[tuple[int, int]]]
) -> None:
    for what, given in cases:
        whole = call.outputs(what, given)
        size = rows_in(given, call.dimensions)
        if whole is None or size is None:
            break
        named = {name: dim for name, dim in call.dimensions.items() if name in whole}
        for start, stop in parts(size):
            found = call.subject(part(given, call.dimensions, start, stop))
            expected = part(whole, named, start, stop)
            check_same(f"[{start}:{stop}] of {size}{what}", found, {name: expected[name] for name in named})


def order(call: Call) -> None:
    """The same rows in the same order give the same bits, whatever dimensions and threads they are divided into."""
    if not all(call.arguments[name].numel() for name in call.dimensions):
        return
    rows = split_rows(call.arguments, call.dimensions, (-1,))
    flat = Call(call.subject, rows, dict.fromkeys(call.dimensions, 0), call.numbers, call.sizes)
    for count in filter(None, (call.sizes.divided, call.sizes.many)):
        for what, given in flat.in_widths(flat.resized(count)):
            want = flat.outputs(what, given)
            if want is None:
                break
            size = rows_in(given, flat.dimensions) or 0
            for leading in divisions(size) if count == call.sizes.divided else ():
                got = call.subject(split_rows(given, call.dimensions, leading))
                check_same(f"rows divided into {leading}{what}", _flat(got), _flat(want))
            _compare_threads(call.subject, given, f"{size} rows{what}", want)
    call.left_out += flat.left_out


def _flat(outputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.flatten() for name, tensor in outputs.items()}


def threads(call: Call) -> None:
    """Any number of threads computes the same, of few rows and of many."""
    many = [("", call.resized(call.sizes.many))] if call.sizes.many else []
    for what, given in [*many, *call.in_widths(call.resized(call.sizes.rows))]:
        with number_of_threads(1):
            want = call.outputs(what, given)
        if want is None:
            break
        _compare_threads(call.subject, given, f"rows{what}", want)


def _compare_threads(subject: Subject, arguments: Arguments, what: str, want: Mapping[str, Tensor]) -> None:
    for count in THREADS:
        with number_of_threads(count):
            check_same(f"{what}, threads: {count}", subject(arguments), want)


@contextmanager
def number_of_threads(count: int) -> Iterator[None]:
    """PyTorch's operators compute by so many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def layout(call: Call) -> None:
    """Arguments with gaps, an offset or transposed, together and each alone, give the same."""
    for what, given in call.in_widths(call.resized(call.sizes.rows)):
        plain = {name: one.contiguous() if isinstance(one, Tensor) else one for name, one in given.items()}
        want = call.outputs(what, plain)
        if want is None:
            break
        tensors = [name for name, value in plain.items() if isinstance(value, Tensor)]
        for kind in LAYOUTS:
            for chosen in [tensors, *([name] for name in tensors if len(tensors) > 1)]:
                changed = {name: laid_out(plain[name], kind) for name in chosen}
                names = ", ".join(chosen)
                check_same(f"{kind} arguments ({names}){what}", call.subject({**plain, **changed}), want)


def compiled(call: Call) -> None:
    """``torch.compile`` with inductor gives what the call gives without it."""
    given = call.resized(call.sizes.rows)
    want = call.subject(given)
    torch._dynamo.reset()
    function = torch.compile(call.subject.function, fullgraph=True, dynamic=False)
    got = Subject(function, call.subject.results, call.subject.written)(given)
    check_same("compiled", got, want)


def grad(call: Call) -> None:
    """Results are the same where gradients are recorded, of all arguments or of one."""
    given = call.resized(call.sizes.rows)
    with torch.no_grad():
        want = call.subject(given)
    fractions = [name for name, one in given.items() if isinstance(one, Tensor) and one.is_floating_point()]
    for chosen in [fractions, *([name] for name in fractions if len(fractions) > 1)]:
        recorded = {name: given[name].detach().requires_grad_() for name in chosen}
        with torch.enable_grad():
            got = call.subject({**given, **recorded})
        check_same(f"with gradients of {', '.join(chosen)}", got, want)


def repeat(call: Call) -> None:
    """The same call again gives the same, also several at once."""
    for what, given in call.in_widths(call.resized(call.sizes.rows)):
        want = call.outputs(what, given)
        if want is None:
            break
        check_same(f"again{what}", call.subject(given), want)
        for got in _at_once(call.subject, given):
            check_same(f"{AT_ONCE} calls at once{what}", got, want)


def _at_once(subject: Subject, arguments: Arguments) -> list[dict[str, Tensor]]:
    """What calls in several threads give."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(subject, [arguments] * AT_ONCE))


CHECKS: dict[str, Callable[[Call], None]] = {
    check.__name__: check for check in (batch, prefix, threads, layout, compiled, grad, repeat, order)
}
