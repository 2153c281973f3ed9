"""Wheels for drivers and PyTorchs of CUDA 12 and 13, built by an nvcc 12 (release/cuda12.py, or that of CUDA_HOME)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from opwheel_tools.build.cuda import find_toolkit

from release.cuda12 import toolkit

from .conftest import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.wheels]

PROJECTS = ("cuda", "transformer-cuda")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    given = os.environ.get("TEST_CUDA12_HOME")
    folder = Path(given) if given else tmp_path_factory.mktemp("cuda") / "12"
    toolkit(folder)
    return folder


@pytest.fixture(scope="module")
def wheels(home: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "release.build", "--out", str(out), "--cuda", "12,13", *PROJECTS]
    subprocess.run(command, cwd=ROOT, env=os.environ | {"CUDA_HOME": str(home)}, check=True)
    subprocess.run([sys.executable, "-m", "release.audit", str(out)], cwd=ROOT, check=True)
    return sorted(out.glob("*.whl"))


def test_built_twice(home: Path, wheels: list[Path], tmp_path: Path) -> None:
    """Nothing random is left in an object, although nvcc 12 takes no seed."""
    command = [sys.executable, "-m", "release.build", "--out", str(tmp_path), "--cuda", "12,13", "cuda"]
    subprocess.run(command, cwd=ROOT, env=os.environ | {"CUDA_HOME": str(home)}, check=True)
    (again,) = tmp_path.glob("*.whl")
    (first,) = (one for one in wheels if one.name == again.name)
    assert again.read_bytes() == first.read_bytes()


def test_machine_code_for_every_device(home: Path, wheels: list[Path], tmp_path: Path) -> None:
    """Of devices after 9.0 as well, with the same kernels as for those before."""
    assert len(wheels) == len(PROJECTS)
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(tmp_path)
            (library,) = (tmp_path / name for name in archive.namelist() if name.endswith(".so"))
        built = json.loads(library.with_suffix(".json").read_text())
        assert built["cuda"].startswith("12.")
        assert {"9.0", "10.0", "12.0"} <= set(built["architectures"])
        command = [home / "bin/cuobjdump", "-res-usage", library]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        kernels: dict[str, list[str]] = {}
        for line in text.splitlines():
            if line.startswith("arch = "):
                architecture = line.removeprefix("arch = ")
            elif line.strip().startswith("Function "):
                kernels.setdefault(architecture, []).append(line.strip())
        assert set(kernels) == {f"sm_{one.replace('.', '')}" for one in built["architectures"]}
        (names,) = {tuple(sorted(found)) for found in kernels.values()}
        assert len(names) > 50
        needed = subprocess.run(["ldd", library], capture_output=True, text=True, check=True).stdout
        assert "libcudart" not in needed  # it is linked in


def test_the_cuda_backend_as_built_by_nvcc_13(wheels: list[Path], tmp_path: Path) -> None:
    """Its tests of the library and of what the probe makes of machines."""
    (wheel,) = (one for one in wheels if one.name.startswith("muladd_cuda"))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "backends/cuda/tests/test_library.py"]
    subprocess.run(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": path}, check=True)


def test_without_nvcc_12_nothing_is_built(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "release.build", "--out", str(tmp_path), "--cuda", "12,13", "cuda"]
    environment = {name: value for name, value in os.environ.items() if name not in {"CUDA_HOME", "CUDA_PATH"}}
    answer = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert answer.returncode == 1
    assert answer.stderr.startswith("release: CUDA 12 is needed to build this, and there is none: ")
    assert "CUDA_HOME" in answer.stderr
    assert not any(tmp_path.iterdir())


def test_not_for_another_processor(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "release.build",
        "--out",
        str(tmp_path),
        "--cuda",
        "12,13",
        "--platform",
        "aarch64",
    ]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert answer.returncode == 2
    assert "a build for aarch64 takes NVIDIA's runtime of CUDA 13 alone; leave one of them out" in answer.stderr


def test_a_toolkit_that_is_there_is_left_as_it_is(home: Path) -> None:
    before = (home / "bin/nvcc").stat().st_mtime_ns
    toolkit(home)
    assert (home / "bin/nvcc").stat().st_mtime_ns == before


def test_the_toolkit_passes_for_an_nvcc(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_HOME", str(home))
    found = find_toolkit("12")
    assert (found.major, found.newest) == (12, "12.0")
