"""The wheels of `make wheels PLATFORM=aarch64 TORCHES=2.10.0`, on an emulated processor.

QEMU computes what the instructions say, in a hundred times their time: the kits take most of an hour. Nothing here says
anything of speed, nor of processors that do not keep to the architecture.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from release.emulated import MACHINE, Emulated

from .conftest import ROOT, Environment, check_lock, check_passed

pytestmark = [pytest.mark.slow, pytest.mark.wheels]

# Both machines print the loss of each step of the example's training, and how many test images are right afterwards.
DIGITS = """
import json, sys
sys.path.insert(0, sys.argv[1])
import digits, torch
data, test = digits.load_data(0)
models = digits.new_models(0)
optimizers = {name: digits.new_optimizer(model) for name, model in models.items()}
batches = digits.shuffled_batches(data, torch.Generator().manual_seed(0))
losses = {name: [] for name in models}
for batch in batches:
    for name, model in models.items():
        optimizers[name].zero_grad()
        loss = digits.loss_of(model, batch)
        loss.backward()
        optimizers[name].step()
        losses[name].append(loss.item())
print(json.dumps({"losses": losses, "right": [digits.count_right(model, test) for model in models.values()]}))
"""

# The whole kit with the best loops for the emulated processor, and its values with those for any processor.
PARTS = [
    pytest.param("bf16", ("-m", "not compiles"), id="bf16"),
    pytest.param("bf16", ("-m", "compiles"), id="bf16 compiled"),
    pytest.param("baseline", ("-k", "values"), id="baseline"),
]


class EmulatedEnvironment(Environment):
    """With the cross compiler for torch.compile, and a thread: more of them only wait for each other."""

    def __init__(self, made: Emulated) -> None:
        super().__init__(made.python)
        self._settings = {"CXX": str(made.compiler), "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}

    def run(self, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
        return super().run(*arguments, **(self._settings | environment))


@pytest.fixture(scope="session")
def emulated() -> EmulatedEnvironment:
    wheels = sorted((ROOT / "dist" / MACHINE).glob("*.whl"))
    assert wheels, f"there is no wheel in dist/{MACHINE}: make wheels PLATFORM={MACHINE} TORCHES=2.10.0"
    made = Emulated(Path(os.environ.get("TEST_EMULATED", ROOT / f".venv-{MACHINE}")))
    made.make()
    made.install([str(wheel) for wheel in wheels if "_cuda-" not in wheel.name and "_triton-" not in wheel.name])
    return EmulatedEnvironment(made)


def test_doctor(emulated: EmulatedEnvironment) -> None:
    asked = emulated.run("-c", "import platform, torch; print(platform.machine(), torch.__version__)")
    assert asked.stdout == f"{MACHINE} 2.10.0+cpu\n", asked.stderr
    for library in ("muladd", "transformer_ops"):
        report = json.loads(emulated.run("-m", library, "doctor", "--json").stdout)
        assert report["ok"]
        assert report["findings"] == []
        assert report["backends"]["cpu"]["state"] == "loaded"
        assert report["autograd"]["kind"] == "native"


def test_lock(emulated: EmulatedEnvironment, tmp_path: Path) -> None:
    check_lock(emulated, tmp_path / "muladd.lock")


@pytest.mark.parametrize(("capability", "part"), PARTS)
@pytest.mark.parametrize("library", ["muladd", "transformer_ops"])
def test_conformance(library: str, capability: str, part: tuple[str, str], emulated: EmulatedEnvironment) -> None:
    kit = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore", "--pyargs", "opwheel_tools.testing"]
    kit += ["--library", library, "--backend", "cpu", *part]
    name = library.upper()
    settings = {f"{name}_REQUIRE": "cpu", f"{name}_CPU_CAPABILITY": capability}
    check_passed(emulated.run(*kit, **settings))


def test_digits_are_learned_as_elsewhere(emulated: EmulatedEnvironment) -> None:
    """A pass over the data: rounding apart, both processors and both sets of operators take the same steps."""
    command = ["-c", DIGITS, str(ROOT / "examples")]
    there = json.loads(emulated.run(*command).stdout)
    here = json.loads(subprocess.run([sys.executable, *command], capture_output=True, text=True, check=True).stdout)
    for name, losses in here["losses"].items():
        assert len(losses) > 40
        assert there["losses"][name] == pytest.approx(losses, abs=1e-5), name
        assert losses[-1] < losses[0] / 4
    assert there["right"] == here["right"]
