"""A core whose schemas have changed since a backend was built: the backend lacks the operators that changed, no others.

The backend is compiled once, by grown/kernels.cpp; what the core has is drawn for each case.
"""

from __future__ import annotations

import itertools
import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.forked_python import server

from .builder import Compiler
from .conftest import clean_environment, search_path

GROWN = Path(__file__).parent / "grown"
BEFORE = dict(re.findall(r'KERNEL\((\w+), "(.+?)"\)', (GROWN / "operators.h").read_text()))
VALUES = {"twice": [2, 4], "times": [3, 6], "both": [[1, 2], [-1, -2]], "pick": [-1, -2], "fill": [5, 2]}

CORE = """
import os
import opwheel
from opwheel import Operator

names = [line.partition("(")[0] for line in os.environ["SCHEMAS"].splitlines()]
operators = [Operator(name, reference=lambda x, *_, **__: x * 10, derivatives=None) for name in names]
library = opwheel.open_library(__name__, operators, distribution="waves-grown-core", version="2.0")
library.load_backends()
"""
BACKEND = """
from pathlib import Path
from opwheel import Backend, hookimpl

@hookimpl
def opwheel_backend():
    return Backend(name="cpu", device_type="cpu", dispatch_key="CPU", {fields})
"""
LIBRARIES = 'libraries=[Path(__file__).parent / "libwaves_grown_cpu.so"]'

# What a kernel cannot be called with any more.
GROWN_BY: dict[str, Callable[[str], str]] = {
    "one more argument": lambda text: text.replace(") ->", ", float extra=0.5) ->"),
    "another name": lambda text: text.replace(" x", " input", 1),
    "another type": lambda text: text.replace("Tensor x", "Tensor? x").replace("float[2]", "int[2]"),
    "one fewer": lambda text: re.sub(r", [^,(]+\) ->", ") ->", text),
    "written": lambda text: text.replace("Tensor x", "Tensor(b!) x"),
    "more results": lambda text: text.replace("-> (", "-> (Tensor, ").replace("-> Tensor", "-> (Tensor, Tensor)")
    .replace("Tensor, )", "Tensor)"),
}  # fmt: skip
# What makes no difference to it.
THE_SAME: dict[str, Callable[[str], str]] = {
    "as it was": lambda text: text,
    "spaces": lambda text: text.replace(", ", ",  "),
    "another default": lambda text: text.replace("float k", "float k=7").replace("negate=False", "negate=True"),
    "keyword-only": lambda text: text.replace(", float k", ", *, float k").replace("*, bool", "bool"),
    "names of results": lambda text: re.sub(r"-> \(Tensor, Tensor\)", "-> (Tensor sum, Tensor rest)", text),
    "SymInt": lambda text: text.replace("int? n", "SymInt? n").replace("float[2]", "float[]"),
}


class Installed:
    """The library and its backend of before, as packages in a folder."""

    def __init__(self, root: Path, compiler: Compiler) -> None:
        self.root = root
        self.compiler = compiler
        core = root / "waves_grown"
        core.mkdir(parents=True)
        (core / "__init__.py").write_text(CORE)
        (core / "plugins.toml").write_text("")
        (core / "libwaves_grown_schema.so").write_bytes(self.built("schema").read_bytes())
        self.backend("cpu")

    def built(self, name: str) -> Path:
        return self.compiler.library(f"grown_{name}", source=GROWN / f"{name}.cpp")

    def backend(self, name: str, fields: str = LIBRARIES, extra: str = "") -> None:
        """Install another one; the one in C++ where no fields are given."""
        package, info = self.root / f"waves_grown_{name}", self.root / f"waves_grown_{name}-1.0.dist-info"
        for folder in (package, info):
            folder.mkdir(exist_ok=True)
        text = BACKEND.format(fields=fields).replace('name="cpu"', f'name="{name}"')
        (package / "__init__.py").write_text(extra + text)
        (package / "libwaves_grown_cpu.so").write_bytes(self.built("kernels").read_bytes())
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: waves-grown-{name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[waves_grown.backends]\n{name} = waves_grown_{name}\n")

    def start(self, schemas: dict[str, str], *arguments: str | Path, **variables: str) -> Any:
        environment = {"PYTHONPATH": search_path([self.root]), "SCHEMAS": "\n".join(schemas.values()), **variables}
        return server().run(*(arguments or [GROWN / "program.py"]), environment=clean_environment(environment))

    def run(self, schemas: dict[str, str], **variables: str) -> dict[str, Any]:
        """What grown/program.py reports where the core has these schemas."""
        done = self.start(schemas, **variables)
        assert done.returncode == 0, done.stderr
        report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return report


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Compiler:
    return Compiler(tmp_path_factory.mktemp("grown"))


@pytest.fixture
def installed(tmp_path: Path, compiler: Compiler) -> Installed:
    return Installed(tmp_path / "site", compiler)


CHANGES = [(kind, name) for kind in GROWN_BY for name in BEFORE if GROWN_BY[kind](BEFORE[name]) != BEFORE[name]]


def grown(*names: str, by: str = "one more argument") -> dict[str, str]:
    return {name: GROWN_BY[by](text) if name in names else text for name, text in BEFORE.items()}


SUBSETS = [names for size in range(len(BEFORE) + 1) for names in itertools.combinations(BEFORE, size)]


@pytest.mark.parametrize("changed", SUBSETS, ids=lambda names: "-".join(names) or "none")
def test_every_subset(changed: tuple[str, ...], installed: Installed) -> None:
    draw = random.Random(str(changed))
    schemas = {}
    for name, text in BEFORE.items():
        by = GROWN_BY[draw.choice([kind for kind, changes in CHANGES if changes == name])]
        as_before = THE_SAME[draw.choice(list(THE_SAME))]
        schemas[name] = (by if name in changed else as_before)(text)
    report = installed.run(schemas)
    status = report["statuses"]["cpu"]
    unchanged = sorted(set(BEFORE) - set(changed))
    state = "loaded" if unchanged else "incompatible"
    assert (status["state"], status["code"]) == (state, "OPWHEEL-E032" if changed else ""), schemas
    assert status["operators"] == unchanged
    assert {name: winner for name, winner in report["winners"].items() if winner} == dict.fromkeys(unchanged, "cpu")
    for name in unchanged:
        assert report["results"][name] == VALUES[name], schemas[name]
    for name in changed:
        both = f"was built for {BEFORE[name]!r}, this core has {schemas[name]!r}"
        assert both in status["reason"]
        assert both in report["errors"][name]
        assert isinstance(report["results"][name], str), schemas[name]  # an error
    assert bool(report["warnings"]) == bool(changed)


@pytest.mark.parametrize(("kind", "name"), CHANGES)
def test_every_change(kind: str, name: str, installed: Installed) -> None:
    status = installed.run(grown(name, by=kind))["statuses"]["cpu"]
    assert (status["state"], status["code"], status["missing"]) == ("loaded", "OPWHEEL-E032", [name])


def test_a_call_names_the_wheel_to_update(installed: Installed) -> None:
    report = installed.run(grown("times"))
    assert report["results"]["times"].startswith(
        "NoKernelError: waves_grown::times has no kernel for cpu tensors: the backend 'cpu' (waves-grown-cpu 1.0) "
        "cannot compute it: libwaves_grown_cpu.so was built for 'times(Tensor x, float k) -> Tensor', this core has "
        "'times(Tensor x, float k, float extra=0.5) -> Tensor'; to fix it: pip install --upgrade waves-grown-cpu; "
    )
    [warning] = report["warnings"]
    assert "the backend 'cpu' (waves-grown-cpu 1.0) is loaded: libwaves_grown_cpu.so was built for 'times(" in warning
    assert "pip install --upgrade waves-grown-cpu; its author builds it again, with this core" in warning


def test_doctor(installed: Installed) -> None:
    done = installed.start(grown("times"), "-m", "opwheel", "--library", "waves_grown", "doctor")
    assert done.returncode == 1
    assert "was built for 'times(Tensor x, float k) -> Tensor', this core has 'times(" in done.stdout
    assert "[OPWHEEL-E032]\n  fix: pip install --upgrade waves-grown-cpu" in done.stdout
    [row] = [line.split() for line in done.stdout.splitlines() if line.startswith("cpu ")]
    assert (row[1], row[5]) == ("loaded", "4")


def test_strict_refuses_it(installed: Installed) -> None:
    done = installed.start(grown("times"), WAVES_GROWN_STRICT="1")
    assert done.returncode == 1
    assert "RegistryError: OPWHEEL-E032" in done.stderr or "[OPWHEEL-E032]" in done.stderr


def test_the_reference_takes_its_place(installed: Installed) -> None:
    report = installed.run(grown("times"), WAVES_GROWN_FALLBACK="reference")
    assert report["results"] == {**VALUES, "times": [10, 20]}


def test_another_backend_has_what_changed(installed: Installed) -> None:
    extra = "def register(target):\n    target.impl('times', lambda x, k, extra=0.5: x * k + extra)\n"
    installed.backend("new", "register=register, operators=['times']", extra)
    report = installed.run(grown("times"))
    assert report["results"] == {**VALUES, "times": [3.5, 6.5]}
    assert report["winners"]["times"] == "new"


def test_what_a_function_registers_is_left_out(installed: Installed) -> None:
    """Of a backend with a library that was built for another schema, the function is one of before, too."""
    extra = "def register(target):\n    for name in ('times', 'more'): target.impl(name, lambda *_: 1 / 0)\n"
    installed.backend("cpu", f"{LIBRARIES}, register=register", extra)
    schemas = {**grown("times"), "more": "more(Tensor x) -> Tensor"}
    status = installed.run(schemas)["statuses"]["cpu"]
    assert (status["state"], status["missing"]) == ("loaded", ["times"])
    assert "more" in status["operators"]


def test_what_is_missing_besides(installed: Installed) -> None:
    schemas = {**grown("times"), "more": "more(Tensor x) -> Tensor"}
    status = installed.run(schemas)["statuses"]["cpu"]
    assert (status["state"], status["code"], status["missing"]) == ("loaded", "OPWHEEL-E032", ["more", "times"])
    assert status["reason"].startswith("no kernel for more; libwaves_grown_cpu.so was built for")


def test_an_operator_that_is_gone(installed: Installed) -> None:
    schemas = {name: text for name, text in BEFORE.items() if name != "times"}
    status = installed.run(schemas)["statuses"]["cpu"]
    assert (status["state"], status["code"], status["missing"]) == ("loaded", "", [])


OWN = """
#include "opwheel/kernels.h"
#include "operators.h"
OPWHEEL_DECLARE_KERNELS(waves_grown, WAVES_GROWN_KERNELS)
STABLE_TORCH_LIBRARY_IMPL(waves_grown, CPU, m) {
  for (const char* name : {"twice", "times", "both", "pick", "fill"}) m.impl(name, [](StableIValue*, auto, auto) {});
}
"""


def test_a_library_that_does_not_ask(installed: Installed, tmp_path: Path) -> None:
    """It registers kernels by PyTorch's own macro, whatever the schemas are: none of it is used."""
    source = tmp_path / "own.cpp"
    source.write_text(OWN.replace('"operators.h"', f'"{GROWN}/operators.h"'))
    library = installed.compiler.library("own", source=source)
    (installed.root / "waves_grown_cpu/libwaves_grown_cpu.so").write_bytes(library.read_bytes())
    status = installed.run(grown("times"))["statuses"]["cpu"]
    assert (status["state"], status["code"]) == ("broken", "OPWHEEL-E054")
    assert "kernels for other schemas than those of this core: times at CPU" in status["reason"]
