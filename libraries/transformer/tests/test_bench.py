"""``transformer_ops bench``: a quick run has every operator beside its peers, and finds no wrong result."""

import json

import torch
import transformer_ops
from opwheel.bench import from_samples
from opwheel.cli import make_app
from typer.testing import CliRunner


def test_quick(tmp_path):
    file = tmp_path / "run.json"
    options = ["--quick", "--skip", "reference, compiled", "--json", str(file)]
    result = CliRunner().invoke(make_app("transformer_ops"), ["bench", *options])
    assert result.exit_code == 0, result.stdout + result.stderr
    run = json.loads(file.read_text())
    assert run["findings"] == []
    rows = {(row["group"], row["form"]): set(row["peers"]) for row in run["rows"]}
    assert {group for group, _ in rows} == set(transformer_ops.library.overloads)
    for operator, peer in {
        "rms_norm": "F.rms_norm",
        "fused_add_rms_norm": "F.rms_norm",
        "layer_norm": "F.layer_norm",
        "softmax": "F.softmax",
        "swiglu": "F.silu(a) * b",
        "geglu": "F.gelu(a) * b",
        "cross_entropy_rows": "F.cross_entropy",
        "fused_linear_cross_entropy": "F.cross_entropy",
    }.items():
        for form in ("new", "forward+backward"):
            assert {"operator", "reference", peer} <= rows[operator, form]


def test_sizes_that_are_measured():
    cases = list(from_samples.cases(transformer_ops.library.overloads.values(), "cpu", ["rms_norm"]))
    assert [(case.layout, case.dtype) for case in cases[::2]] == [
        (f"measured {index}", dtype) for dtype in (torch.float32, torch.bfloat16) for index in (0, 1)
    ]
    assert [tuple(case.sample("cpu", False).args[0].shape) for case in cases[:3:2]] == [(4096, 2048), (512, 4096)]
