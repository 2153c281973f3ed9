"""Shape, dtype, strides and validity of element-wise results: the twin of ``opwheel/detail/elementwise.h`` in C++."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from .arguments import check_tensors
from .overlap import check_elements_apart
from .overload import Overload

SUPPORTED_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_SUPPORTED_TEXT = ", ".join(map(str, SUPPORTED_DTYPES))


def check_inputs(overload: Overload, args: tuple[Any, ...]) -> None:
    """Refuse what no backend computes.

    Raises:
        RuntimeError: a dtype is not supported, a tensor is not strided, or the tensors are on different devices.
        TypeError: an argument is None.
    """
    check_tensors(overload, args)
    first: Tensor | None = None
    for name, value in zip(overload.arguments, args, strict=True):
        if name not in overload.tensor_arguments:
            continue
        if value.dtype not in SUPPORTED_DTYPES:
            raise RuntimeError(
                f"{overload.name}: argument '{name}' is {value.dtype}; supported dtypes are {_SUPPORTED_TEXT}. "
                "Convert it first, for instance with .to(torch.float32)"
            )
        if value.layout is not torch.strided:
            raise RuntimeError(
                f"{overload.name}: argument '{name}' has layout {value.layout}; only torch.strided is supported. "
                "Convert it first with .to_dense()"
            )
        if first is None:
            first = value
        elif value.device != first.device:
            raise RuntimeError(
                f"{overload.name}: argument '{name}' is on {value.device}, but the first argument is on {first.device}"
                "; move all of them to one device with .to(...)"
            )


def check_output(overload: Overload, out: Tensor, shape: Sequence[int], dtype: torch.dtype, device: Any) -> None:
    """Refuse an output that the result does not fit into; an empty ``out=`` will be resized.

    Raises:
        RuntimeError: naming what was given and what is expected.
    """
    name = overload.target
    if out.device != device:
        raise RuntimeError(
            f"{overload.name}: '{name}' is on {out.device}, but the arguments are on {device}; move it with .to(...)"
        )
    if out.dtype != dtype:
        raise RuntimeError(
            f"{overload.name}: '{name}' is {out.dtype}, but the result is {dtype}; "
            f"'{name}' must have exactly the result's dtype"
        )
    if not has_shape(out, shape) and not (overload.is_out and out.numel() == 0):
        raise RuntimeError(
            f"{overload.name}: '{name}' has shape {tuple(out.shape)}, but the result has shape {tuple(shape)}"
            + (
                "; pass a tensor of that shape, or an empty one to be resized"
                if overload.is_out
                else "; nothing is resized in place: call the operator that gives a new result"
            )
        )


def infer(overload: Overload, args: tuple[Any, ...]) -> tuple[torch.Size, torch.dtype]:
    """Shape and dtype of the result.

    Raises:
        RuntimeError: no backend computes it (:func:`check_inputs`), the shapes do not broadcast, or the result has more
            elements or bytes than PyTorch counts.
    """
    check_inputs(overload, args)
    tensors = overload.tensors(args)
    try:
        shape = torch.broadcast_shapes(*(tensor.shape for tensor in tensors))
    except RuntimeError as error:
        shapes = ", ".join(
            f"{name} {tuple(t.shape)}" for name, t in zip(overload.tensor_arguments, tensors, strict=True)
        )
        raise RuntimeError(
            f"{overload.name}: the shapes of its arguments cannot be broadcast together: {shapes}; dimensions, counted "
            "from the last, must be equal or 1"
        ) from error
    dtype = result_dtype(tensors)
    if _overflows(shape, dtype):
        raise RuntimeError(
            f"{overload.name}: Storage size calculation overflowed with sizes={list(shape)}: no tensor can have that "
            "many elements; compute the result in parts"
        )
    return shape, dtype


def _overflows(shape: Sequence[int], dtype: torch.dtype) -> bool:
    """Whether PyTorch's 64 bits are too few for the elements (counted as it does), the bytes or contiguous strides."""
    if any(isinstance(size, torch.SymInt) for size in shape):
        return False  # of a graph: it would become one for these sizes alone
    counts = list(accumulate(shape, operator.mul, initial=1))
    strides = accumulate((max(size, 1) for size in shape[1:]), operator.mul, initial=1)
    return max(*counts, *strides, counts[-1] * dtype.itemsize) >= 2**63


def resize_output(out: Tensor, shape: Sequence[int], strides: Sequence[int]) -> None:
    """Give an empty ``out=`` the result's shape and strides.

    Raises:
        RuntimeError: its memory cannot grow. ``out`` is unchanged: its own ``resize_`` would leave new sizes behind.
    """
    grown(out, shape, strides)
    out.as_strided_(shape, strides)


def grown(out: Tensor, shape: Sequence[int], strides: Sequence[int]) -> Tensor:
    """The memory of an empty ``out=`` as a tensor of its own, with the result's shape and strides.

    Raises:
        RuntimeError: the memory cannot grow.
    """
    alias: Tensor = torch.ops.aten.alias(out)
    return alias.resize_(shape).as_strided_(shape, strides)


def result_dtype(tensors: Sequence[Tensor]) -> torch.dtype:
    """``torch.result_type`` over floating-point tensors: 0-d tensors count only among themselves."""
    deciding = [tensor for tensor in tensors if tensor.dim() > 0] or tensors
    dtype = deciding[0].dtype
    for tensor in deciding[1:]:
        dtype = torch.promote_types(dtype, tensor.dtype)
    return dtype


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which a result of ``dtype`` is computed before it is rounded."""
    return torch.float64 if dtype is torch.float64 else torch.float32


def decompose(overload: Overload, args: tuple[Any, ...]) -> Any:
    """The result from ATen operators, differentiable by whatever PyTorch differentiates."""
    dtype = result_dtype(overload.tensors(args))
    result = overload.operator.reference(*prepare(args, compute_dtype(dtype)))
    if isinstance(result, tuple):
        return tuple(part.to(dtype) for part in result)
    return result.to(dtype)


def overwrite(overload: Overload, target: Tensor, value: Tensor) -> Tensor:
    """Put ``value`` into ``target`` in a way that every transformation follows.

    ``copy_`` has no derivative once it is functionalized. -0.0 is the number that changes nothing when it is added to.

    Raises:
        RuntimeError: several elements of ``target`` share one place in memory.
    """
    check_elements_apart(overload, target)  # fill_ does not mind, and add_ would be too late
    return target.fill_(-0.0).add_(value)


def prepare(args: Sequence[Any], dtype: torch.dtype) -> list[Any]:
    """The arguments as a reference wants them: tensors of one dtype, and all of the result's shape."""
    tensors = iter(torch.broadcast_tensors(*(value.to(dtype) for value in args if isinstance(value, Tensor))))
    return [next(tensors) if isinstance(value, Tensor) else value for value in args]


def has_shape(tensor: Tensor, shape: Sequence[int]) -> bool:
    """Whether the tensor has exactly this shape.

    The number of dimensions is compared first: shapes are compared size by size, and a symbolic size that was compared
    with a size of another dimension is a condition of the graph from then on.
    """
    return tensor.dim() == len(shape) and tensor.shape == shape


def output_strides(tensors: Sequence[Tensor], shape: Sequence[int]) -> tuple[int, ...]:
    """Strides, in elements, that PyTorch's TensorIterator gives a new result of element-wise operators."""
    dtype = result_dtype(tensors)
    tensors = [_as_read(tensor, dtype) for tensor in tensors]
    if all(has_shape(tensor, shape) for tensor in tensors):
        if all(tensor.is_contiguous() for tensor in tensors):
            return _dense_strides(shape, range(len(shape) - 1, -1, -1))
        if len(shape) == 4 and all(tensor.is_contiguous(memory_format=torch.channels_last) for tensor in tensors):
            return _dense_strides(shape, (1, 3, 2, 0), skip_empty=False)
        strides = tensors[0].stride()
        if all(tensor.stride() == strides for tensor in tensors) and is_non_overlapping_and_dense(shape, strides):
            return strides
    order = _iteration_order([_broadcast_strides(tensor, shape) for tensor in tensors], shape)
    inverted = order == list(range(len(shape) - 1, -1, -1))
    return _dense_strides(shape, order, skip_empty=inverted)


def _as_read(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """What TensorIterator looks at: on a CPU, and nowhere else, a copy of an input of another dtype than the result's.

    A copy has the tensor's strides or, if that has gaps or overlaps, none of them in the same order of dimensions.
    """
    if tensor.dtype is dtype or tensor.device.type != "cpu" or tensor.is_contiguous():
        return tensor
    shape, strides = tensor.shape, tensor.stride()
    if is_non_overlapping_and_dense(shape, strides):
        return tensor
    return tensor.new_empty_strided(shape, _dense_strides(shape, _iteration_order([strides], shape)), device="meta")


def _dense_strides(shape: Sequence[int], order: Sequence[int], skip_empty: bool = True) -> tuple[int, ...]:
    strides = [0] * len(shape)
    following = 1
    for dim in order:
        strides[dim] = following
        following = following * (max(shape[dim], 1) if skip_empty else shape[dim])
    return tuple(strides)


def is_non_overlapping_and_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether every element has a place of its own and there are no gaps, in whatever order of dimensions."""
    expected = 1
    for stride, size in sorted(((stride, size) for stride, size in zip(strides, shape, strict=True) if size != 1)):
        if stride != expected:
            return False
        expected = expected * size
    return True


def _broadcast_strides(tensor: Tensor, shape: Sequence[int]) -> list[int]:
    lead = len(shape) - tensor.dim()
    own = [
        0 if size == 1 and shape[lead + dim] != 1 else stride
        for dim, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True))
    ]
    return [0] * lead + own


def _iteration_order(strides: Sequence[Sequence[int]], shape: Sequence[int]) -> list[int]:
    """Dimensions from the innermost outwards: an insertion sort, because the comparison is not transitive."""

    def belongs_outside(a: int, b: int) -> int:
        for operand in strides:
            if operand[a] == 0 or operand[b] == 0:
                continue
            if operand[a] != operand[b]:
                return -1 if operand[a] < operand[b] else 1
            if shape[a] > shape[b]:
                return 1
        return 0

    order = list(range(len(shape) - 1, -1, -1))
    for position in range(1, len(order)):
        moving = position
        for other in range(position - 1, -1, -1):
            comparison = belongs_outside(order[other], order[moving])
            if comparison < 0:
                break
            if comparison > 0:
                order[other], order[moving] = order[moving], order[other]
                moving = other
    return order
