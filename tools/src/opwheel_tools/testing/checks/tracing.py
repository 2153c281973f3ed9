"""Checks of what PyTorch does around a kernel: fake tensors, opcheck, autocast, torch.compile, DTensor."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from opwheel.dispatch.autocast import KEYS
from opwheel.dispatch.autocast_policy import dtype_sources, policies_of
from opwheel.dispatch.overload import Overload, as_tuple, tensors_in
from opwheel.dispatch.placements import placed, placement_rules
from opwheel.dispatch.registration import library_of
from torch import Tensor
from torch.utils import _pytree as pytree

from ..placements.parts import shared_dim
from ..placements.reductions import wrong_results_of_shards
from ..placements.simulation import wrong_results
from .agreement import (
    agree,
    agree_on_written,
    differentiable,
    gradients_of,
    has_derivatives,
    is_float8,
    raises,
    run_kernel,
    scaled,
)
from .cases import Samples, dtypes_of
from .data_dependent import check_has_fake, needs_fake, on_fake_tensors


def fake(overload: Overload, samples: Samples) -> None:
    """The fake kernel's results have the shape, dtype, strides and device of the real ones."""
    needed = needs_fake(overload, samples)
    assert not needed, needed
    check_fake(overload, samples.values(), run_kernel(overload, samples.values()))


def check_fake(overload: Overload, values: tuple[Any, ...], got: tuple[Any, ...]) -> None:
    """Compare the fake kernel's results for these arguments with the real ones."""
    mode, given = on_fake_tensors(values)
    with mode:
        guessed = run_kernel(overload, given)
    assert len(got) == len(guessed), f"fake: {len(guessed)} results, expected {len(got)}"
    for i, (real, one) in enumerate(zip(got, guessed, strict=True)):
        where = f"fake: result {i}"
        assert one.dtype == real.dtype, f"{where} is {one.dtype}, the kernel's is {real.dtype}"
        assert one.dim() == real.dim(), f"{where} has {one.dim()} dimensions, the kernel's has {real.dim()}"
        for dim, (size, true) in enumerate(zip(one.shape, real.shape, strict=True)):
            assert not isinstance(size, int) or size == true, (
                f"{where} has shape {tuple(one.shape)}, the kernel's {tuple(real.shape)} (dimension {dim})"
            )
        if all(isinstance(size, int) for size in one.shape) and real.numel() > 0:
            meant = [s for s, size in zip(one.stride(), one.shape, strict=True) if size > 1]
            true_ones = [s for s, size in zip(real.stride(), real.shape, strict=True) if size > 1]
            assert meant == true_ones, f"{where} has strides {one.stride()}, the kernel's {real.stride()}"
        assert one.device == real.device, f"{where} is on {one.device}, the kernel's on {real.device}"


def opcheck(overload: Overload, samples: Samples) -> None:
    """``torch.library.opcheck``: schema, mutation, aliasing, fake kernels, AOT dispatch."""
    check_has_fake(overload, samples)
    # The schema's test computes with the arguments, which PyTorch cannot in float8.
    is_computable = not any(is_float8(tensor.dtype) for tensor in overload.all_tensors(samples.values()))
    tests = [*(["test_schema"] if is_computable else []), "test_faketensor"]
    can_require = has_derivatives(overload) and not overload.is_random
    if not overload.is_random and overload.tensor_positions:
        tests.append("test_aot_dispatch_dynamic")
    args, kwargs = overload.unbind(samples.values(requires_grad=can_require))
    torch.library.opcheck(overload.op, args, kwargs, test_utils=tests)


def autocast(overload: Overload, samples: Samples) -> None:
    """Under ``torch.autocast``, on devices that it has rules for, a call is that with arguments cast by the policy.

    So are its gradients. Where autocast is switched off inside, nothing is cast.
    """
    kind = samples.device.type
    if overload.mutates or overload.is_random or not overload.tensor_positions or kind not in KEYS:
        return
    lower = torch.bfloat16
    values = [partial(samples.values, requires_grad=has_derivatives(overload))]
    if lower in dtypes_of(overload):
        other = Samples(overload, samples.index, lower, samples.device)
        values.append(partial(other.values, requires_grad=has_derivatives(overload)))
    for make in values:
        agrees_under_autocast(overload, make, kind, lower)


def agrees_under_autocast(
    overload: Overload, make: Callable[[], tuple[Any, ...]], device_type: str, lower: torch.dtype
) -> None:
    """Compare a call under autocast with one whose arguments and results are cast by hand, as it is declared.

    Args:
        overload: of the operator.
        make: gives the values of all arguments, always the same.
        device_type: that autocast is enabled for.
        lower: autocast's dtype.
    """
    other, given = make(), make()
    cast = _cast_by_hand(overload, other, lower, device_type)
    want = _returned_by_hand(overload, run_kernel(overload, cast), other, device_type)
    with torch.autocast(device_type, dtype=lower):
        got = run_kernel(overload, given)
        with torch.autocast(device_type, enabled=False):
            plain = run_kernel(overload, make()) if _takes(overload, make()) else None
    agree(overload, "autocast", got, want)
    if plain is not None:
        agree(overload, "autocast switched off inside of autocast", plain, run_kernel(overload, make()))
    inputs, others = differentiable(overload, given), differentiable(overload, other)
    if inputs and has_derivatives(overload):
        mine, theirs = gradients_of(got, inputs, 1), gradients_of(want, others, 1)
        agree(overload, "autocast: gradients", mine, theirs, torch.finfo(lower).eps)


def _takes(overload: Overload, values: tuple[Any, ...]) -> bool:
    """Whether the kernel computes with the arguments as they are, in dtypes that autocast may have to change first."""
    return not raises(partial(run_kernel, overload, values))


def _cast_by_hand(overload: Overload, values: tuple[Any, ...], lower: torch.dtype, device_type: str) -> tuple[Any, ...]:
    policies = policies_of(overload, device_type)
    promoted = [v for v, policy in zip(values, policies, strict=True) if policy == "promote"]
    narrow = all(t.dtype is lower for t in tensors_in(promoted) if _is_cast(t))
    targets = {"promote": lower if narrow else torch.float32, "lower_precision": lower, "float32": torch.float32}

    def to(value: Any, dtype: torch.dtype | None) -> Any:
        return value.to(dtype) if dtype is not None and isinstance(value, Tensor) and _is_cast(value) else value

    return tuple(
        pytree.tree_map(partial(to, dtype=targets.get(policy or "")), value)
        for value, policy in zip(values, policies, strict=True)
    )


def _returned_by_hand(
    overload: Overload, results: tuple[Any, ...], values: tuple[Any, ...], device_type: str
) -> tuple[Any, ...]:
    sources = [None if i is None else values[i] for i in dtype_sources(overload, device_type)]
    return tuple(
        result.to(source.dtype) if source is not None and _is_cast(source) and result.is_floating_point() else result
        for result, source in zip(results, sources, strict=True)
    )


def _is_cast(tensor: Tensor) -> bool:
    """Whether autocast may give a tensor another dtype."""
    return tensor.is_floating_point() and tensor.dtype.itemsize in (2, 4)


def compiled(overload: Overload, samples: Samples) -> None:
    """``torch.compile`` (graph and AOT autograd; static and dynamic) and ``torch.export`` compute the same."""
    if overload.is_random:
        return
    check_has_fake(overload, samples)

    def call(*leaves: Any) -> Any:
        results = overload.call(overload.op, pytree.tree_unflatten(leaves, spec))
        return [scaled(r, 1) for r in as_tuple(results)]

    requires_grad = has_derivatives(overload)
    _, spec = pytree.tree_flatten(samples.values())
    want_values = samples.values(requires_grad=requires_grad)
    want = call(*pytree.tree_leaves(want_values))
    for dynamic in (False, True):
        torch._dynamo.reset()
        given = samples.values(requires_grad=requires_grad)
        function = torch.compile(call, fullgraph=True, dynamic=dynamic, backend="aot_eager")
        with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
            got = function(*pytree.tree_leaves(given))
        agree(overload, f"compiled{', dynamic shapes' * dynamic}", got, want)
        agree_on_written(overload, "compiled", given, want_values)
        inputs, others = differentiable(overload, given), differentiable(overload, want_values)
        if requires_grad and inputs and any(r.requires_grad for r in want):
            mine = gradients_of(got, inputs, 1)
            theirs = gradients_of(call(*pytree.tree_leaves(want_values)), others, 1)
            agree(overload, "compiled: gradients", mine, theirs)


def shardings(overload: Overload, samples: Samples) -> None:
    """What DTensor computes without communication gives, part by part, the whole result, and what is written to.

    Two and three processes are simulated, with parts of different sizes where those may differ; the parts of a sum over
    processes (Partial) are as large as the sum, and of both signs. So does a sharded reduction, with parts of any size.
    """
    if overload.is_random or not overload.tensor_positions:
        return
    values = samples.values()
    rtol = max(1e-9, torch.finfo(samples.dtype).eps ** 0.75)
    for one in placed(overload, placement_rules(overload, library_of(overload)), values)[1:]:
        dims = {i: dim for i, placement in one.arguments.items() if (dim := shared_dim(placement)) is not None}
        sizes = {tensor.shape[dim] for i, dim in dims.items() for tensor in tensors_in([values[i]])}
        for count in (2, 3):
            if any(size < count or (one.evenly and size % count) for size in sizes):
                continue
            wrong = wrong_results(overload, run_kernel, values, one.arguments, one.results, count, rtol)
            given = ", ".join(f"{overload.names[i]}={placement}" for i, placement in one.arguments.items())
            assert not wrong, (
                f"sharded {given} -> {', '.join(one.results)} over {count} processes: results {wrong} are not those of "
                "one call"
            )
    sharded = overload.operator.sharded
    if sharded is None or overload.name != overload.operator.name:
        return
    for count in (2, 3):
        wrong = wrong_results_of_shards(overload, values, run_kernel(overload, samples.values()), count, rtol)
        assert not wrong, (
            f"sharded reduction {sharded.placements} over {count} processes: results {wrong} are not those of one call"
        )
