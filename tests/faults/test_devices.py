"""Devices that a package has to register with PyTorch: before its backend is loaded, later, in part, or never."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import muladd
import pytest
from opwheel_tools import scaffold

from .builder import Compiler, Site
from .conftest import Run

GOOD = {"KEY": "PrivateUse1"}
RENAME = "import torch; torch.utils.rename_privateuse1_backend('npu')\n"
MODULE = "import types; torch._register_device_module('npu', types.SimpleNamespace({}))\n"
STATE = "out['late'] = muladd.backends()['acme'].as_json()\n"
EXPLAIN = """
result = invoke("muladd", "explain", "add", DEVICE)
out["explain"] = [result.exit_code, result.output]
"""


def status_of(report: dict[str, Any]) -> dict[str, Any]:
    assert "error" not in report, report["error"]["traceback"]
    assert report["statuses"]["cpu"]["state"] == "loaded"
    assert report["warnings"] == []  # the machine lacks something, nothing is wrong
    status: dict[str, Any] = report["statuses"]["acme"]
    return status


@pytest.mark.parametrize("registered", [False, True], ids=["no device of a package", "another one"])
def test_a_device_that_pytorch_does_not_know(registered: bool, site: Site, compiler: Compiler, run: Run) -> None:
    site.install("acme", library=compiler.library("good", GOOD), device_type="'acmechip'")
    report = run(site.root, registered=registered, then=EXPLAIN.replace("DEVICE", "'acmechip'"), doctor=True)
    status = status_of(report)
    assert (status["state"], status["code"]) == ("unsupported", "OPWHEEL-E040")
    assert "PyTorch knows no device 'acmechip' in this process: Expected one of cpu, cuda, " in status["reason"]
    assert ("or 'npu', which a package has registered" in status["reason"]) == registered
    for call in ("torch.utils.rename_privateuse1_backend('acmechip')", "torch._register_device_module", "device_type"):
        assert call in status["fix"]
    assert report["doctor"]["exit"] == 0
    code, text = report["out"]["explain"]
    assert code == 1
    assert "add has no kernel for acmechip tensors" in text
    assert status["reason"] in text


# What a package has done so far, and what is missing.
IN_PART = {
    "nothing": ("", "torch.utils.rename_privateuse1_backend('npu')"),
    "renamed": (RENAME, "torch._register_device_module('npu', module)"),
    "no is_available": (RENAME + MODULE.format(""), "has no function is_available"),
    "not available": (RENAME + MODULE.format("is_available=lambda: False"), "finds no npu device"),
    "complete": (RENAME + MODULE.format("is_available=lambda: True"), ""),
}


@pytest.mark.parametrize("done", IN_PART)
@pytest.mark.parametrize("language", ["cpp", "python"])
def test_a_generated_backend_names_the_call_that_is_missing(
    language: str, done: str, site: Site, compiler: Compiler, run: Run, tmp_path: Path
) -> None:
    """As it is written; the library in C++ is another, because compiling it would take long."""
    before, missing = IN_PART[done]
    project = scaffold.new_backend(
        muladd.library, "acme", language=language, device_type="npu", output=tmp_path / "project"
    )
    files = {path.name: path.read_text() for path in (project.folder / "src/muladd_acme").glob("*.py")}
    source = files.pop("__init__.py")
    library = compiler.library("good", GOOD).read_bytes()
    site.install("acme", source=source, files={**files, "libmuladd_acme.so": library})
    status = status_of(run(site.root, registered=False, before=before))
    assert (status["state"], status["code"]) == (("unsupported", "OPWHEEL-E040") if missing else ("loaded", ""))
    assert missing in status["reason"] + status["fix"]


@pytest.mark.parametrize("probe", ["", "def probe(): return probe_device('npu')"], ids=["without a probe", "probed"])
def test_a_package_that_is_imported_later(probe: str, site: Site, compiler: Compiler, run: Run) -> None:
    """Its backend is loaded when somebody looks, or calls an operator there."""
    fields = {"extra": f"from opwheel import probe_device\n{probe}", "probe": "probe"} if probe else {}
    site.install("acme", library=compiler.library("good", GOOD), **fields)
    then = RENAME + MODULE.format("is_available=lambda: True") + STATE
    report = run(site.root, registered=False, then=then)
    assert status_of(report)["state"] == "unsupported"
    assert (report["out"]["late"]["state"], report["out"]["late"]["reason"]) == ("loaded", "")
    report = run(site.root, registered=False, then=EXPLAIN.replace("DEVICE", "'npu'"))
    assert report["out"]["explain"][0] == 1


def test_a_call_loads_the_backend_of_a_package_that_is_imported_later(site: Site, run: Run) -> None:
    register = "def register(library): library.impl('add', lambda a, b: a)"
    site.install("acme", extra=register, register="register", operators="['add']")
    then = """
import driver, torch
driver._register_device()
answer = driver._call_on_device(muladd, torch)
out["answer"] = answer if isinstance(answer, str) else answer["text"]
out["findings"] = [finding.message for finding in muladd.library.findings]
"""
    before = f"import sys; sys.path.append({str(Path(__file__).parent)!r})"
    report = run(site.root, registered=False, before=before, then=then)
    assert status_of(report)["state"] == "unsupported"
    assert "has no kernel" not in report["out"]["answer"]
    assert report["out"]["findings"] == []


def test_a_package_that_its_plugin_s_probe_imports(site: Site, compiler: Compiler, run: Run) -> None:
    probe = "def probe():\n    import torch; torch.utils.rename_privateuse1_backend('npu'); return Probe(True)"
    site.install("acme", library=compiler.library("good", GOOD), extra=probe, probe="probe")
    assert status_of(run(site.root, registered=False))["state"] == "loaded"


def test_a_package_that_loads_itself_with_torch(
    site: Site, compiler: Compiler, python: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    site.install("acme", library=compiler.library("good", GOOD))
    site.register_device()
    script = "import muladd; print(muladd.backends()['acme'].state)"
    for on, state in (("1", "loaded"), ("0", "unsupported")):
        done = python("-c", script, path=(site.root,), TORCH_DEVICE_BACKEND_AUTOLOAD=on)
        assert done.stdout.split() == [state], done.stderr


def test_a_lock_does_not_load_later(site: Site, compiler: Compiler, run: Run, tmp_path: Path) -> None:
    """What is locked is what the import has loaded."""
    site.install("acme", library=compiler.library("good", GOOD))
    file = tmp_path / "muladd.lock"
    report = run(site.root, registered=False, then="out['lock'] = muladd.library.snapshot().as_text('muladd')")
    file.write_text(report["out"]["lock"])
    report = run(site.root, registered=False, then=RENAME + STATE, MULADD_LOCK=str(file))
    assert status_of(report)["state"] == report["out"]["late"]["state"] == "unsupported"
