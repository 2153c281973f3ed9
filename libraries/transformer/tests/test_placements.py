"""The placement rules in the wheel are those that the references and samples show, and DTensor has no others."""

import json
import re

import pytest
import torch
import transformer_ops
from opwheel.dispatch.placements import FILE
from opwheel_tools.testing.checks.cases import declared, wide_dtype
from opwheel_tools.testing.placements.keeping import found_rules
from opwheel_tools.testing.placements.sweep import sweep
from opwheel_tools.testing.placements.validator import validate

LIBRARY = transformer_ops.library
KEPT = json.loads((LIBRARY.folder / FILE).read_text())
BY_DAY = ("rms_norm", "rms_norm_backward", "swiglu", "layer_norm", "scaled")
SWEPT_BY_DAY = ("rms_norm", "swiglu")
OPERATORS = [name for name, one in LIBRARY.overloads.items() if not one.mutates and one.tensor_positions]
MOST = 400
"""Combinations of placements of one sample that are tried: attention_backward has more than a million."""
# Right of a sample, by this backend's kernels, and not in the file.
_KEPT = "a kernel may take y and lse in the place of what they were computed from, and is wrong with sums of these"
KNOWN = {
    "attention_backward": (r".*P\(.* -> .*", _KEPT),
    "attention_qkvpacked_backward": (r".*P\(.* -> .*", _KEPT),
    "scaled": (r".*, P\(\w+\) -> .*", "nothing depends on 'like', in which no sums over processes are looked for"),
    "dequantize_rowwise": (
        r".*P\(.* -> .*",
        "the kernel takes scales of float32 alone: sums of these are rounded",
    ),
    "fused_linear_cross_entropy_training": (
        r"S\(0\), R, S\(0\), R -> .*",
        "each process has the same factor, by chance",
    ),
    "fused_linear_cross_entropy": (r"S\(0\), R, S\(0\) -> P\(avg\)", "each process has as many targets, by chance"),
}


def at_night(names, by_day):
    return [name if name in by_day else pytest.param(name, marks=pytest.mark.nightly) for name in names]


def test_the_file_has_rules_of_operators_alone():
    assert set(KEPT) <= set(LIBRARY.overloads)


@pytest.mark.parametrize("name", at_night(LIBRARY.overloads, BY_DAY))
def test_the_file_has_the_rules_that_are_found(name):
    """Made by ``python -m opwheel_tools.testing.placements transformer_ops core/src/transformer_ops``."""
    assert found_rules(LIBRARY, [name]).get(name) == KEPT.get(name)


@pytest.mark.parametrize("world_size", [2, pytest.param(4, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("name", at_night(OPERATORS, SWEPT_BY_DAY))
def test_dtensor_knows_all_that_is_right_and_nothing_else(name, world_size):
    overload = LIBRARY.overloads[name]
    validated = validate(overload, world_size)
    assert validated.incorrect == ()
    for sample in declared(overload, wide_dtype(overload), torch.device("cpu")):
        values = overload.bind(sample.args, sample.kwargs)
        if all(tensor.numel() for tensor in overload.all_tensors(values)):
            swept = sweep(overload, values, world_size, MOST)
            assert swept.incorrect == ()
            known, _ = KNOWN.get(name, ("", ""))
            assert [one for one in swept.missing if not re.fullmatch(known, one)] == []
