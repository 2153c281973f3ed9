"""The conformance kit is tested itself: it passes a correct backend and fails one with a defect."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import muladd
import opwheel_tools
import pytest

from .mutations import MUTATIONS

pytestmark = pytest.mark.slow

SOURCES = Path(__file__).parents[2] / "backends/cpu/csrc"
KIT = ("test_values", "test_errors", "test_out", "test_layout", "test_runtime")
PLUGIN = """
from pathlib import Path
from opwheel.registry import Backend, hookimpl

@hookimpl
def opwheel_backend():
    library = Path(__file__).with_name("libmutant.so")
    return Backend("mutant", "cpu", "CPU", libraries=[library])
"""


def run(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def build(folder, mutations):
    """Compile the CPU backend with the mutations, as a plugin that is preferred to the real one."""
    include = folder / "include"
    for library in (muladd, opwheel_tools):
        shutil.copytree(library.get_include(), include, dirs_exist_ok=True)
    shutil.copytree(SOURCES, folder / "csrc")
    for mutation in mutations:
        (include / mutation.header).write_text(mutation.mutated(include))
    flags = shlex.split(run(sys.executable, "-m", "muladd", "config", "--cflags").stdout)
    installed = [f"-I{library.get_include()}" for library in (muladd, opwheel_tools)]
    own = [flag for flag in flags if not flag.startswith(("-O", *installed))]
    assert len(own) < len(flags) - 1, "the headers without the defect would be found first"
    torch_lib = (
        Path(next(flag for flag in flags if flag.startswith("-isystem")).removeprefix("-isystem")).parent / "lib"
    )
    library = folder / "libmutant.so"
    # One instruction set will do: the loops are the same for all.
    sources = [str(folder / "csrc" / f"{name}.cpp") for name in ("register", "kernels_baseline")]
    compiled = run("g++", "-O1", "-w", "-DOPWHEEL_BASELINE_ONLY", *own, f"-I{folder}/include", "-shared", *sources,
                   "-o", str(library),
                   f"-L{torch_lib}", "-lstdc++", "-ltorch_cpu", "-lc10")  # fmt: skip
    assert compiled.returncode == 0, compiled.stderr[-3000:]
    (folder / "mutant.py").write_text(PLUGIN)
    metadata = folder / "mutant-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: mutant\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[muladd.backends]\nmutant = mutant\n")
    (folder / "plugins.toml").write_text('[policy]\nprefer = { CPU = ["mutant", "cpu"] }\n')


def kit(folder, *options):
    """Run the kit on the plugin in the folder."""
    environment = os.environ | {
        "PYTHONPATH": str(folder),
        "MULADD_PLUGINS": str(folder / "plugins.toml"),
        "MULADD_REQUIRE": "mutant",
        "OMP_NUM_THREADS": "2",
    }
    modules = [f"opwheel_tools.testing.{name}" for name in KIT]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=no", "--pyargs", *modules]
    command += ["--library", "muladd", "--backend", "mutant", *options]
    return run(*command, cwd=folder, env=environment, timeout=500)


def is_killed(folder, mutation):
    build(folder, [mutation])
    result = kit(folder, "-x")
    # A crash kills as well as a failed test; an error in the kit's own set-up does not count.
    assert result.returncode != 0 or " passed" in result.stdout, result.stdout[-2000:]
    return result.returncode != 0 and (result.returncode < 0 or bool(re.search(r"\d failed", result.stdout)))


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """Whether each mutant is killed; two at a time, started all at once."""
    with ThreadPoolExecutor(2) as pool:
        started = {m.name: pool.submit(is_killed, tmp_path_factory.mktemp("mutant"), m) for m in MUTATIONS}
        yield {name: future.result() for name, future in started.items()}


def test_the_unchanged_backend_passes(tmp_path):
    build(tmp_path, [])
    result = kit(tmp_path)
    assert result.returncode == 0, result.stdout[-3000:]
    assert not re.search(r"\d failed", result.stdout)


def test_mutants_are_killed(outcomes):
    survivors = [name for name, killed in outcomes.items() if not killed]
    print(f"{len(outcomes) - len(survivors)} of {len(outcomes)} mutants killed; survivors: {survivors}")
    assert len(outcomes) == len(MUTATIONS)
    assert len(survivors) <= 0.05 * len(outcomes), survivors
