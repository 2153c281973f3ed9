"""Calls on DTensors that are sharded along the reduced dimension; each process is a thread of this one."""

from types import SimpleNamespace

import pytest
import torch
from opwheel.dispatch import Operator, Rows, ShardedReduction, overloads_of, register_python
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor, init_device_mesh
from torch.distributed.tensor.debug import CommDebugMode
from torch.testing._internal.common_distributed import spawn_threads_and_init_comms

NAMESPACE = "waves_sharded"
SCHEMA = "centred(Tensor x, Tensor weight, Tensor? times=None, bool mean=True) -> (Tensor, Tensor)"
exchanged_by = []  # the processes that had a part, in each exchange


def finished(x, means, weight, times, first):
    """Elements without the mean of their row, times their places, and each row as often as it is counted."""
    rows = (x - means.unsqueeze(-1)) * weight * torch.arange(first, first + x.shape[-1])
    return rows if times is None else rows * times.unsqueeze(-1)


def centred(x, weight, times=None, mean=True):
    means = x.mean(-1) if mean else x.new_zeros(x.shape[:-1])
    return finished(x, means, weight, times, 0), means


def centred_of_shards(shard, x, weight, times, mean):
    sums = shard.all_reduce(x.sum(-1))
    exchanged_by.append(shard.count)
    means = sums / shard.size
    return finished(x, means, weight, times, shard.offset), means


@pytest.fixture(scope="module")
def op():
    sharded = ShardedReduction("x=S(-1), weight=S(0) -> S(-1), R if mean=True", centred_of_shards)
    declaration = Operator("centred", reference=centred, rule=Rows(x=1), derivatives=None, sharded=sharded)
    register_python(NAMESPACE, {SCHEMA: centred}, [declaration])
    return overloads_of(torch.library.Library(NAMESPACE, "FRAGMENT"))["centred"].op


def on_processes(count, check):
    """Call a function in every process of a group; what one raises is raised."""
    exchanged_by.clear()
    spawn_threads_and_init_comms(world_size=count)(lambda _: check())(SimpleNamespace())


def values_of(rows, columns):
    torch.manual_seed(columns)
    return torch.randn(rows, columns, dtype=torch.float64), torch.randn(columns, dtype=torch.float64)


def placements_of(results):
    return [tuple(one.placements) for one in results]


@pytest.mark.parametrize("columns", [8, 7, 2, 1])
def test_reduced_dimension_is_sharded(op, columns):
    """In parts of the same size, of different ones, and empty ones; the weight is brought to where it is needed."""
    x, weight = values_of(3, columns)
    expected = op(x, weight)

    def check():
        mesh = init_device_mesh("cpu", (4,))
        given = distribute_tensor(x, mesh, [Shard(1)]), distribute_tensor(weight, mesh, [Replicate()])
        with CommDebugMode() as exchanged:
            results = op(*given)
        assert exchanged.get_total_counts() == 1  # the sums of rows
        assert placements_of(results) == [(Shard(1),), (Replicate(),)]
        for result, one in zip(results, expected, strict=True):
            assert (result.shape, result.stride()) == (one.shape, one.stride())
            torch.testing.assert_close(result.full_tensor(), one)

    on_processes(4, check)
    assert exchanged_by == [4] * 4


MESHES = {  # placements of x; how many processes share a row out; those of the result
    "both reduced": ([Shard(1), Shard(1)], 4, [Shard(1), Shard(1)]),
    "rows and columns": ([Shard(0), Shard(1)], 2, [Shard(0), Shard(1)]),
    "columns and rows": ([Shard(1), Shard(0)], 2, [Shard(1), Shard(0)]),
    "one is whole": ([Replicate(), Shard(1)], 2, [Replicate(), Shard(1)]),
}


@pytest.mark.parametrize("mesh", MESHES)
def test_meshes_of_two_dimensions(op, mesh):
    given, count, placements = MESHES[mesh]
    x, weight = values_of(5, 5)  # of both reduced in parts of 2, 1, 1 and 1
    expected = op(x, weight)

    def check():
        mesh = init_device_mesh("cpu", (2, 2))
        results = op(distribute_tensor(x, mesh, given), distribute_tensor(weight, mesh, [Replicate()] * 2))
        assert list(results[0].placements) == placements
        for result, one in zip(results, expected, strict=True):
            torch.testing.assert_close(result.full_tensor(), one)

    on_processes(4, check)
    assert exchanged_by == [count] * 4


def test_sums_over_processes_are_added_first(op):
    """Of the other dimension of a mesh, where the values are parts of a sum."""
    x, weight = values_of(5, 6)
    expected = op(x, weight)

    def check():
        mesh = init_device_mesh("cpu", (2, 2))
        part = distribute_tensor(x / 2, mesh, [Replicate(), Shard(1)]).to_local()
        given = DTensor.from_local(part, mesh, [Partial(), Shard(1)], run_check=False)
        for result, one in zip(op(given, distribute_tensor(weight, mesh, [Replicate()] * 2)), expected, strict=True):
            torch.testing.assert_close(result.full_tensor(), one)

    on_processes(4, check)


def test_integers_may_be_plain_tensors(op):
    """The same on every process, as PyTorch's loss_parallel takes them; others, and other meshes, are refused."""
    x, weight = values_of(3, 7)
    times = torch.tensor([2, 0, 1])
    expected = op(x, weight, times)

    def check():
        mesh = init_device_mesh("cpu", (2,))
        shards, weights = distribute_tensor(x, mesh, [Shard(1)]), distribute_tensor(weight, mesh, [Replicate()])
        for result, one in zip(op(shards, weights, times), expected, strict=True):
            torch.testing.assert_close(result.full_tensor(), one)
        with pytest.raises(RuntimeError, match=r"mixed torch.* and DTensor"):
            op(shards, weight)
        other = init_device_mesh("cpu", (1, 2))
        with pytest.raises(RuntimeError, match="have the same DeviceMesh"):
            op(shards, distribute_tensor(weight, other, [Replicate()] * 2))

    on_processes(2, check)


@pytest.mark.parametrize(
    ("placement", "arguments", "is_plain"),
    [(Shard(0), {}, False), (Replicate(), {}, False), (Shard(1), {"mean": False}, False), (Shard(0), {}, True)],
)
def test_other_calls_are_those_of_placement_rules(op, placement, arguments, is_plain):
    """Where the row is whole, where the declaration's condition does not hold, or where x is no DTensor."""
    x, weight = values_of(4, 6)
    expected = op(x, weight, **arguments)

    def check():
        mesh = init_device_mesh("cpu", (2,))
        weights = distribute_tensor(weight, mesh, [Replicate()])
        if is_plain:
            with pytest.raises(RuntimeError, match=r"mixed torch.* and DTensor"):
                op(x, weights)
            return
        results = op(distribute_tensor(x, mesh, [placement]), weights, **arguments)
        for result, one in zip(results, expected, strict=True):
            torch.testing.assert_close(result.full_tensor(), one)

    on_processes(2, check)
    assert exchanged_by == []


def test_what_does_not_fit_is_refused_before_anything_is_exchanged(op):
    x, weight = values_of(3, 8)

    def check():
        mesh = init_device_mesh("cpu", (2,))
        given = distribute_tensor(x, mesh, [Shard(1)]), distribute_tensor(weight[:5], mesh, [Replicate()])
        with pytest.raises(RuntimeError, match="dimension of length 5"):
            op(*given)

    on_processes(2, check)
    assert exchanged_by == []
