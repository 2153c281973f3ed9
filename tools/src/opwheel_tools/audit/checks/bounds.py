"""Check of the memory around a call's tensors: nothing is written or read there."""

# ruff: noqa: ARG001
from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from .common import NotTried, by_name, close, is_random, results_of, tensors_of, with_tensors, written


class Guarded(NamedTuple):
    """The memory of a tensor.

    Args:
        name: of the argument; empty for what is allocated during the call.
        storage: address of the tensor's storage.
        before: the bytes in front of it.
        behind: the bytes that follow it.
    """

    name: str
    storage: int
    before: Tensor
    behind: Tensor


class Guards(TorchDispatchMode):
    """While it is entered, the tensors that operators of PyTorch allocate lie between bytes of a pattern.

    The storage of such a tensor ends where the tensor does, and cannot grow: nobody may write to those bytes.
    """

    width = 256  # bytes on each side
    alignment = 64  # of PyTorch's own memory

    def __init__(self, pattern: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.pattern = pattern
        self.guarded: list[Guarded] = []

    def place(self, value: Any, name: str = "", shared: Any = ()) -> Any:
        """Copies of the tensors in ``value`` between guards; those that share memory with ``shared`` stay."""
        known = {x.untyped_storage().data_ptr() for x in tensors_of(shared) if x.layout is torch.strided}
        return with_tensors(value, lambda x: self._copy(x, name, known))

    def _copy(self, x: Tensor, name: str, known: set[int]) -> Tensor:
        if x.layout is not torch.strided or x.is_quantized or x.device.type != "cpu" or not x.numel():
            return x
        if x.is_conj() or x.is_neg() or x.untyped_storage().data_ptr() in known:
            return x
        count = 1 + sum((length - 1) * stride for length, stride in zip(x.shape, x.stride(), strict=True))
        size = count * x.element_size()
        memory = (ctypes.c_ubyte * (size + 2 * self.width + self.alignment))()
        everything = torch.frombuffer(memory, dtype=torch.uint8).fill_(self.pattern)
        start = self.width + -(everything.data_ptr() + self.width) % self.alignment
        flat = torch.frombuffer(memory, dtype=x.dtype, count=count, offset=start)
        flat.copy_(x.detach().as_strided((count,), (1,)))
        self.guarded.append(Guarded(name, flat.data_ptr(), everything[:start], everything[start + size :]))
        return flat.as_strided(x.shape, x.stride())

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.place(func(*args, **(kwargs or {})), shared=(args, kwargs))


def between_guards(op: Any, args: Any, kwargs: Any, pattern: int) -> tuple[Guards, dict[str, Tensor], Any]:
    """Call the kernel with its tensors between bytes of a pattern: the guards, the results, and what was returned."""
    guards = Guards(pattern)
    names = [argument.name for argument in op._schema.arguments]
    args = [guards.place(value, name) for name, value in zip(names, args)]  # noqa: B905  # some may have defaults
    kwargs = {name: guards.place(value, name) for name, value in kwargs.items()}
    try:
        with guards:
            returned = op.redispatch(torch._C.DispatchKeySet(torch._C.DispatchKey.CPU), *args, **kwargs)
    except Exception as error:
        raise NotTried(f"the kernel raises in memory that cannot grow: {error}") from error
    given = by_name(op, args, kwargs)
    changed = {f"argument '{name}'": x for name in written(op) if isinstance(x := given.get(name), Tensor)}
    return guards, {**results_of(returned), **changed}, returned


def bounds(op: Any, args: Any, kwargs: Any, step: float = 0.0) -> Iterator[str]:
    """Nothing is written or read out of the bounds of arguments and of what the kernel allocates by the dispatcher."""
    finite, nan = 0xA5, 0xFF  # bytes of small numbers, and of numbers that are not, in every dtype
    guards, found, returned = between_guards(op, args, kwargs, finite)
    results = [r for r in tensors_of(returned) if r.layout is torch.strided and r.numel()]
    numbers = {r.untyped_storage().data_ptr(): i for i, r in enumerate(results)}
    for one in guards.guarded:
        what = f"result {numbers[one.storage]}" if one.storage in numbers else "memory that it allocates"
        what = f"the argument '{one.name}'" if one.name else what
        for place, memory in (("in front of", one.before), ("behind", one.behind)):
            if not bool((memory == guards.pattern).all()):
                yield f"writes {place} {what}: bytes that are not its own are changed"
    if not is_random(op):
        same, other = (between_guards(op, args, kwargs, pattern)[1] for pattern in (finite, nan))
        if not list(close(same, found, "")):  # otherwise they depend on something else, such as new memory
            names = [problem.partition(",")[0] for problem in close(other, found, "")]
            yield from (
                f"reads out of bounds: {name} depend on what is around the arguments or new memory"
                for name in names[:1]
            )
    if not numbers.keys() <= {one.storage for one in guards.guarded}:
        raise NotTried("a result is not allocated through the dispatcher; all other memory has no write out of bounds")
