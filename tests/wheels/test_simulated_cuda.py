"""The CUDA backend under PyTorch's CUDA build without a GPU: on simulated devices, what runs on a GPU runs here."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import opwheel_tools
import pytest

from benchmarks.gpu.document import load
from tests.mutants.mutations import CUDA_MUTATIONS
from tests.non_elementwise import mixed_library
from tests.portions import first_of
from tests.third_party.environment import IS_WHOLE_KIT, KERNEL_TESTS
from tests.wheels.folders import install, run

pytestmark = [pytest.mark.wheels, pytest.mark.slow]

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def build(toolkit, wheels, tmp_path_factory):
    """Compiles a project with the simulated toolkit; gives a folder with its wheel and those of core and cpu."""

    def run(project):
        folder = tmp_path_factory.mktemp("wheels")
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps", "-w"]
        subprocess.run([*command, str(folder), str(project)], env=os.environ | toolkit.to_build, check=True)
        for wheel in wheels:
            if wheel.name.startswith(("opwheel-", "muladd_core-", "muladd_cpu-")):
                shutil.copy(wheel, folder)
        return folder

    return run


@pytest.fixture(scope="session")
def sources(tmp_path_factory):
    """A copy of the backend's folder: objects of the real build stay as they are."""
    copy = tmp_path_factory.mktemp("sources") / "cuda"
    return shutil.copytree(ROOT / "backends/cuda", copy, ignore=shutil.ignore_patterns("build", "*.egg-info"))


@pytest.fixture(scope="session")
def simulated(build, sources):
    """Wheels of the unchanged backend."""
    return build(sources)


@pytest.fixture
def suite(other_python, toolkit, tmp_path):
    """Runs steps of the suite for a GPU machine and gives their results."""

    def run(wheels, *steps, **environment):
        command = [str(other_python), str(ROOT / "tests/gpu_suite.py"), "--wheels", str(wheels), "--quick"]
        subprocess.run(
            [*command, "--out", str(tmp_path), *steps],
            env=os.environ | toolkit.to_run | environment, capture_output=True, check=False,
        )  # fmt: skip
        return json.loads((tmp_path / "results.json").read_text())["steps"]

    return run


@pytest.fixture
def passes(suite, simulated, tmp_path):
    """Runs one step, which must pass; its result."""

    def run(step, **environment):
        result = suite(simulated, step, **environment)[step]
        assert result["exit"] == 0, (tmp_path / f"{step}.log").read_text()[-4000:]
        return result

    return run


def test_doctor(passes, tmp_path):
    passes("doctor")
    backend = json.loads((tmp_path / "doctor.log").read_text())["backends"]["cuda"]
    assert backend["state"] == "loaded"


def test_probe(passes):
    assert passes("probe")["passed"] > 20


def test_streams_graphs_devices_and_errors(passes):
    result = passes("gpu")
    assert result["passed"] > 20
    assert set(map(_plain, result["skipped"])) == {"needs 20 GB of free device memory"}


@pytest.mark.nightly
def test_layouts(passes):
    assert passes("layouts", TEST_EXAMPLES="40")["passed"] > 100


@pytest.mark.skipif(
    not IS_WHOLE_KIT, reason="make nightly; backends/cuda/tests/test_simulated.py has one operator's kit"
)
def test_conformance(passes):
    """Without the tests that are the same for all devices."""
    assert passes("kit")["passed"] > 900


@pytest.mark.nightly
def test_benchmark(passes, tmp_path):
    """It measures nothing here; every implementation but the compiler's must run, and be right."""
    passes("benchmark")
    report = json.loads((tmp_path / "benchmark.json").read_text())
    assert report["findings"] == []
    names = {name for row in report["rows"] for name in row["measurements"]}
    assert {"muladd", "eager", "addcmul", "custom_op", "copy"} <= names


@pytest.mark.nightly
def test_speed(suite, simulated, tmp_path):
    """Without transformer_ops, whose rows say so; calls of muladd are captured and replayed."""
    suite(simulated, "speed")
    rows = load(tmp_path / "speed.json").runs["cuda"].rows
    assert "ModuleNotFoundError" in rows["7B/softmax/64 x 128/torch.bfloat16/forward"]["errors"]["ours"]
    captured = [row for row in rows.values() if row["group"] == "muladd"]
    assert len(captured) == 5
    for row in captured:
        assert "ours" not in row["not_captured"] | row["errors"]
        assert row["seconds"]["device"]["ours"][0] > 0
        assert "copy" not in row["seconds"]["wall"] or row["seconds"]["device"]["copy"][0] > 0


@pytest.mark.parametrize("mutation", first_of(CUDA_MUTATIONS, 0), ids=lambda mutation: mutation.name)
def test_the_simulation_shows_mistakes(build, suite, sources, tmp_path, mutation):
    """A backend that launches on something else than the current stream of the tensors' device."""
    changed = shutil.copytree(sources, tmp_path / "changed")
    header = changed / "csrc" / mutation.header  # found before the SDK's own
    header.parent.mkdir(parents=True)
    header.write_text(mutation.mutated(Path(opwheel_tools.get_include())))
    include_first(changed / "setup.py", "csrc")
    result = suite(build(changed), "gpu")["gpu"]
    assert set(CUDA_MUTATIONS[mutation]) <= {name.rpartition("::")[2] for name in result["failed"]}


def include_first(setup, folder):
    """Give every library that the setup.py describes an include folder that the compiler searches first."""
    tree = ast.parse(setup.read_text())
    libraries = [
        node for node in ast.walk(tree)
        if isinstance(node, ast.Call) and any(keyword.arg == "library" for keyword in node.keywords)
    ]  # fmt: skip
    assert libraries
    for call in libraries:
        assert "include_dirs" not in {keyword.arg for keyword in call.keywords}
        call.keywords.append(ast.keyword("include_dirs", ast.Constant([folder])))
    setup.write_text(ast.unparse(tree))


@pytest.mark.nightly
def test_what_new_backend_writes(build, toolkit, other_python, tmp_path):
    written = [sys.executable, "-m", "muladd", "new-backend", "acme", "--language", "cuda"]
    subprocess.run(written, cwd=tmp_path, capture_output=True, check=True)
    site, wheels = tmp_path / "site", sorted(build(tmp_path / "muladd-acme").glob("*.whl"))
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", str(site)]
    subprocess.run([*install, *map(str, wheels)], check=True)
    kit = ["--pyargs", "opwheel_tools.testing", "--library", "muladd", "--backend", "acme", "-k", KERNEL_TESTS]
    only_this = {"PYTHONPATH": str(site), "MULADD_REQUIRE": "acme", "MULADD_BACKENDS": "acme"}
    result = subprocess.run(
        [str(other_python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore", *kit],
        env=os.environ | toolkit.to_run | only_this,
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout[-4000:]
    assert int(re.search(r"(\d+) passed", result.stdout)[1]) > 100


@pytest.mark.nightly
def test_a_library_of_element_wise_and_row_operators(toolkit, other_python, tmp_path):
    """The backend that new-backend writes, as it is, and with a kernel for the rows."""
    site, project = tmp_path / "site", tmp_path / "waves-acme"
    library = mixed_library.new_library(tmp_path)
    install(site, library / "core")
    written = ("new-backend", "acme", "--library", mixed_library.NAME, "--language", "cuda", "--output", project)
    run(sys.executable, "-m", "opwheel", *written, PYTHONPATH=str(site))
    kit = (
        "--pyargs",
        "opwheel_tools.testing",
        "--library",
        mixed_library.NAME,
        "--backend",
        "acme",
        *mixed_library.KIT,
    )
    pytest_ = (other_python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore")
    here = {"PYTHONPATH": str(site), "WAVES_REQUIRE": "acme", **toolkit.to_run}

    def passes():
        install(site, project, **toolkit.to_build)
        output = run(*pytest_, *kit, **here)
        return int(re.search(r"(\d+) passed", output)[1]), "for lack of a kernel: softmax" in output

    passed, by_reference = passes()
    assert passed > 50
    assert by_reference
    mixed_library.put_kernel(project, library, "cuda")
    passed, by_reference = passes()
    assert passed > 50
    assert not by_reference


def _plain(reason):
    return re.sub(r"^.*?: ", "", reason)
