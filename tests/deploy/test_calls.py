"""A program without Python whose kernels call other operators (opwheel/call.h), with the native library and without."""

import subprocess
from pathlib import Path

import pytest
from opwheel._build.toolchain import find_torch
from opwheel._torch.native import library_file

from tests.non_elementwise.cpp_library import build, compile_args

SOURCES = Path(__file__).parent / "calls"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("program")
    for name in ("schema", "kernels"):
        build(SOURCES / f"{name}.cpp", folder / f"libwaves_deployed_{name}.so")
    torch = find_torch().lib
    link = [f"-L{torch}", f"-Wl,-rpath,{torch}", "-Wl,--no-as-needed", "-ltorch_cpu", "-lc10", "-ldl"]
    program = [SOURCES / "program.cpp", "-o", folder / "program", *link]
    subprocess.run(compile_args(*program, torch_target="2.13"), check=True)
    return folder


def printed(folder, *libraries):
    command = [folder / "program", folder / "libwaves_deployed_kernels.so", *libraries]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def test_without_the_native_library(folder):
    """The operators of a library say their schemas themselves; those of PyTorch are refused, with what to do."""
    of_its_own, of_pytorch = printed(folder)
    assert of_its_own == "6"
    assert of_pytorch.startswith("square: aten::mm is called, and its schema cannot be read in this process")
    assert '"autograd"' in of_pytorch


def test_with_the_native_library(folder):
    path = library_file("autograd")
    if isinstance(path, str):
        pytest.skip(path)
    assert printed(folder, path) == ["6", "4"]
