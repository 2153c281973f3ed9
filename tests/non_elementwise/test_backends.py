"""A backend whose kernels are Python functions, for a library with operators of every rule; and its measurements."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from opwheel.registry.references import is_reference
from opwheel_tools import OpInfo, Sample
from opwheel_tools.bench import from_samples
from opwheel_tools.bench.results import Results
from opwheel_tools.bench.sampling import Precision
from opwheel_tools.bench.suite import Form

from tests.non_elementwise.python_library import BASELINES, blend, library, rows, softmax


def by_reference(it):
    return {name for name in it.overloads if is_reference(f"{it.namespace}::{name}", "CPU")}


def test_references_compute_and_are_known_as_such():
    it = library()
    x, y = torch.randn(3, 4), torch.randn(4)
    torch.testing.assert_close(it.ops.softmax(x), softmax(x))
    torch.testing.assert_close(it.ops.blend(x, y, 0.25), blend(x, y, 0.25))
    target = x.clone()
    it.ops.blend_(target, y, 0.25)
    torch.testing.assert_close(target, blend(x, y, 0.25))
    it.ops.fill(target, 3.0)
    assert target.eq(3).all()
    assert by_reference(it) == {"softmax", "blend", "blend_", "fill"}


def test_functions_take_their_place():
    calls = []
    it = library(softmax=lambda x: calls.append("softmax") or softmax(x), blend=lambda x, y, t: blend(x, y, t) + 1)
    x = torch.randn(3, 4)
    torch.testing.assert_close(it.ops.softmax(x), softmax(x))
    assert calls == ["softmax"]
    torch.testing.assert_close(it.ops.blend(x, x, 0.5), x + 1)
    assert by_reference(it) == {"fill"}


class TestBench:
    QUICK = Precision(error=0.5, seconds=0.01, rounds=(3, 5))

    def measured(self, it, **options):
        results = Results({}, {})
        for case in from_samples.cases(it.overloads.values(), "cpu"):
            from_samples.run(case, "cpu", self.QUICK, results, skip=[from_samples.COMPILED], **options)
        return results

    def test_samples_are_measured_against_the_reference(self, tmp_path):
        results = self.measured(library())
        forward, backward = results.rows
        assert forward.name == "softmax/new/sample 0/float32"
        assert set(forward.measurements) == {from_samples.OURS, from_samples.REFERENCE, "by hand"}
        assert set(backward.measurements) == {*forward.measurements, from_samples.FUNCTIONAL}
        assert not results.findings
        assert results.notes[:3] == [
            f"wrong is left out of {forward.name}: result 0 differs from the reference's",
            f"two is left out of {forward.name}: it has 2 results, the reference has 1",
            f"absent is left out of {forward.name}: ImportError: no such package",
        ]
        results.save(tmp_path / "results.json")

    def test_the_gradients_that_arrive_are_made_once_and_not_timed(self, monkeypatch):
        """Filling new memory may take longer than the operator."""
        made, ones_like = [], torch.ones_like

        def counted(tensor):
            made.append(tensor.shape)
            return ones_like(tensor)

        monkeypatch.setattr(torch, "ones_like", counted)
        _, backward = self.measured(library()).rows
        assert len(made) == len(backward.measurements)
        assert backward.measurements[from_samples.OURS].samples >= 3

    def test_nothing_wrong_is_timed(self):
        results = self.measured(library(softmax=lambda x: softmax(x) + 1))
        assert results.rows == []
        assert "result 0 differs from the reference's" in results.findings[0]

    @pytest.mark.parametrize("group", ["softmax", "blend"])
    def test_operators_are_chosen_by_name(self, group):
        found = list(from_samples.cases(library().overloads.values(), "cpu", [group]))
        assert len(found) == (2 if group == "softmax" else 0)

    def test_what_is_to_be_measured_has_its_peak_memory(self):
        """In a process of its own: one that has run thousands of tests has memory that its allocators do not return."""
        name = f"{Path(__file__)}::TestBench::test_peak_memory"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", name]
        done = subprocess.run(
            command, env=os.environ | {"OF_ITS_OWN": "1"}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "1 passed" in done.stdout

    @pytest.mark.skipif("OF_ITS_OWN" not in os.environ, reason="the test above runs it")
    def test_peak_memory(self):
        def large(device, dtype, requires_grad):
            yield Sample(torch.randn(2**11, 2**11, device=device, dtype=dtype, requires_grad=requires_grad))

        def filled(device, dtype, requires_grad):
            yield Sample(torch.ones(3, device=device, dtype=dtype), 2.0)

        measured = OpInfo(samples=rows, measured=large, baselines=BASELINES, dtypes=(torch.float32,))
        it = library({"softmax": measured, "fill": OpInfo(samples=filled)})
        named = from_samples.cases(it.overloads.values(), "cpu", ["fill"])
        assert {case.overload.name for case in named} == {"fill"}  # and not below, where it is not named
        results = self.measured(it)
        forward, backward = results.rows
        assert [forward.layout, backward.layout] == ["measured 0"] * 2
        assert from_samples.measured_rows(results, Form.NEW) == [forward]
        assert from_samples.compared_with(forward) == "by hand"
        peak = {name: one.peak_bytes for name, one in forward.measurements.items()}
        assert peak[from_samples.OURS] == pytest.approx(2**24, rel=0.2)
        # Two intermediate results at a time, or a third that has been freed.
        assert 1.8 * 2**24 < peak["by hand"] < 3.2 * 2**24
        assert backward.measurements[from_samples.OURS].peak_bytes > peak[from_samples.OURS]
