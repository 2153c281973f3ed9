"""The CUDA backend's own code, executed on the CPU.

Checks, plan, choice of kernel and the kernels are compiled by the C++ compiler into a plugin for the CPU's dispatch
key; only the launch is replaced by a loop over all threads (simulated/grid.h). The address sanitizer sees every access
out of bounds, the undefined behaviour sanitizer every vector that is not aligned.
"""

import functools
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.third_party.environment import IS_WHOLE_KIT

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
KIT = [f"opwheel_tools.testing.test_{name}" for name in ("values", "layout", "out", "errors")]
LAYOUTS = ["-p", "opwheel_tools.testing.conftest", str(HERE / "layouts.py")]
PLUGIN = """
from pathlib import Path
from opwheel.registry import Backend, hookimpl

@hookimpl
def opwheel_backend():
    return Backend("simulated", "cpu", "CPU", libraries=[Path(__file__).with_name("libsimulated.so")])
"""
SMALL_PARTS = ["-DOPWHEEL_MAX_INDEXED_ELEMENTS=1000", "-DOPWHEEL_MAX_INDEXED_BYTES=3000"]


def run(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def build(folder, defines):
    """Compile the kernels as a plugin that is preferred to the CPU backend."""
    flags = shlex.split(run(sys.executable, "-m", "muladd", "config", "--cflags").stdout)
    include = next(Path(flag.removeprefix("-isystem")) for flag in flags if flag.startswith("-isystem"))
    sanitizers = ["-fsanitize=address,undefined", "-fno-sanitize=vptr", "-fno-sanitize-recover=all", "-g1"]
    source, library = HERE / "simulated/register.cpp", folder / "libsimulated.so"
    # nvcc contracts a product and a sum, too.
    fused = ["-mfma", "-ffp-contract=fast", "-fexpensive-optimizations"]
    contraction = fused if " fma " in Path("/proc/cpuinfo").read_text() else []
    command = ["g++", *flags, "-O1", *contraction, *sanitizers, *defines, "-shared", str(source), "-o", str(library)]
    result = run(*command, f"-L{include.parent / 'lib'}", "-ltorch_cpu", "-lc10")
    assert result.returncode == 0, result.stderr[-3000:]
    assert "warning" not in result.stderr, result.stderr
    (folder / "simulated_plugin.py").write_text(PLUGIN)
    metadata = folder / "simulated-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: simulated\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[muladd.backends]\nsimulated = simulated_plugin\n")
    (folder / "plugins.toml").write_text('[policy]\nprefer = { CPU = ["simulated", "cpu"] }\n')


def run_tests(folder, *arguments, **environment):
    """Run pytest where the plugin is installed, under the sanitizers."""
    runtimes = [run("g++", f"-print-file-name={name}").stdout.strip() for name in ("libasan.so", "libubsan.so")]
    log = folder / "sanitizers"
    environment |= {
        "PYTHONPATH": str(folder),
        "MULADD_PLUGINS": str(folder / "plugins.toml"),
        "MULADD_REQUIRE": "simulated",
        "LD_PRELOAD": ":".join(runtimes),
        "ASAN_OPTIONS": f"detect_leaks=0:detect_odr_violation=0:log_path={log}",
        "UBSAN_OPTIONS": f"print_stacktrace=1:log_path={log}",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--library", "muladd"]
    command += ["--backend", "simulated"]
    result = run(*command, *arguments, cwd=folder, env=os.environ | environment)
    reports = "".join(path.read_text()[:3000] for path in folder.glob("sanitizers.*"))
    assert result.returncode == 0, result.stdout[-4000:] + reports
    return int(re.search(r"(\d+) passed", result.stdout)[1])


VARIANTS = {
    "as it is": [],
    "small parts": SMALL_PARTS,
    "one element too far": ["-DONE_ELEMENT_TOO_FAR"],
}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder of a variant, which is built when a test asks for it."""

    @functools.cache
    def folder_of(name):
        folder = tmp_path_factory.mktemp("simulated")
        build(folder, VARIANTS[name])
        return folder

    return folder_of


def test_conformance(built):
    """One operator and its variants with float32; make nightly runs all, in all dtypes."""
    chosen = [] if IS_WHOLE_KIT else ["-k", "not float16 and not float64", "--operators", "muladd"]
    assert run_tests(built("as it is"), "--pyargs", *KIT, *chosen) > (500 if IS_WHOLE_KIT else 60)


@pytest.mark.nightly
def test_layouts(built):
    assert run_tests(built("as it is"), *LAYOUTS) > 100


@pytest.mark.nightly
def test_layouts_in_small_parts(built):
    """What is split into several launches because 32 bits do not reach it, at a size that a test can afford."""
    assert run_tests(built("small parts"), *LAYOUTS, TEST_EXAMPLES="60") > 100


@pytest.mark.nightly
def test_the_sanitizers_are_at_work(built):
    """A kernel that reads one element too far is caught."""
    with pytest.raises(AssertionError, match="AddressSanitizer"):
        run_tests(built("one element too far"), "-x", "-k", "test_every_head_and_tail", *LAYOUTS)
