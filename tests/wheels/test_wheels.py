"""What is in the wheels: tags, sizes, and symbols of the stable ABI only."""

import re
import subprocess
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.wheels
ROOT = Path(__file__).parents[2]

# In bytes: the CUDA wheel has the same kernels for eight architectures, the SYCL wheel an image for each dtype.
SIZES = {"cuda": 3_000_000, "sycl": 400_000}
GLIBC = {"cuda": (2, 34), "sycl": (2, 28)}


@pytest.fixture(scope="session")
def libraries(wheels, tmp_path_factory):
    """The shared libraries inside the wheels."""
    folder = tmp_path_factory.mktemp("unpacked")
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
    return sorted(folder.rglob("*.so"))


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_tags_and_sizes(wheels, projects):
    assert len(wheels) == len(projects)
    for wheel in wheels:
        assert re.search(r"-py3-none-(linux|manylinux)\w*\.whl$", wheel.name)
        assert wheel.stat().st_size < next((size for name, size in SIZES.items() if name in wheel.name), 300_000)


def test_contents(wheels):
    for wheel in wheels:
        names = zipfile.ZipFile(wheel).namelist()
        assert sum(name.endswith(".so") for name in names) == 1
        assert any(name.endswith("LICENSE") for name in names)
        assert any(name.endswith("py.typed") for name in names)
        assert not [
            name
            for name in names
            if "test" in name.lower() and not name.startswith(("muladd/testing/", "muladd_pytest", "muladd/scaffold/"))
        ]
        assert not [name for name in names if name.endswith((".o", ".ninja", ".pyc"))]
        # The core has two sources, which builds and benchmarks compile where they run.
        sources = {"muladd/cpp_extension/sycl_front_end.cpp", "muladd/bench/triad.cpp"}
        assert {name for name in names if name.endswith(".cpp")} <= sources
    core = zipfile.ZipFile(next(wheel for wheel in wheels if "core" in wheel.name)).namelist()
    assert "muladd/plugins.toml" in core
    assert "muladd/include/muladd/operators.h" in core
    templates = ROOT / "core/src/muladd/scaffold/templates"
    files = {path.relative_to(templates).as_posix() for path in templates.rglob("*") if path.is_file()}
    assert files == {name.partition("templates/")[2] for name in core if "/templates/" in name}


def test_needed_libraries(libraries):
    for library in libraries:
        needed = re.findall(r"\(NEEDED\).*\[(.+)\]", run("readelf", "-d", str(library)))
        assert not [name for name in needed if "python" in name]
        assert "libtorch_cpu.so" in needed
        assert not re.search(r"\((RPATH|RUNPATH)\)", run("readelf", "-d", str(library)))


def test_only_the_stable_abi_is_used(libraries):
    for library in libraries:
        for line in run("nm", "-D", "--undefined-only", str(library)).splitlines():
            kind, name = line.split()[-2:]
            base = name.partition("@")[0]
            assert not base.startswith("Py"), f"{library.name} needs Python: {base}"
            unstable = re.match(r"_ZN?K?(2at|3c10|5torch|N2at|N3c10|N5torch)", base)
            assert not unstable, f"{library.name} uses an unstable symbol of PyTorch: {base}"
            # What is not PyTorch's C interface has a version (the C and the C++ library) or is the SYCL runtime's.
            is_sycl = "sycl" in library.name and re.match(r"_ZN?K?N?K?4sycl3_V1", base)
            allowed = base.startswith(("aoti_torch_", "torch_")) or "@" in name or kind in "wv" or is_sycl
            assert allowed, f"{library.name} needs {base} of an unknown library"


def test_exports_nothing_but_its_own_c_functions(libraries):
    for library in libraries:
        exported = [line.split()[-1] for line in run("nm", "-D", "--defined-only", str(library)).splitlines()]
        assert all(name.startswith("muladd_") for name in exported), f"{library.name} exports {exported}"


def test_runs_on_old_systems(libraries):
    """glibc 2.17 is manylinux2014's; the runtimes inside the CUDA library and beside the SYCL library need more."""
    for library in libraries:
        newest = next((version for name, version in GLIBC.items() if name in library.name), (2, 17))
        versions = re.findall(r"GLIBC_(\d+)\.(\d+)", run("objdump", "-T", str(library)))
        assert max((int(major), int(minor)) for major, minor in versions) <= newest
