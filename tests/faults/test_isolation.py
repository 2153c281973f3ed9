"""Plugins that register what they may not: at any dispatch key, at any stage, from Python and from C++."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from .builder import INTRUDER, Compiler, Site
from .conftest import Run
from .test_faults import NUMBERS

# Each defines intrude(), which registers what the variable INTRUDER names; see intruder.cpp.
PYTHON = """
import os, torch
KEPT, DONE = [], []

def kernel(*args, **kwargs):
    raise AssertionError("called the intruder's kernel")

def intrude():
    for target in os.environ["INTRUDER"].split():
        operator, key = target.split("@")
        try:
            register_one(operator, key)
            DONE.append(target)
        except Exception:  # PyTorch allows no kernels there
            pass
"""
WAYS = {
    "torch.library": PYTHON
    + """
def register_one(operator, key):
    if operator == "*":
        KEPT.append(torch.library.Library("_", "IMPL", key))
        KEPT[-1].fallback(kernel)
    else:
        KEPT.append(torch.library.Library("muladd", "IMPL"))
        KEPT[-1].impl(operator, kernel, key)
""",
    "beside torch.library": PYTHON
    + """
def register_one(operator, key):
    KEPT.append(torch._C._dispatch_library("IMPL", "_" if operator == "*" else "muladd", ""))
    if operator == "*":
        KEPT[-1].fallback(key, kernel, False)
    else:
        KEPT[-1].impl(operator, key, kernel)
""",
    "C++": """
import ctypes, os
def intrude():
    ctypes.CDLL(str(HERE / "intruder.so"))
""",
}

# Where intrude() is called: code at the end of the module, in the hook, fields of the Backend.
PLUGIN = """
from pathlib import Path
from opwheel.registry import Backend, Probe, hookimpl
HERE = Path(__file__).parent
{way}
{module}
def probe():
    {probe}
    return Probe({accepts})
def register(library):
    {register}
    for name in ("add", "mul"):
        library.impl(name, lambda a, b: a)
@hookimpl
def opwheel_backend():
    {hook}
    return Backend("acme", "npu", "PrivateUse1", register=register, probe=probe, operators=["add", "mul"])
"""
STAGES = ("module", "hook", "probe", "register")


def plugin(way: str, stage: str, accepts: bool = True) -> str:
    code = {name: "intrude()" if name == stage else "pass" for name in STAGES}
    return PLUGIN.format(way=WAYS[way], accepts=accepts, **code)


@pytest.fixture
def install(site: Site, compiler: Compiler) -> Any:
    """Install a plugin with intruder.so beside it."""

    def start(source: str) -> Path:
        package = site.install("acme", source=source)
        library = compiler.library("intruder", source=INTRUDER)
        (package / "intruder.so").symlink_to(library)
        return package

    return start


# Calls every operator that is blocked at the key where it is blocked.
CALL_BLOCKED = """
import torch
blocked = {(name, key) for name in muladd.library.operators for key in muladd.library.explain(name, "cpu").blocked}
out["blocked"] = sorted(map(list, blocked))
arrives = set(str(torch._C._dispatch_keyset_full())[len("DispatchKeySet("):-1].split(", "))
out["wrong"] = []
for name, key in blocked:
    if key not in arrives: continue  # no call does at an alias
    base, _, overload = name.partition(".")
    op = getattr(getattr(torch.ops.muladd, base), overload or "default")
    given = {a.name: 2.0 if str(a.type) == 'float' else torch.ones(2) for a in op._schema.arguments}
    try:
        op.redispatch(torch._C.DispatchKeySet(torch._C._dispatch_key_parse(key)), **given)
        out["wrong"].append([name, key, "returned"])
    except opwheel.registry.NoKernelError as error:
        if "'acme'" not in str(error) or error.code != "OPWHEEL-E054": out["wrong"].append([name, key, str(error)])
    except Exception as error:
        out["wrong"].append([name, key, repr(error)])
"""

# An operator where the CPU backend has a kernel, one where the core has one, one where nobody has, and a fallback.
TARGETS = "add@CPU muladd@Autograd scale@Negative *@AutocastIPU"
IN_WORDS = ("add at CPU", "muladd at Autograd", "scale at Negative", "a fallback for every operator at AutocastIPU")


@pytest.mark.parametrize("accepts", [True, False], ids=["accepts", "declines"])
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("way", WAYS)
def test_intruder(way: str, stage: str, accepts: bool, install: Any, site: Site, run: Run) -> None:
    install(plugin(way, stage, accepts))
    then = (
        CALL_BLOCKED
        + """
x = torch.tensor([1.0, 2.0], requires_grad=True)
try:
    torch.ops.muladd.muladd(x, x, 1.0).sum().backward()
    out["gradient"] = x.grad.tolist()
except opwheel.registry.NoKernelError as error:
    out["gradient"] = str(error)
out["add"] = []
for add in (muladd.add, torch.ops.muladd.add):
    try:
        out["add"].append(add(torch.ones(2), torch.ones(2)).tolist())
    except opwheel.registry.NoKernelError as error:
        out["add"].append(str(error))
"""
    )
    report = run(site.root, doctor=True, then=then, INTRUDER=TARGETS)
    status, out = report["statuses"]["acme"], report["out"]
    if stage == "register" and not accepts:
        assert (status["state"], out["blocked"]) == ("unsupported", [])
        return

    assert "error" not in report, report["error"]["traceback"]
    assert (status["state"], status["code"]) == ("broken", "OPWHEEL-E054")
    assert all(words in status["reason"] for words in IN_WORDS), status["reason"]
    assert report["statuses"]["cpu"]["state"] == "loaded"
    assert report["doctor"]["exit"] == 1
    assert "add at CPU" in report["doctor"]["text"]
    [warning] = [w for w in report["warnings"] if "the backend 'acme'" in w["message"]]
    assert "add at CPU" in warning["message"]
    assert out["wrong"] == []
    blocked = {tuple(pair) for pair in out["blocked"]}
    assert {("muladd", "Autograd"), ("scale", "Negative"), ("mul.out", "AutocastIPU")} <= blocked
    assert "calls that reach it raise" in status["reason"]
    assert ", ".join(sorted(IN_WORDS)) in status["fix"]
    # The CPU's own kernel is registered after plugins are asked, and before the probe of a device that sorts later.
    is_lost = ("add", "CPU") in blocked
    assert is_lost == (stage in ("probe", "register"))
    assert report["statuses"]["cpu"]["missing"] == (["add"] if is_lost else [])
    for result in out["add"]:
        assert "'acme' (muladd-acme 1.0)" in result if is_lost else result == [2.0, 2.0]
    assert "muladd::muladd is blocked at Autograd: 'acme'" in out["gradient"]


NO_ARRIVAL = {"Dense", "Sparse", "Quantized", "SparseCsr", "NestedTensor", "AutogradFunctionality"}
EVERY_KEY = """
import os, torch
keys = set(torch._C.DispatchKey.__members__)
keys |= set(str(torch._C._dispatch_keyset_full())[len("DispatchKeySet("):-1].split(", "))
os.environ["INTRUDER"] = " ".join(f"scale@{key}" for key in sorted(keys))
"""


@pytest.mark.parametrize("way", WAYS)
def test_intruder_at_every_key(way: str, install: Any, site: Site, run: Run) -> None:
    install(plugin(way, "hook"))
    then = (
        CALL_BLOCKED
        + """
import muladd_acme
out["done"] = getattr(muladd_acme, "DONE", None)
x = torch.tensor([1.0, 2.0], requires_grad=True)
try:
    out["direct"] = muladd.scale(x.detach(), 3.0).tolist()
except opwheel.registry.NoKernelError as error:
    out["direct"] = str(error)
"""
    )
    report = run(site.root, before=EVERY_KEY, then=then)
    assert "error" not in report, report["error"]["traceback"]
    reason, out = report["statuses"]["acme"]["reason"], report["out"]
    assert report["numbers"] == NUMBERS
    assert out["wrong"] == []
    listed = reason.partition(" (at ")[0].partition(" registered ")[2].split(", ")
    registered = {item.removeprefix("scale at ") for item in listed}
    assert len(registered) > 100
    assert {"CPU", "Autograd", "Negative", "BackendSelect", "AutocastCPU", "FuncTorchBatched"} <= registered
    blocked = {key for _, key in out["blocked"]}
    assert {"Negative", "BackendSelect", "Meta", "AutocastCPU", "FuncTorchBatched", "Functionalize"} <= registered | {
        key for key in ("Meta",) if way == "torch.library"
    }
    # On top of what was registered at the CPU's key there is the CPU's own kernel.
    assert len(blocked) > 100
    assert "CPU" not in blocked
    assert "muladd::scale is blocked at AutogradCPU" in out["direct"]  # the first key of all
    if out["done"] is not None:
        # PyTorch's dump says nothing of a kernel where no call arrives.
        unseen = {target.removeprefix("scale@") for target in out["done"]} - registered
        assert unseen <= {"Undefined", *NO_ARRIVAL}


# ---- claims ----------------------------------------------------------------------------------------------------------

MANY = """
import os, sys, torch
from pathlib import Path
root = Path({root!r})
keys = set(torch._C.DispatchKey.__members__)
keys |= set(str(torch._C._dispatch_keyset_full())[len("DispatchKeySet("):-1].split(", "))
source = '''
from opwheel.registry import Backend, hookimpl
def register(library): library.impl("add", lambda a, b: a)
@hookimpl
def opwheel_backend():
    return Backend({{name!r}}, {{device!r}}, {{key!r}}, register=register, operators=["add"])
'''
lines = []
for number, key in enumerate(sorted(keys)):
    for device in ("cpu", "cuda", "xpu", "npu", "meta", "cuda:0", "mkldnn"):
        name = f"{{key}}-{{device.replace(':', '.')}}"
        module = f"claimant_{{number}}_{{device.replace(':', '_')}}"
        (root / f"{{module}}.py").write_text(source.format(name=name, device=device, key=key))
        lines.append(f"{{name}} = {{module}}")
info = root / "claimants-1.0.dist-info"
info.mkdir(parents=True)
(info / "METADATA").write_text("Metadata-Version: 2.1\\nName: claimants\\nVersion: 1.0\\n")
(info / "entry_points.txt").write_text("[muladd.backends]\\n" + "\\n".join(lines) + "\\n")
out["keys"] = sorted(keys)
"""


def test_every_key_claimed_for_every_kind_of_device(site: Site, run: Run) -> None:
    """Only the key of a device's own plain tensors may be claimed, and only for that device."""
    report = run(site.root, before=MANY.format(root=str(site.root)), timeout=300)
    assert "error" not in report, report["error"]["traceback"]
    assert report["numbers"] == NUMBERS
    states = {name: (status["state"], status["code"]) for name, status in report["statuses"].items()}
    assert len(report["out"]["keys"]) > 150
    right = {"CPU-cpu": "shadowed", "CUDA-cuda": "loaded", "XPU-xpu": "loaded", "PrivateUse1-npu": "loaded"}
    for key in report["out"]["keys"]:
        for device in ("cpu", "cuda", "xpu", "npu", "meta", "cuda.0", "mkldnn"):
            name = f"{key}-{device}"
            if name in right:
                assert states[name][0] == right[name], (name, report["statuses"][name])
            else:
                assert states[name] == ("broken", "OPWHEEL-E022"), (name, report["statuses"][name])


def test_spare_device_that_has_its_name_already(site: Site, run: Run) -> None:
    register = "def register(library): library.impl('add', lambda a, b: a)"
    for name, device in (("acme", "npu"), ("beta", "tpu")):
        fields = {"extra": register, "register": "register", "operators": "['add']", "device_type": f"'{device}'"}
        site.install(name, **fields)
    report = run(site.root, registered=False, before="import torch\ntorch.utils.rename_privateuse1_backend('tpu')")
    assert report["statuses"]["acme"]["state"] == "unsupported"
    assert "PyTorch knows no device 'npu'" in report["statuses"]["acme"]["reason"]
    assert report["statuses"]["beta"]["state"] == "loaded"


# ---- what is registered at other times -------------------------------------------------------------------------------


def test_plugin_that_goes_on_after_its_import_of_muladd(install: Any, site: Site, run: Run) -> None:
    """``import muladd`` is complete when the plugin, whose import led to it, registers."""
    for way in WAYS:
        (site.root / "muladd_acme" / "intruder.so").unlink(missing_ok=True)
        install("import muladd\n" + plugin(way, "module"))
        report = run(site.root, before="import muladd_acme", INTRUDER="add@AutogradCPU scale@Negative")
        assert report["numbers"] == NUMBERS
        status = report["statuses"]["acme"]
        assert (status["state"], status["code"]) == ("broken", "OPWHEEL-E054")
        assert "add at AutogradCPU, scale at Negative" in status["reason"]


FIRST = """
import os, sys
os.environ["INTRUDER"] = "add@CPU add@Autograd scale@Negative"
import torch
import muladd_acme.early
"""


@pytest.mark.parametrize("way", WAYS)
def test_registered_before_muladd_is_imported(way: str, install: Any, site: Site, run: Run) -> None:
    """By a package that does not import muladd, or not yet."""
    package = install(plugin("torch.library", "none"))
    (package / "backend.py").write_text((package / "__init__.py").read_text())
    (package / "__init__.py").write_text("")
    (package / "early.py").write_text(
        "from pathlib import Path\nHERE = Path(__file__).parent\n" + WAYS[way] + "intrude()\n"
    )
    info = site.root / "muladd_acme-1.0.dist-info"
    (info / "entry_points.txt").write_text("[muladd.backends]\nacme = muladd_acme.backend\n")
    report = run(
        site.root, before=FIRST, then=CALL_BLOCKED.replace("\"'acme'\" not in str(error) or ", ""), doctor=True
    )
    assert "error" not in report, report["error"]["traceback"]
    assert report["numbers"] == NUMBERS
    [finding] = report["findings"]
    assert finding["code"] == "OPWHEEL-E054"
    assert "scale at Negative" in finding["message"]
    assert "before muladd was imported" in finding["message"]
    assert report["doctor"]["exit"] == 1
    assert report["statuses"]["acme"]["state"] == "loaded"
    assert report["out"]["wrong"] == []
    # Core's kernel at Autograd and the CPU's own come later, on top.
    assert report["out"]["blocked"] == [["scale", "Negative"]]
    if way == "torch.library":
        assert "'acme' registered" in finding["message"]


def test_registered_after_the_backends_were_loaded(run: Run) -> None:
    """By whomever: doctor does not say that all is well."""
    then = """
import torch
kept = torch.library.Library("muladd", "IMPL")
kept.impl("scale", lambda x, factor: x, "XPU")
out["findings"] = [str(finding) for finding in muladd.library.findings]
out["again"] = len(muladd.library.findings)
"""
    report = run(then=then)
    [finding] = report["out"]["findings"]
    assert "somebody registered scale at XPU (at " in finding
    assert report["out"]["again"] == 1


def test_definitions(site: Site, run: Run) -> None:
    """An operator that a plugin adds to the namespace at any stage."""
    way = "import torch\ndef intrude(): torch.library.define('muladd::extra', '(Tensor a) -> Tensor')\n"
    for stage in STAGES:
        code = {name: "intrude()" if name == stage else "pass" for name in STAGES}
        site.install("acme", source=PLUGIN.format(way=way, accepts=True, **code))
        status = run(site.root)["statuses"]["acme"]
        assert (status["state"], status["code"]) == ("broken", "OPWHEEL-E054")
        assert "extra (not an operator of this library)" in status["reason"]


def test_plugin_that_fails_after_it_has_registered(install: Any, site: Site, run: Run) -> None:
    source = plugin("torch.library", "module").replace(
        "intrude()\ndef probe", "intrude()\nraise OSError('no disk')\ndef probe"
    )
    install(source)
    report = run(site.root, INTRUDER="add@AutogradCPU")
    status = report["statuses"]["acme"]
    assert (status["state"], status["code"]) == ("broken", "OPWHEEL-E020")
    assert "no disk" in status["reason"]
    assert "what cannot be removed stays, and calls that reach it raise: add at AutogradCPU" in status["reason"]


def test_fallback_for_the_plugins_own_device(install: Any, site: Site, run: Run) -> None:
    """Its probe may import the device's package, which brings what PyTorch does there without a kernel."""
    install(plugin("torch.library", "probe"))
    report = run(site.root, INTRUDER="*@PrivateUse1 *@AutocastPrivateUse1")
    assert report["statuses"]["acme"]["state"] == "loaded"


def test_explain_command(install: Any, site: Site, run: Run) -> None:
    install(plugin("beside torch.library", "probe"))
    then = """
result = invoke("muladd", "explain", "add", "cpu")
out["exit"], out["text"] = result.exit_code, result.output
"""
    out = run(site.root, then=then, INTRUDER="add@CPU add@Negative")["out"]
    assert out["exit"] == 1
    assert "no kernel; a call raises: muladd::add is blocked at CPU: 'acme' (muladd-acme 1.0) registered" in out["text"]
    assert "muladd::add is blocked at Negative: 'acme'" in out["text"]


# ---- a PyTorch that lists kernels in other words ---------------------------------------------------------------------

OTHER_WORDS = {
    "nothing": ("_dispatch_dump", "lambda text: ''"),
    "places": ("_dispatch_dump", "lambda text: text.replace('registered at', 'from')"),
    "replaced kernels": ("_dispatch_dump", "lambda text: text.replace(' (inactive)', ' (replaced)')"),
    "replaced kernels left out": (
        "_dispatch_dump",
        "lambda text: ''.join(line for line in text.splitlines(True) if '(inactive)' not in line)",
    ),
    "aliases": ("_dispatch_dump", "lambda text: text.replace('[alias]', ' (an alias)')"),
    "definition": ("_dispatch_dump", "lambda text: text.replace('debug: ', 'defined: ')"),
    "fallbacks": ("_dispatch_dump_table", "lambda text: text.replace('[backend fallback]', '[fallback]')"),
    "kernels as fallbacks": ("_dispatch_dump_table", "lambda text: text.replace('[kernel]', '[backend fallback]')"),
}


@pytest.mark.parametrize("words", OTHER_WORDS)
def test_what_is_registered_cannot_be_seen(words: str, run: Run) -> None:
    """No backend's code is run: it could replace kernels without being noticed."""
    function, change = OTHER_WORDS[words]
    before = f"""
import torch
def change(original, edit):
    return lambda operator: edit(original(operator))
torch._C.{function} = change(torch._C.{function}, {change})
"""
    then = """
import sys, torch
try:
    muladd.add(torch.ones(2), torch.ones(2))
except opwheel.registry.NoKernelError as error:
    out["call"] = str(error)
out["imported"] = "muladd_cpu" in sys.modules
"""
    report = run(before=before, then=then, doctor=True)
    assert "error" not in report, report["error"]["traceback"]
    status = report["statuses"]["cpu"]
    assert (status["state"], status["code"]) == ("incompatible", "OPWHEEL-E034")
    for text in (status["reason"], report["out"]["call"], report["doctor"]["text"]):
        assert "PyTorch lists them in other words" in " ".join(text.split())
    assert "a release of PyTorch that this opwheel knows" in status["fix"]
    assert report["out"]["imported"] is False
    assert report["doctor"]["exit"] == 1


def test_what_shows_registrations_is_missing(run: Run) -> None:
    """A PyTorch without the function: no backend's code is run, and the reason names the function."""
    report = run(before="import torch\ndel torch._C._dispatch_dump_table")
    status = report["statuses"]["cpu"]
    assert (status["state"], status["code"]) == ("incompatible", "OPWHEEL-E034")
    assert (
        "has no torch._C._dispatch_dump_table, which opwheel uses for this: to see what plugins register"
        in status["reason"]
    )
