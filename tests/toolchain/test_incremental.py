"""After a change a build compiles what depends on it, and nothing else: of a wheel, and of an editable installation."""

import subprocess
import sys

import pytest

SETUP = """
from opwheel_tools.build import CppLibrary, commands
from setuptools import setup

setup(
    name="waves",
    packages=["waves"],
    package_dir={"": "src"},
    ext_modules=[CppLibrary("waves.libwaves", ["one.cpp", "two.cpp"], exports=["waves_*"])],
    cmdclass=commands(),
)
"""


@pytest.fixture(params=["wheel", "editable"])
def build(tmp_path, request):
    """Builds a library of two sources as pip does, and names those that were compiled."""
    (tmp_path / "setup.py").write_text(SETUP)
    (tmp_path / "src/waves").mkdir(parents=True)
    (tmp_path / "src/waves/__init__.py").touch()
    (tmp_path / "step.h").write_text("constexpr int step = 1;\n")
    (tmp_path / "one.cpp").write_text('#include "step.h"\nextern "C" int waves_one(int x) { return x + step; }\n')
    (tmp_path / "two.cpp").write_text('extern "C" int waves_two(int x) { return x + 2; }\n')

    def objects():
        return {path.name: path.stat().st_mtime_ns for path in (tmp_path / "build").rglob("*.o")}

    def run():
        before = objects()
        program = f"from setuptools import build_meta; build_meta.build_{request.param}('dist')"
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return {name.removesuffix(".o") for name, time in objects().items() if before.get(name) != time}

    return run


@pytest.mark.parametrize(("changed", "compiled"), [("two.cpp", {"two.cpp"}), ("step.h", {"one.cpp"})])
def test_only_what_depends_on_a_change_is_compiled(build, tmp_path, changed, compiled):
    assert build() == {"one.cpp", "two.cpp"}
    assert build() == set()
    source = tmp_path / changed
    source.write_text(source.read_text().replace("2;", "3;").replace("1;", "3;"))
    assert build() == compiled
