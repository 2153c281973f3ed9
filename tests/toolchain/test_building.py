"""What docs/building.md says of compilers, flags, sanitizers, CMake and wheels, on small libraries."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SETUP = """
from opwheel_tools.build import CppLibrary, commands
from setuptools import setup

setup(
    name="waves-small", version="1.0", packages=["waves_small"],
    ext_modules=[CppLibrary("waves_small.libwaves_small", ["small.cpp"], exports=["waves_*"])],
    cmdclass=commands(),
)
"""
SOURCE = """
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
extern "C" __attribute__((visibility("default"))) int waves_device() { return aoti_torch_device_type_cpu(); }
extern "C" __attribute__((visibility("default"))) int waves_read(int i) {
  int* p = new int[4](); int x = p[i] + NUMBER; delete[] p; return x; }
extern "C" __attribute__((visibility("default"))) int waves_add(int i) { return i + 2147483647; }
"""


def run(*command, check=True, cwd=None, **variables):
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", **variables}
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.fixture
def build(tmp_path):
    """Builds the project in place, in an environment with these variables; its library."""
    (tmp_path / "setup.py").write_text(SETUP)
    (tmp_path / "small.cpp").write_text(SOURCE)
    (tmp_path / "waves_small").mkdir()
    (tmp_path / "waves_small/__init__.py").touch()

    def start(**variables):
        flags = f"-DNUMBER=7 -O0 {variables.pop('CXXFLAGS', '')}"
        run(sys.executable, "setup.py", "build_ext", "--inplace", cwd=tmp_path, CXXFLAGS=flags, **variables)
        return tmp_path / "waves_small/libwaves_small.so"

    return start


CALL = "import ctypes, sys; print(ctypes.CDLL(sys.argv[1])[sys.argv[2]](int(sys.argv[3])))"


def call(library, function, number, **options):
    return run(sys.executable, "-c", f"import torch\n{CALL}", library, function, number, **options)


def test_flags_of_the_environment(build):
    library = build(LDFLAGS="-Wl,-soname,libanother.so")
    assert call(library, "waves_read", 1).stdout == "7\n"
    assert "libanother.so" in run("readelf", "-d", library).stdout


def test_a_compiler_of_several_words(build):
    assert call(build(CXX="env g++"), "waves_read", 1).stdout == "7\n"


@pytest.mark.skipif(shutil.which("ccache") is None, reason="ccache is not installed")
def test_ccache(build, tmp_path):
    cache = {"CXX": "ccache g++", "CCACHE_DIR": str(tmp_path / "cache")}
    library = build(**cache)
    shutil.rmtree(tmp_path / "build")
    library.unlink()
    assert call(build(**cache), "waves_read", 1).stdout == "7\n"
    assert "ccache g++" in next((tmp_path / "build").rglob("build.ninja")).read_text()
    statistics = run("ccache", "--print-stats", check=False, **cache).stdout.split()
    hits = ("direct_cache_hit", "preprocessed_cache_hit")
    assert sum(int(statistics[statistics.index(name) + 1]) for name in hits) >= 1


def sanitizer(name):
    """The runtime, which has to be in the process before Python is."""
    return run("g++", f"-print-file-name=lib{name}.so").stdout.strip()


def test_asan(build):
    library = build(CXXFLAGS="-g -O1 -fsanitize=address -fno-omit-frame-pointer", LDFLAGS="-fsanitize=address")
    preloaded = {"LD_PRELOAD": f"{sanitizer('asan')} {sanitizer('stdc++')}", "ASAN_OPTIONS": "detect_leaks=0"}
    done = call(library, "waves_read", 5, check=False, **preloaded)
    assert done.returncode != 0
    assert "heap-buffer-overflow" in done.stderr
    assert "small.cpp" in done.stderr  # lines: -g keeps symbols
    assert call(library, "waves_read", 3, **preloaded).stdout == "7\n"


def test_ubsan(build):
    flags = "-fsanitize=undefined -fno-sanitize-recover=all"
    library = build(CXXFLAGS=f"-g -O1 {flags}", LDFLAGS="-fsanitize=undefined")
    assert call(library, "waves_add", 0).stdout == "2147483647\n"
    done = call(library, "waves_add", 1, check=False)
    assert "runtime error: signed integer overflow" in done.stderr
    assert "small.cpp" in done.stderr


def test_an_editable_build(build, tmp_path):
    """Twice: the library is in the source, and is made again."""
    for _ in range(2):
        done = run(
            sys.executable, "-c", "import setuptools.build_meta as b; b.build_editable('dist')", cwd=tmp_path,
            CXXFLAGS="-DNUMBER=1",
        )  # fmt: skip
        assert done.returncode == 0
    assert list((tmp_path / "dist").glob("*.whl"))


def test_auditwheel_leaves_pytorch_out(build, tmp_path):
    pytest.importorskip("auditwheel")
    wheel = "import setuptools.build_meta as b; b.build_wheel('dist')"
    run(sys.executable, "-c", wheel, cwd=tmp_path, CXXFLAGS="-DNUMBER=1")
    [made] = (tmp_path / "dist").glob("*.whl")
    excluded = [word for name in ("libtorch*", "libc10*") for word in ("--exclude", f"{name}.so")]
    repair = ("-m", "auditwheel", "repair", "--disable-isa-ext-check", *excluded, made, "--wheel-dir", tmp_path / "out")
    done = run(sys.executable, *repair)
    [repaired] = (tmp_path / "out").glob("*.whl")
    assert "py3-none-manylinux" in repaired.name, done.stderr
    assert "libtorch_cpu" not in run("unzip", "-l", repaired).stdout


def test_cmake(tmp_path):
    pytest.importorskip("cmake")
    run("cmake", "-S", ROOT / "examples/cmake_backend", "-B", tmp_path, "-G", "Ninja", "-DCMAKE_CXX_FLAGS=-O1")
    run("cmake", "--build", tmp_path)
    program = (
        "import ctypes, torch, muladd; ctypes.CDLL({!r}); x = torch.ones(2); print(muladd.muladd(x, x, 2.0).tolist())"
    )
    done = run(sys.executable, "-c", program.format(str(tmp_path / "libmuladd_plain.so")), MULADD_BACKENDS="")
    assert done.stdout == "[3.0, 3.0]\n"
