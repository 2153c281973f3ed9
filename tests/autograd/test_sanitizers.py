"""The native Autograd library under AddressSanitizer, LeakSanitizer and UndefinedBehaviorSanitizer.

PyTorch and Python are as they are. What the library reads and writes is checked all the same, as is all memory from
malloc, and a leak is the library's if the library is among the callers of the allocation.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from opwheel.dispatch import native_autograd

pytestmark = [
    pytest.mark.slow,
    pytest.mark.nightly,
    pytest.mark.skipif(bool(native_autograd.why_not()), reason=native_autograd.why_not()),
]

ROOT = Path(__file__).parents[2]
SANITIZERS = "-fsanitize=address,undefined -fno-sanitize-recover=all"
OPTIONS = {
    "ASAN_OPTIONS": "detect_leaks=0",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}
# Reports of leaks are read here: those of Python and PyTorch are theirs, and there are so many that their functions'
# names would take minutes to look up. With malloc, the sanitizer sees what Python's objects refer to.
LEAKS = {"ASAN_OPTIONS": "detect_leaks=1:symbolize=0", "LSAN_OPTIONS": "exitcode=0", "PYTHONMALLOC": "malloc"}


def runtime(name):
    """A library of the compiler."""
    path = subprocess.run(
        ["g++", f"-print-file-name={name}"], capture_output=True, text=True, check=True
    ).stdout.strip()
    if not Path(path).is_absolute():
        pytest.skip(f"the compiler has no {name}")
    return os.path.realpath(path)


@pytest.fixture(scope="module")
def instrumented(tmp_path_factory):
    """A folder with an opwheel whose native library is instrumented."""
    source = tmp_path_factory.mktemp("source") / "framework"
    shutil.copytree(ROOT / "framework", source, ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
    shutil.copytree(ROOT / "tools/src/opwheel_tools/build", source / "src/opwheel/build", dirs_exist_ok=True)
    target = tmp_path_factory.mktemp("site")
    environment = {**os.environ, "CXXFLAGS": f"{SANITIZERS} -O1 -fno-omit-frame-pointer", "LDFLAGS": SANITIZERS}
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-build-isolation", "--no-deps", "--target", target]
    subprocess.run([*pip, source], env=environment, check=True)
    (library,) = (target / "opwheel/native").glob("libopwheel_autograd_*")
    symbols = subprocess.run(["nm", "-D", library], capture_output=True, text=True, check=True).stdout
    assert "__asan_report_load8" in symbols
    assert "__ubsan_handle" in symbols
    return target


@pytest.fixture
def run(instrumented):
    """Run Python with the instrumented library; its output."""
    # libstdc++ as well: the sanitizer looks for what it throws exceptions with before Python opens libstdc++.
    preloaded = [runtime("libasan.so"), runtime("libubsan.so"), runtime("libstdc++.so.6")]

    def start(*arguments, **options):
        own = {"PYTHONPATH": str(instrumented), "LD_PRELOAD": ":".join(preloaded)}
        environment = {**os.environ, **OPTIONS, **own, **options}
        command = [sys.executable, *map(str, arguments)]
        done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
        assert "ERROR: AddressSanitizer" not in done.stderr, done.stderr[-5000:]
        assert "runtime error" not in done.stderr, done.stderr[-5000:]
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-5000:]
        return done.stdout + done.stderr

    return start


CALLS = 1000
REPORT = re.compile(r"leak of \d+ byte\(s\) in (\d+) object\(s\) allocated from:\n((?:    #.*\n)*)")


def leaks(output):
    """Stacks of the library's allocations to which nothing refers any more, of those with one or more for each call.

    What stays for as long as the process lives is referred to by integers of Python, which the sanitizer cannot read.
    """
    assert "Too many leaks" not in output  # it has left some out
    reports = REPORT.findall(output)
    return [stack for count, stack in reports if int(count) >= CALLS and "libopwheel_" in stack]


def test_threads_and_many_calls(run):
    tests = ["tests/autograd/test_stress.py", "tests/autograd/test_kernels.py"]
    assert " passed" in run("-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "not memory_stays", *tests)


def test_kernels_that_call_operators(run):
    """The kernels are instrumented, too. PyTorch's string leaks, and what is kept, are counted without a sanitizer."""
    chosen = "native and not stay and not models"
    # -s: a sanitizer's report would be lost with what pytest has captured.
    tests = [
        "-m",
        "pytest",
        "-q",
        "-s",
        "-p",
        "no:cacheprovider",
        "-k",
        chosen,
        "tests/non_elementwise/test_cpp_calls.py",
    ]
    assert " passed" in run(*tests, CXXFLAGS=SANITIZERS)


FORWARD_AND_BACKWARD = """
import muladd, torch
a, b = (torch.randn(4, requires_grad=True) for _ in range(2))
target, ones = torch.ones(4), torch.ones(4)
for _ in range({calls}):
    muladd.fma(a, b, muladd.muladd_(muladd.mul(a, b), b, 1.0)).backward(ones)
    muladd.muladd(ones, ones, 1.0, out=target)
    a.grad = b.grad = None
"""


def test_no_leaks(run):
    assert leaks(run("-c", FORWARD_AND_BACKWARD.format(calls=CALLS), **LEAKS)) == []


REGISTERED_AND_REMOVED = """
import ctypes
from opwheel._torch.native import library_file
torch.library.define("lost::double", "(Tensor x) -> Tensor")
autograd = ctypes.CDLL(str(library_file("autograd")))
autograd.opwheel_autograd_register.restype = ctypes.c_void_p
message = ctypes.create_string_buffer(500)
for _ in range({calls}):
    handle = autograd.opwheel_autograd_register(b"opwheel-derivatives 1\\noperator lost::double\\nend", message, 500)
    assert handle, message.value
    autograd.opwheel_autograd_remove(ctypes.c_void_p(handle))
"""


def test_a_leak_would_be_found(run):
    """What a description was made into is never deleted, because nodes may refer to it: here none does."""
    assert leaks(run("-c", (FORWARD_AND_BACKWARD + REGISTERED_AND_REMOVED).format(calls=CALLS), **LEAKS))
