"""Whether an output may be written while the inputs are being read; as ``opwheel/detail/overlap.h`` in the C++ SDK."""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from torch import Tensor
from torch.nn import Parameter

from .._torch import private
from .overload import Overload
from .stride_sums import StrideSums


class Overlap(enum.Enum):
    """How an output lies to an input in memory."""

    NONE = enum.auto()
    SAME_ELEMENTS = enum.auto()
    PARTIAL = enum.auto()
    UNKNOWN = enum.auto()  # PyTorch does not classify it: compute elsewhere, then copy


def may_overlap_itself(tensor: Tensor) -> bool:
    """Whether some element is reached by two different indices.

    Exact, but where that takes too many tries (:class:`StrideSums`): such tensors count as overlapping. The strides of
    views take a few. Of symbolic sizes it asks nothing: there only expanded dimensions are found.
    """
    if not all(isinstance(step, int) for step in (*tensor.shape, *tensor.stride())):
        steps = zip(tensor.stride(), tensor.shape, strict=True)
        return any(isinstance(stride, int) and stride == 0 and size != 1 for stride, size in steps)
    if tensor.numel() == 0:
        return False
    dims = sorted((stride, size) for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1)
    reach = 0  # of the dimensions before this one
    for i, (stride, size) in enumerate(dims):
        # Some steps along this dimension, one at least, lead to where steps along those before, forwards and backwards,
        # lead as well. A step that is longer than all others together leads to where none of them do.
        if stride <= reach:
            before = [(shorter, 2 * (length - 1)) for shorter, length in dims[:i]]
            if StrideSums([*before, (stride, size - 2)]).may_reach(reach + stride * (size - 1)):
                return True
        reach += stride * (size - 1)
    return False


def check_elements_apart(overload: Overload, target: Tensor) -> None:
    """Refuse to write where one element would overwrite another.

    Raises:
        RuntimeError: several elements of ``target`` share one place in memory.
    """
    if may_overlap_itself(target):
        raise RuntimeError(
            f"{overload.name}: several elements of '{overload.target}' share one place in memory (an expanded or "
            "overlapping view); pass a tensor of its own, for instance its .clone()"
        )


def is_dense(tensor: Tensor) -> bool:
    """Whether every element has a place of its own and there are no gaps, in whatever order of dimensions."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size == 1:
            continue
        if stride != expected:
            return tensor.numel() == 0
        expected = expected * size
    return True


def overlap(output: Tensor, given: Tensor) -> Overlap:
    """How ``output`` lies to ``given``, an input before it is broadcast."""
    if output.numel() == 0 or given.numel() == 0:
        return Overlap.NONE
    begin, end = _byte_range(output)
    other_begin, other_end = _byte_range(given)
    if end <= other_begin or other_end <= begin:
        return Overlap.NONE
    if _walk(output) == _walk(given):
        return Overlap.SAME_ELEMENTS
    if not _may_meet(output, given):
        return Overlap.NONE
    return Overlap.PARTIAL if is_dense(output) and is_dense(given) else Overlap.UNKNOWN


def may_share_memory(target: Tensor, given: Tensor) -> bool:
    """Whether ``given`` or its history may change when ``target`` is overwritten; also where that cannot be told.

    Other parts of one storage count: after a write to one view PyTorch refuses to look at some others. Different
    storages over the same memory come from other libraries. Tensors of ``torch.func`` have none.
    """
    return any(_may_share(part, other) for part in _parts(target) for other in _parts(given))


class _Memory(NamedTuple):
    """The memory of a tensor's storage; of a fake one, and of what has no elements, there are no bytes."""

    storage: int
    begin: int
    end: int

    def meets(self, other: _Memory) -> bool:
        # Different storages over the same memory come from other libraries, such as NumPy.
        return self.storage == other.storage or (self.begin < other.end and other.begin < self.end)


def apart(results: Sequence[Tensor], arguments: Iterable[Tensor]) -> list[Tensor]:
    """The results, with a copy of each that is in the memory of an argument or of another result."""
    arguments = list(arguments)
    if _are_apart(results, arguments):
        return list(results)
    taken = [memory for tensor in arguments for memory in _memories(tensor)]
    separate = []
    for result in results:
        memories = _memories(result)
        is_taken = any(memory.meets(other) for memory in memories for other in taken)
        separate.append(result.clone() if is_taken else result)
        taken += memories
    return separate


def _are_apart(results: Sequence[Tensor], arguments: Sequence[Tensor]) -> bool:
    """Whether that is seen at once: all storages are the allocator's, so that only one storage is the same memory."""
    if not all(_owns_memory(tensor) for tensor in (*results, *arguments)):
        return False
    pairs = itertools.chain(itertools.product(results, arguments), itertools.combinations(results, 2))
    return not any(private.is_alias(one, other) for one, other in pairs)


def _owns_memory(tensor: Tensor) -> bool:
    """A plain tensor in memory that PyTorch's allocator gave it; that of other libraries cannot be resized."""
    return (
        type(tensor) in (Tensor, Parameter)
        and not private.is_wrapped(tensor)
        and private.has_storage(tensor)
        and tensor.untyped_storage().resizable()
    )


def _memories(tensor: Tensor) -> list[_Memory]:
    """Of all tensors that it consists of; none for what has no storage."""
    memories = []
    *_, innermost = private.layers(tensor)
    for part in _parts(innermost):
        if not private.has_storage(part):
            continue
        storage = part.untyped_storage()
        address = private.address(part)
        begin = address - part.storage_offset() * part.element_size() if address else 0
        memories.append(_Memory(private.storage_address(storage), begin, begin + storage.nbytes() if address else 0))
    return memories


def _may_share(target: Tensor, given: Tensor) -> bool:
    if not (private.has_storage(target) and private.has_storage(given)) or private.is_alias(target, given):
        return True
    has_memory = private.address(target) and private.address(given)  # fake tensors have not
    return bool(has_memory) and overlap(target, given) is not Overlap.NONE


def _parts(tensor: Tensor) -> list[Tensor]:
    """The tensors with memory that a subclass such as DTensor consists of, or the tensor itself."""
    if type(tensor) is Tensor or not hasattr(tensor, "__tensor_flatten__"):
        return [tensor]
    names, _ = tensor.__tensor_flatten__()
    members = (getattr(tensor, name) for name in names)  # a DTensor's mesh is among them
    return [part for member in members if isinstance(member, Tensor) for part in _parts(member)]


def _walk(tensor: Tensor) -> tuple[object, ...]:
    steps = tuple(step for step in zip(tensor.shape, tensor.stride(), strict=True) if step[0] != 1)
    return tensor.data_ptr(), tensor.dtype, steps


def _byte_range(tensor: Tensor) -> tuple[int, int]:
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (reach + 1) * tensor.element_size()


def _may_meet(output: Tensor, given: Tensor) -> bool:
    """Whether some byte belongs to an element of both, which have elements, and byte ranges that meet.

    A byte of the output is at its address plus some of its strides plus less than an element, and so is one of the
    other. They are the same if the output's strides, and the other's backwards from its last element, add up to the
    distance from the output's first element to the other's last one: but for some bytes less or more, because elements
    may meet in a part of them.
    """
    sums = StrideSums(
        (stride * part.element_size(), size - 1)
        for part in (output, given)
        for stride, size in zip(part.stride(), part.shape, strict=True)
    )
    _, end = _byte_range(given)
    to_last = end - given.element_size() - output.data_ptr()
    return any(sums.may_reach(to_last + less) for less in range(1 - output.element_size(), given.element_size()))
