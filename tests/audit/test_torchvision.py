"""The audit of torchvision: zero tangents in forward mode, noted from calls that are recorded from a script."""

import json
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
def test_zero_tangents_are_noted(tmp_path):
    """They come from torch.library.register_autograd, which torchvision uses."""
    environment = without_cuda.environment(SITE / "torchvision/_C.so", tmp_path) | {"PYTHONPATH": str(SITE)}
    done = opwheel_audit(
        *("torchvision", "--record", tmp_path / "calls", "--json", tmp_path / "a.json", "--check", "torch.func.jvp"),
        *("--", sys.executable, ROOT / "examples/audit/torchvision_calls.py"),
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    content = json.loads((tmp_path / "a.json").read_text())
    (note,) = content["notes"]
    assert "zero tangents" in note["text"]
    assert set(note["operators"]) == {f"torchvision::{name}" for name in OPERATORS}
    assert done.stdout.count("zero tangents for every operator whose derivative torch.library registered: ") == 1
    assert {row["origin"] for row in content["results"] if row["outcome"] == "noted"} == {"recorded"}
