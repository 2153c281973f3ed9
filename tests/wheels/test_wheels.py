"""What is in the wheels: tags, sizes, and symbols of the stable ABI only."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from release import audit

pytestmark = pytest.mark.wheels
ROOT = Path(__file__).parents[2]

# Its library needs Python and an unstable symbol, and exports what it defines.
BAD = """
extern "C" void PyErr_Clear();
namespace at { void unstable(); }
extern "C" void anything() { PyErr_Clear(); at::unstable(); }
"""


def test_wheels_are_as_promised(wheels, projects):
    assert len(wheels) == len(projects)
    assert {wheel.name: problems for wheel in wheels if (problems := audit.audit(wheel))} == {}


def pip_would_install(wheel, folder, *options):
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-deps", "--only-binary=:all:", *options]
    return subprocess.run([*command, "--target", str(folder), str(wheel)], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("system", ["manylinux_2_28_aarch64", "macosx_14_0_arm64", "win_amd64"])
def test_pip_refuses_the_wheels_on_another_system(wheels, system, tmp_path):
    for wheel in (one for one in wheels if not one.name.endswith("-none-any.whl")):  # the tools are Python and headers
        result = pip_would_install(wheel, tmp_path, "--platform", system)
        assert result.returncode == 1
        assert f"{wheel.name} is not a supported wheel on this platform" in result.stderr


def test_pip_takes_the_wheels_for_free_threaded_python(wheels, tmp_path):
    options = ("--implementation", "cp", "--python-version", "3.14", "--abi", "cp314t", "--platform", "linux_x86_64")
    for wheel in wheels:
        result = pip_would_install(wheel, tmp_path, *options)
        assert result.returncode == 0, result.stderr


def names_in(wheels, prefix):
    (wheel,) = [wheel for wheel in wheels if wheel.name.startswith(prefix)]
    return zipfile.ZipFile(wheel).namelist()


def test_the_core_has_policy_and_list(wheels):
    core = names_in(wheels, "muladd_core-")
    assert {"muladd/plugins.toml", "muladd/include/muladd/operators.h", "muladd/__init__.pyi"} <= set(core)


def test_the_tools_have_sdk_and_templates(wheels):
    tools = names_in(wheels, "opwheel_tools-")
    assert {"opwheel_tools/include/opwheel/operators.h", "opwheel_tools_pytest.py"} <= set(tools)
    templates = ROOT / "tools/src/opwheel_tools/scaffold/templates"
    files = {path.relative_to(templates).as_posix() for path in templates.rglob("*") if path.is_file()}
    assert files == {name.partition("templates/")[2] for name in tools if "/templates/" in name}


def test_the_framework_has_what_production_imports(wheels):
    framework = {name.split("/")[1] for name in names_in(wheels, "opwheel-") if name.startswith("opwheel/")}
    assert {"registry", "dispatch", "memory", "commands", "native"} <= framework
    assert not framework & {"include", "testing", "csrc", "scaffold"}


def test_the_audit_finds_what_is_wrong(tmp_path):
    library = tmp_path / "libbad.so"
    command = ["g++", "-shared", "-fPIC", "-Wl,-rpath,/tmp", "-x", "c++", "-", "-o", str(library)]
    subprocess.run(command, input=BAD, text=True, check=True)
    wheel = tmp_path / "muladd_bad-1.0-cp311-cp311-linux_x86_64.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(library, "muladd_bad/libbad.so")
        archive.writestr("muladd_bad/other.so", library.read_bytes())
        archive.writestr("muladd_bad/large.o", bytes(400_000))
        archive.writestr("tests/test_bad.py", "")
        archive.writestr("csrc/bad.cpp", "")
    result = subprocess.run(
        [sys.executable, "-m", "release.audit", str(wheel)],
        cwd=audit.__file__.rpartition("/release/")[0], capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 1
    for problem in (
        "its tag is not py3-none-<platform>",
        "bytes, at most 300000 are expected",
        "it has no LICENSE",
        "it has no py.typed",
        "it has more than one library",
        "muladd_bad/large.o does not belong into it",
        "tests/test_bad.py does not belong into it",
        "csrc/bad.cpp does not belong into it",
        "libbad.so: it needs Python: PyErr_Clear",
        "libbad.so: it uses an unstable symbol of PyTorch: _ZN2at8unstableEv",
        "libbad.so: it exports anything",
        "libbad.so: it has an rpath that is a folder of this machine",
        "libbad.so: it does not name libtorch_cpu.so",
    ):
        assert problem in result.stdout, result.stdout
