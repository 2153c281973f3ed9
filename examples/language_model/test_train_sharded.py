"""The sharded example learns on every mesh what one process learns, and goes on from checkpoints of other meshes."""

import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.torchrun import in_processes

pytest.importorskip("transformer_ops")
SCRIPT = Path(__file__).with_name("train_sharded.py")
TOLERANCE = {"float64": 1e-9, "float32": 1e-3}


def losses_of(count, *options, steps, dtype="float64"):
    """The loss of each step, on so many processes."""
    with TemporaryDirectory() as folder:
        file = Path(folder, "losses.json")
        given = ["--steps", steps, "--dtype", dtype, "--losses", file, *options]
        printed = in_processes(count, str(SCRIPT), *map(str, given))
        assert f"step {steps}: loss" in printed
        return json.loads(file.read_text())


@cache
def alone(steps, dtype="float64"):
    losses = losses_of(1, steps=steps, dtype=dtype)
    assert losses[-1] < losses[0] - 0.05 * steps**0.5  # so that there is something to agree on
    return losses


@pytest.mark.slow
def test_tensor_parallel():
    found = losses_of(2, "--tensor", 2, "--recompute", steps=3)
    assert found == pytest.approx(alone(3), rel=1e-9)


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("count", "options"), [(4, ("--tensor", 2, "--recompute")), (4, ()), (2, ("--tensor", 2))])
def test_every_mesh_learns_what_one_process_does(count, options, dtype):
    """FSDP2 x tensor parallelism, FSDP2, and tensor parallelism."""
    found = losses_of(count, *options, steps=50, dtype=dtype)
    assert found == pytest.approx(alone(50, dtype), rel=TOLERANCE[dtype])


@pytest.mark.slow
@pytest.mark.nightly
def test_compiled():
    found = losses_of(4, "--tensor", 2, "--recompute", "--compile", steps=5)
    assert found == pytest.approx(alone(5), rel=1e-9)


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize(
    ("saved_on", "loaded_on"),
    [((4, "--tensor", 2), (2, "--tensor", 1)), ((2, "--tensor", 1), (4, "--tensor", 2)), ((2, "--tensor", 2), (1,))],
)
def test_a_checkpoint_is_read_on_another_mesh(tmp_path, saved_on, loaded_on):
    """With what the optimizer knows: the losses are those of a training that was not interrupted."""
    before = losses_of(*saved_on, "--save", tmp_path, steps=10)
    after = losses_of(*loaded_on, "--load", tmp_path, steps=20)
    assert before + after == pytest.approx(alone(20), rel=1e-9)
