"""Packages without their metadata, metadata without its package, and folders that hide what is installed.

None of them is mended by installing something again: the message says what is where, and which folder to leave, to
delete or to bundle.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import muladd
import pytest

from .builder import Compiler, Site
from .conftest import Python, Run

GOOD = {"KEY": "PrivateUse1"}
POLICY = """
[backends.acme]
distribution = "muladd-acme"
dispatch-key = "PrivateUse1"
device = "npu"
hint = "pip install muladd-acme"
"""
ASK = """
for name, ask in (("require", muladd.require), ("load", muladd.load)):
    try:
        ask("acme")
    except opwheel.registry.BackendUnavailableError as error:
        out[name] = str(error)
"""


# ---- packages without metadata ---------------------------------------------------------------------------------------


def without_dist_info(site: Site) -> str:
    shutil.rmtree(site.root / "muladd_acme-1.0.dist-info")
    return "the metadata of muladd-acme is missing"


def without_entry_points(site: Site) -> str:
    (site.root / "muladd_acme-1.0.dist-info/entry_points.txt").unlink()
    return f"its entry point is missing in {site.root / 'muladd_acme-1.0.dist-info'}"


def with_another_group(site: Site) -> str:
    (site.root / "muladd_acme-1.0.dist-info/entry_points.txt").write_text("[muladd.backend]\nacme = muladd_acme\n")
    return f"its entry point is missing in {site.root / 'muladd_acme-1.0.dist-info'}"


def nothing(site: Site) -> str:
    shutil.rmtree(site.root)
    return ""


def a_folder_without_modules(site: Site) -> str:
    nothing(site)
    (site.root / "muladd_acme").mkdir(parents=True)
    return ""


LEFT = [without_dist_info, without_entry_points, with_another_group, nothing, a_folder_without_modules]


@pytest.mark.parametrize("frozen", [False, True], ids=["", "frozen"])
@pytest.mark.parametrize("packed", [False, True], ids=["folder", "archive"])
@pytest.mark.parametrize("left", LEFT, ids=lambda left: left.__name__)
def test_an_application_that_was_put_together(
    left: Callable[[Site], str], packed: bool, frozen: bool, site: Site, tmp_path: Path, run: Run
) -> None:
    register = {"extra": "def register(library): library.impl('add', lambda a, b: a)", "register": "register"}
    site.install("acme", **register)
    missing = left(site)
    place = site.root
    if packed:
        site.root.mkdir(exist_ok=True)
        place = Path(shutil.make_archive(str(tmp_path / "application"), "zip", site.root))
        missing = missing.replace(str(site.root), str(place))
    policy = tmp_path / "plugins.toml"
    policy.write_text(POLICY)
    before = "import sys; sys.frozen = True" if frozen else ""
    report = run(place, before=before, then=ASK, device=True, doctor=True, MULADD_PLUGINS=str(policy))
    assert report["findings"] == []
    for text in (report["out"]["require"], report["out"]["load"], report["call"]["text"]):
        what, _, fix = text.partition("the backend 'acme' ")[2].partition(": ")
        if missing:
            assert what.startswith(f"is not found, though there is {place / 'muladd_acme'}")
            assert what.removesuffix("/").endswith(missing)
        else:
            assert what == ("is not in this application" if frozen else "is not installed")
        if missing or frozen:
            assert "entry_points.txt" in fix
            assert fix.split("; `muladd doctor`")[0].split(" (OPWHEEL")[0] in report["doctor"]["text"]
        if frozen or left is without_dist_info:
            assert "the folder muladd_acme-*.dist-info with METADATA and entry_points.txt" in fix
        assert ("--collect-all muladd_acme --copy-metadata muladd-acme" in fix) is frozen
        assert ("pip install muladd-acme" in fix) is not frozen
        assert ("leave it" in fix) is (left is without_dist_info and not frozen)


@pytest.mark.parametrize("frozen", [False, True], ids=["", "frozen"])
def test_a_requirement_without_metadata(frozen: bool, site: Site, compiler: Compiler, run: Run) -> None:
    site.install("other", entry_points="")
    without_metadata = site.root / "muladd_other-1.0.dist-info"
    shutil.rmtree(without_metadata)
    site.install("acme", library=compiler.library("good", GOOD), requires="['muladd-other>=1']")
    site.install("beta", library=compiler.library("good", GOOD), requires="['not.there>=1']")
    report = run(site.root, before="import sys; sys.frozen = True" if frozen else "")
    acme, beta = report["statuses"]["acme"], report["statuses"]["beta"]
    assert (acme["state"], acme["code"]) == (beta["state"], beta["code"]) == ("incompatible", "OPWHEEL-E031")
    there = f"but that is not found, though there is {site.root / 'muladd_other'}"
    assert acme["reason"].startswith(f"it requires muladd-other>=1, {there}")
    assert "the folder muladd_other-*.dist-info" in acme["fix"]
    assert beta["reason"].endswith("is not in this application" if frozen else "is not installed")
    assert beta["fix"].startswith(
        "bundle all files of the package not.there" if frozen else "pip install 'not.there>=1'"
    )


# ---- folders that hide what is installed -----------------------------------------------------------------------------

# What a folder of sources has instead of the installed package, and why that fails.
SOURCES: dict[str, tuple[dict[str, Any], str]] = {
    "not built": ({}, "OPWHEEL-E050"),
    "not finished": ({"source": "import not_there"}, "OPWHEEL-E020"),
    "something else": ({"source": "print('hello')"}, "OPWHEEL-E021"),
    "another version": ({"requires": "['torch>=99']"}, "OPWHEEL-E031"),
}


def as_module(root: Path) -> None:
    package = root / "muladd_acme"
    (root / "muladd_acme.py").write_text((package / "__init__.py").read_text())
    if (package / "libkernels.so").exists():
        (package / "libkernels.so").rename(root / "libkernels.so")
    shutil.rmtree(package)


def go_to(work: Site, place: str) -> str:
    """What makes a folder the current one, which Python has on sys.path, by its name or as an empty entry."""
    enter = f"import os, sys; os.chdir({str(work.root)!r})"
    return {"PYTHONPATH": "", "current folder": enter, "empty entry": f"{enter}; sys.path.insert(0, '')"}.get(place, "")


@pytest.mark.parametrize("egg_info", [False, True], ids=["", "egg-info"])
@pytest.mark.parametrize("place", ["current folder", "empty entry", "PYTHONPATH"])
@pytest.mark.parametrize("sources", SOURCES)
def test_sources_hide_the_installed_package(
    sources: str, place: str, egg_info: bool, site: Site, compiler: Compiler, tmp_path: Path, run: Run
) -> None:
    installed, code = SOURCES[sources]
    site.install("acme", library=compiler.library("good", GOOD))
    work = Site(tmp_path / "work")
    work.install("acme", **installed)
    (work.root / "muladd_acme-1.0.dist-info").rename(work.root / "muladd_acme.egg-info")
    if not egg_info:
        shutil.rmtree(work.root / "muladd_acme.egg-info")
    else:
        (work.root / "muladd_acme.egg-info/METADATA").rename(work.root / "muladd_acme.egg-info/PKG-INFO")
    if sources == "something else":
        as_module(work.root)
    path = [site.root] if place == "empty entry" else [work.root, site.root]
    report = run(*path, before=go_to(work, place), doctor=True)
    status = report["statuses"]["acme"]
    assert status["code"] == code, status
    used = work.root / ("muladd_acme.py" if sources == "something else" else "muladd_acme")
    hides = f"Python takes muladd_acme from {used}, which hides the installed one, {site.root / 'muladd_acme'}"
    assert status["reason"].endswith(hides)
    advice = f"take {work.root} off sys.path" if place == "PYTHONPATH" else f"leave the folder {work.root}"
    assert status["fix"].startswith(advice)
    assert "reinstall" not in report["warnings"][0]["message"]
    assert hides in report["warnings"][0]["message"]
    assert hides in report["doctor"]["text"]


def test_the_current_folder_is_gone(site: Site, tmp_path: Path, run: Run) -> None:
    """Nothing is imported from there; to look for it is no error."""
    site.install("acme", source="import not_there")
    gone = tmp_path / "gone"
    gone.mkdir()
    before = f"import os, sys; os.chdir({str(gone)!r}); os.rmdir({str(gone)!r}); sys.path.insert(0, '')"
    other = Site(tmp_path / "other")
    other.install("acme")
    shutil.rmtree(other.root / "muladd_acme-1.0.dist-info")
    status = run(other.root, site.root, before=before)["statuses"]["acme"]
    assert status["fix"].startswith(f"take {other.root} off sys.path")


def test_sources_hide_an_installed_runtime(site: Site, tmp_path: Path, run: Run) -> None:
    points = "[muladd.runtimes]\nacme = muladd_acme\n"
    site.install("acme", entry_points=points)
    work = Site(tmp_path / "work")
    work.install("acme", source="import not_there", entry_points="")
    shutil.rmtree(work.root / "muladd_acme-1.0.dist-info")
    then = "out['status'] = muladd.library.runtimes()['acme'].as_json()"
    status = run(work.root, site.root, then=then)["out"]["status"]
    assert "which hides the installed one" in status["reason"]
    assert status["fix"].startswith(f"take {work.root} off sys.path")


@pytest.mark.parametrize("kind", ["broken", "linked", "editable", "twice", "no module"])
def test_nothing_is_hidden(kind: str, site: Site, tmp_path: Path, run: Run) -> None:
    """What is broken for another reason: it is installed so, through a link, in editable mode, or not at all."""
    path = [site.root]
    site.install("acme")  # without its library
    if kind == "linked":
        (tmp_path / "link").symlink_to(site.root)
        path = [tmp_path / "link", site.root]
    elif kind == "editable":
        work = tmp_path / "work"
        work.mkdir()
        (site.root / "muladd_acme").rename(work / "muladd_acme")
        path = [site.root, work]
    elif kind == "twice":
        other = Site(tmp_path / "other")
        other.install("acme")
        path = [other.root, site.root]
    elif kind == "no module":
        shutil.rmtree(site.root / "muladd_acme")
    status = run(*path)["statuses"]["acme"]
    assert status["state"] == "broken"
    assert "hides" not in status["reason"]
    assert status["fix"].endswith("; if it is not yours, reinstall muladd-acme, or uninstall it")


@pytest.mark.parametrize("library", [None, b""], ids=["missing", "empty"])
def test_sources_of_the_core_hide_the_installed_core(library: bytes | None, tmp_path: Path, python: Python) -> None:
    installed = Path(muladd.__file__).parent
    sources = shutil.copytree(installed, tmp_path / "muladd", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    if library is not None:
        (sources / "libmuladd_schema.so").write_bytes(library)
    done = python("-c", "import muladd")  # in tmp_path
    message = done.stderr.splitlines()[-1]
    assert message.startswith("ImportError: muladd-core cannot open its schema library")
    assert f"Python takes muladd from {sources}, which hides the installed one, {installed}" in message
    assert f"leave the folder {tmp_path}" in message
    assert "--force-reinstall" not in message


@pytest.mark.parametrize("files", ["no folder", "modules only"])
def test_a_core_that_was_frozen_in_part(files: str, tmp_path: Path, python: Python) -> None:
    """PyInstaller takes modules into its archive, and data and libraries only where it is told to."""
    site = Path(muladd.__file__).parents[1]
    if files == "no folder":
        path = Path(shutil.make_archive(str(tmp_path / "core"), "zip", site, "muladd"))
    else:
        path = tmp_path / "application"
        no_library = shutil.ignore_patterns("*.so", "__pycache__")
        shutil.copytree(site / "muladd", path / "muladd", ignore=no_library)
    # Its own folder is the only one that has anything of muladd.
    code = """
import sys
from importlib import metadata
sys.frozen = True
metadata.distributions = lambda **_: iter(())
import muladd
"""
    done = python("-c", code, path=(path,))
    message = done.stderr.splitlines()[-1]
    assert message.startswith("ImportError: muladd-core cannot")
    assert "bundle all files of the package muladd, and the folder muladd_core-*.dist-info" in message
    assert "(PyInstaller: --collect-all muladd --copy-metadata muladd-core)" in message
    assert "install" not in message.replace("PyInstaller", "")


# ---- metadata without its package ------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["current folder", "empty entry", "PYTHONPATH", "installed"])
@pytest.mark.parametrize("kind", ["egg-info", "egg-info of pip", "dist-info"])
def test_metadata_of_another_version(
    kind: str, place: str, site: Site, compiler: Compiler, tmp_path: Path, run: Run
) -> None:
    """pip removes what it has installed, where it looks: all else is to be left, or deleted by hand."""
    site.install("acme", version="2.0", library=compiler.library("good", GOOD))
    work = site if place == "installed" else Site(tmp_path / "work")
    work.install("acme", version="1.0", module=False)
    left = work.root / "muladd_acme-1.0.dist-info"
    if kind != "dist-info":
        (left / "METADATA").rename(left / "PKG-INFO")
        left = left.rename(left.with_suffix(".egg-info"))
    if kind == "egg-info of pip":
        (left / "installed-files.txt").write_text("../muladd_acme/__init__.py\n")
    path = [site.root] if place == "empty entry" else dict.fromkeys([work.root, site.root])
    report = run(*path, before=go_to(work, place))
    [finding] = report["findings"]
    assert finding["code"] == "OPWHEEL-E026"
    assert str(left) in finding["message"]
    if place in ("current folder", "empty entry"):
        assert finding["fix"] == f"leave the folder {work.root}, or delete {left}"
    elif kind == "egg-info":
        assert finding["fix"] == f"delete {left}"
    else:
        assert finding["fix"] == "pip uninstall muladd-acme until none is left, and install it again"


def test_the_lock_says_which_metadata_has_no_record(site: Site, compiler: Compiler, tmp_path: Path, run: Run) -> None:
    site.install("acme", library=compiler.library("good", GOOD))
    work = Site(tmp_path / "work")
    work.install("acme", module=False)
    left = (work.root / "muladd_acme-1.0.dist-info").rename(work.root / "muladd_acme.egg-info")
    (left / "RECORD").unlink()
    report = run(work.root, site.root, then="muladd.library.snapshot()")
    assert f"it has no RECORD with hashes ({left})" in report["error"]["text"]
