"""Run by torchrun in two processes: operators of every class on DTensors, against the same calls on whole tensors."""

import pytest
import torch
from opwheel.dispatch import overloads_of
from opwheel.dispatch.overload import as_tuple, tensors_in
from opwheel_tools.testing.checks import Samples, declared
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor, init_device_mesh
from torch.utils import _pytree as pytree

from tests.non_elementwise.operators import NAMESPACE
from tests.torchrun import leave

CPU = torch.device("cpu")


def spread(mesh, values, dim, keep=()):
    """The tensors with this dimension shared out, where they have it; some positions are kept whole."""

    def of(value, may_share=True):
        if not isinstance(value, torch.Tensor):
            return value
        can_share = may_share and value.dim() > dim >= 0 and value.shape[dim] > 1
        placement = Shard(dim) if can_share else Replicate()
        return distribute_tensor(value.detach(), mesh, [placement]).requires_grad_(value.requires_grad)

    return tuple(pytree.tree_map(lambda one, i=i: of(one, i not in keep), value) for i, value in enumerate(values))


def whole(tensors):
    return pytree.tree_map_only(DTensor, lambda one: one.full_tensor(), tensors)


def gradients(overload, values, results):
    """Of all results together, and of each alone: nothing arrives at the others then."""
    inputs = [tensor for tensor in overload.all_tensors(values) if tensor.requires_grad]
    losses = [(whole(result) ** 2).sum() for result in results if result.requires_grad]
    if not inputs or not losses:
        return []
    return [
        gradient
        for loss in (sum(losses), *losses)
        for gradient in torch.autograd.grad(loss, inputs, allow_unused=True, retain_graph=True)
    ]


def check(mesh, overload, samples):
    can_require = overload.operator.derivatives is not None and not overload.mutates
    plain = samples.values(requires_grad=can_require)
    expected = as_tuple(overload.call(overload.op, plain))
    want = [*expected, *gradients(overload, plain, expected), *(plain[i] for i in overload.written)]
    for dim in (-1, 0, 1):
        given = spread(mesh, samples.values(requires_grad=can_require), dim, overload.written)
        results = as_tuple(overload.call(overload.op, given))
        got = [*results, *gradients(overload, given, results), *(given[i] for i in overload.written)]
        for one, other in zip(got, want, strict=True):
            torch.testing.assert_close(whole(one), other)
    for i in (i for i in overload.written if list(tensors_in([plain[i]]))):
        given = spread(mesh, samples.values(), 0, [other for other in overload.written if other != i])
        with pytest.raises(RuntimeError, match=f"'{overload.names[i]}' is written to and must be whole"):
            overload.call(overload.op, given)


def main():
    mesh = init_device_mesh("cpu", (2,))
    for overload in overloads_of(torch.library.Library(NAMESPACE, "FRAGMENT")).values():
        # DTensor cannot share out what is drawn, nor a result whose shape depends on data.
        if overload.is_random or overload.operator.fake is not None or not overload.tensor_positions:
            continue
        for index in range(len(declared(overload, torch.float64, CPU))):
            check(mesh, overload, Samples(overload, index, torch.float64, CPU))
    leave("all operators right")


if __name__ == "__main__":
    main()
