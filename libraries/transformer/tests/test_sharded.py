"""Norms and losses whose reduced dimension is sharded: what is exchanged, and what several processes compute."""

from pathlib import Path

import pytest
import torch
import transformer_ops
from opwheel import LocalShard
from opwheel.dispatch.overload import as_tuple
from opwheel_tools.testing.checks.cases import declared

from tests.portions import first_of
from tests.torchrun import in_processes

CHECKS = Path(__file__).with_name("sharded_checks.py")
MODELS = Path(__file__).with_name("tensor_parallel_models.py")
OPERATORS = {name: one for name, one in transformer_ops.library.overloads.items() if one.operator.sharded is not None}
NUMBERS_OF_A_ROW = {
    "rms_norm": 1,
    "rms_norm_backward": 2,
    "fused_add_rms_norm": 1,
    "fused_add_rms_norm_backward": 2,
    "layer_norm": 2,
    "layer_norm_backward": 4,
    "cross_entropy_rows": 4,
    "cross_entropy_backward": 0,
    "fused_linear_cross_entropy": 4,
    "fused_linear_cross_entropy_training": 4,
    "linear_cross_entropy_rows": 4,
    "linear_cross_entropy_backward": 0,
}


def test_operators_with_sharded_reductions():
    assert set(OPERATORS) == set(NUMBERS_OF_A_ROW)


@pytest.mark.parametrize("name", NUMBERS_OF_A_ROW)
def test_numbers_that_are_exchanged(name):
    """As many a row as are documented, one more with label smoothing; a process that has all of it computes all."""
    overload = OPERATORS[name]
    for sample in declared(overload, torch.float64, torch.device("cpu")):
        values = overload.bind(sample.args, sample.kwargs)
        given = dict(zip(overload.names, values, strict=True))
        x = given.get("x", given.get("sum", given.get("input")))
        size = given["weight"].shape[0] if "linear" in name else x.shape[-1]
        exchanged = []

        def exchange(tensor, op, exchanged=exchanged):
            exchanged.append(tensor.numel())
            return tensor

        results = overload.operator.sharded.local(LocalShard(size, 0, 1, exchange), *values)
        expected = NUMBERS_OF_A_ROW[name]
        expected += bool(expected and given.get("label_smoothing", 0) > 0)
        assert sum(exchanged) == expected * x.shape[:-1].numel()
        for result, one in zip(as_tuple(results), as_tuple(overload.op(*values)), strict=True):
            torch.testing.assert_close(result, one, equal_nan=True)


@pytest.mark.slow
@pytest.mark.parametrize("mesh", first_of(["2", "4", "2x2"]))
def test_reductions_over_a_sharded_dimension(mesh):
    """Against one process; how often they exchange numbers, and how much memory the losses take."""
    assert "all reductions right" in in_processes(2 if mesh == "2" else 4, str(CHECKS), mesh)


@pytest.mark.slow
@pytest.mark.nightly
def test_models_of_transformers_by_their_own_plans(tmp_path):
    """Patched after they are loaded, eagerly and compiled: logits, loss and gradients of one process."""
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    assert "all models right" in in_processes(2, str(MODELS), str(tmp_path), "Llama", "Qwen2")
