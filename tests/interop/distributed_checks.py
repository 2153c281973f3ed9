"""Run by torchrun in every process of a group: DTensor sharding rules, forward and backward."""

import itertools
import random
import sys

import muladd
import torch
from opwheel_tools.testing.reference import as_tuple
from opwheel_tools.testing.samples import arguments
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor, init_device_mesh
from torch.distributed.tensor.debug import CommDebugMode

from tests.torchrun import leave


def check_placements(mesh, overload, shapes):
    """Every combination of shardings and replication of the inputs gives the right values and gradients."""
    choices = [Replicate(), Shard(0), Shard(1)]
    placements = list(itertools.product(choices, repeat=mesh.ndim))
    args = arguments(overload, shapes, torch.float32, "cpu", requires_grad=True)
    expected = as_tuple(overload.op(*args))
    gradients = gradients_of(expected, overload.tensors(args))
    combinations = list(itertools.product(placements, repeat=len(overload.tensor_arguments)))
    # All of them on one dimension of processes, a sample of the hundreds on two: the same one in every process.
    for chosen in random.Random(0).sample(combinations, min(27, len(combinations))):
        given = iter(chosen)
        sharded = [distribute(mesh, value, next(given)) if isinstance(value, torch.Tensor) else value for value in args]
        results = as_tuple(overload.op(*sharded))
        for result, reference in zip(results, expected, strict=True):
            torch.testing.assert_close(result.full_tensor(), reference)
        leaves = [value for value in sharded if isinstance(value, DTensor)]
        for gradient, reference in zip(gradients_of(results, leaves), gradients, strict=True):
            torch.testing.assert_close(gradient.full_tensor(), reference)


def gradients_of(results, leaves):
    """Of all results together, and of the last alone: nothing arrives at the others then."""
    losses = [part.square().sum() for part in results]
    return (
        *torch.autograd.grad(sum(losses), leaves, retain_graph=True),
        *torch.autograd.grad(losses[-1], leaves, allow_unused=True, materialize_grads=True),
    )


def distribute(mesh, value, placements):
    """A leaf; dimensions that the tensor does not have, or that are broadcast, are replicated."""
    fits = [
        p if isinstance(p, Shard) and p.dim < value.dim() and value.shape[p.dim] > 1 else Replicate()
        for p in placements
    ]
    return distribute_tensor(value.detach(), mesh, fits).requires_grad_()


def check_no_communication(mesh, overload):
    """Equally sharded inputs, and replicated ones that are broadcast, are computed where they are."""
    for shapes, placements in (
        ([(8, 6), (8, 6), (8, 6)], [Shard(0)] * 3),
        ([(8, 6), (8, 6), (8, 6)], [Shard(1)] * 3),
        ([(8, 6), (6,), (6,)], [Shard(0), Replicate(), Replicate()]),
        ([(8, 6), (6,), (6,)], [Shard(1), Shard(0), Shard(0)]),
        ([(8, 6), (8, 1), (8, 1)], [Shard(0)] * 3),
    ):
        args = arguments(overload, shapes[: len(overload.tensor_arguments)], torch.float32, "cpu")
        given = iter(placements)
        sharded = [
            distribute_tensor(value, mesh, [next(given)] * mesh.ndim) if isinstance(value, torch.Tensor) else value
            for value in args
        ]
        with CommDebugMode() as communication:
            results = as_tuple(overload.op(*sharded))
        assert communication.get_total_counts() == 0, f"{overload.name} {shapes} communicates"
        assert all(result.placements == sharded[0].placements for result in results)


def check_partial(mesh, overload):
    """A sum that is still spread over the processes passes through what is linear in it, and only through that."""
    for linear in overload.rule.linear:
        args = arguments(overload, (4, 6), torch.float32, "cpu")
        pairs = list(zip(overload.arguments, args, strict=True))
        share = mesh.size()
        given = [
            value
            if not isinstance(value, torch.Tensor)
            else DTensor.from_local(value / share, mesh, [Partial()] * mesh.ndim)
            if name in linear
            else distribute_tensor(value, mesh, [Replicate()] * mesh.ndim)
            for name, value in pairs
        ]
        with CommDebugMode() as communication:
            results = as_tuple(overload.op(*given))
        assert communication.get_total_counts() == 0, f"{overload.name}, linear in {linear}, communicates"
        for result, reference in zip(results, as_tuple(overload.op(*args)), strict=True):
            assert all(isinstance(placement, Partial) for placement in result.placements)
            torch.testing.assert_close(result.full_tensor(), reference)
    for position, name in enumerate(overload.arguments):
        args = list(arguments(overload, (4, 6), torch.float32, "cpu"))
        if name not in overload.tensor_arguments or (name,) in overload.rule.linear:
            continue
        expected = as_tuple(overload.op(*args))
        partial = DTensor.from_local(args[position] / mesh.size(), mesh, [Partial()] * mesh.ndim)
        given = [
            distribute_tensor(v, mesh, [Replicate()] * mesh.ndim) if isinstance(v, torch.Tensor) else v for v in args
        ]
        given[position] = partial
        for result, reference in zip(as_tuple(overload.op(*given)), expected, strict=True):
            torch.testing.assert_close(result.full_tensor(), reference)


def check_in_place(mesh, overload):
    """The first tensor keeps its placement."""
    args = arguments(overload, (8, 6), torch.float32, "cpu")
    expected = overload.op(args[0].clone(), *args[1:])
    target = distribute_tensor(args[0], mesh, [Shard(0)] * mesh.ndim)
    rest = [
        distribute_tensor(value, mesh, [Replicate()] * mesh.ndim) if isinstance(value, torch.Tensor) else value
        for value in args[1:]
    ]
    result = overload.op(target, *rest)
    assert result is target
    assert target.placements == tuple([Shard(0)] * mesh.ndim)
    torch.testing.assert_close(target.full_tensor(), expected)


def check_out(mesh, overload):
    """What is written to keeps its placement, and has the whole result's parts."""
    args = arguments(overload.functional, (8, 6), torch.float32, "cpu")
    expected = overload.functional.op(*args)
    for placement in (Replicate(), Shard(0), Shard(1)):
        given = [
            distribute_tensor(value, mesh, [Shard(0)] * mesh.ndim) if isinstance(value, torch.Tensor) else value
            for value in args
        ]
        target = distribute_tensor(torch.zeros_like(expected), mesh, [placement] * mesh.ndim)
        assert overload.op(*given, out=target) is target
        assert target.placements == tuple([placement] * mesh.ndim)
        torch.testing.assert_close(target.full_tensor(), expected)


def check_gradients_in_place(mesh, overload):
    """Of what was in the first tensor before, and of the others."""
    args = arguments(overload, (8, 6), torch.float32, "cpu", requires_grad=True)
    leaves = overload.tensors(args)
    overwritten = overload.op(args[0] * 1, *args[1:])
    expected = torch.autograd.grad(overwritten.square().sum(), leaves)
    given = [distribute(mesh, v, [Shard(0)] * mesh.ndim) if isinstance(v, torch.Tensor) else v for v in args]
    result = overload.op(given[0] * 1, *given[1:])
    found = torch.autograd.grad(result.square().sum(), [value for value in given if isinstance(value, DTensor)])
    for gradient, reference in zip(found, expected, strict=True):
        torch.testing.assert_close(gradient.full_tensor(), reference)


def main():
    shape = tuple(int(size) for size in sys.argv[1].split("x"))
    mesh = init_device_mesh("cpu", shape)
    for overload in muladd.library.overloads.values():
        if overload.is_out:
            check_out(mesh, overload)
        if overload.is_in_place:
            check_in_place(mesh, overload)
            check_gradients_in_place(mesh, overload)
        if overload.mutates:
            continue
        count = len(overload.tensor_arguments)
        check_placements(mesh, overload, [(8, 6), (8, 6), (8, 6)][:count])
        check_placements(mesh, overload, [(8, 6), (6,), (8, 1)][:count])
        check_no_communication(mesh, overload)
        check_partial(mesh, overload)
    leave("all placements right")


if __name__ == "__main__":
    main()
