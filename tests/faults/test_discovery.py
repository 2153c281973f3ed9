"""Damaged metadata of one distribution: it is ignored and named, the others are found."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import muladd
import pytest

from .builder import Compiler, Site
from .conftest import Python, Run

GOOD = {"KEY": "PrivateUse1"}
REGISTERING: dict[str, Any] = {
    "extra": "def register(library): library.impl('add', lambda a, b: a)",
    "register": "register",
    "operators": "['add']",
}

# id -> (what is installed instead, what the finding says)
DAMAGED: dict[str, tuple[dict[str, Any], str]] = {
    "entry points not UTF-8": (
        {"entry_points": b"[muladd.backends]\nacme = muladd_\xff\n"},
        "UnicodeDecodeError",
    ),
    "METADATA not UTF-8": ({"metadata": b"Name: muladd-acme\nVersion: 1.0\nAuthor: \xff\n"}, "UnicodeDecodeError"),
    "METADATA without Name": ({"metadata": "Version: 1.0\n"}, "METADATA must give Name and Version"),
    "METADATA without Version": ({"metadata": "Name: muladd-acme\n"}, "METADATA must give Name and Version"),
    "METADATA empty": ({"metadata": ""}, "METADATA must give Name and Version"),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_damaged_metadata(damage: str, site: Site, compiler: Compiler, run: Run) -> None:
    library = compiler.library("good", GOOD)
    installed, words = DAMAGED[damage]
    site.install("acme", library=library, **installed)
    site.install("beta", library=library)
    report = run(site.root, doctor=True)
    assert "numbers" in report
    assert report["statuses"]["beta"]["state"] == "loaded"
    assert "acme" not in report["statuses"]
    [finding] = report["findings"]
    assert finding["code"] == "OPWHEEL-E025"
    assert str(site.root / "muladd_acme-1.0.dist-info") in finding["message"]
    assert words in finding["message"]
    assert "reinstall" in finding["fix"]
    [warning] = report["warnings"]
    assert finding["message"] in warning["message"]
    assert report["doctor"]["exit"] == report["doctor_json"]["exit"] == 1
    assert "OPWHEEL-E025" in report["doctor"]["text"]
    error = run(site.root, MULADD_STRICT="1")["error"]
    assert "muladd_acme-1.0.dist-info" in error["text"]

    site.install("acme", library=library, priority="1")
    assert run(site.root)["statuses"]["acme"]["state"] == "loaded"


# Lines of an entry_points.txt that are no entry points, and the names that they are told of under.
MALFORMED_LINES = {
    "worse": "worse",
    "worse =": "worse",
    "worse = ???": "worse",
    "worse = muladd acme": "worse",
    "worse = muladd-acme": "worse",
    "worse = muladd_acme:": "worse",
    "worse = muladd_acme:hook()": "worse",
    "worse = muladd_acme [extra": "worse",
    "worse = [muladd.backends]": "worse",
    "worse: muladd_acme": "worse: muladd_acme",
    "= muladd_acme": "",
    "=": "",
    "worse = \x1b[31m": "worse",
}


@pytest.mark.parametrize("runtime", [False, True], ids=["backend", "runtime"])
@pytest.mark.parametrize("line", MALFORMED_LINES, ids=ascii)
def test_a_malformed_entry_point_is_the_only_one_lost(
    line: str, runtime: bool, site: Site, compiler: Compiler, run: Run
) -> None:
    """Whether it stands before or after the others: it is named with its text, they are loaded."""
    group = "muladd.runtimes" if runtime else "muladd.backends"
    library = compiler.library("good", GOOD)
    rest = "[muladd.backends]\nacme = muladd_acme\n# a comment\n"
    before = f"[console_scripts]\nacme\n\n[{group}]\n{line}\n{rest}"
    site.install("acme", library=library, entry_points=before)
    other = line.replace("worse", "bad") if "worse" in line else ""
    after = f"{rest.replace('acme', 'beta')}\n[{group}]\n{other}\n[console_scripts]\nx\n"
    site.install("beta", library=library, entry_points=after, operators="['add']", priority="-1")
    report = run(site.root, doctor=True)
    assert "numbers" in report
    assert report["findings"] == []
    assert report["statuses"]["acme"]["state"] == "loaded"
    assert report["statuses"]["beta"]["state"] == "shadowed"
    described = json.loads(report["doctor_json"]["text"])["runtimes" if runtime else "backends"]
    status = described[MALFORMED_LINES[line]]
    assert (status["state"], status["code"], status["distribution"]) == ("broken", "OPWHEEL-E022", "muladd-acme")
    assert "its entry point is" in status["reason"]
    assert repr(line if line.startswith("worse ") or line == "worse" else MALFORMED_LINES[line]) in status["reason"]
    assert "NoneType" not in status["reason"]
    assert len(report["warnings"]) == (0 if runtime else 1 + bool(other))
    assert report["doctor"]["exit"] == report["doctor_json"]["exit"] == 1


def no_file(info: Path) -> None:
    (info / "entry_points.txt").unlink()


def loop(info: Path) -> None:
    no_file(info)
    (info / "entry_points.txt").symlink_to(info / "entry_points.txt")


def other_group(info: Path) -> None:
    (info / "entry_points.txt").write_text("[muladd.backends_of_another_kind]\nacme = muladd_acme\n")


def other_damage(info: Path) -> None:
    (info / "entry_points.txt").write_bytes(b"[console_scripts]\n\xff = x\n")


@pytest.mark.parametrize("change", [no_file, loop, other_group, other_damage], ids=lambda change: change.__name__)
def test_distributions_that_do_not_concern_us(
    change: Callable[[Path], None], site: Site, compiler: Compiler, run: Run
) -> None:
    site.install("acme", library=compiler.library("good", GOOD))
    change(site.root / "muladd_acme-1.0.dist-info")
    report = run(site.root)
    assert "acme" not in report["statuses"]
    assert "numbers" in report
    assert report["findings"] == report["warnings"] == []


def test_requirement_on_a_distribution_with_damaged_metadata(site: Site, compiler: Compiler, run: Run) -> None:
    site.install("victim", entry_points="", metadata=b"Name: muladd-victim\nVersion: \xff\n")
    site.install("acme", library=compiler.library("good", GOOD), requires="['muladd-victim>=1']")
    report = run(site.root)
    status = report["statuses"]["acme"]
    assert (status["state"], status["code"]) == ("incompatible", "OPWHEEL-E031")
    assert "muladd-victim" in status["reason"]


@pytest.mark.parametrize("step", ["module", "hook", "register"])
def test_keyboard_interrupt_is_the_users(step: str, site: Site, run: Run) -> None:
    """Ctrl-C while a plugin is at work stops the import, as anywhere else."""
    hook = "from opwheel.registry import hookimpl\n@hookimpl\ndef opwheel_backend(): raise KeyboardInterrupt\n"
    installed: dict[str, dict[str, Any]] = {
        "module": {"source": "raise KeyboardInterrupt"},
        "hook": {"source": hook},
        "register": {"extra": "def register(library): raise KeyboardInterrupt", "register": "register"},
    }
    site.install("acme", **installed[step])
    assert run(site.root)["error"]["classes"][0] == "KeyboardInterrupt"


def test_plugin_in_a_zip_file(site: Site, tmp_path: Path, run: Run) -> None:
    site.install("acme", **REGISTERING)
    archive = shutil.make_archive(str(tmp_path / "plugins"), "zip", site.root)
    assert run(Path(archive))["statuses"]["acme"]["state"] == "loaded"


def test_core_in_a_zip_file(tmp_path: Path, python: Python) -> None:
    """It cannot work, and says so."""
    archive = shutil.make_archive(str(tmp_path / "core"), "zip", Path(muladd.__file__).parents[1], "muladd")
    done = python("-c", "import muladd", path=(Path(archive),))
    assert done.returncode == 1
    assert f"ImportError: muladd-core cannot be imported from {archive}/muladd" in done.stderr
    assert "unpack the archive" in done.stderr


def test_kernels_of_others_without_a_schema(site: Site, run: Run) -> None:
    """They are no business of ours, in whatever namespace they wait for their operator."""
    site.install("acme", **REGISTERING)
    before = "import torch\nelsewhere = torch._C._dispatch_library('IMPL', 'elsewhere', 'CPU')\n"
    report = run(site.root, before=before + "elsewhere.impl('later', 'CPU', lambda a: a)")
    assert report["statuses"]["acme"]["state"] == "loaded"


def test_names_of_distributions_are_shown_normalized(site: Site, compiler: Compiler, run: Run) -> None:
    metadata = "Metadata-Version: 2.1\nName: Muladd_-.Acme\nVersion: 1.0\n"
    site.install("acme", library=compiler.library("good", GOOD), metadata=metadata)
    status = run(site.root)["statuses"]["acme"]
    assert (status["state"], status["distribution"]) == ("loaded", "muladd-acme")
