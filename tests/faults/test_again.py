"""An import that fails, for whatever reason, can be repeated: it fails in the same way, or works when that is gone."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent
from typing import Any

import pytest

from .builder import Compiler, Site
from .conftest import Run

GOOD = {"KEY": "PrivateUse1"}
ONCE = """
import sys
if not hasattr(sys, "interrupted"):
    sys.interrupted = True
    raise KeyboardInterrupt
"""
PYTHON_KERNELS: dict[str, Any] = {
    "extra": "def register(library):\n    for name in ('add', 'mul'): library.impl(name, lambda a, b: a)\n",
    "register": "register",
    "operators": "['add', 'mul']",
    "priority": "1",
}

# Everything that an import registers is there, and once: what would be there twice warns, and warnings are errors here.
WORKS = """
import warnings
warnings.simplefilter("error")
import muladd, torch
from torch.utils.flop_counter import FlopCounterMode
a, b = torch.ones(2, requires_grad=True), torch.full((2,), 3.0)
muladd.mul(a, b).sum().backward()
out["gradient"] = a.grad.tolist()
out["vmap"] = torch.vmap(muladd.add)(b, b).tolist()
out["meta"] = list(muladd.mul(b.to("meta"), b.to("meta")).shape)
with torch.autocast("cpu", dtype=torch.bfloat16):
    out["autocast"] = str(muladd.mul(b, b.bfloat16()).dtype)
with FlopCounterMode(display=False) as counter:
    muladd.fma(b, b, b)
out["flops"] = counter.get_total_flops()
has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
out["npu"] = [has_kernel(f"muladd::{name}", "PrivateUse1") for name in ("add", "scale")]
"""
EXPECTED = {
    "gradient": [3.0, 3.0],
    "vmap": [6.0, 6.0],
    "meta": [2],
    "autocast": "torch.float32",
    "flops": 4,
    "npu": [True, True],
}
ATTEMPT = """
try:
    import muladd
except BaseException as error:
    out.setdefault("failures", []).append([type(error).__name__, str(error)])
    import torch
    pairs = [(name, key) for name in ("add", "scale") for key in ("CPU", "PrivateUse1")]
    out.setdefault("left", []).append([pair for pair in pairs if has_kernel(*pair)])
    del error
"""
HAS_KERNEL = """
import torch
def has_kernel(name, key):
    try:
        return torch._C._dispatch_has_kernel_for_dispatch_key(f"muladd::{name}", key)
    except RuntimeError:  # the operator is not even defined
        return False
"""


@pytest.fixture(autouse=True)
def _two_that_work(site: Site, compiler: Compiler) -> None:
    """One in Python, one in C++."""
    site.install("alpha", **PYTHON_KERNELS)
    macros = {**GOOD, "OPERATORS": '"scale"'}
    site.install("beta", library=compiler.library("only-scale", macros), operators="['scale']")


def test_without_a_failure(site: Site, run: Run) -> None:
    assert run(site.root, then=WORKS)["out"] == EXPECTED


BROKEN = {"zeta": {"source": "raise OSError('bad disk')"}}
# id -> (what makes the import fail, what puts an end to it, plugins beside the good ones)
REASONS: dict[str, tuple[str, str, dict[str, dict[str, Any]]]] = {
    "strict": ("os.environ['MULADD_STRICT'] = '1'", "del os.environ['MULADD_STRICT']", BROKEN),
    "warnings are errors": ("warnings.simplefilter('error')", "warnings.simplefilter('ignore')", BROKEN),
    "several warnings are errors": (
        "warnings.simplefilter('error'); os.environ['MULADD_FALLBCK'] = os.environ['MULADD_STRICT'] = 'x'",
        "warnings.simplefilter('ignore'); del os.environ['MULADD_FALLBCK'], os.environ['MULADD_STRICT']",
        BROKEN,
    ),
    "lock": ("os.environ['MULADD_LOCK'] = '/nowhere'", "del os.environ['MULADD_LOCK']", {}),
    "namespace is taken": (
        "block = torch.library.Library('muladd', 'DEF')",
        "block._destroy(); del block",
        {},
    ),
}


@pytest.mark.parametrize("reason", REASONS)
def test_same_failure_then_success(reason: str, site: Site, run: Run) -> None:
    begin, end, plugins = REASONS[reason]
    for name, given in plugins.items():
        site.install(name, **given)
    before = (
        f"{HAS_KERNEL}import os, warnings\n{begin}\n{ATTEMPT * 3}\n{end}\n{ATTEMPT}warnings.simplefilter('always')\n"
    )
    report = run(site.root, before=before, then=WORKS)
    assert "error" not in report, report["error"]["traceback"]
    first, *others = report["out"].pop("failures")
    assert others == [first, first]
    assert report["out"].pop("left") == [[], [], []]
    assert report["out"] == EXPECTED
    assert report["statuses"]["alpha"]["state"] == report["statuses"]["beta"]["state"] == "loaded"


# Where a plugin may be when the user presses Ctrl-C: what happens there the first time.
PLUGIN = """
import opwheel.registry as registry

class Shown(Exception):
    def __str__(self):
        {exception}
        return "text"

def probe():
    {probe}
    return registry.Probe(True)

def register(library):
    library.impl("add", lambda a, b: a)
    {register}

{module}
@registry.hookimpl
def opwheel_backend():
    {hook}
    return registry.Backend({name!r}, "xla", "XLA", register=register, probe=probe, operators=["add"])
"""
PLACES = ("module", "hook", "exception", "probe", "register")


@pytest.mark.parametrize("order", ["first", "last"])
@pytest.mark.parametrize("place", PLACES)
def test_interrupt(place: str, order: str, site: Site, run: Run) -> None:
    name = {"first": "aaa", "last": "zeta"}[order]
    steps = {**dict.fromkeys(PLACES, "pass"), place: "import once; once.interrupt()"}
    if place == "exception":
        steps["hook"] = "raise Shown"
    (site.root / "once.py").write_text(f"def interrupt():{indent(ONCE, '    ')}")
    site.install(name, source=PLUGIN.format(name=name, **steps))
    report = run(
        site.root, before=HAS_KERNEL + ATTEMPT, then=WORKS.replace('simplefilter("error")', 'simplefilter("ignore")')
    )
    assert "error" not in report, report["error"]["traceback"]
    assert report["out"].pop("failures") == [["KeyboardInterrupt", ""]]
    assert report["out"].pop("left") == [[]]
    assert report["out"] == EXPECTED
    states = {name: status["state"] for name, status in report["statuses"].items()}
    assert states["alpha"] == states["beta"] == states["cpu"] == "loaded"
    assert states[name] == ("broken" if place == "exception" else "loaded")


def test_interrupt_of_a_deferred_load(site: Site, run: Run) -> None:
    """The import of a plugin led to muladd's: backends are loaded at the first call, which is interrupted."""
    fields = {"register": "lambda library: library.impl('fma', lambda a, b, c: a)", "operators": "['fma']"}
    probe = f"def probe():{indent(ONCE, '    ')}    return Probe(True)\n"
    site.install("gamma", extra="import muladd", dispatch_key="'XLA'", device_type="'xla'", **fields)
    site.install("delta", extra=probe, probe="probe", dispatch_key="'XPU'", device_type="'xpu'", **fields)
    before = """
import muladd_gamma, muladd, torch
for _ in range(2):
    try:
        out.setdefault("results", []).append(muladd.add(torch.ones(1), torch.ones(1)).tolist())
    except KeyboardInterrupt:
        out.setdefault("results", []).append("interrupted")
"""
    report = run(site.root, before=before)
    assert report["out"]["results"] == ["interrupted", [2.0]]
    assert {report["statuses"][name]["state"] for name in ("alpha", "beta", "gamma", "delta", "cpu")} == {"loaded"}


def test_text_of_the_shipped_file_counts_where_its_compiled_form_is_damaged(tmp_path: Path, run: Run) -> None:
    then = f"""
import shutil
from pathlib import Path
shipped, copy = Path(muladd.__file__).parent / "plugins.toml", Path({str(tmp_path)!r}) / "plugins.toml"
shutil.copy(shipped, copy)
copy.with_suffix(".json").write_bytes(b"{{")
library = opwheel.registry.OperatorLibrary(
    "muladd", operators=[], schema_library=muladd.library.schema_library, entry_point_group="none", plugins_file=copy,
    distribution="muladd-core")
out["backends"] = sorted(library.policy.backends) == sorted(muladd.library.policy.backends)
"""
    assert run(then=then)["out"]["backends"]
