"""MULADD_LOCK: the import fails on any difference, before a library is opened."""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .builder import Compiler, Site
from .conftest import Python, Run

KEY = {"KEY": "PrivateUse1"}
SNAPSHOT = "out['text'] = muladd.library.snapshot().as_text('muladd')"
Lock = Callable[..., Path]


@pytest.fixture
def library(compiler: Compiler) -> Path:
    return compiler.library("good", KEY)


@pytest.fixture
def lock(run: Run, site: Site, tmp_path: Path) -> Lock:
    """Write the lock file for what is in the site."""

    def write(**environment: str) -> Path:
        report = run(site.root, then=SNAPSHOT, **environment)
        assert "error" not in report, report["error"]["traceback"]
        path = tmp_path / "muladd.lock"
        path.write_text(report["out"]["text"])
        return path

    return write


def check_fails(report: dict[str, Any], code: str, *parts: str) -> None:
    """The import has raised, naming all parts."""
    error = report["error"]
    assert error["type"] == "LockError"
    for part in (code, *parts):
        assert part in error["text"]
    assert "statuses" not in report


def test_the_same_installation_loads(lock: Lock, site: Site, library: Path, run: Run) -> None:
    site.install("acme", library=library)
    path = lock()
    document = json.loads(path.read_text())
    assert set(document["distributions"]) >= {"muladd-core", "muladd-cpu", "muladd-acme"}
    assert set(document["winners"]["PrivateUse1"].values()) == {"acme"}
    assert set(document["winners"]["CPU"].values()) == {"cpu"}
    report = run(site.root, MULADD_LOCK=str(path), then=SNAPSHOT)
    assert report["statuses"]["acme"]["state"] == "loaded"
    assert report["out"]["text"] == path.read_text()
    assert "lock: " in run(site.root, MULADD_LOCK=str(path), MULADD_TRACE="1")["log"]


def reinstall(site: Site, library: Path, **changes: Any) -> None:
    shutil.rmtree(site.root)
    site.install("acme", library=library, **changes)


def uninstall(site: Site, library: Path) -> None:
    shutil.rmtree(site.root)
    site.root.mkdir()


def edit(site: Site, library: Path) -> None:
    with (site.root / "muladd_acme/__init__.py").open("a") as file:
        file.write("# edited\n")


def damage_metadata(site: Site, library: Path) -> None:
    next(site.root.glob("muladd_acme-*/METADATA")).write_bytes(b"")


DIFFERENCES = {
    "another version": (
        lambda site, library: reinstall(site, library, version="2.0"),
        ["muladd-acme 2.0 is installed, 1.0 is locked"],
    ),
    "another build": (
        lambda site, library: reinstall(site, library, extra="# built again"),
        ["muladd-acme 1.0 is installed from another wheel than the locked one"],
    ),
    "not installed": (uninstall, ["muladd-acme is locked, but not installed", "`muladd lock "]),
    "one more": (
        lambda site, library: site.install("more", library=library),
        ["muladd-more is installed, but not locked"],
    ),
    "another distribution": (
        lambda site, library: reinstall(site, library, distribution="muladd-other"),
        ["the plugin 'acme' is in muladd-other, locked is muladd-acme", "muladd-other is installed, but not locked"],
    ),
    "edited": (edit, ["muladd_acme/__init__.py of muladd-acme is not what its wheel installed"]),
    "file removed": (
        lambda site, library: (site.root / "muladd_acme/libkernels.so").unlink(),
        ["muladd_acme/libkernels.so of muladd-acme is not what its wheel installed"],
    ),
    "damaged metadata": (damage_metadata, ["is damaged", "muladd-acme is locked, but not installed"]),
}

# Records what is opened by whom: at the first difference there is nothing of muladd's or of a plugin's.
WATCH = """
import ctypes
from pathlib import Path
out["opened"] = opened = []
class Watched(ctypes.CDLL):
    def __init__(self, name, *args, **kwargs):
        super().__init__(name, *args, **kwargs)
        opened.append(Path(str(name)).name)
ctypes.CDLL = Watched
"""


def without_framework(opened: list[str]) -> list[str]:
    """What was opened, without the framework's own native libraries."""
    return [name for name in opened if not name.startswith("libopwheel_")]


@pytest.mark.parametrize("difference", DIFFERENCES)
def test_another_installation_fails(difference: str, lock: Lock, site: Site, library: Path, run: Run) -> None:
    change, parts = DIFFERENCES[difference]
    site.install("acme", library=library)
    path = lock()
    change(site, library)
    report = run(site.root, before=WATCH, MULADD_LOCK=str(path))
    check_fails(report, "OPWHEEL-E071", str(path), *parts)
    assert report["out"]["opened"] == []


def test_the_watch_sees_libraries(site: Site, library: Path, run: Run) -> None:
    site.install("acme", library=library)
    assert without_framework(run(site.root, before=WATCH)["out"]["opened"])[-2:] == [
        "libmuladd_cpu.so",
        "libkernels.so",
    ]


# ---- other winners ---------------------------------------------------------------------------------------------------

FICKLE = """
import os
def probe():
    answer = os.environ.get("FICKLE", "yes")
    if answer == "fails":
        raise RuntimeError("no answer")
    return Probe(answer == "yes")
"""


@pytest.mark.parametrize("answer", ["no", "fails"])
def test_another_winner_fails_before_a_backend_is_opened(
    answer: str, lock: Lock, site: Site, library: Path, run: Run
) -> None:
    site.install("acme", library=library, extra=FICKLE, probe="probe", priority="1")
    site.install("beta", library=library)
    path = lock()
    report = run(site.root, before=WATCH, MULADD_LOCK=str(path), FICKLE=answer)
    check_fails(report, "OPWHEEL-E071", "at PrivateUse1 beta wins add, ", "locked is acme")
    assert without_framework(report["out"]["opened"]) == ["libmuladd_schema.so"]


MOODY = """
import os
def register(library):
    if "MOODY" in os.environ:
        raise RuntimeError("not today")
    library.impl("add", lambda a, b: a)
"""


def test_a_winner_that_does_not_load(lock: Lock, site: Site, run: Run) -> None:
    """Nothing could tell before: the import fails all the same."""
    site.install("acme", extra=MOODY, register="register", operators="['add']")
    report = run(site.root, MULADD_LOCK=str(lock()), MOODY="1")
    check_fails(report, "OPWHEEL-E071", "at PrivateUse1 no backend wins add, locked is acme")


@pytest.fixture
def shares(site: Site, tmp_path: Path) -> Path:
    """Two backends for one key, of which the second has what the first does not claim; the policy that says so."""
    site.install("acme", extra=MOODY, register="register", operators="['add']")
    both = "def register(target):\n    for name in ('add', 'mul'): target.impl(name, lambda a, b: b)\n"
    site.install("beta", extra=both, register="register", operators="['add', 'mul']")
    policy = tmp_path / "mine.toml"
    policy.write_text("[policy]\nprefer = { PrivateUse1 = ['acme', 'beta'] }\n")
    return policy


def test_shares_are_locked(shares: Path, lock: Lock, site: Site, run: Run) -> None:
    path = lock(MULADD_PLUGINS=str(shares))
    document = json.loads(path.read_text())
    assert document["winners"]["PrivateUse1"] == {"add": "acme", "mul": "beta"}
    assert set(document["distributions"]) >= {"muladd-acme", "muladd-beta"}
    report = run(site.root, MULADD_LOCK=str(path), MULADD_PLUGINS=str(shares), then=SNAPSHOT)
    assert report["out"]["text"] == path.read_text()
    assert {report["statuses"][name]["state"] for name in ("acme", "beta")} == {"loaded"}


def test_other_shares_fail(shares: Path, lock: Lock, site: Site, run: Run) -> None:
    path, environment = lock(MULADD_PLUGINS=str(shares)), {"MULADD_PLUGINS": str(shares)}
    part = "at PrivateUse1 beta wins add, locked is acme"
    check_fails(run(site.root, MULADD_LOCK=str(path), **environment, MOODY="1"), "OPWHEEL-E071", part)
    shares.write_text("[policy]\nprefer = { PrivateUse1 = ['beta', 'acme'] }\n")
    report = run(site.root, before=WATCH, MULADD_LOCK=str(path), **environment)
    check_fails(report, "OPWHEEL-E071", part)
    assert without_framework(report["out"]["opened"]) == ["libmuladd_schema.so"]


@pytest.mark.parametrize(
    ("environment", "part"),
    [
        ({"MULADD_FALLBACK": "reference"}, "the fallback is 'reference', locked is 'error'"),
        ({"MULADD_FOREIGN": "on"}, "kernels for operators of others are on, locked is off"),
        ({"MULADD_AUTOLOAD": "0"}, "at CPU no backend wins add, "),
        ({"MULADD_BACKENDS": "acme"}, "at CPU no backend wins add, "),
    ],
    ids=["fallback", "foreign", "autoload", "backends"],
)
def test_another_policy_fails(
    environment: dict[str, str], part: str, lock: Lock, site: Site, library: Path, run: Run
) -> None:
    site.install("acme", library=library)
    check_fails(run(site.root, MULADD_LOCK=str(lock()), **environment), "OPWHEEL-E071", part)


def test_a_module_from_another_place(lock: Lock, site: Site, library: Path, run: Run, tmp_path: Path) -> None:
    package = site.install("acme", library=library)
    path = lock()
    shutil.copytree(package, tmp_path / "work" / package.name)
    report = run(tmp_path / "work", site.root, MULADD_LOCK=str(path))
    check_fails(report, "OPWHEEL-E071", str(tmp_path / "work"), "is used, but is not a file of muladd-acme")


SWITCH = """
import torch
from opwheel.foreign import ForeignKernel, ForeignKernels
kernel = ForeignKernel("aten::neg", lambda x: muladd.scale(x, -1.0), when=("self.numel() > 1",), uses=("scale",))
digests = out["digests"] = [muladd.library.digest()]
with ForeignKernels(muladd.library, [kernel]).on() as switched:
    out["on"] = switched.operators
    digests.append(muladd.library.digest())
digests.append(muladd.library.digest())
"""


def test_switching_on_is_held_to_the_lock(lock: Lock, run: Run) -> None:
    """What computes PyTorch's operators is a choice, too."""
    tried = f"try:\n{textwrap.indent(SWITCH, '    ')}\nexcept Exception as error: out['error'] = str(error)"
    refused = run(MULADD_LOCK=str(lock()), then=tried)
    assert "kernels for operators of others are on, locked is off" in refused["out"]["error"]


def test_switching_on_without_a_lock(run: Run) -> None:
    """Nothing refuses it, and the digest tells it for as long as it lasts."""
    report = run(then=SWITCH)
    assert "error" not in report, report["error"]["traceback"]
    assert report["out"]["on"] == ["aten::neg"]
    before, during, after = report["out"]["digests"]
    assert during != before == after


def test_load_is_held_to_the_lock(lock: Lock, site: Site, library: Path, run: Run) -> None:
    site.install("acme", library=library)
    path = lock(MULADD_BACKENDS="cpu")
    report = run(site.root, MULADD_LOCK=str(path), MULADD_BACKENDS="cpu", then="muladd.load('acme')")
    assert report["error"]["type"] == "LockError"
    assert "at PrivateUse1 acme wins add, " in report["error"]["text"]
    assert not [name for name in report["maps"] if "libkernels" in name]


# ---- the file --------------------------------------------------------------------------------------------------------

FORMAT = {"name": "opwheel lock", "version": 1}
VALID = {"format": FORMAT, "library": "muladd", "distributions": {}, "plugins": {}, "fallback": "error", "winners": {}}
VALID |= {"foreign": "off"}
MALFORMED = {
    "not JSON": ("{", "is not JSON"),
    "a list": ("[]", "is not a lock file"),
    "another document": ("{}", "is not a lock file"),
    "later format": (
        {"format": {**FORMAT, "version": 2}},
        "has format {'name': 'opwheel lock', 'version': 2}, this version reads {'name': 'opwheel lock', 'version': 1}",
    ),
    "another command's": ({"format": {"name": "opwheel doctor", "version": 1}}, "has format {'name': 'opwheel doctor'"),
    "a format that is a number": ({"format": 1}, "has format 1, this version reads {'name': 'opwheel lock'"),
    "another library": ({"library": "mulsub"}, "is for the operator library 'mulsub', not 'muladd'"),
    "no winners": ({"winners": None}, "its 'winners' is missing or malformed; `muladd lock "),
    "winner is a number": ({"winners": {"CPU": {"add": 1}}}, "its 'winners'"),
    "fallback is a list": ({"fallback": []}, "its 'fallback'"),
    "plugin is a list": ({"plugins": {"cpu": []}}, "its 'plugins'"),
    "no digest": ({"distributions": {"muladd-cpu": {"version": "1"}}}, "its 'distributions'"),
}


@pytest.mark.parametrize("mistake", MALFORMED)
def test_malformed_file(mistake: str, tmp_path: Path, run: Run) -> None:
    content, part = MALFORMED[mistake]
    path = tmp_path / "muladd.lock"
    path.write_text(content if isinstance(content, str) else json.dumps({**VALID, **content}))
    check_fails(run(MULADD_LOCK=str(path)), "OPWHEEL-E070", f"{path}: {part}")


def test_missing_file(tmp_path: Path, run: Run) -> None:
    check_fails(run(MULADD_LOCK=str(tmp_path / "gone")), "OPWHEEL-E070", "gone: cannot be read: No such file")


@pytest.mark.parametrize("value", ["", " ", ".", "/"])
def test_no_file_at_all(value: str, run: Run) -> None:
    """Somebody wanted a lock: to go on without one would be no answer."""
    check_fails(run(MULADD_LOCK=value), "OPWHEEL-E070")


def test_empty_is_called_so(run: Run) -> None:
    check_fails(run(MULADD_LOCK=""), "OPWHEEL-E070", "MULADD_LOCK is empty: name a lock file, or unset it")


# ---- doctor ----------------------------------------------------------------------------------------------------------

# What the command does before muladd is imported.
# What `python -m muladd doctor` finds in sys while it imports muladd.
# What the command does before it imports the library.
AS_DOCTOR = "from opwheel.commands.environment import ignore_lock; ignore_lock('MULADD')"


@pytest.mark.parametrize("difference", [name for name in DIFFERENCES if name != "damaged metadata"])
def test_doctor_tells_the_differences(difference: str, lock: Lock, site: Site, library: Path, run: Run) -> None:
    """Beside its table, where the import would fail."""
    change, parts = DIFFERENCES[difference]
    site.install("acme", library=library)
    path = lock()
    change(site, library)
    report = run(site.root, before=AS_DOCTOR, doctor=True, MULADD_LOCK=str(path))
    check_doctor(report, "OPWHEEL-E071", *parts)
    assert report["statuses"]["cpu"]["state"] == "loaded"


def check_doctor(report: dict[str, Any], code: str, *parts: str) -> None:
    """The table and, as text and as JSON, each part among the findings."""
    text, document = report["doctor"], report["doctor_json"]
    findings = json.loads(document["text"])["findings"]
    assert text["exit"] == document["exit"] == 1
    assert {finding["code"] for finding in findings} == {code}
    assert "cpu" in json.loads(document["text"])["backends"]
    assert json.loads(document["text"])["ok"] is False
    heading = ["backend", "state", "key", "distribution", "operators", "load"]
    assert heading in [line.split() for line in text["text"].splitlines()]
    for part in parts:
        assert part in text["text"]
        assert any(part in finding["message"] + finding["fix"] for finding in findings)
    assert len({finding["message"] for finding in findings}) == len(findings)


@pytest.mark.parametrize(
    ("content", "part"), [(None, "cannot be read"), ("", "is not JSON"), ("{}", "is not a lock file")]
)
def test_doctor_without_a_usable_file(content: str | None, part: str, tmp_path: Path, run: Run) -> None:
    path = tmp_path / "muladd.lock"
    if content is not None:
        path.write_text(content)
    check_doctor(run(before=AS_DOCTOR, doctor=True, MULADD_LOCK=str(path)), "OPWHEEL-E070", part)


def test_doctor_with_an_empty_variable(run: Run) -> None:
    check_doctor(run(before=AS_DOCTOR, doctor=True, MULADD_LOCK=""), "OPWHEEL-E070", "MULADD_LOCK is empty")


def test_doctor_tells_of_other_winners(lock: Lock, site: Site, library: Path, run: Run) -> None:
    site.install("acme", library=library)
    site.install("beta", library=library)
    path = lock()
    policy = site.root / "mine.toml"
    policy.write_text("[policy]\ndisable = ['acme']\n")
    report = run(site.root, before=AS_DOCTOR, doctor=True, MULADD_LOCK=str(path), MULADD_PLUGINS=str(policy))
    check_doctor(report, "OPWHEEL-E071", "at PrivateUse1 beta wins add, ", "locked is acme")


def test_doctor_where_all_is_as_locked(lock: Lock, site: Site, library: Path, run: Run) -> None:
    site.install("acme", library=library)
    path = lock()
    then = f"out['deep'] = [tuple(f) for f in muladd.library.compare({str(path)!r}, winners=False)]"
    report = run(site.root, before=AS_DOCTOR, doctor=True, then=then, MULADD_LOCK=str(path))
    assert report["doctor"]["exit"] == report["doctor_json"]["exit"] == 0
    assert report["out"]["deep"] == []


# ---- what cannot be locked -------------------------------------------------------------------------------------------


def test_a_broken_backend_is_not_locked(site: Site, run: Run) -> None:
    site.install("acme", library=b"no library")
    report = run(site.root, then=SNAPSHOT)
    assert "(OPWHEEL-E072)" in report["error"]["text"]
    assert "the backend 'acme' (muladd-acme 1.0) is broken" in report["error"]["text"]


def test_what_did_not_come_from_a_wheel_is_not_locked(site: Site, library: Path, run: Run) -> None:
    package = site.install("acme", library=library)
    (site.root / f"{package.name}-1.0.dist-info/RECORD").write_text("")
    report = run(site.root, then=SNAPSHOT)
    assert "muladd-acme is not installed from a wheel: it has no RECORD with hashes" in report["error"]["text"]


HIDE_THE_CORE = """
from importlib import metadata
metadata.distribution = lambda name: metadata.Distribution.from_name("gone")
"""


def test_a_core_without_metadata_is_not_locked(run: Run) -> None:
    hide = (
        "from importlib import metadata\nmetadata.distribution = lambda name: metadata.Distribution.from_name('gone')"
    )
    report = run(before=hide, then=SNAPSHOT)
    assert "muladd-core is not installed, it is only imported" in report["error"]["text"]


# ---- commands --------------------------------------------------------------------------------------------------------

EXPLAIN = ("-m", "opwheel", "--library", "muladd", "explain")


def test_a_command_says_it_in_a_sentence(tmp_path: Path, python: Python) -> None:
    done = python(*EXPLAIN, MULADD_LOCK=str(tmp_path / "nowhere.lock"))
    assert done.returncode == 1
    assert done.stderr.startswith("muladd: ")
    assert "OPWHEEL-E070" in done.stderr
    assert "Traceback" not in done.stderr
    traced = python(*EXPLAIN, MULADD_LOCK=str(tmp_path / "nowhere.lock"), MULADD_TRACE="1")
    assert "Traceback" in traced.stderr


def test_what_the_registry_does_not_raise_has_a_traceback(site: Site, python: Python) -> None:
    site.install("acme", source="raise KeyboardInterrupt")
    done = python(*EXPLAIN, path=(site.root,))
    assert "Traceback" in done.stderr
    assert "KeyboardInterrupt" in done.stderr
