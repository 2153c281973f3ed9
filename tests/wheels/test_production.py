"""docs/production.md: pins with hashes, a lock, the Dockerfile's steps in a fresh environment, the health check."""

import ast
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import time
import urllib.error
import urllib.request
import venv
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

pytestmark = [pytest.mark.wheels, pytest.mark.slow]

EXAMPLE = Path(__file__).parents[2] / "examples/production"
OWN = ("opwheel", "muladd_core", "muladd_cpu")


def required(*names):
    """The distributions with these names and all that they require here, extras aside."""
    found, waiting = {}, [*names]
    while waiting:
        name = canonicalize_name(waiting.pop())
        if name in found:
            continue
        found[name] = metadata.distribution(name)
        wanted = map(Requirement, found[name].requires or [])
        waiting += [one.name for one in wanted if one.marker is None or one.marker.evaluate({"extra": ""})]
    return found


# The framework declares the last two, and tomli before Python 3.11.
BESIDE = required("torch", "pluggy", "packaging", *(["tomli"] if sys.version_info < (3, 11) else []))
BESIDE_OURS = {
    file.parts[0] for one in BESIDE.values() for file in one.files or () if file.parts[0] not in ("..", "__pycache__")
}


def lines_of(dockerfile):
    """Instructions and their arguments, with continued lines joined."""
    text = dockerfile.read_text().replace("\\\n", " ")
    return [line.split(maxsplit=1) for line in text.splitlines() if line.strip() and not line.startswith("#")]


class Image:
    """What the Dockerfile makes, in an environment with this one's PyTorch, its requirements, pluggy and packaging."""

    def __init__(self, folder, context):
        self.folder, self.context = folder / "app", context
        self.folder.mkdir(parents=True)
        venv.create(folder / "env", with_pip=True)
        base = {"base": str(folder / "env"), "platbase": str(folder / "env")}
        packages, outer = Path(sysconfig.get_path("purelib", vars=base)), folder / "outer"
        outer.mkdir()
        for name in BESIDE_OURS:
            (outer / name).symlink_to(Path(sysconfig.get_path("purelib"), name))
        (packages / "outer.pth").write_text(f"{outer}\n")
        self.variables = {key: value for key, value in os.environ.items() if not key.startswith(("MULADD_", "PIP_"))}
        self.variables["PATH"] = f"{folder / 'env/bin'}{os.pathsep}{self.variables['PATH']}"
        self.variables["PIP_NO_INDEX"] = "1"

    def run(self, command):
        return subprocess.run(
            ["bash", "-ec", command], cwd=self.folder, env=self.variables, capture_output=True, text=True, check=False
        )

    def start(self, arguments):
        return subprocess.Popen(
            arguments, cwd=self.folder, env=self.variables, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )

    def build(self):
        """Copy and run as the Dockerfile says; the output of the steps that were run."""
        outputs = []
        for instruction, text in lines_of(self.context / "Dockerfile"):
            if instruction == "COPY":
                *sources, target = text.split()
                for source in sources:
                    self._copy(self.context / source, self.folder / target)
            elif instruction == "ENV":
                here = text.replace("/app/", f"{self.folder}/")  # the WORKDIR
                self.variables |= dict(pair.split("=", 1) for pair in shlex.split(here))
            elif instruction == "RUN":
                result = self.run(text)
                assert result.returncode == 0, f"{text}\n{result.stdout}{result.stderr}"
                outputs.append(result.stdout)
            else:
                assert instruction in ("ARG", "FROM", "WORKDIR", "USER", "EXPOSE", "HEALTHCHECK", "CMD"), instruction
        return outputs

    @staticmethod
    def _copy(source, target):
        if source.is_dir():
            shutil.copytree(source, target)
        else:
            shutil.copy(source, target / source.name if target.is_dir() else target)


def pip(*arguments):
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def context(wheels, tmp_path_factory):
    """The folder that the image is built from, with wheels, pins and lock."""
    folder = tmp_path_factory.mktemp("context")
    shutil.copytree(EXAMPLE, folder, dirs_exist_ok=True)
    (folder / "wheels").mkdir()
    for wheel in wheels:
        if wheel.name.startswith(tuple(f"{name}-" for name in OWN)):
            shutil.copy(wheel, folder / "wheels")
    # What needs an index, torch and pure Python packages, is left out: --no-deps.
    offline = ("--no-deps", "--no-index", "opwheel")
    wanted = [line for line in (folder / "requirements.in").read_text().split() if line.startswith("muladd")]
    options = ("--dry-run", "--ignore-installed", "--quiet", "--report", "-", "--find-links", folder / "wheels")
    report = pip("install", *options, *offline, *wanted)
    assert report.returncode == 0, report.stderr
    pins = subprocess.run(
        [sys.executable, folder / "pin.py"], input=report.stdout, capture_output=True, text=True, check=True
    )
    (folder / "requirements.txt").write_text(pins.stdout)
    return folder


@pytest.fixture(scope="module")
def tested(context, tmp_path_factory):
    """The environment in which the tests passed: the same pins, and from it the lock."""
    image = Image(tmp_path_factory.mktemp("tested"), context)
    shutil.copytree(context / "wheels", image.folder / "wheels")
    shutil.copy(context / "requirements.txt", image.folder)
    install = next(text for kind, text in lines_of(context / "Dockerfile") if kind == "RUN" and "pip install" in text)
    result = image.run(install)
    assert result.returncode == 0, result.stderr
    result = image.run("MULADD_BACKENDS=cpu muladd lock")
    assert result.returncode == 0, result.stdout + result.stderr
    shutil.copy(image.folder / "muladd.lock", context)
    return image


@pytest.fixture(scope="module")
def image(tested, context, tmp_path_factory):
    made = Image(tmp_path_factory.mktemp("image"), context)
    assert "loaded" in made.build()[-1]
    return made


def test_pins_have_a_hash_each(context):
    lines = (context / "requirements.txt").read_text().splitlines()
    assert [line.partition("==")[0] for line in lines] == ["muladd-core", "muladd-cpu", "opwheel"]
    assert all(re.fullmatch(r"[\w-]+==[\w.]+ --hash=sha256:[0-9a-f]{64}", line) for line in lines)


def test_what_has_no_hash_is_refused(context):
    package = {"metadata": {"name": "x", "version": "1"}, "download_info": {"url": "file:///x", "dir_info": {}}}
    command = [sys.executable, context / "pin.py"]
    text = json.dumps({"install": [package]})
    result = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "x has no hash" in result.stderr


def test_a_changed_wheel_is_not_installed(tested, context, tmp_path):
    folder = tmp_path / "wheels"
    shutil.copytree(context / "wheels", folder)
    (wheel,) = folder.glob("muladd_cpu-*.whl")
    wheel.write_bytes(wheel.read_bytes() + b"\0")
    options = f"--require-hashes --no-deps --force-reinstall --target {tmp_path / 'out'} --find-links {folder}"
    result = tested.run(f"python -m pip install {options} -r requirements.txt")
    assert result.returncode == 1
    assert "DO NOT MATCH THE HASHES" in result.stderr


LISTED = """
from importlib.metadata import distributions
print(sorted({one.metadata["Name"].replace("_", "-").lower() for one in distributions()}))
"""


def test_what_is_installed(image):
    """Beyond PyTorch and its requirements, and pip, which installed the rest."""
    result = image.run(f"python - <<'END'\n{LISTED}\nEND")
    torchs = set(required("torch"))
    declared = set(required("muladd-core", "muladd-cpu")) - torchs - {"tomli"}
    assert declared == {"muladd-core", "muladd-cpu", "opwheel", "pluggy", "packaging"}
    assert set(ast.literal_eval(result.stdout)) - torchs - {"pip", "setuptools", "tomli"} == {
        *("muladd-core", "muladd-cpu", "opwheel", "pluggy", "packaging")
    }


@pytest.mark.parametrize(
    "command", ["explain", "explain muladd cpu", "config --libs", "config --autograd", "lock muladd.lock --check"]
)
def test_commands_of_operations(image, command):
    result = image.run(f"muladd {command}")
    assert result.returncode == 0, result.stderr
    assert result.stdout


@pytest.mark.parametrize("command", ["check cpu", "bench", "new-backend x", "config --includes"])
def test_commands_of_the_tools_say_what_to_install(image, command):
    result = image.run(f"muladd {command}")
    assert result.returncode == 2
    assert "pip install opwheel-tools" in result.stderr


def test_models_are_trained(image):
    """With gradients, torch.func and torch.compile's tracing, none of which needs the tools."""
    result = image.run(f"python - <<'END'\n{TRAINED}\nEND")
    assert (result.returncode, result.stdout) == (0, "trained\n"), result.stderr


TRAINED = """
import muladd, torch
weight = torch.zeros(4, requires_grad=True)
x, y = torch.eye(4), torch.arange(4.0)
step = torch.compile(lambda w: (muladd.muladd(x @ w, torch.ones(4), 0.0) - y).square().sum(), backend="aot_eager")
for _ in range(50):
    (gradient,) = torch.autograd.grad(step(weight), weight)
    with torch.no_grad():
        muladd.muladd_(weight, torch.ones(4), 0.0).sub_(gradient, alpha=0.2)
assert torch.allclose(weight.detach(), y, atol=1e-3)
assert torch.equal(torch.vmap(torch.func.grad(lambda v: muladd.mul(v, v).sum()))(x), 2 * x)
print("trained")
"""


def test_the_image_s_report_is_well(image):
    result = image.run("muladd doctor --json")
    report = json.loads(result.stdout)
    assert (result.returncode, report["format"]["name"], report["ok"]) == (0, "opwheel doctor", True)
    assert report["backends"]["cpu"]["state"] == "loaded"


def test_another_set_of_backends_than_the_locked_one_does_not_start(image):
    result = image.run("MULADD_BACKENDS= python -c 'import muladd'")
    assert result.returncode == 1
    assert "OPWHEEL-E071" in result.stderr


def test_the_lock_is_found_from_any_folder(image):
    result = image.run("cd / && python -c 'import muladd' && cd / && muladd doctor --json")
    assert (result.returncode, json.loads(result.stdout)["findings"]) == (0, []), result.stderr


def test_the_service_answers_and_is_healthy(image):
    process = image.start(["python", "serve.py", "--port", "0"])
    try:
        log = ""
        while "listening on port" not in log:
            line = process.stderr.readline()
            assert line, log
            log += line
        assert re.search(r"opwheel\.registry INFO .*loaded.*cpu", log)
        address = f"http://127.0.0.1:{log.rsplit(maxsplit=1)[1]}"
        with urllib.request.urlopen(f"{address}/health", timeout=60) as answer:
            assert json.load(answer)["cpu"] == "loaded"
        with urllib.request.urlopen(f"{address}/", data=b"[1, 2, 3]", timeout=60) as answer:
            assert json.load(answer) == [2.5, 4.5, 6.5]
        with pytest.raises(urllib.error.HTTPError, match="400"):
            urllib.request.urlopen(f"{address}/", data=b"nothing", timeout=60)
    finally:
        process.terminate()
        process.wait(timeout=60)


def has_docker():
    return shutil.which("docker") is not None and not subprocess.run(["docker", "info"], capture_output=True).returncode


def test_the_image_is_built_by_docker_and_healthy(tested, context, tmp_path):
    """With everything that the index has to give; the base image must be there or be had."""
    if not has_docker():
        pytest.skip("no docker daemon is at hand; the other tests of this file run the Dockerfile's steps")
    folder = tmp_path / "context"
    shutil.copytree(context, folder)
    options = ("--dry-run", "--ignore-installed", "--quiet", "--report", "-", "--find-links", folder / "wheels")
    report = pip("install", *options, "-r", folder / "requirements.in")
    assert report.returncode == 0, report.stderr
    pin = [sys.executable, folder / "pin.py"]
    pins = subprocess.run(pin, input=report.stdout, capture_output=True, text=True, check=True)
    (folder / "requirements.txt").write_text(pins.stdout)
    python = f"PYTHON={sys.version_info.major}.{sys.version_info.minor}"
    built = subprocess.run(
        ["docker", "build", "--quiet", "--build-arg", python, str(folder)], capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr
    run = ["docker", "run", "--rm", "--detach", built.stdout.strip()]
    container = subprocess.run(run, capture_output=True, text=True, check=True).stdout.strip()
    try:
        inspect = ["docker", "inspect", "--format", "{{.State.Health.Status}}", container]
        for _ in range(60):
            status = subprocess.run(inspect, capture_output=True, text=True, check=True).stdout.strip()
            if status == "healthy":
                break
            time.sleep(2)
        assert status == "healthy"
    finally:
        subprocess.run(["docker", "stop", container], capture_output=True, check=False)
