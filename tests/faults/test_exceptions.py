"""Every exception of ours gets out of a process, and into a copy: who waits for it in another process gets it."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from opwheel.registry import ERROR_CODES

from tests.forked_python import server

from .builder import Site
from .conftest import HERE, Run, clean_environment, search_path

PACKAGES = ("opwheel", "opwheel_tools", "muladd", "transformer_ops")
BACKENDS = (
    *("muladd_cpu", "muladd_cuda"),
    *("transformer_ops_cpu", "transformer_ops_cuda", "transformer_ops_triton"),
)
# Some that must be among what is found.
KNOWN = {
    "opwheel.registry.errors.BackendUnavailableError",
    "opwheel.registry.errors.NoKernelError",
    "opwheel.registry.loading.LoadError",
    "opwheel.registry.discovery.PluginError",
    "opwheel._build.toolchain.ToolchainError",
    "opwheel_tools.scaffold.names.ScaffoldError",
    "opwheel_tools.audit.cells.WorkerError",
}


def look(*packages: str, path: tuple[Path, ...] = ()) -> dict[str, Any]:
    environment = clean_environment({"PYTHONPATH": search_path(path)})
    done = server().run(HERE / "exceptions.py", *packages, environment=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_every_exception_is_copied_and_pickled() -> None:
    report = look(*PACKAGES, *filter(find_spec, BACKENDS))
    assert report["classes"].keys() >= KNOWN
    assert report["unseen"] == []
    assert {name: problems for name, problems in report["classes"].items() if problems} == {}


# Their code is an argument of the constructor, or of one that inherits from them.
CODE_IS_GIVEN = {
    f"opwheel.registry.{name}"
    for name in (
        *("errors.CodedError", "errors.RegistryError", "errors.NoKernelError", "errors.BackendUnavailableError"),
        *("errors.PolicyError", "errors.LockError", "errors.InvalidBackendError", "errors.ForeignOperatorError"),
        *("discovery.PluginError", "loading.LoadError"),
    )
}
# Caught where they are raised for: nobody sees them. A difference of bits is the failure of an assertion.
CONTROL_FLOW = {
    "opwheel.dispatch.derivatives.expression.NotCarriedError",
    "opwheel.dispatch.derivatives.text.FormulaError",
    "opwheel.dispatch.vmap._NoRuleError",
    "opwheel.registry.search.StillImportingError",
    "opwheel.registry.values.NotTakenError",
    "opwheel_tools.audit.checks.common.NotTried",
    "opwheel_tools.audit.checks.common.Noted",
    "opwheel_tools.bench.unavailable.UnavailableError",
    "opwheel_tools.invariance.bits.DifferenceError",
    "opwheel_tools.judge.cases.CaseError",
    "opwheel_tools.judge.execution.LoadError",
    "opwheel_tools.judge.expectation.RefusedByReference",
    "opwheel_tools.judge.memory.NotGuarded",
    "opwheel_tools.judge.memory.OutOfBounds",
    "opwheel_tools.judge.programs.Refused",
    "opwheel_tools.judge.subjects.SubjectError",
    "opwheel_tools.testing.checks.applicable.NotApplicableError",
    "transformer_ops.hugging_face.code_digest.UnknownCodeError",
}


def test_every_exception_has_a_code() -> None:
    """One of the page of codes; no two classes have the same."""
    codes = look(*PACKAGES, *filter(find_spec, (*BACKENDS, "muladd_executorch")))["codes"]
    assert codes.keys() >= CODE_IS_GIVEN | CONTROL_FLOW
    own = {name: code for name, code in codes.items() if name not in CODE_IS_GIVEN}
    assert {name for name, code in own.items() if code == ["None"]} == CONTROL_FLOW
    stated = [code for name, (code,) in own.items() if name not in CONTROL_FLOW]
    assert set(stated) <= ERROR_CODES.keys()
    assert len(set(stated)) == len(stated)


UNSEEN = """
import torch
class Own(torch.OutOfMemoryError): ...
class Inherits(Own): ...
class Holder:
    class Inner(ValueError): ...
def make():
    class Local(Inherits): ...
"""
LOSING = """
from opwheel.registry import BackendUnavailableError
class TakesTwo(Exception):
    def __init__(self, code: str, reason: str) -> None: super().__init__(reason)
class Forgets(Exception):
    def __init__(self, text: str, more: str = "") -> None:
        super().__init__(text)
        self.more = more
    def __reduce__(self): return type(self), self.args
class OfOurs(BackendUnavailableError):
    def __init__(self, device: str) -> None:
        super().__init__("OPWHEEL-E002", f"none for {device}")
        self.device = device
"""


def test_the_search_misses_none(site: Site) -> None:
    """Neither classes in functions and classes, nor in modules that nothing imports; and it sees what is lost."""
    site.install("acme", files={"unused.py": UNSEEN, "inner/__init__.py": "", "inner/losing.py": LOSING})
    report = look("muladd_acme", path=(site.root,))
    unused, losing = "muladd_acme.unused", "muladd_acme.inner.losing"
    assert report["unseen"] == [f"{unused}.make.<locals>.Local"]
    assert report["classes"].keys() == {
        *(f"{unused}.{name}" for name in ("Own", "Inherits", "Holder.Inner")),
        *(f"{losing}.{name}" for name in ("TakesTwo", "Forgets", "OfOurs")),
    }
    problems = {name.rpartition(".")[2]: problems for name, problems in report["classes"].items() if problems}
    assert problems.keys() == {"TakesTwo", "Forgets"}
    assert any("missing 1 required positional argument" in problem for problem in problems["TakesTwo"])
    assert any("instead of" in problem for problem in problems["Forgets"])


# What a worker does, and what it raises.
WORK = """
from pathlib import Path

def require(name):
    import muladd
    muladd.require(name)

def load(name):
    import muladd
    muladd.load(name)

def read_policy(path):
    from opwheel.registry import read_file
    read_file(Path(path))

def compare(path):
    import muladd
    muladd.library.compare(path)

def describe(name):
    from opwheel.registry import Backend
    Backend(name, "npu", "PrivateUse1")
"""
RAISED = {
    "require": ("nothing", "BackendUnavailableError"),
    "load": ("acme", "BackendUnavailableError"),
    "read_policy": ("gone.toml", "PolicyError"),
    "compare": ("gone.lock", "LockError"),
    "describe": ("", "InvalidBackendError"),
}
THEN = """
import concurrent.futures, multiprocessing
import work

context = multiprocessing.get_context("fork")
with context.Pool(1) as pool:
    try:
        out["pool"] = pool.apply_async(getattr(work, {work!r}), [{argument!r}]).get(timeout=30)
    except Exception as error:
        out["pool"] = type(error).__name__, str(error), getattr(error, "code", "")
with concurrent.futures.ProcessPoolExecutor(1, context) as pool:
    error = pool.submit(getattr(work, {work!r}), {argument!r}).exception(timeout=30)
    out["executor"] = type(error).__name__, str(error), getattr(error, "code", "")
"""


@pytest.mark.parametrize("work", RAISED)
def test_an_error_of_a_worker_arrives(work: str, site: Site, run: Run) -> None:
    argument, kind = RAISED[work]
    (site.root / "work.py").write_text(WORK)
    site.install("acme", source="raise ImportError('no driver')")
    report = run(site.root, then=THEN.format(work=work, argument=argument))
    for name, text, code in (report["out"]["pool"], report["out"]["executor"]):
        assert name == kind
        assert code.startswith("OPWHEEL-E")
        assert text.endswith(f"({code})")
