"""How a SYCL library is built: which compiler, with which words where there is none, and what is embedded."""

import ctypes
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from opwheel._build import ninja_file
from opwheel._build.toolchain import ToolchainError
from opwheel_tools import get_include
from opwheel_tools.build import SyclLibrary, sycl

ICPX = """#!{python}
import sys
arguments = sys.argv[1:]
with open(arguments[arguments.index("-o") + 1], "w") as image:
    image.write("\\n".join(arguments))
"""
HOST = """
#include "opwheel/detail/device_image.h"
#pragma GCC visibility push(default)
extern "C" int exported_count() { return opwheel::device_images().size(); }
extern "C" const char* exported_name(int i) { return opwheel::device_images()[i].name.data(); }
extern "C" const char* exported_bytes(int i) { return opwheel::device_images()[i].bytes.data(); }
extern "C" int exported_size(int i) { return opwheel::device_images()[i].bytes.size(); }
extern "C" const char* exported_option(int i, int j) { return opwheel::device_images()[i].options[j]; }
extern "C" const char* exported_source() { return opwheel::device_source().data(); }
extern "C" int exported_source_size() { return opwheel::device_source().size(); }
"""
IMAGES = {"one": ["-DTYPE=float", "-Dtext=a b"], "two": ["-DTYPE=double"]}


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder with host and device code; the working directory, as in a build."""
    (tmp_path / "device").mkdir()
    (tmp_path / "host.cpp").write_text(HOST)
    (tmp_path / "device/shared.h").write_text("#pragma once\nint shared;\n")
    (tmp_path / "device/kernels.cpp").write_text(
        '#include <sycl/sycl.hpp>\n#include "shared.h"\n#include "shared.h"\n#include "opwheel/detail/dtype.h"\n'
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def library():
    return SyclLibrary(
        "example.libexample",
        ["host.cpp"],
        device_source="device/kernels.cpp",
        images=IMAGES,
        libsycl="libsycl.so.9",
        exports=["exported_*"],
    )


@pytest.fixture
def icpx(tmp_path, monkeypatch):
    """A stand-in for the compiler, which writes its own arguments as the image."""
    root = tmp_path / "oneapi"
    for folder in ("bin", "lib", "include"):
        (root / folder).mkdir(parents=True)
    (root / "bin/icpx").write_text(ICPX.format(python=sys.executable))
    (root / "bin/icpx").chmod(0o755)
    subprocess.run(["g++", "-shared", "-x", "c++", "/dev/null", "-o", str(root / "lib/libsycl.so.9")], check=True)
    shutil.copy(root / "lib/libsycl.so.9", root / "lib/libsycl.so")
    monkeypatch.setenv("PATH", f"{root / 'bin'}:/usr/bin:/bin")
    monkeypatch.delenv("TORCH_XPU_ARCH_LIST", raising=False)
    return root


def without_icpx(monkeypatch, files=None):
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "icpx" else f"/usr/bin/{name}")

    def found(distribution):
        if files is None:
            raise metadata.PackageNotFoundError(distribution)
        return files

    monkeypatch.setattr(metadata, "files", found)


def flattened(source):
    return sycl.flatten(source, [Path(get_include())])


def test_icpx_compiles_the_images_which_are_embedded(project, library, icpx, monkeypatch):
    monkeypatch.setenv("TORCH_XPU_ARCH_LIST", "pvc,bmg")
    output = project / "libexample.so"
    ninja_file.build(library, output, project / "build", jobs=2, verbose=False)
    built = ctypes.CDLL(str(output))
    for name in ("name", "bytes", "option", "source"):
        getattr(built, f"exported_{name}").restype = ctypes.c_void_p
    assert built.exported_count() == len(IMAGES)
    for index, (name, options) in enumerate(IMAGES.items()):
        assert ctypes.string_at(built.exported_name(index)).decode() == name
        assert [ctypes.string_at(built.exported_option(index, j)).decode() for j in range(len(options))] == options
        image = ctypes.string_at(built.exported_bytes(index), built.exported_size(index)).decode().splitlines()
        assert set(sycl.ICPX_FLAGS) <= set(image)
        assert set(options) <= set(image)
        assert "-fsycl-targets=spir64,spir64_gen" in image
        assert image[image.index("-Xsycl-target-backend=spir64_gen") + 1] == "-device pvc,bmg"
    source = ctypes.string_at(built.exported_source(), built.exported_source_size()).decode()
    assert source == flattened(project / "device/kernels.cpp")


def test_without_an_architecture_list_the_image_is_for_every_gpu(project, library, icpx):
    (project / "build").mkdir()
    text = "\n".join(sycl.device_code(library, project / "build").lines)
    assert "-fsycl-targets=spir64 " in text
    assert "spir64_gen" not in text


def test_nothing_is_written_anew_when_nothing_changed(project, library, icpx):
    (project / "build").mkdir()
    sycl.device_code(library, project / "build")
    before = {path: path.stat().st_mtime_ns for path in (project / "build").iterdir()}
    sycl.device_code(library, project / "build")
    assert before
    assert before == {path: path.stat().st_mtime_ns for path in (project / "build").iterdir()}


def test_flatten(project):
    text = flattened(project / "device/kernels.cpp")
    assert text.count("int shared;") == 1
    assert "enum class" in text
    assert '#include "' not in text
    assert text.startswith("#include <sycl/sycl.hpp>\n")


def test_an_include_that_is_not_there(project):
    (project / "device/kernels.cpp").write_text('#include "nowhere.h"\n')
    with pytest.raises(ToolchainError, match=r"kernels\.cpp includes 'nowhere\.h'"):
        flattened(project / "device/kernels.cpp")


def test_a_source_that_is_not_there(project):
    with pytest.raises(ToolchainError, match=r"no device source .*none\.cpp"):
        flattened(project / "none.cpp")


def test_no_compiler(monkeypatch):
    without_icpx(monkeypatch)
    with pytest.raises(ToolchainError, match=r"icpx is not on PATH.*dpcpp-cpp-rt>=2026"):
        sycl.find_sycl("libsycl.so.9")


def test_a_damaged_installation(monkeypatch):
    without_icpx(monkeypatch, files=[])
    monkeypatch.setattr(metadata, "version", lambda _: "2026.0.0")
    with pytest.raises(ToolchainError, match=r"intel-sycl-rt 2026\.0\.0 has no file"):
        sycl.find_sycl("libsycl.so.9")


def test_another_release(icpx):
    with pytest.raises(ToolchainError, match=r"libsycl\.so\.8 is needed, but .*lib has libsycl\.so\.9.*2026"):
        sycl.find_sycl("libsycl.so.8")
