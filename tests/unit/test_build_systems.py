"""On which systems opwheel_tools.build builds."""

import platform
from pathlib import Path

import pytest
from opwheel_tools.build import CppLibrary, commands
from setuptools import Distribution


@pytest.fixture(params=["Darwin", "Windows"])
def elsewhere(request, monkeypatch):
    monkeypatch.setattr(platform, "system", lambda: request.param)
    return request.param


def build(library, folder):
    command = commands()["build_ext"](Distribution({"name": "waves", "ext_modules": [library]}))
    command.build_lib = command.build_temp = str(folder)
    command.ensure_finalized()
    command.build_extension(library)


def test_a_library_is_refused_by_name_of_the_system(elsewhere, tmp_path):
    with pytest.raises(SystemExit) as refused:
        build(CppLibrary("waves.libwaves", ["waves.cpp"]), tmp_path)
    assert str(refused.value).startswith(f"waves.libwaves: libraries are built on Linux only, and this is {elsewhere}.")


def test_the_support_page_has_the_message(monkeypatch, tmp_path):
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    with pytest.raises(SystemExit) as refused:
        build(CppLibrary("waves.libwaves", ["waves.cpp"]), tmp_path)
    page = Path(__file__).parents[2] / "docs/support.md"
    message = str(refused.value).partition(": ")[2].partition(". ")[0]
    assert f"`{message}.`" in page.read_text()


def test_an_optional_library_is_left_out(elsewhere, tmp_path, monkeypatch):
    """The framework installs everywhere, without native Autograd."""
    library = CppLibrary("waves.libwaves", ["waves.cpp"])
    library.optional = True
    said = []
    monkeypatch.setattr(commands()["build_ext"], "warn", lambda _, text: said.append(text))
    build(library, tmp_path)
    (warning,) = said
    assert f"this is {elsewhere}." in warning
    assert warning.endswith("Going on without waves.libwaves.")
