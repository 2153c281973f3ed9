"""What a debugger needs is in a library where it is asked for, and nowhere else."""

import pytest
from opwheel_tools.build import CppLibrary, commands
from setuptools import Distribution


@pytest.fixture
def build(tmp_path, monkeypatch):
    """Builds a library with a function in it, and says whether it has symbols, and lines."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "waves.cpp").write_text('extern "C" int waves_number(int x) { return x + 1; }\n')

    def run(cxxflags="", *, debug=False, **options):
        monkeypatch.setenv("CXXFLAGS", cxxflags)
        library = CppLibrary("waves.libwaves", ["waves.cpp"], exports=("waves_*",), **options)
        command = commands()["build_ext"](Distribution({"name": "waves", "ext_modules": [library]}))
        command.build_lib, command.build_temp, command.debug = str(tmp_path / "lib"), str(tmp_path / "temp"), debug
        command.ensure_finalized()
        command.build_extension(library)
        sections = (tmp_path / "lib/waves/libwaves.so").read_bytes()
        return b".symtab" in sections, b".debug_info" in sections

    return run


def test_a_library_is_stripped(build):
    assert build() == (False, False)
    assert build("-O2 -g0") == (False, False)


@pytest.mark.parametrize("flag", ["-g", "-g1", "-ggdb3", "-gdwarf-4"])
def test_flags_of_the_environment(build, flag):
    assert build(f"-O2 {flag}") == (True, True)
    assert build(f"{flag} -g0") == (False, False)


def test_build_ext_debug(build):
    assert build(debug=True) == (True, True)


def test_a_librarys_own_flags(build):
    assert build(compile_args=["-g"]) == (True, True)
    assert build(source_args={"waves.cpp": ["-g"]}) == (True, True)
