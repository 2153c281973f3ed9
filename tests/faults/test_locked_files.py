"""MULADD_LOCK: whatever Python could import in place of the locked files is named, one kind after the other.

Each test makes one kind of difference at all places of all locked distributions and expects every one to be named, and
nothing else. Modules that `import muladd` needs before it can compare are left as they are.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import marshal
import os
import py_compile
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

HELPER = '''"""A helper."""
pair = [lambda: 1, lambda: 1]
def difference(a, b=2):
    """a - b."""
    return a - b if a in {1, 2} or b in (3, 4) else 0
'''
# The folders of each distribution with the stem of a module there.
FOLDERS = {
    "opwheel": {"opwheel": "aotinductor", "opwheel/bench": "runner", "opwheel/include/opwheel": "operators"},
    "muladd-core": {"muladd": "__main__", "muladd/opinfos/benchmarks": "cases", "muladd/include/muladd": "operators"},
    "muladd-cpu": {"muladd_cpu": "__init__"},
    "muladd-acme": {"muladd_acme": "__init__", "muladd_acme/sub": "helper"},
    "muladd-box": {"muladd_box": "__init__", "muladd_box.libs": "libbox"},  # for a runtime; with a folder of libraries
}
SOURCES = {
    "opwheel": ["opwheel/aotinductor.py", "opwheel_tools/bench/runner.py", "opwheel_tools_pytest.py"],
    "muladd-core": ["muladd/__main__.py", "muladd/opinfos/benchmarks/cases.py"],
    "muladd-cpu": ["muladd_cpu/__init__.py"],
    "muladd-acme": ["muladd_acme/__init__.py", "muladd_acme/sub/helper.py"],
    "muladd-box": ["muladd_box/__init__.py"],
}
DATA = {
    "opwheel": ["opwheel_tools/bench/triad.cpp", "opwheel/include/opwheel/operators.h"],
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
    modules = {f"sub/{name}.py": HELPER for name in ("helper", *MEANINGS)}
    site.install("acme", library=library, files={"sub/__init__.py": "", **modules})
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
        "opwheel": "opwheel/bench",
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
    for folder in ("muladd_acme", "muladd/opinfos/benchmarks", "opwheel/bench"):
        (locked.root / folder).rename(tmp_path / Path(folder).name)
        (locked.root / folder).symlink_to(tmp_path / Path(folder).name)
    locked.check_loads()


# ---- byte code -------------------------------------------------------------------------------------------------------


def header(source: Path, flags: int, hashed: bytes) -> bytes:
    """What Python compares with the source: nothing, its hash, or its time and size."""
    stamp = source.stat()
    fields = (int(stamp.st_mtime), stamp.st_size)
    validation = (
        importlib.util.source_hash(hashed) if flags else b"".join(field.to_bytes(4, "little") for field in fields)
    )
    return importlib.util.MAGIC_NUMBER + flags.to_bytes(4, "little") + validation


def write_byte_code(source: Path, text: bytes, flags: int, hashed: bytes | None = None) -> None:
    """Byte code of the text, which Python takes for that of the source."""
    cached = Path(importlib.util.cache_from_source(str(source)))
    cached.parent.mkdir(parents=True, exist_ok=True)
    code = compile(text, str(source), "exec", dont_inherit=True)
    cached.write_bytes(header(source, flags, source.read_bytes() if hashed is None else hashed) + marshal.dumps(code))


def truncate(source: Path, text: bytes) -> None:
    write_byte_code(source, text, 0)
    cached = Path(importlib.util.cache_from_source(str(source)))
    cached.write_bytes(cached.read_bytes()[:-1])


STALE: dict[str, Callable[[Path, bytes], object]] = {
    "unchecked, of an earlier text": lambda source, text: write_byte_code(source, text, 0b01, hashed=text),
    "unchecked, with the hash of the source": lambda source, text: write_byte_code(source, text, 0b01),
    "checked, with the hash of the source": lambda source, text: write_byte_code(source, text, 0b11),
    "with time and size of the source": lambda source, text: write_byte_code(source, text, 0),
    "truncated": truncate,
}
STALE_TEXT = "the byte code of {} of {} is not what the file says: delete its __pycache__"


def spoil(locked: Locked, write: Callable[[Path, bytes], object]) -> list[str]:
    for files in SOURCES.values():
        for file in files:
            source = locked.root / file
            write(source, source.read_bytes() + b"\nspoilt = 1\n")
    return [STALE_TEXT.format(file, distribution) for distribution, files in SOURCES.items() for file in files]


@pytest.mark.parametrize("kind", STALE)
def test_byte_code_of_another_source(kind: str, locked: Locked) -> None:
    locked.check_names(spoil(locked, STALE[kind]))


def test_byte_code_in_a_tree_of_its_own(locked: Locked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PYTHONPYCACHEPREFIX: for that process it counts, and what is in __pycache__ does not."""
    spoil(locked, STALE["with time and size of the source"])
    monkeypatch.setattr("sys.pycache_prefix", str(tmp_path / "cache"))
    other = f"import sys; sys.pycache_prefix = {str(tmp_path / 'cache')!r}"
    locked.check_loads(before=other)
    locked.check_names(spoil(locked, STALE["with time and size of the source"]), before=other)


# What a text of another meaning may differ in, for modules that are else the same.
MEANINGS = {
    "constant": ("lambda: 1]", "lambda: 2]"),
    "operator": ("a - b if", "a + b if"),
    "name": ("b in (3, 4)", "a in (3, 4)"),
    "default": ("b=2", "b=3"),
    "documentation": ('"""a - b."""', '"""a + b."""'),
    "set": ("{1, 2}", "{1, 3}"),
    "tuple": ("(3, 4)", "(3, 5)"),
    "type": ("(3, 4)", "(3, 4.0)"),
    "parameter": ("(a, b=2)", "(a, /, b=2)"),
}


def test_every_other_meaning_counts(locked: Locked) -> None:
    expected = []
    for name, (said, instead) in MEANINGS.items():
        write_byte_code(locked.root / f"muladd_acme/sub/{name}.py", HELPER.replace(said, instead).encode(), 0)
        expected.append(STALE_TEXT.format(f"muladd_acme/sub/{name}.py", "muladd-acme"))
    locked.check_names(expected)


@pytest.mark.parametrize("mode", py_compile.PycInvalidationMode)
def test_pythons_own_byte_code(mode: py_compile.PycInvalidationMode, locked: Locked) -> None:
    """Of every kind; and what is beside it for other programs, of an earlier installation, or half written."""
    for source in [path for path in locked.root.rglob("*.py") if "templates" not in path.parts]:
        for level in (-1, 1, 2):
            cached = py_compile.compile(str(source), doraise=True, optimize=level, invalidation_mode=mode)
        name = cached.partition(".cpython")[0]
        Path(f"{name}.cpython-39.pyc").write_bytes(b"of another Python")
        Path(f"{name}.cpython-311-pytest-9.2.0.pyc").write_bytes(b"of pytest")
        Path(f"{cached}.140234").write_bytes(b"not complete yet")
        Path(f"{name}.function-7.py311.nbi").write_bytes(b"of numba")
        Path(f"{name}_gone.cpython-311.pyc").write_bytes(b"of a module that is no more")
    locked.check_loads()


IGNORED = {
    "of another time": lambda source: header(source, 0, b"")[:8] + bytes(8) + b"anything",
    "of another text": lambda source: header(source, 0b11, b"another") + b"anything",
    "of another Python": lambda source: bytes(16) + b"anything",
    "empty": lambda source: b"",
}


@pytest.mark.parametrize("kind", IGNORED)
def test_byte_code_that_python_does_not_take(kind: str, locked: Locked) -> None:
    for file in itertools.chain.from_iterable(SOURCES.values()):
        cached = Path(importlib.util.cache_from_source(str(locked.root / file)))
        cached.parent.mkdir(exist_ok=True)
        cached.write_bytes(IGNORED[kind](locked.root / file))
    locked.check_loads()


def test_byte_code_without_columns(locked: Locked, python: Callable[..., Any]) -> None:
    """From a process with other options than this one: two functions of one line become one constant."""
    done = python("-X", "no_debug_ranges", "-m", "compileall", "-q", str(locked.root / "muladd_acme"))
    assert done.returncode == 0, done.stdout
    locked.check_loads()


# ---- other places ----------------------------------------------------------------------------------------------------

OWNER = {
    "muladd_acme": "muladd-acme",
    "muladd_box": "muladd-box",
    "muladd_cpu": "muladd-cpu",
    "opwheel_tools_pytest": "opwheel",
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
    file = locked.root / ELSEWHERE[kind].format("opwheel_tools_pytest")
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(b"")
    used = [file] if file.parent == locked.root else [file, file.parent]
    locked.check_names([f"{path} is used, but is not a file of opwheel" for path in used])


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
