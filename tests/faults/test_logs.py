"""The registry's log records have fields for programs: library, step, backend, state, code."""

from __future__ import annotations

import json
from pathlib import Path

from .builder import Site
from .conftest import Run
from .test_shown import EVIL

FIELDS = ("library", "step", "backend", "state", "code")
KEEP = f"""
import logging
records = out["records"] = []
class Keep(logging.Handler):
    def emit(self, record):
        records.append([record.levelname, record.getMessage(), *(getattr(record, field) for field in {FIELDS})])
logging.getLogger("opwheel.registry").addHandler(Keep())
logging.getLogger("opwheel.registry").setLevel("DEBUG")
"""
GOOD = """
from opwheel.registry import Backend, hookimpl
@hookimpl
def opwheel_backend(): return Backend("good", "cpu", "CPU", register=lambda target: None, operators=["add"])
"""


def test_every_record_has_the_fields(run: Run, site: Site) -> None:
    site.install("good", source=GOOD)
    site.install("evil", source=f"raise RuntimeError({EVIL!a})")
    report = run(site.root, before=KEEP, MULADD_BACKENDS="good,evil", MULADD_FALBACK="1")
    records = [dict(zip(("level", "text", *FIELDS), row, strict=True)) for row in report["out"]["records"]]
    assert {record["library"] for record in records} == {"muladd"}
    assert all(record["text"].startswith(f"muladd: {record['step']}: ") for record in records)
    told = {
        (record["level"], record["step"], record["backend"], record["state"], record["code"])
        for record in records
        if record["backend"] in ("good", "evil") or record["code"]
    }
    assert told >= {
        ("DEBUG", "plugin", "good", "", ""),
        ("INFO", "broken", "good", "broken", "OPWHEEL-E051"),
        ("INFO", "broken", "evil", "broken", "OPWHEEL-E020"),
        ("INFO", "finding", "", "", "OPWHEEL-E012"),
    }
    assert {"schemas", "discover"} <= {record["step"] for record in records if record["level"] == "DEBUG"}
    for record in records:
        assert all(value.isprintable() for value in record.values()), record


def test_a_record_is_as_the_status_says(run: Run, site: Site) -> None:
    """Of all backends that are installed, also of those that the policy keeps out."""
    site.install("good", source=GOOD)
    report = run(site.root, before=KEEP, MULADD_BACKENDS="")
    last = {row[4]: row[5:] for row in report["out"]["records"] if row[4] and row[5]}
    expected = {name: [status["state"], status["code"]] for name, status in report["statuses"].items()}
    assert last == expected
    assert last["good"] == ["disabled", "OPWHEEL-E060"]


def test_the_formatter_of_the_page(run: Run) -> None:
    """docs/production.md: one JSON object for each line."""
    page = (Path(__file__).parents[2] / "docs/production.md").read_text()
    code = page.split("```python\n", 1)[1].split("```", 1)[0]
    report = run(before=code, MULADD_BACKENDS="cpu")
    lines = [json.loads(line) for line in report["log"].splitlines() if line.startswith("{")]
    (loaded,) = [line for line in lines if line["backend"] == "cpu"]
    assert (loaded["level"], loaded["library"], loaded["state"], loaded["code"]) == ("INFO", "muladd", "loaded", "")
