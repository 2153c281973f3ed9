"""The plugins under examples/plugins, each a wheel of its own beside the released ones."""

import importlib.util
from pathlib import Path

import pytest

from tests.docs.blocks import blocks, run_console
from tests.docs.blocks import environment as page_environment

pytestmark = pytest.mark.wheels

ROOT = Path(__file__).parents[2]
RUN_A_CALL = """
import torch, muladd
a = torch.randn(3, 4)
torch.testing.assert_close(muladd.muladd(a, a, 2.0), a * a + 2)
"""
# One result has an order of dimensions that none of the arguments has which it is computed from.
TRANSPOSED = """
import torch, muladd
grad, a, b = torch.randn(1, 3), torch.randn(3, 2).t(), torch.randn(3).bfloat16()
by_a, by_b = torch.ops.muladd.muladd_backward(grad, a, b)
torch.testing.assert_close(by_a, (grad * b).expand(2, 3))
torch.testing.assert_close(by_b, grad * a)
"""


@pytest.mark.nightly
@pytest.mark.slow
def test_a_device_outside_of_pytorch(muladd, environment, example, tmp_path):
    """It loads itself with torch; its backend is what new-backend writes, unedited."""
    assert muladd("new-backend", "toy", "--device-type", "toy").returncode == 0
    environment.install(tmp_path / "muladd-toy")
    status = environment.status("toy")
    assert (status["state"], status["dispatch_key"], status["code"]) == ("unsupported", "PrivateUse1", "OPWHEEL-E040")
    assert "toy" in status["reason"]
    environment.install(example("toy"))
    assert environment.status("toy")["state"] == "loaded"
    assert environment.status("cpu")["state"] == "loaded"
    off = environment.status("toy", TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert (off["state"], off["code"]) == ("unsupported", "OPWHEEL-E040")
    environment.evaluate("import torch; " + RUN_A_CALL.replace("(3, 4)", '(3, 4, device="toy")'))
    environment.passes_the_kit("toy")


@pytest.mark.nightly
@pytest.mark.slow
def test_the_page_about_such_a_device(example, tmp_path, monkeypatch):
    """Its commands, in the order of the page."""
    (tmp_path / "examples/plugins").mkdir(parents=True)
    example("toy").rename(tmp_path / "examples/plugins/toy")
    monkeypatch.chdir(tmp_path)
    for name, value in page_environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    page = ROOT / "docs/privateuse1.md"
    commands = [block for block in blocks(page) if block.not_run]
    assert len(commands) == 4
    for block in commands:
        run_console(block, page, {})


AUTOCAST = """
import torch, muladd
x = torch.ones(3, device="toy")
with torch.autocast("toy", dtype=torch.bfloat16):
    print(muladd.muladd(x, x, 2.0).dtype, torch.add(x, x).dtype)
"""
FORKED = """
import os, torch, muladd
def backward():
    x = torch.ones(3, device="toy", requires_grad=True)
    muladd.muladd(x, x, 2.0).sum().backward()
    return x.grad.tolist()
backward()
if os.fork() == 0:
    try:
        backward()
    except RuntimeError as error:
        print(error, flush=True)
    os._exit(0)
os.wait()
"""


@pytest.mark.nightly
@pytest.mark.slow
def test_autocast_and_forks_on_such_a_device(environment, example, muladd, tmp_path):
    """As docs/privateuse1.md and docs/production.md say."""
    environment.install(example("toy"))
    assert muladd("new-backend", "toy", "--device-type", "toy").returncode == 0
    environment.install(tmp_path / "muladd-toy")
    assert environment.evaluate(AUTOCAST).split() == ["torch.float32", "torch.float32"]
    assert "Unable to handle autograd's threading in combination with fork" in environment.evaluate(FORKED)


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("triton"), reason="needs Triton")
def test_triton(environment, example):
    environment.install(example("triton"))
    on_the_gpu = environment.status("triton")
    assert (on_the_gpu["dispatch_key"], on_the_gpu["state"] != "broken") == ("CUDA", True)
    interpreted = {"TRITON_INTERPRET": "1", "MULADD_BACKENDS": "triton"}
    status = environment.status("triton", **interpreted)
    assert (status["state"], status["library"], len(status["operators"])) == ("loaded", None, 12)
    # The interpreter truncates where it should round to bfloat16, unlike the compiler.
    environment.passes_the_kit(
        "triton", options=("-k", "(test_layouts or test_special or test_out) and not bfloat16"), **interpreted
    )


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("numba"), reason="needs Numba")
def test_numba_is_chosen_through_plugins_toml(environment, example, tmp_path):
    environment.install(example("numba"))
    shadowed = environment.status("numba")
    assert (shadowed["state"], shadowed["code"]) == ("shadowed", "OPWHEEL-E024")
    assert 'prefer = { CPU = ["numba"] }' in shadowed["fix"]
    plugins = tmp_path / "plugins.toml"
    plugins.write_text('[policy]\nprefer = { CPU = ["numba"] }\n')
    chosen = {"MULADD_PLUGINS": str(plugins)}
    assert environment.status("numba", **chosen)["state"] == "loaded"
    assert environment.status("cpu", **chosen)["reason"] == "'numba' owns CPU: [policy] prefer for CPU names it first"
    for code in (RUN_A_CALL, TRANSPOSED):
        environment.evaluate(code, **chosen)
    environment.passes_the_kit("numba", **chosen)


def test_numpy_covers_two_operators(environment, example):
    environment.install(example("numpy"))
    alone = {"MULADD_BACKENDS": "numpy"}
    status = environment.status("numpy", **alone)
    assert (status["state"], status["operators"]) == ("loaded", ["add", "add.out", "scale", "scale.out"])
    assert status["missing"] == []
    environment.passes_the_kit("numpy", **alone)
    failed = environment.run("-c", RUN_A_CALL, **alone)
    assert "muladd::muladd has no kernel for cpu tensors: the backend 'numpy' (muladd-numpy 0.1.0)" in failed.stderr
    # With all of the operators taken, there is nothing left for it.
    assert environment.status("numpy")["state"] == "shadowed"
