"""Several backends at one dispatch key: each operator goes to the first by preference that claims it."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.portions import first_of

from .builder import Compiler, Site
from .conftest import Run

OPERATORS = ("add", "mul", "scale")

# A plugin that is what the variable CASE says, which has for its name: what it claims, whether it has a library, and
# what goes wrong with it. Its kernels say which file they are in.
PLUGIN = """
import json, os
from pathlib import Path
from opwheel.registry import Backend, hookimpl

HERE = Path(__file__).parent
NAME = HERE.name.removeprefix("muladd_")
CASE = json.loads(os.environ["CASE"])[NAME]
FILES = json.loads(os.environ["FILES"])

def register(target):
    for name in CASE["claims"]:
        if not (CASE["fault"] == "gap" and name == "scale"):
            target.impl(name, kernel)
    if CASE["fault"] == "fails":
        raise OSError("no device")

def kernel(*_):
    raise RuntimeError(f"called the kernel of {__file__}")

@hookimpl
def opwheel_backend():
    fields = dict(name=NAME, device_type="cpu", dispatch_key="CPU", operators=CASE["claims"])
    if not CASE["has_library"]:
        return Backend(**fields, register=register)
    file = HERE / "missing.so" if CASE["fault"] == "fails" else HERE / FILES["+".join(CASE["claims"])]
    return Backend(**fields, libraries=[file])
"""

# Runs in the child, before muladd is imported: imports it once for each case, in a process of its own.
TRY = """
import json, os, re, sys, traceback
from pathlib import Path

cases, folder, policy = json.loads(Path(CASES).read_text()), Path(FOLDER), Path(FOLDER, "mine.toml")
os.environ["MULADD_PLUGINS"] = str(policy)
out["results"] = []

def look(case):
    import torch

    import muladd

    x = torch.ones(2)
    calls = {"add": lambda: muladd.add(x, x), "mul": lambda: muladd.mul(x, x), "scale": lambda: muladd.scale(x, 2.0)}
    served = {}
    for name, call in calls.items():
        try:
            call()
        except Exception as error:
            found = re.search(r"called the kernel of .*/muladd_(.*)/", str(error))
            served[name] = found[1] if found else None
    statuses = {name: status.as_json() for name, status in muladd.backends().items() if name in case["backends"]}
    choices = {name: muladd.library.explain(name, "cpu").winner for name in calls}
    return {
        "served": served,
        "states": {name: status["state"] for name, status in statuses.items()},
        "operators": {name: status["operators"] for name, status in statuses.items()},
        "others": {name: status["served_by_others"] for name, status in statuses.items()},
        "explained": {name: winner.name if winner else None for name, winner in choices.items()},
        "digest": muladd.library.digest(),
    }

for case in cases:
    os.environ["MULADD_BACKENDS"] = ",".join(case["backends"])
    os.environ["CASE"] = json.dumps(case["backends"])
    policy.write_text(f"[policy]\\nprefer = {{ CPU = {json.dumps(case['prefer'])} }}\\n")
    child = os.fork()
    if child == 0:
        try:
            sys.path[:0] = [str(folder / name) for name in case["installed"]]
            answer = look(case)
        except BaseException:
            answer = {"error": traceback.format_exc()}
        (folder / "answer.json").write_text(json.dumps(answer))
        os._exit(0)
    os.waitpid(child, 0)
    out["results"].append(json.loads((folder / "answer.json").read_text()))
"""

Case = dict[str, Any]


def expected(case: Case) -> dict[str, Any]:
    """The rule: by preference, each takes what is left of its claim; one with a library takes all of it, or nothing."""
    owner: dict[str, str] = {}
    states, others = {}, {}
    for name in case["prefer"]:
        backend = case["backends"][name]
        free = [operator for operator in backend["claims"] if operator not in owner]
        if backend["has_library"] and free != backend["claims"]:
            free = []
        kernels = [] if backend["fault"] == "fails" else free
        if backend["fault"] == "gap" and not backend["has_library"]:
            kernels = [operator for operator in free if operator != "scale"]
        states[name] = "loaded" if kernels else "broken" if free else "shadowed"
        found = {operator: owner[operator] for operator in backend["claims"] if operator in owner}
        others[name] = {} if states[name] == "broken" else found
        owner.update(dict.fromkeys(kernels, name))
    served = {operator: owner.get(operator) for operator in OPERATORS}
    return {
        "served": served,
        "states": states,
        "operators": {name: [o for o in OPERATORS if owner.get(o) == name] for name in case["prefer"]},
        "others": others,
        "explained": served,
    }


def claims(*operators: str) -> list[list[str]]:
    """Every choice of these operators but none."""
    sizes = range(1, len(operators) + 1)
    return [list(chosen) for size in sizes for chosen in itertools.combinations(operators, size)]


def two_backends() -> Iterator[Case]:
    """All claims of two, in Python and with a library, in each order of preference and of installation."""
    some = claims("add", "mul")
    orders = list(itertools.permutations(("alpha", "beta")))
    for one, other, *has_library, prefer, installed in itertools.product(
        some, some, (False, True), (False, True), orders, orders
    ):
        given = zip(("alpha", "beta"), (one, other), has_library, strict=True)
        backends = {name: {"claims": c, "has_library": h, "fault": ""} for name, c, h in given}
        yield {"backends": backends, "prefer": prefer, "installed": installed}


def three_backends(count: int) -> Iterator[Case]:
    """As many, drawn at random, some of which cannot be loaded, or lack a kernel."""
    draw = random.Random(0)
    names = ["alpha", "beta", "gamma"]
    for _ in range(count):
        backends = {
            name: {
                "claims": draw.choice(claims(*OPERATORS)),
                "has_library": draw.random() < 0.4,
                "fault": draw.choice(["", "", "", "fails", "gap"]),
            }
            for name in names
        }
        yield {"backends": backends, "prefer": draw.sample(names, 3), "installed": draw.sample(names, 3)}


@pytest.fixture
def results(tmp_path: Path, compiler: Compiler, run: Run, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Any]]:
    """What each case comes to."""

    def start(cases: Iterable[Case]) -> list[Any]:
        files, libraries = {}, {}
        for chosen in claims(*OPERATORS):
            name = "-".join(chosen)
            quoted = ",".join(f'"{operator}"' for operator in chosen)
            files["+".join(chosen)] = f"lib{name}.so"
            built = compiler.library(f"cpu-{name}", {"KEY": "CPU", "OPERATORS": quoted})
            libraries[f"lib{name}.so"] = built.read_bytes()
        for name in ("alpha", "beta", "gamma"):
            Site(tmp_path / name).install(name, source=PLUGIN, files=libraries)
        (tmp_path / "cases.json").write_text(json.dumps(list(cases)))
        before = f"CASES, FOLDER = {str(tmp_path / 'cases.json')!r}, {str(tmp_path)!r}\n{TRY}"
        report = run(before=before, FILES=json.dumps(files), MULADD_BACKENDS="cpu", timeout=600)
        found: list[Any] = report["out"]["results"]
        return found

    return start


@pytest.mark.parametrize("generate", first_of([two_backends, lambda: three_backends(120)]), ids=["two", "three"])
def test_every_operator_goes_to_the_first_that_claims_it(
    generate: Callable[[], Iterator[Case]], results: Callable[..., list[Any]]
) -> None:
    cases = list(generate())
    found = results(cases)
    digests: dict[str, set[str]] = {}
    for case, result in zip(cases, found, strict=True):
        assert "error" not in result, result["error"]
        digest = result.pop("digest")
        assert result == expected(case), case
        if not any(backend["fault"] for backend in case["backends"].values()):
            digests.setdefault(digest, set()).add(json.dumps(result["served"]))
    # Equal digests, equal choice.
    assert all(len(choices) == 1 for choices in digests.values())


# ---- what people are told --------------------------------------------------------------------------------------------

IN_PYTHON = """
def register(target):
    for name in {registered}:
        target.impl(name, lambda *_: {body})
"""


def in_python(
    site: Site,
    name: str,
    claimed: Iterable[str],
    registered: Iterable[str] | None = None,
    body: str = "0",
    **fields: str,
) -> None:
    """Install a backend in Python for the device npu."""
    operators = list(claimed)
    extra = IN_PYTHON.format(registered=operators if registered is None else list(registered), body=body)
    site.install(name, extra=extra, register="register", operators=str(operators), **fields)


def explained(*operators: str) -> str:
    """What the driver runs to write down what explain prints."""
    return "".join(f"out[{name!r}] = invoke('muladd', 'explain', {name!r}, 'npu').output\n" for name in operators)


SHARES = {
    "one other": ({"alpha": ["add"], "beta": ["add", "mul"]}, "1 of 2 operators; alpha has the other"),
    "others": ({"alpha": ["add", "mul"], "beta": ["add", "mul", "scale"]}, "1 of 3 operators; alpha has the others"),
    "two winners": (
        {"aaa": ["add"], "alpha": ["mul"], "beta": ["add", "mul", "scale", "fma"]},
        "2 of 4 operators; aaa and alpha have the others",
    ),
    "three winners": (
        {"aaa": ["add"], "aab": ["mul"], "alpha": ["fma"], "beta": ["add", "mul", "scale", "fma"]},
        "1 of 4 operators; aaa, aab and alpha have the others",
    ),
}


@pytest.mark.parametrize("case", SHARES)
def test_a_part_is_reported(case: str, site: Site, run: Run) -> None:
    claimed, sentence = SHARES[case]
    for name, operators in claimed.items():
        in_python(site, name, operators)
    report = run(site.root, doctor=True, then=explained("add", "scale"))
    status = report["statuses"]["beta"]
    assert (status["state"], status["reason"], status["code"], status["fix"]) == ("loaded", sentence, "", "")
    owners = {operator: name for name in claimed if name != "beta" for operator in claimed[name]}
    assert status["served_by_others"] == owners
    assert status["operators"] == sorted(set(claimed["beta"]) - owners.keys())
    assert status["missing"] == report["warnings"] == []
    assert report["doctor"]["exit"] == 0
    assert f"\nbeta: {sentence}\n" in report["doctor"]["text"]
    assert json.loads(report["doctor_json"]["text"])["backends"]["beta"]["served_by_others"] == owners
    first = owners["add"]
    assert f"  {first} (muladd-{first} 1.0) at PrivateUse1" in report["out"]["add"]
    assert f"  not beta (muladd-beta): '{first}' has this operator: its name sorts first\n" in report["out"]["add"]
    if case == "others":
        assert "  beta (muladd-beta 1.0) at PrivateUse1" in report["out"]["scale"]
        assert "  not alpha (muladd-alpha): it does not claim the operator\n" in report["out"]["scale"]


def test_a_part_with_a_gap(site: Site, run: Run) -> None:
    in_python(site, "alpha", ["add"])
    in_python(site, "beta", ["add", "mul", "scale"], ["add", "mul"])
    report = run(site.root, then=explained("scale"))
    status = report["statuses"]["beta"]
    assert (status["state"], status["code"]) == ("loaded", "OPWHEEL-E053")
    assert status["reason"] == "2 of 3 operators; alpha has the other; no kernel for scale"
    assert (status["operators"], status["missing"]) == (["mul"], ["scale"])
    assert "  not beta (muladd-beta): it claims the operator, but has no kernel\n" in report["out"]["scale"]


def test_a_part_of_which_nothing_is_registered(site: Site, run: Run) -> None:
    in_python(site, "alpha", ["add"])
    in_python(site, "beta", ["add", "mul", "scale"], ["add"])
    status = run(site.root)["statuses"]["beta"]
    assert (status["state"], status["code"]) == ("broken", "OPWHEEL-E051")
    assert status["reason"] == "it registered no kernel at PrivateUse1 for what is left to it: mul, scale"


def test_a_library_is_not_divided(site: Site, compiler: Compiler, run: Run) -> None:
    """It is shadowed where one of its operators is taken, and the next backend has the others."""
    library = compiler.library("npu-add-mul", {"KEY": "PrivateUse1", "OPERATORS": '"add","mul"'})
    in_python(site, "alpha", ["add"])
    site.install("beta", library=library, operators="['add', 'mul']")
    in_python(site, "gamma", ["add", "mul", "scale"])
    report = run(site.root, doctor=True, then=explained("mul"))
    beta = report["statuses"]["beta"]
    assert (beta["state"], beta["code"]) == ("shadowed", "OPWHEEL-E024")
    assert beta["reason"] == (
        "'alpha' owns 1 of its 2 operators at PrivateUse1: its name sorts first; a library registers all operators in "
        "one block, so that this backend cannot have the rest alone"
    )
    assert beta["served_by_others"] == {"add": "alpha"}
    assert report["statuses"]["gamma"]["operators"] == ["mul", "scale"]
    assert not any("muladd_beta" in path for path in report["maps"])
    assert f"not beta (muladd-beta): shadowed, {beta['reason']}" in report["out"]["mul"]
    assert report["doctor"]["exit"] == 0
    # The advice works.
    policy = site.root / "mine.toml"
    policy.write_text(f"[policy]\n{beta['fix'].partition('set ')[2].partition(' under')[0]}\n")
    states = run(site.root, MULADD_PLUGINS=str(policy))["statuses"]
    assert {name: states[name]["state"] for name in ("alpha", "beta", "gamma")} == {
        "alpha": "shadowed",
        "beta": "loaded",
        "gamma": "loaded",
    }


def test_several_have_all_that_a_backend_claims(site: Site, run: Run) -> None:
    in_python(site, "alpha", ["add"])
    in_python(site, "beta", ["mul"], priority="1")
    in_python(site, "gamma", ["add", "mul"])
    gamma = run(site.root)["statuses"]["gamma"]
    assert gamma["state"] == "shadowed"
    rules = "'alpha' (its name sorts first) and 'beta' (its priority is higher (1 against 0))"
    assert gamma["reason"] == f"{rules} own PrivateUse1"


# ---- a share that cannot be loaded -----------------------------------------------------------------------------------


def test_a_register_function_that_fails_for_its_part(site: Site, run: Run) -> None:
    """Nothing of it is left, the kernels of the others are as they were, and the next backend has its part."""
    in_python(site, "alpha", ["add"], body="'alpha'")
    fails = "def register(target):\n    for name in ('add', 'mul'): target.impl(name, lambda *_: 0)\n    raise OSError"
    site.install("beta", extra=fails, register="register", operators="['add', 'mul']")
    in_python(site, "gamma", ["add", "mul"], body="'gamma'")
    report = run(site.root, device=True)
    states = {name: report["statuses"][name]["state"] for name in ("alpha", "beta", "gamma")}
    assert states == {"alpha": "loaded", "beta": "broken", "gamma": "loaded"}
    assert report["statuses"]["gamma"]["operators"] == ["mul"]
    assert report["statuses"]["beta"]["served_by_others"] == {}


@pytest.mark.parametrize("fault", ["probe", "library"])
def test_the_next_has_everything_where_the_first_cannot_load(
    fault: str, site: Site, compiler: Compiler, run: Run
) -> None:
    library = compiler.library("npu-add-mul", {"KEY": "PrivateUse1", "OPERATORS": '"add","mul"'})
    broken = {
        "probe": {"extra": "def probe(): return Probe(False, 'no device')", "probe": "probe", "library": library},
        "library": {"libraries": "[HERE / 'missing.so']"},
    }
    site.install("alpha", operators="['add', 'mul']", **broken[fault])
    in_python(site, "beta", ["add", "mul", "scale"])
    beta = run(site.root)["statuses"]["beta"]
    assert (beta["state"], beta["reason"], beta["served_by_others"]) == ("loaded", "", {})
    assert beta["operators"] == ["add", "mul", "scale"]


# ---- what register functions may do ----------------------------------------------------------------------------------

WAYS = {
    "name": "target.impl('add', kernel)",
    "name with the namespace": "target.impl('muladd::add', kernel)",
    "overload": "target.impl(torch.ops.muladd.add.default, kernel)",
    "key": "target.impl('add', kernel, 'PrivateUse1')",
    "decorator": "torch.library.impl(target, 'add')(kernel)",
}


@pytest.mark.parametrize("way", WAYS)
def test_an_operator_of_another_backend_is_left_out(way: str, site: Site, run: Run) -> None:
    in_python(site, "alpha", ["add"])
    extra = "import torch\ndef kernel(*_): return 0\ndef register(target):\n    target.impl('mul', kernel)\n    "
    site.install("beta", extra=extra + WAYS[way], register="register", operators="['add', 'mul']")
    report = run(site.root, then="out['by'] = muladd.library.explain('add', 'npu').winner.name")
    assert report["statuses"]["beta"]["state"] == "loaded", report["statuses"]["beta"]
    assert report["statuses"]["beta"]["operators"] == ["mul"]
    assert report["out"]["by"] == "alpha"
    assert report["warnings"] == []


BEYOND = {
    "not claimed": ("target.impl('fma', kernel)", "OPWHEEL-E054", "fma at PrivateUse1"),
    "another key": ("target.impl('add', kernel, 'XPU')", "OPWHEEL-E052", "XPU"),
    "another library": (
        "target.other = torch.library.Library('muladd', 'IMPL', 'PrivateUse1')\n    target.other.impl('add', kernel)",
        "OPWHEEL-E054",
        "add at PrivateUse1",
    ),
}


@pytest.mark.parametrize("way", BEYOND)
def test_what_is_registered_besides_is_refused(way: str, site: Site, run: Run) -> None:
    statement, code, part = BEYOND[way]
    in_python(site, "alpha", ["add"])
    extra = "import torch\ndef kernel(*_): return 0\ndef register(target):\n    target.impl('mul', kernel)\n    "
    site.install("beta", extra=extra + statement, register="register", operators="['add', 'mul']")
    status = run(site.root)["statuses"]["beta"]
    assert (status["state"], status["code"]) == ("broken", code)
    assert part in status["reason"]
    if code == "OPWHEEL-E054":
        assert (
            "it registered what it does not claim, what another backend has, or kernels for other schemas"
            in status["reason"]
        )
        assert "in register= by the impl() of what it is given" in status["fix"]


# ---- afterwards ------------------------------------------------------------------------------------------------------


def test_load_takes_what_is_left(site: Site, run: Run) -> None:
    in_python(site, "alpha", ["add", "mul"])
    in_python(site, "beta", ["mul", "scale"])
    then = "out['states'] = [muladd.load(name).state for name in ('beta', 'alpha')]\n"
    then += "out['reason'] = muladd.backends()['alpha'].reason\n" + explained("mul")
    out = run(site.root, MULADD_AUTOLOAD="0", then=then)["out"]
    assert out["states"] == ["loaded", "loaded"]
    assert out["reason"] == "1 of 2 operators; beta has the other"
    assert "not alpha (muladd-alpha): 'beta' has this operator: it was loaded before\n" in out["mul"]


def test_a_backend_that_claims_nothing(site: Site, run: Run) -> None:
    in_python(site, "alpha", [])
    status = run(site.root)["statuses"]["alpha"]
    assert (status["state"], status["code"]) == ("broken", "OPWHEEL-E051")


def test_deep_has_each_with_all_it_claims(site: Site, run: Run) -> None:
    in_python(site, "alpha", ["add"], device_type="'cpu'", dispatch_key="'CPU'")
    in_python(site, "beta", ["add", "mul"], device_type="'cpu'", dispatch_key="'CPU'")
    then = "out['deep'] = invoke('muladd', 'doctor', '--deep', '--json').output"
    backends = json.loads(run(site.root, MULADD_BACKENDS="alpha,beta", then=then)["out"]["deep"])["backends"]
    assert backends["beta"]["operators"] == ["add", "mul"]
    assert backends["beta"]["served_by_others"] == {}


LACKING = "out['error'] = str(muladd.library.no_kernel_error('scale', 'npu'))"
MISSING = "[HERE / 'missing.so']"
OTHERS = {
    "claims it": ("['mul', 'scale']", "; the backend 'beta' (muladd-beta 1.0) is broken: its library "),
    "does not claim it": ("['mul']", "; the backend 'beta' (muladd-beta 1.0) does not cover it; `muladd doctor`"),
}


@pytest.mark.parametrize("case", OTHERS)
def test_a_call_without_a_kernel_names_who_would_have_it(case: str, site: Site, run: Run) -> None:
    operators, part = OTHERS[case]
    in_python(site, "alpha", ["add"])
    site.install("beta", operators=operators, libraries=MISSING)
    error = run(site.root, then=LACKING)["out"]["error"]
    assert ": the backend 'alpha' (muladd-alpha 1.0) does not cover it; " in error
    assert part in error


INSTALLABLE = """
[backends.{name}]
distribution = "muladd-{name}"
dispatch-key = "PrivateUse1"
device = "npu"
"""


def test_a_call_without_a_kernel_names_what_can_be_installed(site: Site, tmp_path: Path, run: Run) -> None:
    in_python(site, "alpha", ["add"])
    policy = tmp_path / "mine.toml"
    known = "".join(INSTALLABLE.format(name=name) for name in ("alpha", "beta", "gamma"))
    policy.write_text(f"{known}[policy]\nprefer = {{ PrivateUse1 = ['gamma', 'beta'] }}\n")
    error = run(site.root, MULADD_PLUGINS=str(policy), then=LACKING)["out"]["error"]
    assert (
        ": the backend 'alpha' (muladd-alpha 1.0) does not cover it; the backend 'gamma' is not installed: "
        "pip install muladd-gamma; the backend 'beta' is not installed: pip install muladd-beta; `muladd doctor`"
    ) in error
