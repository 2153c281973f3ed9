"""Training in a C++ program without Python: gradients as PyTorch's, and every derivative that there is none of."""

import os
import shutil
import subprocess
import sys

import pytest
import torch
from opwheel._torch.native import library_file

from .conftest import ROOT, cmake, last_line, run

pytestmark = pytest.mark.skipif(isinstance(library_file("autograd"), str), reason=str(library_file("autograd")))


@pytest.fixture(scope="module")
def programs(folder):
    """The example's program and the one of these tests, linked against libtorch."""
    prefix = torch.utils.cmake_prefix_path
    return cmake(ROOT / "tests/deploy/training", folder / "training-build", CMAKE_PREFIX_PATH=prefix)


@pytest.fixture(scope="module")
def libraries():
    """Schema library, CPU backend and native Autograd, as `muladd config` prints them."""
    return run(sys.executable, "-m", "muladd", "config", "--libs", "--autograd", check=True).stdout.split()


@pytest.fixture(scope="module")
def waves(folder):
    """A schema library whose declarations have derivatives of all kinds."""
    project = shutil.copytree(ROOT / "tests/deploy/training/waves", folder / "waves", dirs_exist_ok=True)
    run(sys.executable, "setup.py", "-q", "build", cwd=project, check=True)
    return next((project / "build").glob("lib*/waves/libwaves_schema.so"))


@pytest.fixture
def train(programs):
    """Run the example's program."""

    def start(*libraries, program=programs / "example/train", **environment):
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("MULADD_", "LD_"))}
        return run(program, *libraries, env=clean | environment)

    return start


def assert_trained(result):
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.startswith("300 steps: loss ")


def test_gradients_are_those_of_pytorch(train, libraries):
    assert_trained(train(*libraries))


def test_the_order_of_the_libraries_does_not_matter(train, libraries):
    assert_trained(train(*reversed(libraries)))


def test_by_name_next_to_the_program(train, libraries, programs, tmp_path):
    program = shutil.copy(programs / "example/train", tmp_path)
    for library in libraries[:-1]:
        shutil.copy(library, tmp_path)
    missing = train("cpu", "autograd", program=program)
    assert missing.returncode == 2
    assert f"there is no {library_file('autograd').name} in" in last_line(missing)
    shutil.copy(libraries[-1], tmp_path)
    assert_trained(train("cpu", "autograd", program=program))


def test_libraries_that_are_in_the_process_already(train, libraries):
    """As when a program is linked against them."""
    torch_libraries = f"{torch.__path__[0]}/lib"
    preloaded = " ".join(libraries[:2])
    assert_trained(train(*libraries, LD_PRELOAD=preloaded, LD_LIBRARY_PATH=torch_libraries))


def test_without_autograd(train, libraries):
    """PyTorch has no derivative of an operator that has none: the program notices it."""
    result = train(*libraries[:2])
    assert result.returncode == 2
    assert "does not require grad" in result.stderr or "no gradient" in result.stderr


def test_no_python(programs, libraries):
    for file in (programs / "example/train", *libraries):
        assert "libpython" not in run("readelf", "-d", file, check=True).stdout
        names = [line.split()[-1] for line in run("nm", "-D", "--undefined-only", file, check=True).stdout.splitlines()]
        assert not [name for name in names if name.startswith(("Py", "_Py"))]
    assert "libpython" not in run("ldd", programs / "example/train", check=True).stdout


@pytest.fixture(scope="module")
def memory():
    return run(sys.executable, "-m", "muladd", "config", "--memory", check=True).stdout.strip()


@pytest.fixture(scope="module")
def derivatives(programs, libraries, memory, waves):
    result = run(programs / "derivatives", *libraries, memory, "--", waves, libraries[-1])
    assert result.returncode == 0, result.stderr
    return dict(line.split(": ", 1) for line in result.stdout.splitlines() if ": " in line)


@pytest.mark.parametrize("what", ["first", "second", "in place", "a result", "one text", "a property", "no gradient"])
def test_derivatives_are_right(derivatives, what):
    assert float(derivatives[what]) < 1e-14


def test_memory_of_large_results_is_kept(programs, libraries, memory, train, derivatives):
    assert int(derivatives["kept memory"]) == 8 * 2**20
    turned_off = train(*libraries, memory, program=programs / "derivatives", MULADD_RESULT_CACHE="never")
    assert "\nkept memory: 0\n" in turned_off.stdout
    mistaken = train(*libraries, memory, program=programs / "derivatives", MULADD_RESULT_CACHE="always")
    assert mistaken.returncode == 2
    assert "MULADD_RESULT_CACHE=always is neither keep nor never: set it to one of them" in mistaken.stderr


@pytest.mark.parametrize(
    ("what", "operator"),
    [
        ("forward mode", "mul"),
        ("a function", "cube"),
        ("a result, twice", "square"),
        ("one function", "both"),
        ("nothing", "reciprocal"),
    ],
)
def test_what_needs_the_reference_is_an_error(derivatives, what, operator):
    assert derivatives[what].startswith(f"{operator}: needs the operator's reference, which is in Python")


def test_other_errors_are_those_of_python(derivatives):
    assert derivatives["stale"].startswith("one of the variables needed for gradient computation has been modified")
    assert derivatives["out"].startswith("mul.out: functions with out= do not support automatic differentiation")
    assert derivatives["none"].startswith("sign: is not differentiable")


def compile_library(path, source):
    subprocess.run(["g++", "-shared", "-fPIC", "-x", "c++", "-", "-o", path], input=source, text=True, check=True)


FAILS = """
extern "C" void* opwheel_autograd_register(const char*, char* message, unsigned long) {
  message[0] = 'X';
  message[1] = 0;
  return nullptr;
}
"""


@pytest.mark.parametrize(
    ("source", "words"),
    [("", "is not opwheel's Autograd library"), (FAILS, "no gradients: X")],
    ids=["another library", "an error"],
)
def test_a_wrong_autograd_library(train, libraries, tmp_path, source, words):
    path = tmp_path / "libopwheel_autograd_0_0.so"
    compile_library(path, source)
    result = train(*libraries[:2], path)
    assert result.returncode == 2
    assert words in last_line(result)


def test_a_schema_library_without_derivatives(train, libraries, tmp_path):
    """One from before there were any."""
    compile_library(tmp_path / "libmuladd_schema.so", 'extern "C" void* muladd_schemas() { return nullptr; }')
    result = train(tmp_path / "libmuladd_schema.so", *libraries[1:])
    assert result.returncode == 2
    assert "its schema library has no derivatives" in last_line(result)


OLDER = """
extern "C" void* muladd_schemas() { return nullptr; }
extern "C" const char* muladd_derivatives() { return "opwheel-derivatives 0\\nend"; }
"""


def test_a_schema_library_of_another_opwheel(train, libraries, tmp_path):
    compile_library(tmp_path / "libmuladd_schema.so", OLDER)
    result = train(tmp_path / "libmuladd_schema.so", *libraries[1:])
    assert result.returncode == 2
    assert "muladd: no gradients: the derivatives begin with 'opwheel-derivatives 0', and this" in last_line(result)


def test_a_library_for_another_pytorch(train, libraries, tmp_path):
    """PyTorch's version is that of a function, here of a later release."""
    later = tmp_path / "liblater.so"
    compile_library(later, 'extern "C" unsigned long aoti_torch_abi_version() { return 2ul << 56 | 99ul << 48; }')
    result = train(*libraries, LD_PRELOAD=str(later))
    assert result.returncode == 2
    built = library_file("autograd").stem.removeprefix("libopwheel_autograd_").replace("_", ".")
    words = f"no gradients: this Autograd library is for PyTorch {built}, and in this process is 2.99"
    assert words in last_line(result)
    assert "there is no libopwheel_autograd_2_99.so in" in last_line(train("autograd", LD_PRELOAD=str(later)))


def test_derivatives_that_python_has_registered(libraries):
    """Not twice in one process: which of them were in force would depend on the order."""
    code = f"""
import ctypes, muladd
schema, autograd = map(ctypes.CDLL, {[libraries[0], libraries[-1]]})
schema.muladd_derivatives.restype = ctypes.c_char_p
message = ctypes.create_string_buffer(500)
assert not autograd.opwheel_autograd_register(schema.muladd_derivatives(), message, 500)
print(message.value.decode())
"""
    result = run(sys.executable, "-c", code, check=True)
    assert result.stdout.strip() == "muladd: it has a kernel for derivatives already"
