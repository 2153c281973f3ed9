"""Every field of what a plugin hands over, with every hostile value, at every point of its making."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest

from . import kinds
from .builder import Compiler, Site
from .conftest import Run

GOOD = {"KEY": "PrivateUse1"}
KINDS = [*kinds.HARMLESS, *kinds.WRONG]
NUMBERS = [[0.5, 2.5, 4.5], [6.5, 8.5, 10.5]]

# How a value gets into a field of a record.
STAGES = {
    "given": "record = Record(**{**given, field: value})",
    "assigned": "record = Record(**given)\n    setattr(record, field, value)",
    "computed": """
    class Own(Record):
        def __getattribute__(self, name): return super().__getattribute__(name)
    setattr(Own, field, property(lambda _: value, lambda *_: None))
    record = Own(**given)
""",
}

SOURCE = """
from pathlib import Path
import kinds
from opwheel.registry import Backend, Probe, hookimpl

HERE, field, Record = Path(__file__).parent, {field!r}, {record}

def make(given):
    value = kinds.{kind}(given[field])
    {stage}
    return record

{body}
"""
BACKEND = """
@hookimpl
def opwheel_backend():
    return make(dict(
        name={name!r}, device_type="npu", dispatch_key="PrivateUse1", libraries=[str(HERE / "libkernels.so")],
        register=None, probe=None, operators=["add", "mul"], requires=["torch>=2.10", "pluggy"], priority=0))
"""
PROBE = """
@hookimpl
def opwheel_backend():
    return Backend({name!r}, "npu", "PrivateUse1", [HERE / "libkernels.so"],
                   probe=lambda: make(dict(ok=False, reason="no device", fix="buy one")))
"""
BACKEND_FIELDS = (
    *("name", "device_type", "dispatch_key", "libraries", "register"),
    *("probe", "operators", "requires", "priority"),
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
def hostile(site: Site, compiler: Compiler) -> Site:
    """A site whose plugins can import the kinds."""
    (site.root / "kinds.py").write_text(Path(kinds.__file__).read_text())
    return site


def install(site: Site, library: Path, record: str, fields: tuple[str, ...], kind: str) -> dict[str, str]:
    """A plugin for each field and stage; the field by the plugin's name."""
    installed = {}
    for field, stage in product(fields, STAGES):
        name = f"{stage}.{field}"
        body = {"Backend": BACKEND, "Probe": PROBE}[record].format(name=name)
        source = SOURCE.format(record=record, field=field, kind=kind, stage=STAGES[stage], body=body)
        point = f"[muladd.backends]\n{name} = muladd_{stage}_{field}\n"
        site.install(f"{stage}_{field}", source=source, library=library, entry_points=point)
        installed[name] = field
    return installed


def run_beside(site: Site, run: Run, **options: Any) -> dict[str, Any]:
    """Import muladd: the CPU's backend is none the worse for what is installed beside it."""
    report = run(site.root, then=EXACT, doctor=True, **options)
    assert "error" not in report, report["error"]["traceback"]
    assert report["numbers"] == NUMBERS
    assert report["statuses"]["cpu"]["state"] == "loaded"
    assert report["doctor"]["exit"] in (0, 1)
    return report


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_backend(kind: Any, hostile: Site, compiler: Compiler, run: Run) -> None:
    library = compiler.library("add-and-mul", {**GOOD, "OPERATORS": '"add","mul"'})
    installed = install(hostile, library, "Backend", BACKEND_FIELDS, kind.__name__)
    report = run_beside(hostile, run)
    for name, field in installed.items():
        status = report["statuses"][name]
        if kind in kinds.HARMLESS:
            assert status["state"] in ("loaded", "shadowed"), (name, status)
        else:
            assert (status["state"], status["code"]) == ("broken", "OPWHEEL-E022"), (name, status)
            assert field in status["reason"]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_probe(kind: Any, hostile: Site, compiler: Compiler, run: Run) -> None:
    installed = install(hostile, compiler.library("good", GOOD), "Probe", PROBE_FIELDS, kind.__name__)
    report = run_beside(hostile, run)
    for name, field in installed.items():
        status = report["statuses"][name]
        if kind in kinds.HARMLESS:
            described = (status["state"], status["reason"], status["fix"])
            assert described == ("unsupported", "no device", "buy one"), (name, status)
        else:
            assert (status["state"], status["code"]) == ("broken", "OPWHEEL-E041"), (name, status)
            assert field in status["reason"]


# ---- what is not even a record ---------------------------------------------------------------------------------------

RECORD = "Backend({name!r}, 'npu', 'PrivateUse1', [HERE / 'libkernels.so'], probe=probe)"
ANSWERS = {
    "hook": ("@hookimpl\ndef opwheel_backend(): return {value}", "OPWHEEL-E021"),
    "probe": (f"def probe(): return {{value}}\n@hookimpl\ndef opwheel_backend(): return {RECORD}", "OPWHEEL-E041"),
    "module": ("import sys\nsys.modules[__name__] = {value}", "OPWHEEL-E02"),
}


@pytest.mark.parametrize("place", ANSWERS)
@pytest.mark.parametrize("imported", [False, True], ids=["", "imported before"])
def test_answers(place: str, imported: bool, hostile: Site, compiler: Compiler, run: Run) -> None:
    body, code = ANSWERS[place]
    names = {kind.__name__.replace("_", "-"): kind.__name__ for kind in KINDS}
    for name, kind in names.items():
        value = f"kinds.{kind}({'Backend' if kind == 'poses_as' else 'text'!r})"
        given = {"poses_as": "kinds.poses_as(object.__new__(Backend))"}.get(kind, value)
        source = "import kinds\nfrom pathlib import Path\nfrom opwheel.registry import Backend, hookimpl\n"
        source += f"HERE = Path(__file__).parent\n{body.format(name=name, value=given)}\n"
        hostile.install(name, source=source, library=compiler.library("good", GOOD))
    before = ""
    if imported:
        before = "import importlib, contextlib\n"
        for kind in names.values():
            before += f"with contextlib.suppress(ImportError): importlib.import_module('muladd_{kind}')\n"
        before = before if place == "module" else ""
    report = run_beside(hostile, run, before=before)
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
def test_exceptions(stage: str, hostile: Site, compiler: Compiler, run: Run) -> None:
    body, code = RAISING[stage]
    names = {error.replace(" ", "-"): error for error in kinds.EXCEPTIONS}
    for name, error in names.items():
        source = "import kinds\nfrom pathlib import Path\nfrom opwheel.registry import Backend, hookimpl\n"
        source += f"HERE, NAME, ERROR = Path(__file__).parent, {name!r}, kinds.EXCEPTIONS[{error!r}]\n{body}\n"
        point = f"muladd_{name.replace('-', '_')}" + (":missing" if stage == "attribute" else "")
        hostile.install(
            name,
            source=source,
            library=compiler.library("good", GOOD),
            entry_points=f"[muladd.backends]\n{name} = {point}",
        )
    report = run_beside(hostile, run)
    for name in names:
        status = report["statuses"][name]
        assert status["state"] == "broken", (name, status)
        assert status["code"].startswith(code), (name, status)
        assert len(status["reason"]) < 3000


def test_deleted_fields(hostile: Site, compiler: Compiler, run: Run) -> None:
    for field in BACKEND_FIELDS:
        source = SOURCE.format(
            record="Backend", field=field, kind="number", stage="record = Record(**given)\n    delattr(record, field)",
            body=BACKEND.format(name=field))  # fmt: skip
        hostile.install(field, source=source, library=compiler.library("good", GOOD))
    report = run_beside(hostile, run)
    for field in ("name", "device_type", "dispatch_key"):
        assert report["statuses"][field]["code"] == "OPWHEEL-E022"


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


def test_requirements(hostile: Site, compiler: Compiler, run: Run) -> None:
    """A requirement that is not valid, or that is not met: never the end of the import."""
    for number, text in enumerate(REQUIREMENTS):
        hostile.install(f"acme{number}", library=compiler.library("good", GOOD), requires=ascii([text]))
    report = run_beside(hostile, run)
    for number, text in enumerate(REQUIREMENTS):
        status = report["statuses"][f"acme{number}"]
        assert status["code"] in ("OPWHEEL-E022", "OPWHEEL-E031", "OPWHEEL-E024", ""), (text, status)
        assert len(status["reason"]) < 10_000
    assert report["statuses"]["acme0"]["code"] == "OPWHEEL-E022"
    assert "its requirement" in report["statuses"]["acme2"]["reason"]
