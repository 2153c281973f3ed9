"""Every field of what a plugin says of itself, with wrong values; and exceptions at every step of a plugin."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from . import kinds
from .builder import Compiler, Site
from .conftest import Run

GOOD = {"KEY": "PrivateUse1"}
NUMBERS = [[0.5, 2.5, 4.5], [6.5, 8.5, 10.5]]

SOURCE = """
from pathlib import Path
import kinds
from opwheel.registry import Backend, Probe, hookimpl

HERE, field, Record = Path(__file__).parent, {field!r}, {record}

def make(given):
    record = Record(**{{**given, field: kinds.{kind}(given[field])}})
    {then}
    return record

{body}
"""
BACKEND = """
@hookimpl
def opwheel_backend():
    return make(dict(
        name={name!r}, device_type="npu", dispatch_key="PrivateUse1", libraries=[str(HERE / "libkernels.so")],
        register=None, probe=None, operators=["add", "mul"], requires=["torch>=2.10", "pluggy"], priority=0,
        not_invariant={{"add": ["batch"]}}))
"""
PROBE = """
@hookimpl
def opwheel_backend():
    return Backend({name!r}, "npu", "PrivateUse1", [HERE / "libkernels.so"],
                   probe=lambda: make(dict(ok=False, reason="no device", fix="buy one")))
"""
BACKEND_FIELDS = (
    *("name", "device_type", "dispatch_key", "libraries", "register"),
    *("probe", "operators", "requires", "priority", "not_invariant"),
)
PROBE_FIELDS = ("ok", "reason", "fix")

EXACT = """
from pathlib import Path
def check(value):
    assert type(value) in (str, opwheel.registry.State, tuple, float, type(Path()), type(None), int), type(value)
    if type(value) is tuple: [check(item) for item in value]
for status in muladd.backends().values():
    check(tuple(status[:-1]))
"""


@pytest.fixture
def with_kinds(site: Site, compiler: Compiler) -> Site:
    """A site whose plugins can import the kinds."""
    (site.root / "kinds.py").write_text(Path(kinds.__file__).read_text())
    return site


def install(site: Site, library: Path, record: str, fields: tuple[str, ...], kind: str) -> None:
    """A plugin for each field, of the field's name."""
    for field in fields:
        body = {"Backend": BACKEND, "Probe": PROBE}[record].format(name=field)
        source = SOURCE.format(record=record, field=field, kind=kind, then="pass", body=body)
        site.install(field, source=source, library=library)


def run_beside(site: Site, run: Run, **options: Any) -> dict[str, Any]:
    """Import muladd: the CPU's backend is none the worse for what is installed beside it."""
    report = run(site.root, then=EXACT, doctor=True, **options)
    assert "error" not in report, report["error"]["traceback"]
    assert report["numbers"] == NUMBERS
    assert report["statuses"]["cpu"]["state"] == "loaded"
    assert report["doctor"]["exit"] in (0, 1)
    return report


@pytest.mark.parametrize("kind", kinds.WRONG, ids=lambda kind: kind.__name__)
def test_backend(kind: Any, with_kinds: Site, compiler: Compiler, run: Run) -> None:
    library = compiler.library("add-and-mul", {**GOOD, "OPERATORS": '"add","mul"'})
    install(with_kinds, library, "Backend", BACKEND_FIELDS, kind.__name__)
    report = run_beside(with_kinds, run)
    for field in BACKEND_FIELDS:
        status = report["statuses"][field]
        assert (status["state"], status["code"]) == ("broken", "OPWHEEL-E022"), (field, status)
        assert f"field {field} is " in status["reason"]


@pytest.mark.parametrize("kind", kinds.WRONG, ids=lambda kind: kind.__name__)
def test_probe(kind: Any, with_kinds: Site, compiler: Compiler, run: Run) -> None:
    install(with_kinds, compiler.library("good", GOOD), "Probe", PROBE_FIELDS, kind.__name__)
    report = run_beside(with_kinds, run)
    for field in PROBE_FIELDS:
        status = report["statuses"][field]
        assert (status["state"], status["code"]) == ("broken", "OPWHEEL-E041"), (field, status)
        assert f"field {field} is " in status["reason"]


ENUMERATION = """
import enum
class Name(str, enum.Enum): DEVICE, KEY, ADD = "npu", "PrivateUse1", "add"
class Number(enum.IntEnum): ONE = 1
"""


def test_members_of_enumerations(site: Site, run: Run) -> None:
    """They are texts and numbers: what they stand for counts."""
    fields = {"device_type": "Name.DEVICE", "dispatch_key": "Name.KEY", "operators": "{Name.ADD}"}
    register = "def register(library): library.impl('add', lambda a, b: a)\n"
    site.install("acme", extra=ENUMERATION + register, register="register", priority="Number.ONE", **fields)
    status = run_beside(site, run)["statuses"]["acme"]
    assert (status["state"], status["operators"]) == ("loaded", ["add"])
    assert (status["device_type"], status["dispatch_key"]) == ("npu", "PrivateUse1")


CHANGES = {"assigned": "record.priority = 1", "deleted": "del record.priority", "added": "record.colour = 'red'"}


@pytest.mark.parametrize("change", CHANGES)
def test_records_cannot_be_changed(change: str, with_kinds: Site, compiler: Compiler, run: Run) -> None:
    body = BACKEND.format(name="acme")
    source = SOURCE.format(record="Backend", field="priority", kind="same", then=CHANGES[change], body=body)
    with_kinds.install("acme", source=source, library=compiler.library("good", GOOD))
    status = run_beside(with_kinds, run)["statuses"]["acme"]
    assert (status["state"], status["code"]) == ("broken", "OPWHEEL-E021")
    assert "AttributeError: a Backend cannot be changed" in status["reason"]


# ---- what is not even a record ---------------------------------------------------------------------------------------

RECORD = "Backend({name!r}, 'npu', 'PrivateUse1', [HERE / 'libkernels.so'], probe=probe)"
ANSWERS = {
    "hook": ("@hookimpl\ndef opwheel_backend(): return {value}", "OPWHEEL-E021"),
    "probe": (f"def probe(): return {{value}}\n@hookimpl\ndef opwheel_backend(): return {RECORD}", "OPWHEEL-E041"),
    "module": ("import sys\nsys.modules[__name__] = {value}", "OPWHEEL-E02"),
}


@pytest.mark.parametrize("place", ANSWERS)
@pytest.mark.parametrize("imported", [False, True], ids=["", "imported before"])
def test_answers(place: str, imported: bool, with_kinds: Site, compiler: Compiler, run: Run) -> None:
    body, code = ANSWERS[place]
    names = {kind.__name__.replace("_", "-"): kind.__name__ for kind in kinds.WRONG}
    for name, kind in names.items():
        given = f"kinds.{kind}('text')"
        source = "import kinds\nfrom pathlib import Path\nfrom opwheel.registry import Backend, hookimpl\n"
        source += f"HERE = Path(__file__).parent\n{body.format(name=name, value=given)}\n"
        with_kinds.install(name, source=source, library=compiler.library("good", GOOD))
    before = ""
    if imported:
        before = "import importlib, contextlib\n"
        for kind in names.values():
            before += f"with contextlib.suppress(ImportError): importlib.import_module('muladd_{kind}')\n"
        before = before if place == "module" else ""
    report = run_beside(with_kinds, run, before=before)
    for name in names:
        status = report["statuses"][name]
        assert status["state"] == "broken", (name, status)
        assert status["code"].startswith(code), (name, status)


REGISTER = """
def register(library):
    library.impl('add', lambda a, b: a)
    raise ERROR
@hookimpl
def opwheel_backend(): return Backend(NAME, 'npu', 'PrivateUse1', register=register)
"""
RAISING = {
    "module": ("raise ERROR", "OPWHEEL-E020"),
    "attribute": ("def __getattr__(name): raise ERROR", "OPWHEEL-E02"),
    "hook": ("@hookimpl\ndef opwheel_backend(): raise ERROR", "OPWHEEL-E021"),
    "probe": (
        f"def probe(): raise ERROR\n@hookimpl\ndef opwheel_backend(): return {RECORD.replace('{name!r}', 'NAME')}",
        "OPWHEEL-E041",
    ),
    "register": (REGISTER, "OPWHEEL-E052"),
}


@pytest.mark.parametrize("stage", RAISING)
def test_exceptions(stage: str, with_kinds: Site, compiler: Compiler, run: Run) -> None:
    body, code = RAISING[stage]
    names = {error.replace(" ", "-"): error for error in kinds.EXCEPTIONS}
    for name, error in names.items():
        source = "import kinds\nfrom pathlib import Path\nfrom opwheel.registry import Backend, hookimpl\n"
        source += f"HERE, NAME, ERROR = Path(__file__).parent, {name!r}, kinds.EXCEPTIONS[{error!r}]\n{body}\n"
        point = f"muladd_{name.replace('-', '_')}" + (":missing" if stage == "attribute" else "")
        with_kinds.install(
            name,
            source=source,
            library=compiler.library("good", GOOD),
            entry_points=f"[muladd.backends]\n{name} = {point}",
        )
    report = run_beside(with_kinds, run)
    for name in names:
        status = report["statuses"][name]
        assert status["state"] == "broken", (name, status)
        assert status["code"].startswith(code), (name, status)
        assert len(status["reason"]) < 3000


# ---- requirements ----------------------------------------------------------------------------------------------------

REQUIREMENTS = [
    "torch>=2; python_version >> '3'",
    "torch; extra",
    "torch; nonsense == 'x'",
    "torch; os_name > 'posix' < 'nt'",
    "torch; python_version ~= 'three'",
    "torch; platform_release ~= 'nt' and (",
    "torch; " + "(" * 900 + "os_name == 'x'" + ")" * 900,
    "torch>=" + "9" * 4000,
    "torch>=2." + "9" * 4000,
    "pluggy>=" + "9" * 4000,
    "torch==*",
    "torch[",
    "torch @ ",
    "",
    ";",
    "\x00",
    "\udcff>=1",
    "x" * 4000,
    "torch>=2,<" + ",<".join("3" * 1200),
]


def test_requirements(with_kinds: Site, compiler: Compiler, run: Run) -> None:
    """A requirement that is not valid, or that is not met: never the end of the import."""
    for number, text in enumerate(REQUIREMENTS):
        with_kinds.install(f"acme{number}", library=compiler.library("good", GOOD), requires=ascii([text]))
    report = run_beside(with_kinds, run)
    for number, text in enumerate(REQUIREMENTS):
        status = report["statuses"][f"acme{number}"]
        assert status["code"] in ("OPWHEEL-E022", "OPWHEEL-E031", "OPWHEEL-E024", ""), (text, status)
        assert len(status["reason"]) < 10_000
    assert report["statuses"]["acme0"]["code"] == "OPWHEEL-E022"
    assert "its requirement" in report["statuses"]["acme2"]["reason"]
