"""How the backends are found, in processes of their own: on machines without a GPU, with and without Triton."""

import importlib.util
import json
import os
import subprocess
import sys

import pytest
import torch

STATES = "import json, transformer_ops as t; print(json.dumps({n: s.as_json() for n, s in t.backends().items()}))"
WITHOUT_TRITON = """
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "triton" else find(name, *rest)
"""

needs_the_cpu_backend = pytest.mark.skipif(
    not importlib.util.find_spec("transformer_ops_cpu"), reason="needs transformer-ops-cpu"
)


def states(code=STATES, **variables):
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("TRITON_", "TRANSFORMER_OPS_"))}
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, env=inherited | variables, capture_output=True, text=True, check=True)
    return json.loads(result.stdout)


@needs_the_cpu_backend
@pytest.mark.skipif(torch.cuda.is_available() or torch.xpu.is_available(), reason="there is a GPU")
def test_without_a_gpu():
    found = states()
    for name, device, key in (("triton", "cuda", "CUDA"), ("triton_xpu", "xpu", "XPU")):
        status = found[name]
        assert (status["state"], status["dispatch_key"], status["code"]) == ("unsupported", key, "OPWHEEL-E040")
        assert f"finds no {device} device" in status["reason"]
        assert status["distribution"] == "transformer-ops-triton"
    assert found["cpu"]["state"] == "loaded"


def test_without_triton():
    status = states(WITHOUT_TRITON + STATES)["triton"]
    assert (status["state"], status["reason"]) == ("unsupported", "Triton is not installed")
    assert "PyTorch's build for your GPU" in status["fix"]


@needs_the_cpu_backend
@pytest.mark.skipif(not importlib.util.find_spec("triton"), reason="needs Triton")
def test_the_interpreter_leaves_the_cpu_to_its_backend():
    found = states(TRITON_INTERPRET="1")
    assert (found["cpu"]["state"], found["triton"]["state"]) == ("loaded", "shadowed")


@pytest.mark.skipif(not importlib.util.find_spec("triton"), reason="needs Triton")
def test_the_interpreter_takes_the_cpu_where_it_is_chosen():
    status = states(TRITON_INTERPRET="1", TRANSFORMER_OPS_BACKENDS="triton")["triton"]
    assert (status["state"], status["dispatch_key"]) == ("loaded", "CPU")
    assert status["missing"] == []
    # It is PyTorch's own product on a GPU, of which no bits are claimed.
    of_linear = ["linear", "linear_backward_bias", "linear_backward_input", "linear_backward_weight"]
    assert sorted(status["by_reference"]) == of_linear
