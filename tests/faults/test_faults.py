"""Each way in which a backend can fail: muladd still works, says what is wrong, and how to put it right."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from .builder import Compiler, Site
from .conftest import Run

NUMBERS = [[0.5, 2.5, 4.5], [6.5, 8.5, 10.5]]  # what the driver's call must give
GOOD = {"KEY": "PrivateUse1"}


@dataclass(frozen=True)
class Fault:
    """A faulty plugin ``acme``, and the status it must get.

    ``fix`` is what its author is told to change; left out where the code says it, in ``FIXES``.
    ``library`` has the macros and linker flags of the library, or is a function of a good library's bytes; ``repaired``
    has the arguments of the installation that differ after the user has followed the advice.
    """

    id: str
    code: str
    reason: str
    state: str = "broken"
    cause: str | None = None
    library: Mapping[str, str] | Callable[[bytes], bytes] | None = field(default_factory=lambda: GOOD)
    link: tuple[str, ...] = ()
    installed: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    repaired: Mapping[str, Any] | None = None
    fix: str = ""

    @property
    def is_failure(self) -> bool:
        return self.state in ("broken", "incompatible")


def register(body: str) -> dict[str, str]:
    """The fields of a backend without a library."""
    indented = "\n    ".join(body.splitlines())
    return {"extra": f"def register(library):\n    {indented}\n", "register": "register"}


def probe(body: str) -> dict[str, str]:
    return {"extra": f"def probe():\n    {body}\n", "probe": "probe"}


def hook(body: str, arguments: str = "") -> dict[str, str]:
    return {
        "source": f"from opwheel.registry import hookimpl\n@hookimpl\ndef opwheel_backend({arguments}):\n    {body}\n"
    }


def source(text: str | bytes) -> dict[str, Any]:
    return {"source": text}


def set_machine(library: bytes) -> bytes:
    """The same ELF file for another architecture: e_machine is the half-word at 18, 0xB7 is AArch64."""
    return library[:18] + (0xB7).to_bytes(2, "little") + library[20:]


# What the advice for an author names, for each code.
FIXES = {
    "OPWHEEL-E020": '[project.entry-points."muladd.backends"] of pyproject.toml',
    "OPWHEEL-E021": '`@hookimpl def opwheel_backend()` in muladd_acme, without parameters, returns Backend(name="acme',
    "OPWHEEL-E041": "probe= names",
    "OPWHEEL-E050": "name in libraries= a file",
    "OPWHEEL-E051": "OPWHEEL_KERNELS(muladd, PrivateUse1, m)",
    "OPWHEEL-E052": "register= names",
    "OPWHEEL-E054": "operators=",
}

FAULTS = [
    # ---- libraries
    Fault("library missing", "OPWHEEL-E050", "libkernels.so", cause="OSError", library=None, repaired={}),
    Fault("library empty", "OPWHEEL-E050", "file too short", cause="OSError", library=lambda _: b"", repaired={}),
    Fault("library truncated", "OPWHEEL-E050", "truncated", cause="OSError", library=lambda so: so[: len(so) // 3]),
    Fault("library truncated early", "OPWHEEL-E050", "truncated", cause="OSError", library=lambda so: so[:100]),
    Fault("library truncated in its header", "OPWHEEL-E050", "too short", cause="OSError", library=lambda so: so[:40]),
    Fault("library is text", "OPWHEEL-E050", "invalid ELF header", cause="OSError", library=lambda _: b"hello\n" * 99),
    Fault("library for AArch64", "OPWHEEL-E050", "libkernels.so", cause="OSError", library=set_machine, repaired={}),
    Fault(
        "library with undefined symbol", "OPWHEEL-E050", "gone", cause="OSError", library={**GOOD, "BEFORE": "gone()"}
    ),
    Fault(
        "library needs a missing one",
        "OPWHEEL-E050",
        "libgone.so",
        cause="OSError",
        link=("-Wl,--no-as-needed", "-lgone"),
    ),
    Fault(
        "library is a folder",
        "OPWHEEL-E050",
        "/muladd_acme'",
        cause="OSError",
        installed={"libraries": "[HERE]"},
        repaired={},
    ),
    Fault(
        "library path with a null byte",
        "OPWHEEL-E050",
        "null",
        cause="ValueError",
        installed={"libraries": "['/a\\0b']"},
    ),
    Fault(
        "library path too long",
        "OPWHEEL-E050",
        "File name too long",
        cause="OSError",
        installed={"libraries": "['/' + 'x' * 300]"},
    ),
    Fault(
        "second library missing",
        "OPWHEEL-E050",
        "other.so",
        cause="OSError",
        installed={"libraries": "[HERE / 'libkernels.so', HERE / 'other.so']"},
        repaired={},
    ),
    Fault("library registers nothing", "OPWHEEL-E051", "no kernel at PrivateUse1", library={}),
    Fault("library registers another key", "OPWHEEL-E054", "add at XPU", library={"KEY": "XPU"}),
    Fault(
        "library registers a second key",
        "OPWHEEL-E054",
        "scale at AutocastCPU",
        library={**GOOD, "ALSO_AT": "AutocastCPU", "ALSO": '"scale"'},
    ),
    Fault(
        "library replaces another backend's kernel",
        "OPWHEEL-E054",
        "muladd at CPU",
        library={**GOOD, "ALSO_AT": "CPU", "ALSO": '"muladd"'},
    ),
    Fault(
        "library registers an unknown operator",
        "OPWHEEL-E054",
        "nonsense (not an operator of this library)",
        library={**GOOD, "ALSO_AT": "PrivateUse1", "ALSO": '"nonsense"'},
    ),
    Fault(
        "library defines an operator",
        "OPWHEEL-E054",
        "fused_everything (not an operator of this library)",
        library={**GOOD, "DEFINE_MORE": ""},
    ),
    Fault(
        "library registers more than claimed",
        "OPWHEEL-E054",
        "mul at PrivateUse1",
        installed={"operators": "['add']"},
    ),
    # ---- compatibility
    Fault(
        "ABI too old",
        "OPWHEEL-E030",
        "ABI 0, this core has ABI 1",
        state="incompatible",
        installed={"abi": 0},
        repaired={},
    ),
    Fault(
        "ABI too new",
        "OPWHEEL-E030",
        "ABI 9, this core has ABI 1",
        state="incompatible",
        installed={"abi": 9},
        repaired={},
    ),
    Fault(
        "future torch",
        "OPWHEEL-E031",
        "it requires torch>=99, but torch 2.",
        state="incompatible",
        installed={"requires": "['torch>=99']"},
        repaired={"requires": "['torch>=2.10']"},
    ),
    Fault(
        "required package missing",
        "OPWHEEL-E031",
        "it requires not-there>=1, but that is not installed",
        state="incompatible",
        installed={"requires": "['pluggy', 'not-there>=1']"},
        repaired={"requires": "['pluggy', \"not-there>=1; python_version<'3'\"]"},
    ),
    Fault(
        "required package without a valid version",
        "OPWHEEL-E031",
        "muladd-acme unknown is installed",
        state="incompatible",
        installed={"requires": "['muladd-acme>=1']", "version": "unknown"},
    ),
    Fault(
        "marker not valid",
        "OPWHEEL-E022",
        "'torch; nonsense == 1' is not valid",
        cause="InvalidRequirement",
        installed={"requires": "['torch; nonsense == 1']"},
        repaired={},
        fix='requires=["torch>=2.10"]',
    ),
    Fault(
        "marker without an order",
        "OPWHEEL-E022",
        "is not valid: UndefinedComparison",
        cause="UndefinedComparison",
        installed={"requires": "[\"torch; os_name ~= 'posix'\"]"},
        repaired={},
        fix='requires=["torch>=2.10"]',
    ),
    Fault(
        "requirement not valid",
        "OPWHEEL-E022",
        "'torch >> 2'",
        cause="InvalidRequirement",
        installed={"requires": "['torch >> 2']"},
        fix='requires=["torch>=2.10"]',
    ),
    # ---- modules
    Fault(
        "module missing",
        "OPWHEEL-E020",
        "muladd_acme",
        cause="ModuleNotFoundError",
        library=None,
        installed={"module": False},
        repaired={},
    ),
    Fault(
        "module missing, but not its folder",
        "OPWHEEL-E021",
        "no function opwheel_backend",
        installed={"module": False},
        repaired={},
    ),
    Fault(
        "attribute missing",
        "OPWHEEL-E020",
        "nothing",
        cause="AttributeError",
        installed={"entry_points": "[muladd.backends]\nacme = muladd_acme:nothing\n"},
    ),
    Fault(
        "import error",
        "OPWHEEL-E020",
        "No module named 'not_there'",
        cause="ModuleNotFoundError",
        installed=source("import not_there"),
        repaired={},
    ),
    Fault("syntax error", "OPWHEEL-E020", "SyntaxError", cause="SyntaxError", installed=source("def hook(:\n")),
    Fault(
        "module not UTF-8", "OPWHEEL-E020", "SyntaxError", cause="SyntaxError", installed=source(b"x = '\xff\xfe'\n")
    ),
    Fault("module with null bytes", "OPWHEEL-E020", "null bytes", cause=None, installed=source(b"\0\0")),
    Fault("module exits", "OPWHEEL-E020", "SystemExit: 3", cause="SystemExit", installed=source("raise SystemExit(3)")),
    Fault(
        "module raises a BaseException",
        "OPWHEEL-E020",
        "Weird: from the module",
        cause="Weird",
        installed=source("class Weird(BaseException): ...\nraise Weird('from the module')"),
    ),
    Fault(
        "exception that cannot be shown",
        "OPWHEEL-E020",
        "Mute that cannot be shown",
        cause="Mute",
        installed=source("class Mute(Exception):\n    def __str__(self): raise KeyError\nraise Mute"),
    ),
    # ---- hooks
    Fault("no hook", "OPWHEEL-E021", "no function opwheel_backend", installed=source("")),
    Fault("hook not marked", "OPWHEEL-E021", "@hookimpl", installed=source("def opwheel_backend(): ..."), repaired={}),
    Fault(
        "hook misspelt",
        "OPWHEEL-E021",
        "muladd_backends",
        cause="PluginValidationError",
        installed=source("from opwheel.registry import hookimpl\n@hookimpl\ndef muladd_backends(): ..."),
    ),
    Fault(
        "hook with an argument",
        "OPWHEEL-E021",
        "config",
        cause="PluginValidationError",
        installed=hook("...", "config"),
    ),
    Fault(
        "hook raises",
        "OPWHEEL-E021",
        "OSError: no driver",
        cause="OSError",
        installed=hook("raise OSError('no driver')"),
        repaired={},
    ),
    Fault("hook exits", "OPWHEEL-E021", "SystemExit", cause="SystemExit", installed=hook("raise SystemExit")),
    Fault("hook returns None", "OPWHEEL-E021", "returned None, expected a Backend", installed=hook("return None")),
    Fault(
        "hook returns a dict",
        "OPWHEEL-E021",
        "returned {'name': 'acme'}, expected a Backend",
        installed=hook("return {'name': 'acme'}"),
    ),
    Fault(
        "hook returns what cannot be shown",
        "OPWHEEL-E021",
        "returned <Mute object>, expected a Backend",
        installed=hook("class Mute:\n        def __repr__(self): raise KeyError\n    return Mute()"),
    ),
    Fault(
        "hook returns something long", "OPWHEEL-E021", "xxx..., expected a Backend", installed=hook("return 'x' * 9999")
    ),
    # ---- descriptions
    Fault("unknown field", "OPWHEEL-E021", "colour", cause="TypeError", installed={"colour": "1"}),
    Fault(
        "name empty",
        "OPWHEEL-E022",
        "field name is ''",
        cause="InvalidBackendError",
        installed={"name": "''"},
        fix='name="acme"',
    ),
    Fault(
        "name is another",
        "OPWHEEL-E022",
        "'acme', but its Backend names itself 'zeta'",
        installed={"name": "'zeta'"},
        fix='name="acme"',
    ),
    Fault(
        "libraries is one path",
        "OPWHEEL-E022",
        "field libraries is",
        cause="InvalidBackendError",
        installed={"libraries": "HERE / 'libkernels.so'"},
        repaired={},
        fix="libraries=[Path(__file__)",
    ),
    Fault(
        "library path is relative",
        "OPWHEEL-E022",
        "expected a sequence of absolute paths",
        cause="InvalidBackendError",
        installed={"libraries": "['libkernels.so']"},
        repaired={},
        fix="libraries=[Path(__file__)",
    ),
    Fault(
        "neither libraries nor register",
        "OPWHEEL-E022",
        "there is nothing to load",
        cause="InvalidBackendError",
        installed={"libraries": "[]"},
        fix="register=register",
    ),
    Fault(
        "register is not callable",
        "OPWHEEL-E022",
        "field register is 5",
        cause="InvalidBackendError",
        installed={"register": "5"},
        fix="register=register",
    ),
    Fault(
        "probe is not callable",
        "OPWHEEL-E022",
        "field probe is True",
        cause="InvalidBackendError",
        installed={"probe": "True"},
        fix="probe=probe",
    ),
    Fault(
        "operators is text",
        "OPWHEEL-E022",
        "field operators is 'add'",
        cause="InvalidBackendError",
        installed={"operators": "'add'"},
        fix='operators=["add", "add.out"]',
    ),
    Fault(
        "requires is text",
        "OPWHEEL-E022",
        "field requires is 'torch'",
        cause="InvalidBackendError",
        installed={"requires": "'torch'"},
        fix='requires=["torch>=2.10"]',
    ),
    Fault(
        "priority is a float",
        "OPWHEEL-E022",
        "field priority is 0.5",
        cause="InvalidBackendError",
        installed={"priority": "0.5"},
        fix="priority=0",
    ),
    Fault(
        "operators that do not exist",
        "OPWHEEL-E022",
        "divide, sub",
        installed={"operators": "['sub', 'add', 'divide']"},
        repaired={"operators": "None"},
        fix="operators=['muladd']",
    ),
    Fault(
        "operators that do not exist do not keep claims",
        "OPWHEEL-E022",
        "not_invariant= operators that do not exist: divide",
        installed={"not_invariant": "{'add': ['batch'], 'divide': ['batch']}"},
        repaired={"not_invariant": "{'*': ['batch'], 'add': ['threads']}"},
        fix="not_invariant={'muladd': [\"batch\"]}",
    ),
    Fault(
        "claims that do not exist",
        "OPWHEEL-E022",
        "field not_invariant is {'add': ['rows']}, expected a dict from names of operators to claims: a collection of "
        "some of batch, prefix",
        cause="InvalidBackendError",
        installed={"not_invariant": "{'add': ['rows']}"},
        fix='not_invariant={"add": ["batch"]}',
    ),
    Fault(
        "dispatch key that does not exist",
        "OPWHEEL-E022",
        "no dispatch key 'Acme'",
        installed={"dispatch_key": "'Acme'"},
        repaired={},
        fix='dispatch_key="PrivateUse1"',
    ),
    Fault(
        "dispatch key by the device's name",  # PyTorch's parser takes it for PrivateUse1
        "OPWHEEL-E022",
        "it claims 'NPU', but kernels for 'npu' tensors are at 'PrivateUse1'",
        installed={"dispatch_key": "'NPU'"},
        repaired={},
        fix='dispatch_key="PrivateUse1"',
    ),
    Fault(
        "dispatch key of another device",
        "OPWHEEL-E022",
        "it claims 'PrivateUse1', but kernels for 'cpu' tensors are at 'CPU'",
        installed={"device_type": "'cpu'"},
        repaired={},
        fix='dispatch_key="CPU" for device_type="cpu"',
    ),
    Fault(
        "dispatch key of autograd",
        "OPWHEEL-E022",
        "it claims 'AutogradCPU', but kernels for 'cpu' tensors are at 'CPU'",
        installed={"device_type": "'cpu'", "dispatch_key": "'AutogradCPU'"},
        fix='dispatch_key="CPU" for device_type="cpu"',
    ),
    Fault(
        "dispatch key of shapes",
        "OPWHEEL-E022",
        "it claims 'Meta'",
        installed={"device_type": "'meta'", "dispatch_key": "'Meta'"},
        fix='dispatch_key="CPU" and device_type="cpu"',
    ),
    Fault(
        "device type that does not exist, at a key of another",
        "OPWHEEL-E022",
        "it claims 'CPU', but PyTorch knows no device 'acmechip'",
        installed={"device_type": "'acmechip'", "dispatch_key": "'CPU'"},
        fix="the device_type of 'CPU' tensors",
    ),
    Fault(
        "device type without a dispatch key",
        "OPWHEEL-E022",
        "no dispatch key for 'opengl' tensors",
        installed={"device_type": "'opengl'"},
        fix='dispatch_key="CPU" and device_type="cpu"',
    ),
    # ---- probes
    Fault(
        "probe raises",
        "OPWHEEL-E041",
        "RuntimeError: driver is asleep",
        cause="RuntimeError",
        installed=probe("raise RuntimeError('driver is asleep')"),
        repaired=probe("return Probe(True)"),
    ),
    Fault("probe exits", "OPWHEEL-E041", "SystemExit: 1", cause="SystemExit", installed=probe("raise SystemExit(1)")),
    Fault("probe returns a bool", "OPWHEEL-E041", "returned True, expected a Probe", installed=probe("return True")),
    Fault("probe returns None", "OPWHEEL-E041", "returned None, expected a Probe", installed=probe("pass")),
    Fault(
        "probe with wrong field",
        "OPWHEEL-E041",
        "field ok is 1, expected bool",
        cause="InvalidBackendError",
        installed=probe("return Probe(1)"),
        fix="ok=False",
    ),
    Fault(
        "probe with wrong reason",
        "OPWHEEL-E041",
        "field reason is None, expected str",
        cause="InvalidBackendError",
        installed=probe("return Probe(True, None)"),
        fix='reason="the driver is missing"',
    ),
    Fault(
        "probe hangs",
        "OPWHEEL-E041",
        "did not finish within 0.2 s",
        installed=probe("import time; time.sleep(0.8); return Probe(True)"),
        environment={"MULADD_PROBE_TIMEOUT": "0.2"},
        repaired=probe("return Probe(True)"),
    ),
    Fault(
        "probe imports muladd",
        "OPWHEEL-E041",
        "import the operator library",
        installed=probe("import muladd; return Probe(bool(muladd.backends))"),
        environment={"MULADD_PROBE_TIMEOUT": "0.2"},
    ),
    Fault(
        "probe says no",
        "OPWHEEL-E040",
        "no NPU in this machine",
        state="unsupported",
        installed=probe("return Probe(False, 'no NPU in this machine', 'plug one in')"),
        repaired=probe("return Probe(True)"),
    ),
    Fault(
        "probe says no without a reason",
        "OPWHEEL-E040",
        "gives no reason",
        state="unsupported",
        installed=probe("return Probe(False)"),
    ),
    # ---- backends without a library
    Fault(
        "register raises halfway",
        "OPWHEEL-E052",
        "ValueError: halfway",
        cause="ValueError",
        installed=register("library.impl('add', lambda a, b: a)\nraise ValueError('halfway')"),
        repaired=register("for name in ('add', 'mul'): library.impl(name, lambda a, b: a)")
        | {"operators": "['add', 'mul']"},
    ),
    Fault("register exits", "OPWHEEL-E052", "SystemExit", cause="SystemExit", installed=register("raise SystemExit")),
    Fault("register does nothing", "OPWHEEL-E051", "no kernel at PrivateUse1", installed=register("pass")),
    Fault(
        "register takes no argument",
        "OPWHEEL-E052",
        "TypeError",
        cause="TypeError",
        installed={"extra": "def register(): ...", "register": "register"},
    ),
    Fault(
        "register at another key",
        "OPWHEEL-E052",
        "XPU",
        cause="RuntimeError",
        installed=register("library.impl('add', lambda a, b: a)\nlibrary.impl('mul', lambda a, b: a, 'XPU')"),
    ),
    # ---- policy
    Fault(
        "not in MULADD_BACKENDS",
        "OPWHEEL-E060",
        "MULADD_BACKENDS=cpu",
        state="disabled",
        environment={"MULADD_BACKENDS": "cpu"},
        repaired={},
    ),
]


def ids(fault: Fault) -> str:
    return fault.id.replace(" ", "-")


@pytest.fixture
def put(site: Site, compiler: Compiler) -> Callable[..., Path]:
    """Install a fault's plugin."""

    def install(fault: Fault) -> Path:
        library = None
        if callable(fault.library):
            library = fault.library(compiler.library("good", GOOD).read_bytes())
        elif fault.library is not None:
            name = "good" if fault.library == GOOD and not fault.link else ids(fault)
            link = (f"-L{compiler.gone().parent}", *fault.link) if fault.link else ()
            library = compiler.library(name, fault.library, link)
        return site.install("acme", library=library, **fault.installed)

    return install


@pytest.mark.parametrize("fault", FAULTS, ids=ids)
def test_fault(fault: Fault, put: Callable[..., Path], site: Site, run: Run) -> None:
    put(fault)
    report = run(site.root, device=True, doctor=True, finalize=True, **fault.environment)

    assert "error" not in report, report["error"]["traceback"]
    assert report["numbers"] == NUMBERS
    status = report["statuses"]["acme"]
    assert (status["state"], status["code"]) == (fault.state, fault.code), status
    assert fault.reason in status["reason"]
    check_fix(status["fix"], fault)
    assert (status["distribution"], status["version"]) == ("muladd-acme", fault.installed.get("version", "1.0"))
    assert (status["exception"] is not None) == (fault.state == "broken")
    if fault.cause:
        assert fault.cause in status["exception"]["classes"]
    assert report["statuses"]["cpu"]["state"] == "loaded"
    assert report["findings"] == []
    check_warnings(report, fault)
    check_doctor(report, fault)
    if "device_type" not in fault.installed:
        check_call(report, fault)


def check_fix(text: str, fault: Fault) -> None:
    """An author is told what to write, and everybody else what to do without writing."""
    if fault.state != "broken":
        assert text
        return
    author, _, others = text.partition("; if it is not yours, ")
    assert author.startswith("in the plugin, ")
    assert (fault.fix or FIXES[fault.code]) in author
    assert author.endswith(" (MULADD_STRICT=1 shows the traceback)")
    assert "reinstall" not in author
    assert ("reinstall muladd-acme" in others) == (fault.code in ("OPWHEEL-E020", "OPWHEEL-E050"))
    assert "uninstall" in others


def check_warnings(report: Mapping[str, Any], fault: Fault) -> None:
    messages = [(warning["category"], warning["message"]) for warning in report["warnings"]]
    if fault.is_failure:
        [(category, message)] = messages
        assert category == "RuntimeWarning"
        assert "'acme'" in message
        assert fault.code in message
        assert fault.reason in message
        assert report["warnings"][0]["file"] == "driver.py"  # where muladd is imported
    else:
        assert messages == []


def check_doctor(report: Mapping[str, Any], fault: Fault) -> None:
    expected_exit = 1 if fault.is_failure else 0
    assert report["doctor"]["exit"] == expected_exit, report["doctor"]
    assert fault.code in report["doctor"]["text"]
    assert fault.reason in report["doctor"]["text"]
    assert report["doctor_json"]["exit"] == expected_exit
    described = json.loads(report["doctor_json"]["text"])
    assert described["ok"] is not fault.is_failure
    assert described["backends"]["acme"]["code"] == fault.code


def check_call(report: Mapping[str, Any], fault: Fault) -> None:
    """An operator on the device says why there is no kernel, caused by the exception that is to blame."""
    call = report["call"]
    assert call["classes"][:2] == ["NoKernelError", "RegistryError"]
    for part in ("npu", "acme", fault.reason, "muladd doctor", "OPWHEEL-E001"):
        assert part in call["text"]
    assert (call["cause"] and call["cause"]["text"]) == (report["statuses"]["acme"]["exception"] or {}).get("text")


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault.is_failure], ids=ids)
def test_strict(fault: Fault, put: Callable[..., Path], site: Site, run: Run) -> None:
    put(fault)
    error = run(site.root, MULADD_STRICT="1", **fault.environment)["error"]
    assert error["classes"][:2] == ["RegistryError", "RuntimeError"]
    assert "'acme' (muladd-acme" in error["text"]
    assert fault.code in error["text"]
    assert (error["cause"] is not None) == (fault.state == "broken")


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault.repaired is not None], ids=ids)
def test_repaired(fault: Fault, put: Callable[..., Path], site: Site, run: Run, compiler: Compiler) -> None:
    put(fault)
    package = site.install("acme", library=compiler.library("good", GOOD), **fault.repaired)
    (package / "other.so").unlink(missing_ok=True)
    report = run(site.root)
    status = report["statuses"]["acme"]
    assert (status["state"], status["code"], status["reason"], status["fix"]) == ("loaded", "", "", "")
    assert report["warnings"] == []
    assert report["numbers"] == NUMBERS


STEPS_OF_A_PLUGIN = ("module", "hook", "probe", "register")
STEPS_OF_A_PLUGIN_SOURCE = """
import warnings
from opwheel.registry import Backend, Probe, hookimpl

{module}

@hookimpl
def opwheel_backend():
    {hook}
    return Backend("acme", "npu", "PrivateUse1", probe=probe, register=register, operators=["add"])

def probe():
    {probe}
    return Probe(True)

def register(library):
    {register}
    library.impl("add", lambda a, b: a)
"""
CHANGES_OF_FILTERS = {
    "errors": "warnings.simplefilter('error')",
    "errors in another list": "warnings.filters = [('error', None, Warning, None, 0)]",
    "nothing": "warnings.simplefilter('ignore')",
    "reset": "warnings.resetwarnings()",
}


@pytest.mark.parametrize("change", CHANGES_OF_FILTERS)
@pytest.mark.parametrize("step", ["module", "hook", "probe", "register"])
@pytest.mark.parametrize("fails", [True, False], ids=["fails", "does not fail"])
def test_filters_of_warnings_are_the_users(step: str, change: str, fails: bool, site: Site, run: Run) -> None:
    """What a plugin does to them is undone: it decides neither what is told of it, nor what others may warn of."""
    end = "raise ImportError('no')" if fails else "pass"
    steps = {name: f"{CHANGES_OF_FILTERS[change]}; {end}" if name == step else "pass" for name in STEPS_OF_A_PLUGIN}
    site.install("acme", source=STEPS_OF_A_PLUGIN_SOURCE.format(**steps))
    site.install("beta", source="import warnings; warnings.warn('harmless'); raise ImportError('no, too')")
    before = "import warnings; out['before'] = list(map(str, warnings.filters))"
    report = run(site.root, before=before, then="import warnings; out['after'] = list(map(str, warnings.filters))")
    assert "error" not in report, report["error"]["traceback"]
    assert report["statuses"]["acme"]["state"] == ("broken" if fails else "loaded")
    assert "ImportError: no, too" in report["statuses"]["beta"]["reason"]
    assert len(report["warnings"]) == 1 + fails
    assert report["out"]["after"] == report["out"]["before"]
