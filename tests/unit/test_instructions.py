"""The committed record of instruction counts, and what a difference from it says."""

from dataclasses import replace

import pytest

from benchmarks.instructions import record
from benchmarks.instructions.statements import CONTROL, STATEMENTS

KEPT = record.load(record.PATH)
NAMES = {one.name for one in STATEMENTS}
KERNELS = {name for name in NAMES if name.startswith("kernel/")}


def test_the_record_has_every_statement():
    assert set(KEPT.counts["avx2"]) == NAMES
    assert set(KEPT.counts["baseline"]) == KERNELS


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
