"""A thread imports a plugin while another imports muladd and calls its operators: nothing hangs, nothing is missing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .builder import Compiler, Site
from .conftest import Run
from .test_faults import NUMBERS

# A thread is in the middle of importing the plugin from here on, until gate.open is set.
START = """
import sys, threading, time, types
gate = sys.modules["gate"] = types.ModuleType("gate")
gate.entered, gate.open = threading.Event(), threading.Event()
thread = threading.Thread(target=__import__, args=["muladd_acme"], daemon=True)
thread.start()
gate.entered.wait(60)
"""
# Some time after muladd has been imported.
OPEN_LATER = """
def open_later():
    while not hasattr(sys.modules.get("muladd"), "require"):
        time.sleep(0.01)
    time.sleep(0.3)
    gate.open.set()
threading.Thread(target=open_later, daemon=True).start()
"""
GATE = "import gate\ngate.entered.set()\ngate.open.wait(60)\n"
STYLES = {
    "before all else": (GATE, ""),
    "after the registry": ("", GATE),
    "after muladd": ("import muladd\n", GATE),
    "before muladd": (GATE + "import muladd\n", ""),
    "before it calls an operator": (GATE, "import muladd, torch\nmuladd.backends()\n"),
}


@pytest.fixture
def install(site: Site, compiler: Compiler) -> Callable[..., None]:
    def start(style: str, *, in_package: bool = False) -> None:
        head, tail = STYLES[style]
        package = site.install(
            "acme",
            library=compiler.library("good", {"KEY": "PrivateUse1"}),
            entry_points=f"[muladd.backends]\nacme = muladd_acme{'.backend' if in_package else ''}\n",
        )
        module = package / "__init__.py"
        text = module.read_text()
        if in_package:
            (package / "backend.py").write_text(text)
            text = ""
        module.write_text(head + text + tail)

    return start


@pytest.mark.parametrize("in_package", [False, True], ids=["module", "package"])
@pytest.mark.parametrize("style", STYLES)
def test_calls_wait_for_the_import_of_a_plugin(
    style: str, in_package: bool, install: Callable[..., None], site: Site, run: Run
) -> None:
    install(style, in_package=in_package)
    expected = run(site.root, before=START.partition("thread =")[0] + "gate.open.set()\nimport muladd_acme")
    report = run(site.root, before=START + OPEN_LATER)
    assert "error" not in report, report["error"]["traceback"]
    assert report["numbers"] == NUMBERS
    assert report["digest"] == expected["digest"]
    assert {name: status["state"] for name, status in report["statuses"].items() if status["state"] == "loaded"} == {
        "acme": "loaded",
        "cpu": "loaded",
    }
    assert report["warnings"] == []


@pytest.mark.parametrize("style", STYLES)
def test_import_that_takes_too_long_is_not_waited_for(
    style: str, install: Callable[..., None], site: Site, run: Run
) -> None:
    install(style)
    then = """
try:
    muladd.require("acme")
except opwheel.registry.BackendUnavailableError as error:
    out["early"] = str(error)
gate.open.set()
thread.join(60)
out["late"] = muladd.backends()["acme"].state
"""
    then = "import sys\ngate = sys.modules['gate']\nthread = gate.thread\n" + then
    report = run(site.root, before=START + "gate.thread = thread\n", then=then, MULADD_PROBE_TIMEOUT="0.3")
    assert "error" not in report, report["error"]["traceback"]
    assert report["numbers"] == NUMBERS
    assert report["statuses"]["cpu"]["state"] == "loaded"
    assert "'acme' is not loaded yet" in report["out"]["early"]
    assert report["out"]["late"] == "loaded"


def test_plugin_that_waits_for_a_thread_which_calls_an_operator(site: Site, compiler: Compiler, run: Run) -> None:
    extra = """
import threading, torch
import muladd
RESULTS = []
thread = threading.Thread(target=lambda: RESULTS.append(muladd.add(torch.ones(2), torch.ones(2)).tolist()))
thread.start()
thread.join()
"""
    site.install("acme", library=compiler.library("good", {"KEY": "PrivateUse1"}), extra=extra)
    before = "import muladd_acme\nout['results'] = muladd_acme.RESULTS"
    report = run(site.root, before=before, MULADD_PROBE_TIMEOUT="0.3")
    assert "error" not in report, report["error"]["traceback"]
    assert report["out"]["results"] == [[2.0, 2.0]]
    assert report["statuses"]["acme"]["state"] == "loaded"


def test_several_threads_wait(install: Callable[..., None], site: Site, run: Run) -> None:
    install("after muladd")
    then = """
import threading, torch
results = []
def work(): results.append(muladd.add(torch.ones(2), torch.ones(2)).tolist())
threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
out["results"] = results
"""
    before = START + OPEN_LATER + "import muladd\nscope = {'muladd': muladd, 'out': out}\n"
    report = run(site.root, before=before + f"exec({then!r}, scope)")
    assert report["out"]["results"] == [[2.0, 2.0]] * 8


def test_import_by_a_thread_that_waits_for_this_one(site: Site, compiler: Compiler, run: Run) -> None:
    """A plugin of two starts importing the other one, which then waits for the import of muladd that is under way."""
    start = """
import importlib._bootstrap, sys, threading, time
gate = sys.modules["gate"]
gate.thread = threading.Thread(target=__import__, args=["muladd_acme"], daemon=True)
gate.thread.start()
while not importlib._bootstrap._blocking_on.get(gate.thread.ident):
    time.sleep(0.001)
"""
    good = compiler.library("good", {"KEY": "PrivateUse1"})
    site.install("aaa", library=good, extra=start, priority="-1")
    package = site.install("acme", library=good)
    module = package / "__init__.py"
    module.write_text("import muladd\n" + module.read_text())
    before = "import sys, types\ngate = sys.modules['gate'] = types.ModuleType('gate')\n"
    report = run(site.root, before=before, then="import sys; sys.modules['gate'].thread.join(60)")
    assert "error" not in report, report["error"]["traceback"]
    assert report["numbers"] == NUMBERS
    states = {name: status["state"] for name, status in report["statuses"].items()}
    assert (states["acme"], states["aaa"], states["cpu"]) == ("loaded", "shadowed", "loaded")
