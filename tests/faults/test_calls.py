"""What a call, require() and load() say when there is no backend."""

from __future__ import annotations

from typing import Any

import pytest

from .builder import Compiler, Site
from .conftest import Run

GOOD = {"KEY": "PrivateUse1"}
CALL = """
import torch
try:
    out["result"] = muladd.add(torch.ones(2), torch.ones(2)).tolist()
except Exception as error:
    out["error"] = str(error)
    out["classes"] = [kind.__name__ for kind in type(error).__mro__]
    out["cause"] = repr(error.__cause__)
"""

# A distribution of the CPU backend's name that comes before the real one on the path: id -> (installed, reason, cause)
CPU: dict[str, tuple[dict[str, Any], str, str]] = {
    "broken": (
        {"source": "raise OSError('bad disk')"},
        "is broken: importing muladd_cpu failed",
        "OSError('bad disk')",
    ),
    "incompatible": ({"abi": 9}, "is incompatible: libkernels.so was built for ABI 9, this core has ABI 1", "None"),
    "unsupported": (
        {"extra": "def probe(): return Probe(False, 'no AVX', 'buy one')", "probe": "probe"},
        "is unsupported: no AVX [OPWHEEL-E040]; to fix it: buy one",
        "None",
    ),
}


@pytest.mark.parametrize("state", CPU)
def test_call_without_the_backend_of_the_device(state: str, site: Site, compiler: Compiler, run: Run) -> None:
    installed, reason, cause = CPU[state]
    given = {"device_type": "'cpu'", "dispatch_key": "'CPU'", **installed}
    site.install("cpu", library=compiler.library("good", GOOD), **given)
    out = run(site.root, then=CALL)["out"]
    assert out["classes"][:3] == ["NoKernelError", "RegistryError", "NotImplementedError"]
    for part in (
        "muladd::add has no kernel for cpu tensors",
        reason,
        "muladd-cpu 1.0",
        "`muladd doctor`",
        "OPWHEEL-E001",
    ):
        assert part in out["error"]
    assert out["cause"] == cause


@pytest.mark.parametrize("state", CPU)
def test_reference_computes_and_warns_once(state: str, site: Site, compiler: Compiler, run: Run) -> None:
    installed, _, _ = CPU[state]
    given = {"device_type": "'cpu'", "dispatch_key": "'CPU'", **installed}
    site.install("cpu", library=compiler.library("good", GOOD), **given)
    report = run(site.root, then=CALL + CALL, MULADD_FALLBACK="reference")
    assert report["out"]["result"] == [2.0, 2.0]
    assert len([w for w in report["warnings"] if "with ATen" in w["message"]]) == 1


def test_device_of_a_backend_that_nobody_installed(run: Run) -> None:
    report = run(device=True, then="out['choice'] = muladd.library.explain('add', 'npu')._asdict() | {'winner': None}")
    assert report["call"]["classes"][0] == "NoKernelError"
    assert "no installed backend is for this device" in report["call"]["text"]
    assert report["out"]["choice"]["dispatch_key"] == ""


def test_sparse_tensors_are_told_apart_from_missing_backends(run: Run) -> None:
    sparse = CALL.replace("torch.ones(2), torch.ones(2)", "torch.ones(2).to_sparse(), torch.ones(2).to_sparse()")
    then = """
out['layout'] = str(muladd.library.no_kernel_error('add', 'cpu', 'torch.sparse_coo'))
out['special'] = str(muladd.library.no_kernel_error('add', 'cpu'))
"""
    out = run(then=sparse + then)["out"]
    assert "convert them with .to_dense()" in out["error"]
    assert "of layout torch.sparse_coo; convert them with .to_dense()" in out["layout"]
    assert "only plain dense tensors are supported" in out["special"]


def test_require(site: Site, compiler: Compiler, run: Run, tmp_path: Any) -> None:
    site.install("acme", library=compiler.library("good", GOOD), abi=3)
    policy = tmp_path / "mine.toml"
    policy.write_text('[backends.npu]\ndistribution = "muladd-npu"\ndispatch-key = "XLA"\ndevice = "xla"\n')
    report = run(
        site.root,
        MULADD_PLUGINS=str(policy),
        then="""
muladd.require("cpu")
muladd.require()
for name in ("acme", "npu", "nobody"):
    for function in (muladd.require, muladd.load):
        try:
            function(name)
        except opwheel.registry.BackendUnavailableError as error:
            out.setdefault(name, []).append(str(error))
""",
    )
    out = report["out"]
    assert all(
        "'acme' (muladd-acme 1.0) is incompatible: libkernels.so was built for ABI 3" in text for text in out["acme"]
    )
    assert all("'npu' is not installed: pip install muladd-npu" in text for text in out["npu"])
    assert all("no backend 'nobody' is installed; installed are: acme, cpu" in text for text in out["nobody"])
    assert all("(OPWHEEL-E002)" in text for texts in out.values() for text in texts)
    assert all(len(texts) == 2 for texts in out.values())


def test_no_backend_at_all(run: Run) -> None:
    then = """
import os
os.environ["MULADD_BACKENDS"] = ""
from pathlib import Path
from opwheel.registry import OperatorLibrary, BackendUnavailableError
bare = OperatorLibrary(
    "muladd", operators=[], schema_library=muladd.library.schema_library,
    entry_point_group="no.such.group", plugins_file=Path(muladd.__file__).parent / "plugins.toml",
    distribution="muladd-core")
bare.load_schemas()
bare.load_backends()
out["backends"] = list(bare.backends())
try:
    bare.require("acme")
except BackendUnavailableError as error:
    out["error"] = str(error)
out["call"] = str(bare.no_kernel_error("add", "cpu"))
"""
    out = run(then=then)["out"]
    assert out["backends"] == []
    assert "installed are: none" in out["error"]
    assert "the backend 'cpu' is not found, though there is" in out["call"]  # its entry point is of another group
    assert "; its entry point is missing in" in out["call"]
    assert "or install it again: pip install muladd-cpu; `muladd doctor`" in out["call"]


def test_load_after_the_user_has_repaired_it(site: Site, compiler: Compiler, run: Run) -> None:
    """Each step of loading can be tried again in the same process."""
    package = site.install("acme", source="raise OSError('not yet')")
    good = compiler.library("good", GOOD)
    then = f"""
import shutil, sys
from pathlib import Path
package = Path({str(package)!r})
def attempt(step):
    try:
        out[step] = muladd.load("acme").state
    except opwheel.registry.BackendUnavailableError as error:
        out[step] = str(error)
def module(text):
    (package / "__init__.py").write_text(text)
    for folder in package.glob("__pycache__"): shutil.rmtree(folder)
    sys.modules.pop("muladd_acme", None)
attempt("module")
hook = "from opwheel.registry import Backend, hookimpl\\nfrom pathlib import Path\\n"
hook += "@hookimpl\\ndef opwheel_backend():\\n    "
module(hook + "raise OSError('nor yet')")
attempt("hook")
module(hook + "return Backend('acme', 'npu', 'PrivateUse1', [Path(__file__).parent / 'libkernels.so'])")
attempt("library")
shutil.copy({str(good)!r}, package / "libkernels.so")
attempt("repaired")
out["explained"] = muladd.library.explain("add", "npu").winner.name
"""
    out = run(site.root, then=then)["out"]
    assert "not yet" in out["module"]
    assert "nor yet" in out["hook"]
    assert "libkernels.so" in out["library"]
    assert out["repaired"] == "loaded"
    assert out["explained"] == "acme"


def test_load_against_the_order(site: Site, compiler: Compiler, run: Run) -> None:
    for name in ("alpha", "beta"):
        site.install(name, library=compiler.library("good", GOOD))
    then = """
out["first"] = muladd.load("beta").state
try:
    muladd.load("alpha")
except opwheel.registry.BackendUnavailableError as error:
    out["second"] = str(error)
"""
    out = run(site.root, MULADD_AUTOLOAD="0", then=then)["out"]
    assert out["first"] == "loaded"
    assert "'beta' owns PrivateUse1: it was loaded before" in out["second"]


# ---- the schema library ----------------------------------------------------------------------------------------------

SCHEMAS = {
    "missing": ("lambda so: None", "cannot open its schema library"),
    "truncated": ("lambda so: so[: len(so) // 3]", "truncated"),
    "another library": (None, "is not the schema library of muladd-core"),
    "second copy": ("lambda so: so", "the operator namespace 'muladd' is already defined in this process"),
}


@pytest.mark.parametrize("fault", SCHEMAS)
def test_schema_library(fault: str, site: Site, compiler: Compiler, run: Run) -> None:
    change, message = SCHEMAS[fault]
    path = site.root / "libmuladd_schema.so"
    if change is None:
        path.write_bytes(compiler.library("nothing", {}).read_bytes())
    namespace = "'muladd'" if fault == "second copy" else "'other'"
    then = f"""
from pathlib import Path
from opwheel.registry import OperatorLibrary
path = Path({str(path)!r})
changed = ({change})(muladd.library.schema_library.read_bytes()) if {change is not None} else None
if changed is not None: path.write_bytes(changed)
try:
    OperatorLibrary(
        {namespace}, operators=["muladd"], schema_library=path, entry_point_group="no.such.group",
        plugins_file=Path(muladd.__file__).parent / "plugins.toml", distribution="muladd-core").load_schemas()
except ImportError as error:
    out["error"] = str(error)
"""
    report = run(then=then)
    assert message in report["out"]["error"]
    assert str(path) in report["out"]["error"] or fault == "second copy"


@pytest.mark.parametrize(
    "define",
    [
        "torch.library.define('muladd::fma.out', '(Tensor a) -> Tensor')",
        "block = torch.library.Library('muladd', 'DEF')",
    ],
    ids=["an operator", "the namespace"],
)
def test_somebody_else_defined(define: str, run: Run) -> None:
    """PyTorch would end the process when the schema library defines it again."""
    report = run(before=f"import torch\n{define}")
    assert report["error"]["type"] == "ImportError"
    assert "the operator namespace 'muladd' is already defined in this process" in report["error"]["text"]
