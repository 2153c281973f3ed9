"""What the deployment tests build. `make test-deploy` keeps it in a folder between runs; otherwise it is made anew."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]


def run(*command, check=False, **options):
    """Run a command and keep what it prints."""
    result = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, timeout=500, **options)
    if check:
        assert result.returncode == 0, f"{command}\n{result.stdout[-3000:]}\n{result.stderr[-5000:]}"
    return result


def last_line(result):
    return result.stderr.strip().splitlines()[-1]


def compile_library(source, output, *options):
    """A shared library with the flags of `muladd config --cflags`, quickly."""
    flags = shlex.split(run(sys.executable, "-m", "muladd", "config", "--cflags", check=True).stdout)
    lib = f"-L{torch.__path__[0]}/lib"
    compiler = ["g++", "-O0", *flags, "-O0", *options, "-shared"]
    run(*compiler, source, "-o", output, lib, "-ltorch_cpu", "-lc10", check=True)


def cmake(source, folder, **definitions):
    """Configure and build a CMake project; what has not changed is not built again."""
    common = {
        "CMAKE_BUILD_TYPE": "Release",
        "Python_EXECUTABLE": sys.executable,
        "CMAKE_MAKE_PROGRAM": Path(sys.executable).parent / "ninja",
    }
    arguments = [f"-D{key}={value}" for key, value in (common | definitions).items()]
    tool = [sys.executable, "-m", "cmake"]
    run(*tool, "-S", source, "-B", folder, "-G", "Ninja", *arguments, check=True)
    run(*tool, "--build", folder, check=True)
    return folder


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """Where everything is built."""
    kept = os.environ.get("TEST_DEPLOY_FOLDER")
    return Path(kept).resolve() if kept else tmp_path_factory.mktemp("deploy")


def exported(folder, kind, *options):
    """The folder with a program and its samples, as the example exports them."""
    output = folder / kind
    if not (output / ".complete").exists():
        run(sys.executable, ROOT / f"examples/deployment/{kind}/export.py", output, *options, check=True)
        (output / ".complete").touch()
    return output


@pytest.fixture(scope="session")
def digits_pt2(folder):
    return exported(folder, "aotinductor", "--c-shims")


@pytest.fixture(scope="session")
def digits_pte(folder):
    return exported(folder, "executorch")


@pytest.fixture(scope="session")
def aotinductor_programs(folder):
    """The example's program and the one of these tests, linked against libtorch."""
    prefix = torch.utils.cmake_prefix_path
    return cmake(ROOT / "tests/deploy/aotinductor", folder / "aotinductor-build", CMAKE_PREFIX_PATH=prefix)


@pytest.fixture(scope="session")
def executorch_programs(folder, digits_pte):
    """The example's programs and those of these tests, linked against ExecuTorch's runtime."""
    import muladd_executorch

    return cmake(
        ROOT / "tests/deploy/executorch",
        folder / "executorch-build",
        CMAKE_PREFIX_PATH=muladd_executorch.sdk_dir / "cmake",
        MODEL=digits_pte / "digits.pte",
    )
