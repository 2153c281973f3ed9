"""transformer-ops-cuda: on simulated devices what runs on a GPU runs here; and what nvcc makes of its kernels."""

import importlib.util
import os
import re
import shutil
import subprocess
from importlib import metadata
from pathlib import Path

import opwheel_tools
import pytest

from benchmarks.instructions import callgrind, record
from benchmarks.instructions.statements import ON_CUDA
from tests.mutants.mutations import CUDA_CLUSTER_MUTATIONS, CUDA_TEAM_MUTATIONS
from tests.portions import first_of
from tests.wheels.folders import install
from tests.wheels.row_kernels import run_pytest

from . import other_torch
from .test_simulated_cuda import include_first

pytestmark = [pytest.mark.wheels, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
BACKEND = ROOT / "libraries/transformer/backends/cuda"
GPU_TESTS, LONG_ROWS = (str(BACKEND / "tests" / name) for name in ("test_gpu.py", "test_long_rows.py"))
KIT = ("--pyargs", "opwheel_tools.testing", "--library", "transformer_ops", "--backend", "cuda")
# Without graphs and streams, which PyTorch's allocator has to be there for.
BESIDE_THE_CPU = "every_way or many_rows or makes_no_vectors"
SOME_BITS = f"(not the_same_bits or 4090-torch.bfloat16) and not ({BESIDE_THE_CPU})"
# Each tensor is an allocation, behind which there is nothing.
GUARDED = {"SIMULATED_CUDA_GUARD": "1", "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
# What does not take long. Errors and many rows are asked of float64 alone.
SOME_LONG_ROWS = "8200 and (log_softmax or rms_norm or cross) and not same_bits"
SOME_OPERATORS = "rms_norm,layer_norm_backward,cross_entropy_rows,quantize_rowwise"
SOME_CHECKS = "values and not float64 or many"


@pytest.fixture(scope="session")
def sources(tmp_path_factory):
    """A copy of the backend's folder: objects of the real build stay as they are."""
    copy = tmp_path_factory.mktemp("sources") / "cuda"
    return shutil.copytree(BACKEND, copy, ignore=shutil.ignore_patterns("build", "*.egg-info"))


@pytest.fixture(scope="session")
def environment(toolkit, tmp_path_factory):
    """The variables with which other_python finds simulated devices, and a backend that is built for them."""
    library = tmp_path_factory.mktemp("library")
    copy_installed(library, "transformer-ops-core", "transformer-ops-cpu")

    def with_backend(site):
        path = os.pathsep.join(map(str, (site, library)))
        only_this = {"PYTHONPATH": path, "TRANSFORMER_OPS_REQUIRE": "cuda", "TRANSFORMER_OPS_BACKENDS": "cpu,cuda"}
        return toolkit.to_run | only_this

    return with_backend


@pytest.fixture(scope="session")
def run(environment, other_python):
    """Runs pytest on simulated devices."""

    def on_simulated_devices(site, *arguments, **variables):
        return run_pytest(other_python, environment(site) | variables, *arguments)

    return on_simulated_devices


@pytest.fixture(scope="session")
def build(toolkit, tmp_path_factory):
    """Builds the backend with the simulated toolkit; the folder where it is installed."""

    def into_folder(project):
        site = tmp_path_factory.mktemp("site")
        install(site, project, **toolkit.to_build)
        return site

    return into_folder


@pytest.fixture(scope="session")
def simulated(build, sources):
    """The unchanged backend."""
    return build(sources)


def copy_installed(site, *distributions):
    """Put what is installed here into a folder."""
    for name in distributions:
        for file in metadata.files(name):
            if ".." not in file.parts:  # scripts
                (site / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file.locate(), site / file)


def passed(result):
    """How many tests passed; none may fail."""
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-2000:]
    return int(re.search(r"(\d+) passed", result.stdout)[1])


def test_what_only_a_device_shows(run, simulated):
    assert passed(run(simulated, GPU_TESTS, "-m", "not slow", "-k", SOME_BITS, TEST_ROWS="5")) > 60


def test_values_and_no_memory_but_their_own(run, simulated):
    assert passed(run(simulated, GPU_TESTS, "-k", BESIDE_THE_CPU, TEST_ROWS="5", **GUARDED)) > 150


@pytest.mark.nightly
def test_all_that_only_a_device_shows(run, simulated):
    assert passed(run(simulated, GPU_TESTS, "-m", "not slow", TEST_ROWS="20")) > 300


def test_some_long_rows(run, simulated):
    assert passed(run(simulated, LONG_ROWS, "-k", SOME_LONG_ROWS, TEST_ROWS="5")) >= 10


@pytest.mark.parametrize("blocks", ["2", "0"], ids=["2 blocks at most", "the device does not tell"])
def test_rows_longer_than_the_largest_cluster(run, simulated, blocks):
    """A small part of a device has fewer multiprocessors than a cluster of 8 blocks needs, and refuses it."""
    chosen = "test_values and 16400 and (rms_norm or log_softmax)"
    assert passed(run(simulated, LONG_ROWS, "-k", chosen, TEST_ROWS="5", SIMULATED_CUDA_CLUSTER=blocks)) > 4


@pytest.mark.nightly
def test_long_rows(run, simulated):
    assert passed(run(simulated, LONG_ROWS, "-k", "not graph", TEST_ROWS="5", **GUARDED)) > 150
    assert passed(run(simulated, LONG_ROWS, "-k", "graph")) == 3


def test_a_part_of_the_kit(run, simulated):
    assert passed(run(simulated, *KIT, "--operators", SOME_OPERATORS, "-k", SOME_CHECKS)) > 20


@pytest.mark.nightly
def test_the_kit(run, simulated):
    """With all that the backend claims about bits: the order of operations is the source's."""
    assert passed(run(simulated, *KIT, "-m", "not device_independent and not compiles")) > 300


@pytest.mark.nightly
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="there is no valgrind (Debian: apt-get install valgrind)")
def test_instructions_of_the_host(environment, simulated, other_python, torch_packages, tmp_path):
    """With a driver that runs no kernel. TEST_RECORD=1 makes this run the record, which others are compared with.

    Operators of PyTorch are then its own, too. The wheel of opwheel that other tests have is not built for this
    PyTorch: its derivatives would be Python's.
    """
    install(tmp_path, ROOT / "framework", OPWHEEL_TORCHES=str(torch_packages))
    variables = environment(simulated) | {"SIMULATED_CUDA_LAUNCHES": "nothing"}
    del variables["SIMULATED_CUDA_OPERATORS"]
    variables["PYTHONPATH"] = f"{tmp_path}{os.pathsep}{variables['PYTHONPATH']}"
    counts = callgrind.count(["cuda="], other_python, **variables)
    assert set(counts["cuda"]) == {one.name for one in ON_CUDA}
    here = record.environment() | {"torch": other_torch.VERSION}
    if os.environ.get("TEST_RECORD") == "1":
        record.Record(here, record.TOLERANCE, counts).save(record.PATH_ON_CUDA)
    kept = record.load(record.PATH_ON_CUDA)
    if different := record.differences(kept, here):
        words = f"the record is of another environment: {'; '.join(different)}"
        pytest.skip(f"{words}. To record this one: {record.UPDATE_ON_CUDA}")
    assert record.compare(kept, counts, record.UPDATE_ON_CUDA) == []


@pytest.mark.parametrize("mutation", first_of(CUDA_TEAM_MUTATIONS, 0), ids=lambda mutation: mutation.name)
def test_the_simulation_shows_mistakes(run, build, sources, tmp_path, mutation):
    """Found by a test, or by what ends the process."""
    chosen = f"({BESIDE_THE_CPU} or infinite) and (softmax or norm)"
    result = run(build(changed(sources, mutation, tmp_path)), GPU_TESTS, "-k", chosen, TEST_ROWS="5", **GUARDED)
    assert result.returncode not in (0, 5), result.stdout[-3000:] + result.stderr[-2000:]
    expected = CUDA_TEAM_MUTATIONS[mutation]
    shown = f"::{expected}[" if expected.startswith("test_") else f"Fatal Python error: {expected}"
    assert shown in result.stdout + result.stderr, result.stdout[-3000:] + result.stderr[-2000:]


@pytest.mark.parametrize("mutation", first_of(CUDA_CLUSTER_MUTATIONS, 0), ids=lambda mutation: mutation.name)
def test_the_simulation_shows_mistakes_of_clusters(run, build, sources, tmp_path, mutation):
    """Found by a test, or named by the device; in no case does anything wait for ever."""
    chosen = "(8200 or 16400) and (log_softmax or rms_norm) and not bits"
    result = run(build(changed(sources, mutation, tmp_path)), LONG_ROWS, "-k", chosen, TEST_ROWS="5")
    assert result.returncode == 1, result.stdout[-3000:] + result.stderr[-2000:]
    expected = CUDA_CLUSTER_MUTATIONS[mutation]
    shown = f"::{expected}[" if expected.startswith("test_") else f"simulated CUDA: {expected}"
    assert shown in result.stdout + result.stderr, result.stdout[-3000:]


def changed(sources, mutation, folder):
    """A copy of the sources, with a header that is found before the SDK's own."""
    copy = shutil.copytree(sources, folder / "changed")
    header = copy / "csrc" / mutation.header
    header.parent.mkdir(parents=True)
    header.write_text(mutation.mutated(Path(opwheel_tools.get_include())))
    include_first(copy / "setup.py", "csrc")
    return copy


# ---- what nvcc makes ----


@pytest.fixture(scope="module")
def read(sources, tmp_path_factory):
    """What cuobjdump says, per kernel, about the library for devices of 9.0."""
    if importlib.util.find_spec("nvidia") is None:
        pytest.skip("nvcc is not in this environment")
    site = tmp_path_factory.mktemp("nvcc")
    install(site, sources, TORCH_CUDA_ARCH_LIST="9.0")
    tools = Path(next(iter(importlib.util.find_spec("nvidia").submodule_search_locations)), "cu13/bin")

    def with_option(option):
        command = [tools / "cuobjdump", option, site / "transformer_ops_cuda/libtransformer_ops_cuda.so"]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        parts = re.split(r"Function\s*:?\s+([\w.$]+)", output)
        return dict(zip(parts[1::2], parts[2::2], strict=True))

    return with_option


@pytest.mark.nightly
def test_no_kernel_of_narrow_elements_spills(read):
    """Bytes of the stack: a number or two, but no array."""
    usage = {name: int(re.search(r"STACK:(\d+)", text)[1]) for name, text in read("-res-usage").items()}
    teams = {name: stack for name, stack in usage.items() if "TeamI" in name and "TeamId" not in name}
    assert len(teams) > 200
    assert {name: stack for name, stack in teams.items() if stack > 16} == {}


@pytest.mark.nightly
def test_rows_in_vectors_are_read_and_written_in_16_bytes(read):
    """No load is of the last part of a vector alone."""
    vectors = {
        name: code
        for name, code in read("-sass").items()
        if re.search(r"TeamI(f|N3c10(4Half|8BFloat16)E)Li[0-9]ELi[48]E", name)
    }
    assert len(vectors) > 150
    for name, code in vectors.items():  # but for rows of int8 and of one number
        assert "LDG.E.128" in code or "DequantizeRows" in name, name
        assert "STG.E.128" in code or re.search("CrossEntropyRowsI|QuantizeRows", name), name
        assert not re.search(r"LDG\.E(\.S8|\.U16)? R\d+, \S+\+0x[37c]\]", code), name


@pytest.mark.nightly
def test_blocks_of_a_cluster_wait_for_each_other(read):
    """Before one writes into the memory of another, and for every sum."""
    clusters = {name: code for name, code in read("-sass").items() if "BlockOfCluster" in name}
    assert len(clusters) > 90
    for name, code in clusters.items():
        assert code.count("UCGABAR_ARV") == code.count("UCGABAR_WAIT") >= 2, name
