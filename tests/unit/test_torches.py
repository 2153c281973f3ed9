"""What is kept of a release of PyTorch to build native Autograd with."""

import importlib.metadata
import zipfile

import pytest

from release import torches

WHEEL = {
    "torch/include/ATen/ops/add.h": "",
    "torch/include/torch/csrc/stable/library.h": "",
    "torch/lib/libtorch_cpu.so": "",
    "torch/lib/libc10.so": "",
    "torch/lib/libtorch_cuda.so": "large",
    "torch/__init__.py": "",
    "torch-2.13.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: torch\nVersion: 2.13.0+cu130\n",
    "torch-2.13.0.dist-info/RECORD": "",
}


def test_headers_libraries_and_version_are_kept(tmp_path):
    with zipfile.ZipFile(tmp_path / "torch.whl", "w") as archive:
        for name, content in WHEEL.items():
            archive.writestr(name, content)
    folder = tmp_path / "unpacked"
    torches.unpack(tmp_path / "torch.whl", folder)
    kept = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert set(WHEEL) - kept == {"torch/lib/libtorch_cuda.so", "torch/__init__.py", "torch-2.13.0.dist-info/RECORD"}
    # What framework/setup.py asks for.
    assert [found.version for found in importlib.metadata.distributions(name="torch", path=[str(folder)])] == [
        "2.13.0+cu130"
    ]


def test_what_is_in_the_cache_is_not_downloaded(tmp_path):
    for release in ("2.10.0", "2.11.0"):
        (tmp_path / f"torch-{release}").mkdir()
    assert torches.torches(["2.10.0", "2.11.0"], tmp_path) == f"{tmp_path}/torch-2.10.0:{tmp_path}/torch-2.11.0"
    with pytest.raises(pytest.fail.Exception, match="starts a process"):  # the folder's tests may not
        torches.torches(["2.12.0"], tmp_path)


def test_one_for_each_minor_release():
    assert [release.rpartition(".")[0] for release in torches.RELEASES] == [f"2.{minor}" for minor in range(10, 16)]
