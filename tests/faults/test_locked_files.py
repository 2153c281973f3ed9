"""MULADD_LOCK: whatever Python could import in place of the locked files is named, one kind after the other.

Each test makes one kind of difference at all places of all locked distributions and expects every one to be named, and
nothing else. Modules that `import muladd` needs before it can compare are left as they are.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterable
from importlib import metadata
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import pytest

from .builder import Compiler, Site, module_source
from .conftest import Run

# The folders of each distribution with the stem of a module there.
FOLDERS = {
    "opwheel": {"opwheel": "aotinductor", "opwheel/commands": "explain"},
    "muladd-core": {"muladd": "__main__", "muladd/opinfos/benchmarks": "cases", "muladd/include/muladd": "operators"},
    "muladd-cpu": {"muladd_cpu": "__init__"},
    "muladd-acme": {"muladd_acme": "__init__", "muladd_acme/sub": "helper"},
    "muladd-box": {"muladd_box": "__init__", "muladd_box.libs": "libbox"},  # for a runtime; with a folder of libraries
}
SOURCES = {
    "opwheel": ["opwheel/aotinductor.py", "opwheel/commands/explain.py"],
    "muladd-core": ["muladd/__main__.py", "muladd/opinfos/benchmarks/cases.py"],
    "muladd-cpu": ["muladd_cpu/__init__.py"],
    "muladd-acme": ["muladd_acme/__init__.py", "muladd_acme/sub/helper.py"],
    "muladd-box": ["muladd_box/__init__.py"],
}
DATA = {
    "opwheel": ["opwheel/commands/doctor.schema.json"],
    "muladd-core": ["muladd/include/muladd/operators.h"],
    "muladd-cpu": ["muladd_cpu/libmuladd_cpu.so"],
    "muladd-acme": ["muladd_acme/libkernels.so"],
    "muladd-box": ["muladd_box.libs/libbox.so"],
}
EXTENSION = EXTENSION_SUFFIXES[0]
ORIGINALS = metadata.distribution("muladd-core").locate_file("")


class Locked:
    """A site with copies of muladd's own wheels and two plugins, and a lock file that fits it."""

    def __init__(self, root: Path, file: Path, run: Run) -> None:
        self.root = root
        self._file = file
        self._run = run

    def report(self, *path: Path, before: str = "") -> dict[str, Any]:
        return self._run(*path, self.root, before=before, MULADD_LOCK=str(self._file))

    def check_loads(self, before: str = "") -> None:
        report = self.report(before=before)
        assert "error" not in report, report["error"]["text"]
        assert report["statuses"]["acme"]["state"] == "loaded"

    def check_names(self, expected: Iterable[str], *path: Path, before: str = "") -> None:
        """The import fails and names these differences, and no other."""
        report = self.report(*path, before=before)
        assert report["error"]["type"] == "LockError", report["error"]["traceback"]
        text = report["error"]["text"]
        named = re.fullmatch(r"the installation differs from .*?: (.*); install what is locked, .*", text)
        assert named, text
        # Where a module is removed, the one that the copies were made of comes next.
        differences = [text for text in named[1].split("; ") if not text.startswith(f"{ORIGINALS}/")]
        assert sorted(differences) == sorted(expected)


@pytest.fixture(scope="session")
def installation(tmp_path_factory: pytest.TempPathFactory, compiler: Compiler) -> Path:
    """What every test copies."""
    site = Site(tmp_path_factory.mktemp("locked") / "site")
    for name in ("opwheel", "muladd-core", "muladd-cpu"):
        distribution = metadata.distribution(name)
        for file in distribution.files:
            if ".." not in file.parts and file.suffix != ".pyc":
                target = site.root / file
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(distribution.locate_file(file), target)
    library = compiler.library("good", {"KEY": "PrivateUse1"})
    modules = {"sub/__init__.py": "", "sub/helper.py": '"""A helper."""\n', "../muladd_acme_module.py": ""}
    site.install("acme", library=library, files=modules)
    runtime = "[muladd.runtimes]\nbox = muladd_box\n"
    site.install("box", source=BOX, entry_points=runtime, files={"../muladd_box.libs/libbox.so": library.read_bytes()})
    return site.root


BOX = """
from pathlib import Path
from opwheel import Runtime, hookimpl
@hookimpl
def opwheel_runtime():
    return Runtime("box", Path(__file__).parents[1] / "muladd_box.libs/libbox.so", ["add"])
"""


@pytest.fixture
def locked(installation: Path, tmp_path: Path, run: Run) -> Locked:
    """A fresh copy. What is locked is the same for all, as the file names no place."""
    root, file = tmp_path / "site", installation.parent / "muladd.lock"
    shutil.copytree(installation, root)
    if not file.exists():
        write = f"open({str(file)!r}, 'w').write(muladd.library.snapshot().as_text('muladd'))"
        report = run(root, before="import sys; sys.dont_write_bytecode = True", then=write)
        assert "error" not in report, report["error"]["traceback"]
        assert set(json.loads(file.read_text())["distributions"]) >= FOLDERS.keys()
    return Locked(root, file, run)


# ---- files -----------------------------------------------------------------------------------------------------------

# Paths in a folder where there is a module of that stem.
ADDED = {
    "package": "{stem}/__init__.py",
    "package of byte code": "{stem}/__init__.pyc",
    "package of machine code": f"{{stem}}/__init__{EXTENSION}",
    "extension": f"{{stem}}{EXTENSION}",
    "extension of the stable ABI": "{stem}.abi3.so",
    "extension without a tag": "{stem}2.so",
    "byte code alone": "{stem}.pyc",
    "module": "extra.py",
    "module far down": "extra/far/down.py",
    "library": "libextra.so.1",
    "data": "extra.json",
    "hidden": ".extra",
    "module in the cache": "__pycache__/extra.py",
    "extension in the cache": f"__pycache__/extra{EXTENSION}",
    "byte code to be imported in the cache": "__pycache__/extra.pyc",
}


@pytest.mark.parametrize("kind", ADDED)
def test_added(kind: str, locked: Locked) -> None:
    expected = []
    for distribution, folders in FOLDERS.items():
        for folder, stem in folders.items():
            file = f"{folder}/{ADDED[kind].format(stem=stem)}"
            (locked.root / file).parent.mkdir(parents=True, exist_ok=True)
            (locked.root / file).write_text("raise RuntimeError('it ran')")
            expected.append(f"{file} is in a folder of {distribution}, but no file of its wheel")
            if kind in ("extension", "extension of the stable ABI") and stem == "__init__":  # it wins over __init__.py
                expected.append(f"{locked.root / file} is used, but is not a file of {distribution}")
    locked.check_names(expected)


def test_what_cannot_be_imported_from_the_cache(locked: Locked) -> None:
    """Byte code that Python and other programs keep there, whole or half written."""
    cache = locked.root / "muladd_acme/sub/__pycache__"
    cache.mkdir()
    for name in ("helper.cpython-39.pyc", "helper.cpython-311-pytest-9.2.0.pyc", "helper.cpython-311.pyc.140234"):
        (cache / name).write_bytes(b"of another Python")
    locked.check_loads()


def test_added_package_that_is_imported(locked: Locked) -> None:
    """It wins over a module that muladd needs, and so has run by then; no library has been opened."""
    source = (locked.root / "muladd/operators/mul.py").read_text()
    package = locked.root / "muladd/operators/mul/__init__.py"
    package.parent.mkdir()
    package.write_text(re.sub(r"from \.", "from ..", source))
    locked.check_names(["muladd/operators/mul/__init__.py is in a folder of muladd-core, but no file of its wheel"])


def test_added_links(locked: Locked, tmp_path: Path) -> None:
    """They count as files: what they lead to is outside, or around them."""
    expected = []
    for distribution, folders in FOLDERS.items():
        for folder in folders:
            for name, target in (("elsewhere", tmp_path), ("around", locked.root), ("nowhere", tmp_path / "gone")):
                (locked.root / folder / name).symlink_to(target)
                expected.append(f"{folder}/{name} is in a folder of {distribution}, but no file of its wheel")
    locked.check_names(expected)


def change_one_letter(path: Path) -> None:
    """With neither size nor time changed."""
    stamp = path.stat()
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))


def replace_with_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def replace_with_dangling_link(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.parent / "gone")


CHANGES: dict[str, Callable[[Path], object]] = {
    "appended": lambda path: path.write_bytes(path.read_bytes() + b"#"),
    "emptied": lambda path: path.write_bytes(b""),
    "one letter": change_one_letter,
    "removed": Path.unlink,
    "a folder": replace_with_folder,
    "a link to nothing": replace_with_dangling_link,
}


@pytest.mark.parametrize("kind", CHANGES)
def test_changed(kind: str, locked: Locked) -> None:
    expected = []
    for distribution in FOLDERS:
        for file in SOURCES[distribution] + DATA[distribution]:
            if (locked.root / file).stat().st_size:
                CHANGES[kind](locked.root / file)
                expected.append(f"{file} of {distribution} is not what its wheel installed")
    locked.check_names(expected)


def test_removed_folder(locked: Locked) -> None:
    expected = []
    folders = {
        "opwheel": "opwheel/_build",
        "muladd-core": "muladd/opinfos/benchmarks",
        "muladd-acme": "muladd_acme/sub",
        "muladd-box": "muladd_box",
    }
    for distribution, folder in folders.items():
        files = [file.relative_to(locked.root) for file in (locked.root / folder).rglob("*") if file.is_file()]
        expected += [f"{file} of {distribution} is not what its wheel installed" for file in files]
        shutil.rmtree(locked.root / folder)
    locked.check_names(expected)


@pytest.mark.parametrize("algorithm", ["shake_128", "crc"])
def test_hash_that_nobody_can_compute(algorithm: str, locked: Locked) -> None:
    record = locked.root / "muladd_acme-1.0.dist-info/RECORD"
    before, digest = record.read_text(), "muladd_acme/__init__.py,sha256="
    record.write_text(before.replace(digest, digest.replace("sha256", algorithm)))
    report = locked.report()
    assert "muladd_acme/__init__.py of muladd-acme is not what its wheel installed; " in report["error"]["text"]


def test_folders_of_a_wheel_may_be_links(locked: Locked, tmp_path: Path) -> None:
    for folder in ("muladd_acme", "muladd/opinfos/benchmarks", "opwheel/commands"):
        (locked.root / folder).rename(tmp_path / Path(folder).name)
        (locked.root / folder).symlink_to(tmp_path / Path(folder).name)
    locked.check_loads()


# ---- other places ----------------------------------------------------------------------------------------------------

OWNER = {
    "muladd_acme": "muladd-acme",
    "muladd_box": "muladd-box",
    "muladd_acme_module": "muladd-acme",
    "muladd_cpu": "muladd-cpu",
}
MODULES = list(OWNER)
ELSEWHERE = {
    "package": "{}/__init__.py",
    "module": "{}.py",
    "byte code": "{}.pyc",
    "package of machine code": f"{{}}/__init__{EXTENSION}",
    "machine code": f"{{}}{EXTENSION}",
}


@pytest.mark.parametrize("kind", ELSEWHERE)
def test_a_folder_that_comes_first(kind: str, locked: Locked, tmp_path: Path) -> None:
    expected = []
    for module in MODULES:
        file = tmp_path / "first" / ELSEWHERE[kind].format(module)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"")
        expected.append(f"{file} is used, but is not a file of {OWNER[module]}")
        if file.name.startswith("__init__"):
            expected.append(f"{file.parent} is used, but is not a file of {OWNER[module]}")
    locked.check_names(expected, tmp_path / "first")


@pytest.mark.parametrize("kind", ["package", "package of machine code", "machine code"])
def test_beside_a_module(kind: str, locked: Locked) -> None:
    file = locked.root / ELSEWHERE[kind].format("muladd_acme_module")
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(b"")
    used = [file] if file.parent == locked.root else [file, file.parent]
    locked.check_names([f"{path} is used, but is not a file of muladd-acme" for path in used])


def test_one_more_folder_of_a_package(locked: Locked, tmp_path: Path) -> None:
    """muladd.__path__ is where its submodules are looked for."""
    before = f"""
import importlib.machinery
class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if name in {[*MODULES, "muladd"]} and spec.submodule_search_locations:
            spec.submodule_search_locations.append({str(tmp_path)!r})
        return spec
import sys
sys.meta_path.insert(0, Finder)
"""
    owners = ["muladd-core", "muladd-cpu", "muladd-acme", "muladd-box"]
    locked.check_names([f"{tmp_path} is used, but is not a file of {owner}" for owner in owners], before=before)


def test_a_module_put_in_place_by_hand(locked: Locked) -> None:
    before = f"import sys, types; sys.modules.update((name, types.ModuleType(name)) for name in {MODULES})"
    locked.check_names(
        [
            f"the module {module!r} of {OWNER[module]} cannot be located: ValueError: {module}.__spec__ is None"
            for module in MODULES
        ],
        before=before,
    )


def test_a_module_that_cannot_be_imported(locked: Locked) -> None:
    report = locked.report(before="import sys; sys.modules['muladd_acme'] = None")
    assert "at PrivateUse1 no backend wins " in report["error"]["text"]


def test_a_namespace_package(site: Site, compiler: Compiler, run: Run, tmp_path: Path) -> None:
    """Python imports a folder without __init__.py from several places: there must be one."""
    (tmp_path / "more/plain").mkdir(parents=True)
    library = compiler.library("good", {"KEY": "PrivateUse1"})
    module = module_source("plain").replace("HERE /", "HERE.parent / 'muladd_plain' /")
    point = "[muladd.backends]\nplain = plain.backend\n"
    site.install("plain", source="", library=library, entry_points=point, files={"../plain/backend.py": module})
    file = tmp_path / "muladd.lock"
    report = run(site.root, then="out['text'] = muladd.library.snapshot().as_text('muladd')")
    assert report["statuses"]["plain"]["state"] == "loaded"
    file.write_text(report["out"]["text"])
    assert "error" not in run(site.root, MULADD_LOCK=str(file))
    report = run(site.root, tmp_path / "more", MULADD_LOCK=str(file))
    assert f"{tmp_path / 'more/plain'} is used, but is not a file of muladd-plain" in report["error"]["text"]
