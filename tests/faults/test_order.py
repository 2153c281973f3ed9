"""Neither the order of installation nor that of imports changes who is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from .builder import Compiler, Site
from .conftest import Run

GOOD = {"KEY": "PrivateUse1"}
ON_CPU = {
    "device_type": "'cpu'",
    "dispatch_key": "'CPU'",
    "extra": "import torch\ndef register(library):\n    library.impl('scale', lambda x, f: torch.full_like(x, 42.0))\n",
    "register": "register",
    "operators": "['scale']",
}

PERMUTE = """
import itertools, sys
from pathlib import Path
from opwheel.registry import OperatorLibrary
sites, rest = sys.path[:5], sys.path[5:]
assert all("plugin" in folder for folder in sites), sites
digests, orders = set(), 0
for order in itertools.permutations(sites):
    sys.path[:] = [*order, *rest] if orders % 2 else [*rest, *order]
    library = OperatorLibrary(
        "muladd", operators=["muladd"], schema_library=muladd.library.schema_library,
        entry_point_group="muladd.backends", plugins_file=Path(muladd.__file__).parent / "plugins.toml",
        distribution="muladd-core")
    library.load_schemas()
    library.discover()
    library.discover()
    digests.add(library.digest())
    assert not library.backends(), library.backends()
    orders += 1
out["orders"], out["digests"] = orders, sorted(digests)
"""


def test_every_order_of_five_plugins(tmp_path: Path, compiler: Compiler, run: Run) -> None:
    sites = [Site(tmp_path / f"plugin{number}") for number in range(5)]
    fields = (
        {},
        {"priority": "2"},
        {"priority": "2"},
        {"operators": "['add']"},
        {"device_type": "'xpu'", "dispatch_key": "'XPU'"},
    )
    for site, name, given in zip(sites, ("eta", "beta", "alpha", "delta", "zeta"), fields, strict=True):
        site.install(name, library=compiler.library("good", GOOD), **given)
    report = run(*(site.root for site in sites), then=PERMUTE)
    assert "error" not in report, report["error"]["traceback"]
    assert report["out"]["orders"] == 120
    assert report["out"]["digests"] == [report["digest"]]
    assert report["statuses"]["alpha"]["state"] == "loaded"


def test_reversed_path_gives_the_same_kernels(tmp_path: Path, compiler: Compiler, run: Run) -> None:
    sites = [Site(tmp_path / name).root for name in ("one", "two", "three")]
    for root, name in zip(sites, ("gamma", "beta", "alpha"), strict=True):
        Site(root).install(name, library=compiler.library("good", GOOD))
    forth, back = run(*sites, device=True), run(*sites[::-1], device=True)
    assert forth["digest"] == back["digest"]
    assert forth["call"] == back["call"]
    assert forth["statuses"].keys() == back["statuses"].keys()
    assert "muladd_alpha" in forth["call"]["text"]


# ---- imports that lead to each other ---------------------------------------------------------------------------------

IMPORTS = {
    "muladd first": "import muladd; import muladd_acme",
    "plugin first": "import muladd_acme; import muladd",
    "plugin first, torch before": "import torch; import muladd_acme",
    "plugin only": "from muladd_acme import opwheel_backend",
}
PLUGINS = {
    "imports the registry": "",
    "imports muladd": "import muladd\n",
    "imports torch": "import torch\nTENSOR = torch.ones(2)\n",
    "looks at the backends": "import muladd\nif hasattr(muladd, 'backends'): muladd.library.digest()\n",
}


@pytest.mark.parametrize("order", IMPORTS)
@pytest.mark.parametrize("plugin", PLUGINS)
def test_import_order(order: str, plugin: str, site: Site, compiler: Compiler, run: Run) -> None:
    site.install("acme", library=compiler.library("good", GOOD), extra=PLUGINS[plugin])
    expected, report = run(site.root, device=True), run(site.root, before=IMPORTS[order], device=True)
    assert "error" not in report, report["error"]["traceback"]
    assert report["numbers"] == expected["numbers"]
    assert report["digest"] == expected["digest"]
    assert report["call"] == expected["call"]
    assert report["statuses"]["acme"]["state"] == "loaded"
    assert report["statuses"]["cpu"]["state"] == "loaded"
    assert report["warnings"] == []


@pytest.mark.parametrize("order", IMPORTS)
def test_winner_does_not_depend_on_who_is_imported_first(order: str, site: Site, tmp_path: Path, run: Run) -> None:
    site.install("acme", **ON_CPU)
    policy = tmp_path / "mine.toml"
    policy.write_text('[policy]\nprefer = { CPU = ["acme", "cpu"] }\n')
    scale = "import torch\nout['scale'] = muladd.scale(torch.ones(1), 2.0).tolist()"
    report = run(site.root, before=IMPORTS[order], MULADD_PLUGINS=str(policy), then=scale)
    assert report["statuses"]["acme"]["state"] == "loaded"
    assert report["statuses"]["cpu"]["state"] == "shadowed"
    assert report["out"]["scale"] == [42.0]


def test_plugin_in_a_package_that_imports_muladd(site: Site, compiler: Compiler, run: Run) -> None:
    package = site.install(
        "acme",
        library=compiler.library("good", GOOD),
        entry_points="[muladd.backends]\nacme = muladd_acme.backend\n",
    )
    (package / "__init__.py").rename(package / "backend.py")
    (package / "__init__.py").write_text("import muladd\nDEFAULT = 'npu'\n")
    (package / "backend.py").write_text("from . import DEFAULT\n" + (package / "backend.py").read_text())
    for before in ("import muladd_acme", "import muladd"):
        assert run(site.root, before=before)["statuses"]["acme"]["state"] == "loaded"


def test_plugin_that_asks_for_backends_while_it_is_imported(site: Site, compiler: Compiler, run: Run) -> None:
    extra = """
import muladd
import opwheel.registry
muladd.library.load_backends()  # once more, still without this one
try:
    muladd.require("acme")
except opwheel.registry.BackendUnavailableError as error:
    SEEN = str(error)
"""
    site.install("acme", library=compiler.library("good", GOOD), extra=extra)
    before = "import muladd_acme\nout['seen'] = muladd_acme.SEEN"
    report = run(site.root, before=before)
    assert "'acme' is not loaded yet" in report["out"]["seen"]
    assert report["statuses"]["acme"]["state"] == "loaded"


LATE = {
    "hook raises": ("import muladd_acme", "raise OSError('no driver')", "", "OPWHEEL-E021"),
    "module raises": (
        "try:\n    import muladd_acme\nexcept OSError: pass",
        "...",
        "raise OSError('no driver')",
        "OPWHEEL-E020",
    ),
}


@pytest.mark.parametrize("fault", LATE)
def test_plugin_that_fails_after_leading_here(fault: str, site: Site, run: Run) -> None:
    before, hook, module, code = LATE[fault]
    source = f"from opwheel.registry import hookimpl\n@hookimpl\ndef opwheel_backend():\n    {hook}\n{module}\n"
    site.install("acme", source=source)
    report = run(site.root, before=before, doctor=True)
    status = report["statuses"]["acme"]
    assert (status["state"], status["code"]) == ("broken", code)
    assert "numbers" in report
    [warning] = report["warnings"]
    assert "no driver" in warning["message"]
    assert report["doctor"]["exit"] == 1

    error = run(site.root, before=before, MULADD_STRICT="1")["error"]
    assert error["classes"][0] == "RegistryError"
    assert "'acme'" in error["text"]


def test_register_function_that_calls_an_operator(site: Site, run: Run) -> None:
    """In the middle of loading nothing is loaded once more: the call finds what is there."""
    extra = """
def register(library):
    import muladd, torch
    try:
        muladd.add(torch.ones(1), torch.ones(1))
    except NotImplementedError as error:
        print("no kernel yet:", error)
    library.impl("add", lambda a, b: a)
"""
    site.install(
        "acme", extra=extra, register="register", operators="['add']", device_type="'xpu'", dispatch_key="'XPU'"
    )
    for before in ("import muladd", "import muladd_acme"):
        report = run(site.root, before=before)
        assert report["statuses"]["acme"]["state"] == "loaded", report["statuses"]["acme"]
        assert "numbers" in report


def test_import_again_after_strict_failure(site: Site, compiler: Compiler, run: Run) -> None:
    """A notebook: STRICT stops the import, the user unsets it and imports again. The kernels are there already."""
    site.install("acme", source="raise OSError")
    before = """
import os
os.environ["MULADD_STRICT"] = "1"
try:
    import muladd
except RuntimeError as error:
    out["error"] = str(error)
del os.environ["MULADD_STRICT"]
"""
    report = run(site.root, before=before)
    assert "'acme'" in report["out"]["error"]
    assert report["statuses"]["cpu"]["state"] == "loaded"
    assert "numbers" in report
