"""Checks of what PyTorch does around a kernel: fake tensors, opcheck, autocast, torch.compile, DTensor."""

from __future__ import annotations

from typing import Any

import torch
from opwheel.dispatch.autocast import KEYS
from opwheel.dispatch.overload import Overload, as_tuple
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils import _pytree as pytree

from .agreement import agree, agree_on_written, differentiable, gradients_of, has_derivatives, run_kernel
from .cases import Samples


def fake(overload: Overload, samples: Samples) -> None:
    """The fake kernel's results have the shape, dtype, strides and device of the real ones."""
    got = run_kernel(overload, samples.values())
    mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)

    def to_fake(value: Any) -> Any:
        return mode.from_tensor(value, static_shapes=True) if isinstance(value, Tensor) else value

    given = pytree.tree_map(to_fake, samples.values())
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
    tests = ["test_schema", "test_faketensor"]
    can_require = has_derivatives(overload) and not overload.is_random
    if not overload.is_random and overload.tensor_positions:
        tests.append("test_aot_dispatch_dynamic")
    args, kwargs = overload.unbind(samples.values(requires_grad=can_require))
    torch.library.opcheck(overload.op, args, kwargs, test_utils=tests)


def autocast(overload: Overload, samples: Samples) -> None:
    """Under ``torch.autocast``, on devices that it has rules for, a call is that with arguments cast by the policy."""
    kind = samples.device.type
    if overload.mutates or overload.is_random or not overload.tensor_positions or kind not in KEYS:
        return
    given = samples.values()
    lower = torch.bfloat16
    floats = [t for t in overload.all_tensors(given) if t.is_floating_point() and t.dtype is not torch.float64]
    policy = overload.operator.autocast
    target = torch.float32 if policy == "float32" else lower
    if policy == "promote" and any(t.dtype is not lower for t in floats):
        target = torch.float32
    cast = pytree.tree_map(lambda v: v.to(target) if any(v is t for t in floats) else v, given)
    want = run_kernel(overload, cast)
    with torch.autocast(kind, dtype=lower):
        got = run_kernel(overload, given)
    agree(overload, "autocast", got, want)


def compiled(overload: Overload, samples: Samples) -> None:
    """``torch.compile`` (graph and AOT autograd; static and dynamic) and ``torch.export`` compute the same."""
    if overload.is_random:
        return

    def call(*leaves: Any) -> Any:
        results = overload.call(overload.op, pytree.tree_unflatten(leaves, spec))
        return [r * 1 for r in as_tuple(results)]

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
    """What the rule lets DTensor compute without communication gives, part by part, the whole result.

    Parts are of a dimension, or, of a tensor that is a sum over processes (Partial), what two of them have of it.
    """
    from torch.distributed.tensor import Partial, Replicate, Shard

    if overload.is_random or overload.is_out or not overload.tensor_positions:
        return
    given = samples.values()
    specs = {i: _spec(given[i]) for i in overload.tensor_positions if given[i] is not None}
    want = run_kernel(overload, given)
    for outputs, inputs in overload.rule.shardings(overload, specs):
        flat, spec = pytree.tree_flatten(samples.values())
        tensors = iter([p for p in inputs if p is not None])
        placements = [next(tensors, Replicate()) if isinstance(v, Tensor) else None for v in flat]
        counts = {v.shape[p.dim] for v, p in zip(flat, placements, strict=True) if isinstance(p, Shard)}
        is_sum = any(isinstance(p, Partial) for p in placements)
        if not is_sum and (len(counts) != 1 or min(counts) < 2):
            continue  # nothing is sharded, or there is nothing to share
        parts = []
        for k, share in enumerate((0.25, 0.75)):
            mine = [
                v.tensor_split(2, p.dim)[k] if isinstance(p, Shard) else v * share if isinstance(p, Partial) else v
                for v, p in zip(flat, placements, strict=True)
            ]
            parts.append(run_kernel(overload, pytree.tree_unflatten(mine, spec)))
        joined = [
            torch.cat([part[i] for part in parts], placement.dim)
            if isinstance(placement, Shard)
            else parts[0][i] + parts[1][i]
            if isinstance(placement, Partial)
            else parts[0][i]
            for i, placement in enumerate(outputs)
        ]
        agree(overload, f"sharded {inputs} -> {outputs}", joined, want)


class _Whole:
    """In the place of a DTensorSpec: a tensor that is whole on every process."""

    def __init__(self, tensor: Tensor) -> None:
        self.shape, self.ndim, self.placements = tensor.shape, tensor.dim(), ()


def _spec(value: Any) -> Any:
    return tuple(map(_spec, value)) if isinstance(value, (list, tuple)) else _Whole(value)
