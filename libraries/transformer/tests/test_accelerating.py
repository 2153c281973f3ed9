"""accelerate_torch and restore_torch: in one process, across processes, and what the commands say of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import transformer_ops
from torch.nn import functional

pytestmark = pytest.mark.skipif(
    "rms_norm" not in getattr(transformer_ops.backends().get("cpu"), "operators", ()),
    reason="they are for the CPU backend",
)
OPERATORS = [one.operator for one in transformer_ops.library.foreign.declarations]


def dispatcher() -> list[str]:
    tables = (torch._C._dispatch_dump_table(one) + torch._C._dispatch_dump(one) for one in OPERATORS)
    return list(tables)


def gradient(x: torch.Tensor, *, compiled: bool) -> tuple[str, torch.Tensor]:
    """Whose node it is, and the gradient."""
    torch.compiler.reset()
    names = []

    def backend(module: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> object:
        names.extend(str(node.target) for node in module.graph.nodes if node.op == "call_function")
        return module

    from torch._dynamo.backends.common import aot_autograd

    function = lambda x: functional.rms_norm(x, (512,))  # noqa: E731
    y = torch.compile(function, backend=aot_autograd(fw_compiler=backend))(x) if compiled else function(x)
    whose = " ".join(names) if compiled else y.grad_fn.name()  # type: ignore[union-attr]
    return whose, torch.autograd.grad(y.square().sum(), x)[0]


@pytest.mark.parametrize("compiled", [False, True])
def test_off_on_off_on(compiled: bool) -> None:
    before, x = dispatcher(), torch.randn(64, 512, requires_grad=True)
    found = []
    for _ in range(2):
        found.append(gradient(x, compiled=compiled))
        transformer_ops.accelerate_torch()
        found.append(gradient(x, compiled=compiled))
        transformer_ops.restore_torch()
        assert dispatcher() == before
    assert ["rms_norm" in whose for whose, _ in found] == [False, True, False, True]
    for _, one in found:
        torch.testing.assert_close(one, found[0][1], rtol=1e-4, atol=1e-4)


def test_errors_are_pytorchs() -> None:
    logits, target = torch.randn(256, 8192), torch.full((256,), 9000)
    with pytest.raises(IndexError) as off:
        functional.cross_entropy(logits, target)
    with transformer_ops.accelerate_torch(), pytest.raises(IndexError) as on:
        functional.cross_entropy(logits, target)
    assert str(on.value) == str(off.value)


def run(*arguments: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


TABLES = """
import sys, torch
for one in sys.argv[1:]:
    print(torch._C._dispatch_dump_table(one) + torch._C._dispatch_dump(one))
"""


def test_off_is_a_process_that_never_imported_the_package() -> None:
    transformer_ops.accelerate_torch()
    assert run("-c", TABLES, *OPERATORS) != "\n".join([*dispatcher(), ""])
    transformer_ops.restore_torch()
    assert run("-c", TABLES, *OPERATORS) == "\n".join([*dispatcher(), ""])


COMMANDS = """
import sys
from opwheel.commands import run
run("transformer_ops", "transformer_ops", ["doctor", "--json"])
print("---")
run("transformer_ops", "transformer_ops", ["explain", "aten::rms_norm"])
"""


def test_by_the_environment() -> None:
    """On at import, and doctor and explain tell."""
    told, explained = run("-c", COMMANDS, TRANSFORMER_OPS_FOREIGN="on").split("---\n")
    on = json.loads(told)
    assert on["foreign"]["policy"] == "on"
    assert [one["state"] for one in on["foreign"]["kernels"]] == ["on"] * len(OPERATORS)
    assert on["digest"] != transformer_ops.library.digest()
    assert "aten::rms_norm: on at AutogradCPU, CPU" in explained
    assert "input.is_contiguous()" in explained
    assert [one.state for one in transformer_ops.library.foreign.status()] == ["off"] * len(OPERATORS)


def test_without_the_backend() -> None:
    """Switched on by the environment where it cannot be: the import warns, and PyTorch is as it was."""
    program = "import torch, transformer_ops; print(torch.nn.functional.softmax(torch.zeros(2), 0).tolist())"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "TRANSFORMER_OPS_FOREIGN": "on", "TRANSFORMER_OPS_BACKENDS": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == "[0.5, 0.5]"
    assert "no kernel for rms_norm at CPU" in done.stderr
    assert "OPWHEEL-E100" in done.stderr


@pytest.mark.nightly
@pytest.mark.slow
def test_inductor_in_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Off, on, off, on with its caches on disk: whose kernel runs, and the same gradient each time."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    torch.manual_seed(0)
    x, whose, gradients = torch.randn(64, 512, requires_grad=True), [], []
    for is_on in (False, True) * 2:
        torch.compiler.reset()
        if is_on:
            transformer_ops.accelerate_torch()
        with torch.profiler.profile() as profiler:
            y = torch.compile(lambda x: functional.rms_norm(x, (512,)))(x)
            gradients += torch.autograd.grad(y.square().sum(), x)
        whose.append(any("transformer_ops::rms_norm" in event.name for event in profiler.events()))
        transformer_ops.restore_torch()
    assert whose == [False, True] * 2
    for gradient in gradients[1:]:
        torch.testing.assert_close(gradient, gradients[0], rtol=1e-4, atol=1e-4)


ACROSS = """
import sys, torch, transformer_ops
from torch.nn import functional
if sys.argv[1] == "on":
    transformer_ops.accelerate_torch()
torch.manual_seed(0)
x = torch.randn(64, 512, requires_grad=True)
y = torch.compile(lambda x: functional.rms_norm(x, (512,)))(x)
with torch.profiler.profile() as profiler:
    y = torch.compile(lambda x: functional.rms_norm(x, (512,)))(x)
    gradient, = torch.autograd.grad(y.square().sum(), x)
names = {event.name for event in profiler.events()}
print(any("transformer_ops::rms_norm" in name for name in names), f"{gradient.norm().item():.3f}")
"""


@pytest.mark.nightly
@pytest.mark.slow
def test_compile_caches_across_processes(tmp_path: Path) -> None:
    """With one folder of caches, each process runs the program that was compiled with its own kernels."""
    cache = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path), "TORCHINDUCTOR_FX_GRAPH_CACHE": "1"}
    found = [run("-c", ACROSS, switch, **cache).split() for switch in ("off", "on", "off", "on")]
    assert [whose for whose, _ in found] == ["False", "True", "False", "True"]
    assert len({norm for _, norm in found}) == 1
