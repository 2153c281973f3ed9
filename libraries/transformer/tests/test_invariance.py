"""What holds of the library's claims about bits: on the CPU backend, and on one that says it keeps less."""

import json
import os
import re
import subprocess
import sys

import pytest
import torch
import transformer_ops

PLUGIN = """
import torch
from opwheel import Backend, hookimpl


def swiglu(a, b):
    return torch.nn.functional.silu(a) * b


@hookimpl
def opwheel_backend():
    return Backend(
        name="less",
        device_type="cpu",
        dispatch_key="CPU",
        operators=["swiglu"],
        register=lambda library: library.impl("swiglu", swiglu),
        not_invariant={"swiglu": ["batch", "threads"]},
    )
"""
FILES = {
    "transformer_ops_less.py": PLUGIN,
    "transformer_ops_less-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: transformer-ops-less\nVersion: 1.0\n",
    "transformer_ops_less-1.0.dist-info/entry_points.txt": "[transformer_ops.backends]\nless = transformer_ops_less\n",
}
needs_the_cpu_backend = pytest.mark.skipif(
    transformer_ops.backends().get("cpu") is None or transformer_ops.backends()["cpu"].state != "loaded",
    reason="needs transformer-ops-cpu, loaded",
)


@needs_the_cpu_backend
def test_what_the_cpu_backend_keeps():
    held = transformer_ops.library.invariant("attention", "cpu")
    assert held == ("batch", "prefix", "threads", "layout", "compiled", "grad", "repeat")
    assert transformer_ops.library.invariant("rms_norm.out", "cpu") == ()
    assert transformer_ops.library.invariant("rms_norm", "mps") == ()
    transformer_ops.require("cpu", invariant=("batch", "repeat"))
    transformer_ops.require("cpu", invariant={"rms_norm_backward": "order"})
    with pytest.raises(RuntimeError, match="fused_linear_cross_entropy: the library does not claim it"):
        transformer_ops.require("cpu", invariant={"fused_linear_cross_entropy": ["batch"]})
    with pytest.raises(ValueError, match="names no backend"):
        transformer_ops.require(invariant="batch")


@needs_the_cpu_backend
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_a_token_after_a_cache_is_the_last_one_of_its_sequence(dtype):
    q, k, v = (torch.randn(3, 45, 4, 16, dtype=dtype) for _ in range(3))
    whole = transformer_ops.attention(q, k, v, is_causal=True)
    for position in (0, 1, 15, 16, 17, 31, 44):
        seen = slice(position + 1)
        one = transformer_ops.attention(q[1:2, position : position + 1], k[1:2, seen], v[1:2, seen])
        assert torch.equal(one, whole[1:2, position : position + 1])


@pytest.fixture(scope="module")
def less(tmp_path_factory):
    """Runs a program where a backend keeps less than the library claims."""
    folder = tmp_path_factory.mktemp("less")
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    variables = {"PYTHONPATH": path, "TRANSFORMER_OPS_BACKENDS": "less"}

    def run(*command):
        done = subprocess.run(
            [sys.executable, *command], env=os.environ | variables, capture_output=True, text=True, check=False
        )
        return done.stdout

    return run


PROGRAM = """
import sys, transformer_ops
from opwheel.commands import run

transformer_ops.require("less", invariant={"swiglu": ["layout"]})
try:
    transformer_ops.require("less", invariant="batch")
except RuntimeError as error:
    print(error)
for command in (["explain", "swiglu", "cpu"], ["doctor"]):
    run("transformer_ops", "transformer_ops", command)
"""


def test_a_backend_that_keeps_less_says_so(less):
    told = less("-c", PROGRAM)
    assert "'less' (transformer-ops-less 1.0) does not keep 'batch': swiglu: the backend says so" in told
    assert "  the same bits whatever: layout, compiled, grad, repeat\n" in told
    assert "  claimed by the library, and not kept here: batch, threads\n" in told
    assert "less: operators whose bits are the same whatever: layout (1), compiled (1), grad (1), repeat (1)" in told
    assert "less: swiglu does not keep what the library claims: batch, threads" in told


@pytest.mark.slow
@pytest.mark.nightly
def test_doctor_has_it_from_the_process_that_tries_the_backend(less):
    report = json.loads(less("-m", "transformer_ops", "doctor", "--json", "--deep"))
    assert report["backends"]["less"]["not_invariant"] == {"swiglu": ["batch", "threads"]}
    assert report["invariant"]["less"] == {"swiglu": ["layout", "compiled", "grad", "repeat"]}


@pytest.mark.parametrize(("options", "more"), [((), set()), (("--every-claim",), {"batch"})], ids=["kept", "every"])
def test_kit_tries_what_a_backend_does_not_keep_where_it_is_asked_to(less, options, more):
    kit = (
        "-m",
        "pytest",
        "-q",
        "--pyargs",
        "opwheel_tools.testing",
        "--library",
        "transformer_ops",
        "--backend",
        "less",
    )
    told = less(*kit, *options, "--operators", "swiglu", "-k", "(batch or layout or grad) and invariance and float64")
    assert set(re.findall(r"^ *(\w+) invariance +(?:ok|FAIL)$", told, re.MULTILINE)) == {"layout", "grad", *more}, told
