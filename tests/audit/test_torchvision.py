"""The audit of torchvision: zero tangents in forward mode, found from calls that are recorded from a script."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from . import without_cuda
from .command import ROOT, opwheel_audit

OPERATORS = ("roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool", "deform_conv2d")
SITE = Path(sys.prefix) / "audit"  # where the Makefile has installed it


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.skipif(not SITE.is_dir(), reason="there is no torchvision: make .venv/audit")
@pytest.mark.skipif(not torch.__version__.startswith("2.13."), reason="torchvision 0.28 is for torch 2.13")
def test_zero_tangents_are_found(tmp_path):
    environment = without_cuda.environment(SITE / "torchvision/_C.so", tmp_path) | {"PYTHONPATH": str(SITE)}
    done = opwheel_audit(
        *("torchvision", "--record", tmp_path / "calls", "--json", tmp_path / "a.json", "--check", "torch.func.jvp"),
        *("--", sys.executable, ROOT / "examples/audit/torchvision_calls.py"),
        env=environment,
    )
    assert done.returncode == 1, done.stderr
    results = json.loads((tmp_path / "a.json").read_text())["results"]
    found = {r["operator"]: r for r in results if r["outcome"] == "silently wrong"}
    assert set(found) == {f"torchvision::{name}" for name in OPERATORS}
    for row in found.values():
        assert row["origin"] == "recorded"
        assert "the first is 0, finite differences give" in row["message"]
    script = tmp_path / "script.py"
    script.write_text(found["torchvision::roi_align"]["reproduction"])
    shown = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True)
    assert "AssertionError: tangents of torch.func.jvp" in shown.stderr
