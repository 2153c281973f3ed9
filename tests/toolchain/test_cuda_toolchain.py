"""Which nvcc builds a CUDA library, for which devices, and what is said where there is none."""

import json
import shutil
import sys
from pathlib import Path

import pytest
from opwheel._build.toolchain import ToolchainError, Torch
from opwheel_tools.build import CudaLibrary, cuda

LIBRARY = CudaLibrary("package.library", [], cuda="13.0", architectures=["8.0", "9.0"], ptx=["8.0"])


@pytest.fixture(autouse=True)
def _nothing_installed(monkeypatch):
    """No CUDA in the environment, none on PATH, none among the packages."""
    for variable in ("CUDA_HOME", "CUDA_PATH", "TORCH_CUDA_ARCH_LIST", "OPWHEEL_CUDA"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(cuda.importlib.util, "find_spec", lambda name: None)


def toolkit(folder, release="13.0", *, runtime="lib64", newest="12.1"):
    """A folder with a program that answers as nvcc does."""
    nvcc = folder / "bin/nvcc"
    nvcc.parent.mkdir(parents=True)
    nvcc.write_text(
        f"#!/bin/sh\ncase $1 in --version) echo 'Cuda compilation tools, release {release}, V{release}.1';;"
        f" --list-gpu-code) printf '%s\\n' sm_80 sm_{newest.replace('.', '')} sm_90;;"
        f" *) echo '#$ TOP={folder}' >&2;; esac\n"
    )
    nvcc.chmod(0o755)
    if runtime:
        (folder / runtime).mkdir(parents=True)
        (folder / runtime / "libcudart_static.a").touch()
    return folder


def packages(monkeypatch, folder):
    """As pip installs NVIDIA's packages: a namespace package named nvidia."""

    class Spec:
        submodule_search_locations = (str(folder),)

    monkeypatch.setattr(cuda.importlib.util, "find_spec", lambda name: Spec() if name == "nvidia" else None)


def test_the_order(monkeypatch, tmp_path):
    toolkit(tmp_path / "nvidia/cu13", "13.0", runtime="lib")
    packages(monkeypatch, tmp_path / "nvidia")
    assert cuda.find_toolkit("13.0").lib == tmp_path / "nvidia/cu13/lib"
    monkeypatch.setenv("PATH", str(toolkit(tmp_path / "path", "13.1") / "bin"))
    root = tmp_path / "path"
    assert cuda.find_toolkit("13.0") == cuda.Toolkit(
        root / "bin/nvcc", "13.1", root / "lib64", root / "include", "12.1"
    )
    monkeypatch.setenv("CUDA_HOME", str(toolkit(tmp_path / "home", runtime="targets/sbsa-linux/lib")))
    assert cuda.find_toolkit("13.0").lib == tmp_path / "home/targets/sbsa-linux/lib"


def test_another_major_release_is_passed_over(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(toolkit(tmp_path / "old", "12.4") / "bin"))
    toolkit(tmp_path / "nvidia/cu13", runtime="lib")
    packages(monkeypatch, tmp_path / "nvidia")
    assert cuda.find_toolkit("13.0").nvcc == tmp_path / "nvidia/cu13/bin/nvcc"


def test_a_script_on_path_that_calls_another(monkeypatch, tmp_path):
    real = toolkit(tmp_path / "real")
    script = tmp_path / "bin/nvcc"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexec {real}/bin/nvcc "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(script.parent))
    assert cuda.find_toolkit("13.0").lib == real / "lib64"


def test_none_at_all():
    with pytest.raises(ToolchainError, match=r"no nvcc found.*pip install 'nvidia-cuda-nvcc==13\.0\.\*'.*CUDA_HOME"):
        cuda.find_toolkit("13.0")


@pytest.mark.parametrize("problem", ["old", "no runtime", "does not run"])
def test_what_was_found_is_named(monkeypatch, tmp_path, problem):
    home = toolkit(tmp_path / "home", "12.8" if problem == "old" else "13.0", runtime=problem != "no runtime" and "lib")
    if problem == "does not run":
        shutil.copyfile(sys.executable, home / "bin/nvcc")
        (home / "bin/nvcc").chmod(0o644)
    monkeypatch.setenv("CUDA_HOME", str(home))
    words = {"old": "is release 12.8", "no runtime": "without libcudart_static.a", "does not run": "does not run"}
    with pytest.raises(ToolchainError) as caught:
        cuda.find_toolkit("13.0")
    assert words[problem] in str(caught.value)
    assert str(home) in str(caught.value)


def test_architectures(monkeypatch):
    assert cuda.architectures(LIBRARY, "12.1") == (["8.0", "9.0"], ["8.0"])
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "7.5;9.0a 12.0+PTX")
    binary, ptx = cuda.architectures(LIBRARY, "12.1")
    assert cuda.code_flags(binary, ptx) == [
        "-gencode=arch=compute_75,code=sm_75",
        "-gencode=arch=compute_90a,code=sm_90a",
        "-gencode=arch=compute_120,code=sm_120",
        "-gencode=arch=compute_120,code=compute_120",
    ]


@pytest.mark.parametrize("text", ["Hopper", "90", "9.0+ptx", "sm_90"])
def test_malformed_architectures(monkeypatch, text):
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", text)
    with pytest.raises(ToolchainError, match="TORCH_CUDA_ARCH_LIST"):
        cuda.architectures(LIBRARY, "12.1")


def test_what_nvcc_does_not_know_has_ptx_of_the_newest_it_knows():
    library = CudaLibrary("p.l", [], cuda="12.4", architectures=["8.0", "9.0", "10.0", "12.0"], ptx=["8.0"])
    assert cuda.architectures(library, "12.0") == (["8.0", "9.0", "10.0", "12.0"], ["8.0"])
    assert cuda.architectures(library, "10.3") == (["8.0", "9.0", "10.0"], ["8.0", "10.3"])
    assert cuda.architectures(library, "9.0") == (["8.0", "9.0"], ["8.0", "9.0"])
    assert cuda.architectures(library, "8.0") == (["8.0"], ["8.0"])


def test_what_nvcc_does_not_know_cannot_be_asked_for(monkeypatch):
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "8.0;12.0+PTX")
    with pytest.raises(ToolchainError, match=r"'12\.0\+PTX', and this nvcc knows none after 9\.0.*'9\.0\+PTX'"):
        cuda.architectures(LIBRARY, "9.0")


@pytest.mark.parametrize(
    ("release", "newest", "seed", "ptx"),
    [("12.4", "9.0", "-Xcompiler=-frandom-seed", ["8.0"]), ("12.9", "12.1", "-Xcompiler=-frandom-seed", ["8.0"])],
)
def test_another_release_of_cuda(monkeypatch, tmp_path, release, newest, seed, ptx):
    """OPWHEEL_CUDA wins over the library's; what it was built with is written beside it."""
    monkeypatch.setenv("CUDA_HOME", str(toolkit(tmp_path / "home", release, newest=newest)))
    monkeypatch.setenv("OPWHEEL_CUDA", "12")
    monkeypatch.setattr(cuda, "find_cxx", lambda: ["g++"])
    monkeypatch.setattr(cuda, "find_torch", lambda: Torch(tmp_path, tmp_path))
    code = cuda.device_code(LIBRARY, tmp_path)
    assert json.loads(code.description) == {"cuda": release, "architectures": ["8.0", "9.0"], "ptx": ptx}
    assert code.seed_flag == seed


def test_no_nvcc_of_another_release(monkeypatch, tmp_path):
    monkeypatch.setenv("CUDA_HOME", str(toolkit(tmp_path / "home", "13.0")))
    with pytest.raises(ToolchainError, match=r"CUDA 12 is needed.*is release 13\.0.*set CUDA_HOME to a CUDA toolkit"):
        cuda.find_toolkit("12")


def test_the_real_one_here(monkeypatch):
    """What the CUDA backend of this repository was built with."""
    monkeypatch.undo()
    found = cuda.find_toolkit("13.0")
    assert found.release.startswith("13.")
    assert (found.lib / "libcudart_static.a").is_file()
    assert isinstance(found.nvcc, Path)
    assert found.newest == "12.1"
