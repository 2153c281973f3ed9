"""The committed record of instruction counts, and what a difference from it says."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.instructions import record
from benchmarks.instructions.statements import CONTROL, ON_CUDA, STATEMENTS

KEPT = record.load(record.PATH)
ON_DEVICE = record.load(record.PATH_ON_CUDA)
NAMES = {one.name for one in STATEMENTS}
KERNELS = {name for name in NAMES if name.startswith("kernel/")}


def test_the_record_has_every_statement():
    assert set(KEPT.counts["avx2"]) == NAMES
    assert set(KEPT.counts["baseline"]) == KERNELS
    assert set(ON_DEVICE.counts["cuda"]) == {one.name for one in ON_CUDA}


def changed(name, factor):
    avx2 = KEPT.counts["avx2"]
    return KEPT.counts | {"avx2": avx2 | {name: int(avx2[name] * factor)}}


def test_tolerance():
    assert record.compare(KEPT, changed("kernel/row", 1 + 0.9 * KEPT.tolerance)) == []
    assert record.compare(KEPT, changed("kernel/row", 0.5)) == []
    [finding] = record.compare(KEPT, changed("kernel/row", 1.1))
    assert "avx2 kernel/row" in finding
    assert "+10.0%" in finding


def test_a_change_of_pytorch_is_told_from_one_of_muladd():
    [finding] = record.compare(KEPT, changed(CONTROL, 1.5))
    assert "muladd has no part in it" in finding
    assert finding.endswith(record.UPDATE)
    of_torch = {name for name in ON_DEVICE.counts["cuda"] if name.startswith("cuda/torch/")}
    slower = {name: count * (1 + (name in of_torch)) for name, count in ON_DEVICE.counts["cuda"].items()}
    findings = record.compare(ON_DEVICE, {"cuda": slower}, record.UPDATE_ON_CUDA)
    assert len(findings) == len(of_torch) > 10
    assert all("muladd has no part in it" in finding for finding in findings)
    assert all(finding.endswith(record.UPDATE_ON_CUDA) for finding in findings)


def test_the_host_has_no_more_to_do_than_for_operators_of_pytorch():
    """With tensors on a GPU. What softmax takes more without a backward pass is less than a tenth, and runs differ."""
    counts = ON_DEVICE.counts["cuda"]
    ours = {name: count for name, count in counts.items() if not name.startswith("cuda/torch/")}
    assert len(ours) == 15
    for name, count in ours.items():
        of_torch = counts[name.replace("cuda/", "cuda/torch/")]
        assert count <= of_torch * (1.1 if "softmax" in name else 1.01), name


def test_the_table_in_the_documentation_is_of_the_record():
    """Thousands of instructions, ours and PyTorch's: without a gradient, recording one, with the backward pass."""
    page = (Path(__file__).parents[2] / "docs/development.md").read_text()
    rows = re.findall(r"^\| `(\w+)`.*?((?: \| [\d.]+ / [\d.]+){3}) \|$", page, re.MULTILINE)
    counts = ON_DEVICE.counts["cuda"]
    assert {f"cuda/{name}, no_grad" for name, _ in rows} == {
        name for name in counts if re.fullmatch(r"cuda/\w+, no_grad", name)
    }
    for name, cells in rows:
        written = [1000 * float(number) for number in re.findall(r"[\d.]+", cells)]
        forms = ("no_grad", "forward", "forward+backward")
        recorded = [counts[f"cuda/{of}{name}, {form}"] for form in forms for of in ("", "torch/")]
        assert written == pytest.approx(recorded, rel=record.TOLERANCE), name


@pytest.mark.parametrize(("counted", "where"), [(True, "the record"), (False, "this run")])
def test_statement_without_a_counterpart(counted, where):
    fewer = KEPT.counts | {"avx2": {name: count for name, count in KEPT.counts["avx2"].items() if name != CONTROL}}
    kept, now = (replace(KEPT, counts=fewer), KEPT.counts) if counted else (KEPT, fewer)
    [finding] = record.compare(kept, now)
    assert f"{CONTROL} is not in {where}" in finding


def test_another_environment_is_not_compared():
    assert record.differences(KEPT, KEPT.environment) == []
    [difference] = record.differences(KEPT, KEPT.environment | {"torch": "1.0"})
    assert difference == f"torch was {KEPT.environment['torch']}, is 1.0"


def test_calls_outside_of_the_conditions():
    """What asking the conditions of a kernel for PyTorch's operator costs where they are not met."""
    avx2 = KEPT.counts["avx2"]
    names = [name.removesuffix(", on") for name in avx2 if name.startswith("outside/") and name.endswith(", on")]
    assert len(names) == 7
    for name in names:
        assert 0 < avx2[f"{name}, on"] - avx2[f"{name}, off"] <= 1500, name
