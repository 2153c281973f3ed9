"""Several backends for one device: who wins, who is used when the winner cannot, and what the losers are told."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from .builder import Compiler, Site
from .conftest import Run

GOOD = {"KEY": "PrivateUse1"}
EVERYWHERE = {"KEY": "PrivateUse1", "ALSO_AT": "CPU", "ALSO": '"muladd"'}


def quoted(*names: str) -> str:
    return ",".join(f'"{name}"' for name in names)


@dataclass(frozen=True)
class Contest:
    """Two plugins for one key; the fields of each and what becomes of the loser."""

    id: str
    winner: str
    rule: str
    fields: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    policy: str = ""


CONTESTS = [
    Contest("name", "alpha", "its name sorts first"),
    Contest("priority", "beta", "its priority is higher (1 against 0)", {"beta": {"priority": "1"}}),
    Contest("negative priority", "beta", "its priority is higher (0 against -1)", {"alpha": {"priority": "-1"}}),
    Contest(
        "preference before priority",
        "beta",
        "[policy] prefer for PrivateUse1 names it first",
        {"alpha": {"priority": "9"}},
        'prefer = { PrivateUse1 = ["beta", "alpha"] }',
    ),
    Contest("preferred before not mentioned", "beta", "prefer", policy='prefer = { PrivateUse1 = ["beta"] }'),
    Contest(
        "preference for another key",
        "alpha",
        "its name sorts first",
        policy='prefer = { XPU = ["beta"] }',
    ),
]


@pytest.mark.parametrize("contest", CONTESTS, ids=lambda contest: contest.id.replace(" ", "-"))
@pytest.mark.parametrize("order", [("alpha", "beta"), ("beta", "alpha")], ids=["ab", "ba"])
def test_winner(contest: Contest, order: tuple[str, ...], tmp_path: Path, compiler: Compiler, run: Run) -> None:
    sites = [Site(tmp_path / name) for name in order]
    for site, name in zip(sites, order, strict=True):
        site.install(name, library=compiler.library("good", GOOD), **contest.fields.get(name, {}))
    policy = tmp_path / "mine.toml"
    policy.write_text(f"[policy]\n{contest.policy}\n")
    paths = [site.root for site in sites]
    report = run(*paths, device=True, doctor=True, MULADD_PLUGINS=str(policy))

    [loser] = {"alpha", "beta"} - {contest.winner}
    lost = report["statuses"][loser]
    assert report["statuses"][contest.winner]["state"] == "loaded"
    assert (lost["state"], lost["code"]) == ("shadowed", "OPWHEEL-E024")
    assert f"'{contest.winner}' owns PrivateUse1" in lost["reason"]
    assert contest.rule in lost["reason"]
    assert report["warnings"] == []
    assert report["doctor"]["exit"] == 0
    # The winner's kernel is what runs, and the loser's library was not even opened.
    assert f"muladd_{contest.winner}/libkernels.so" in report["call"]["text"]
    assert not any(f"muladd_{loser}/" in path for path in report["maps"])

    # The advice works.
    assert f'prefer = {{ PrivateUse1 = ["{loser}"] }}' in lost["fix"]
    policy.write_text(f'[policy]\nprefer = {{ PrivateUse1 = ["{loser}"] }}\n')
    assert run(*paths, MULADD_PLUGINS=str(policy))["statuses"][loser]["state"] == "loaded"


def test_first_party_wins_before_the_name(site: Site, compiler: Compiler, run: Run, tmp_path: Path) -> None:
    site.install("aaa", library=compiler.library("good", GOOD), device_type="'cpu'", dispatch_key="'CPU'")
    policy = tmp_path / "mine.toml"
    policy.write_text("[policy]\nprefer = {}\n")
    report = run(site.root, MULADD_PLUGINS=str(policy))
    assert report["statuses"]["cpu"]["state"] == "loaded"
    assert "it is first-party" in report["statuses"]["aaa"]["reason"]


UNABLE = {
    "probe says no": {"extra": "def probe(): return Probe(False, 'no device')", "probe": "probe"},
    "probe raises": {"extra": "def probe(): raise OSError", "probe": "probe"},
    "library is missing": {"libraries": "[HERE / 'missing.so']"},
    "register raises": {
        "extra": "def register(library):\n    library.impl('add', lambda a, b: a)\n    raise OSError\n",
        "register": "register",
    },
    "library registers elsewhere": {"elsewhere": True},
}


@pytest.mark.parametrize("reason", UNABLE)
def test_runner_up_is_used(reason: str, site: Site, compiler: Compiler, run: Run) -> None:
    fields = dict(UNABLE[reason])
    macros = EVERYWHERE if fields.pop("elsewhere", False) else GOOD
    site.install("alpha", library=compiler.library("everywhere" if macros is EVERYWHERE else "good", macros), **fields)
    site.install("beta", library=compiler.library("good", GOOD))
    report = run(site.root, device=True)
    assert report["statuses"]["alpha"]["state"] == ("unsupported" if reason == "probe says no" else "broken")
    assert report["statuses"]["beta"]["state"] == "loaded"
    assert "muladd_beta/libkernels.so" in report["call"]["text"]
    assert "numbers" in report  # the CPU's own kernel is back


SPLIT = (["muladd", "muladd.out", "muladd_", "muladd_backward", "fma", "fma.out"], ["add", "add.out", "mul", "scale"])


def test_disjoint_operators_of_one_key_are_both_loaded(site: Site, compiler: Compiler, run: Run) -> None:
    for name, operators in zip(("alpha", "beta"), SPLIT, strict=True):
        library = compiler.library(f"split-{name}", {**GOOD, "OPERATORS": quoted(*operators)})
        site.install(name, library=library, operators=str(operators))
    report = run(
        site.root,
        device=True,
        then="""
choice = muladd.library.explain("muladd", "npu")
out["winner"] = choice.winner.name
out["others"] = [status.name for status in choice.others]
out["gap"] = str(muladd.library.no_kernel_error("mul.out", "npu"))
out["full"] = str(muladd.library.no_kernel_error("add", "npu"))
""",
    )
    assert [report["statuses"][name]["state"] for name in ("alpha", "beta")] == ["loaded", "loaded"]
    assert report["statuses"]["beta"]["operators"] == sorted(SPLIT[1])
    assert "muladd_beta/libkernels.so" in report["call"]["text"]
    assert report["out"]["winner"] == "alpha"
    assert report["out"]["others"] == ["beta"]
    assert "does not cover it" in report["out"]["gap"]


def test_overlapping_operators_shadow(site: Site, compiler: Compiler, run: Run) -> None:
    for name, operators in (("alpha", ["add", "mul"]), ("beta", ["mul", "scale"])):
        library = compiler.library(f"overlap-{name}", {**GOOD, "OPERATORS": quoted(*operators)})
        site.install(name, library=library, operators=str(operators))
    statuses = run(site.root)["statuses"]
    assert (statuses["alpha"]["state"], statuses["beta"]["state"]) == ("loaded", "shadowed")


def test_partial_coverage_is_reported(site: Site, compiler: Compiler, run: Run) -> None:
    site.install("acme", library=compiler.library("split-beta", {**GOOD, "OPERATORS": quoted(*SPLIT[1])}))
    report = run(site.root, doctor=True, then="out['error'] = str(muladd.library.no_kernel_error('fma', 'npu'))")
    status = report["statuses"]["acme"]
    assert (status["state"], status["code"]) == ("loaded", "OPWHEEL-E053")
    assert status["operators"] == sorted(SPLIT[1])
    assert "fma" in status["missing"]
    assert "no kernel for" in status["reason"]
    assert status["fix"].startswith("pip install --upgrade muladd-acme; its author ")
    assert "operators=" in status["fix"]
    assert len(report["warnings"]) == 1
    assert "OPWHEEL-E053" in report["warnings"][0]["message"]
    assert report["doctor"]["exit"] == 1
    assert "'acme' (muladd-acme 1.0) does not cover it" in report["out"]["error"]
    strict = run(site.root, MULADD_STRICT="1")["error"]
    assert strict["classes"][0] == "RegistryError"
    assert "'acme'" in strict["text"]


# ---- a library that cannot be unloaded -----------------------------------------------------------------------------

STUCK = ("-Wl,-z,nodelete",)


def test_others_are_loaded_on_top_of_kernels_that_stay(site: Site, compiler: Compiler, run: Run) -> None:
    """The broken winner cannot be taken out of the process again: the next one is loaded on top of it."""
    library = compiler.library("stuck", {**GOOD, "ALSO_AT": "XPU", "ALSO": '"add"'}, STUCK)
    site.install("alpha", library=library)
    site.install("beta", library=compiler.library("split-beta", {**GOOD, "OPERATORS": quoted(*SPLIT[1])}))
    report = run(
        site.root,
        device=True,
        then="""
import torch
try:
    muladd.load("alpha")
except opwheel.registry.BackendUnavailableError as error:
    out["alpha"] = str(error)
x = torch.empty(3, device="npu")
for name, call in {"scale": lambda: muladd.scale(x, 2.0), "mul": lambda: muladd.fma(x, x, x)}.items():
    try:
        call()
    except Exception as error:
        out[name] = str(error)
out["explained"] = {name: dict(muladd.library.explain(name, "npu").blocked) for name in ("scale", "fma")}
""",
    )
    alpha, beta = report["statuses"]["alpha"], report["statuses"]["beta"]
    assert (alpha["state"], alpha["code"]) == ("broken", "OPWHEEL-E054")
    assert "what cannot be removed stays, and calls that reach it raise" in alpha["reason"]
    assert "fma.out at PrivateUse1" in alpha["reason"]
    assert "restart the process" in alpha["fix"]
    assert "calls that reach it raise" in report["out"]["alpha"]
    assert (beta["state"], beta["code"]) == ("loaded", "OPWHEEL-E053")
    assert beta["operators"] == sorted(SPLIT[1])
    assert "muladd_beta/libkernels.so" in report["call"]["text"]
    assert "muladd_beta/libkernels.so" in report["out"]["scale"]
    assert "'alpha' (muladd-alpha 1.0) registered what it may not" in report["out"]["mul"]
    assert report["out"]["explained"]["scale"] == {}
    assert "muladd::fma is blocked at PrivateUse1: 'alpha'" in report["out"]["explained"]["fma"]["PrivateUse1"]


def test_kernels_that_stay_on_top_of_another_backend(site: Site, compiler: Compiler, run: Run) -> None:
    """A library replaces the CPU's kernel and stays: a call says so instead of running it."""
    site.install("vile", library=compiler.library("stuck-everywhere", EVERYWHERE, STUCK))
    then = """
import torch
out["error"] = str(muladd.library.no_kernel_error("muladd", "cpu"))
try:
    muladd.muladd(torch.ones(2), torch.ones(2), 1.0)
except opwheel.registry.NoKernelError as error:
    out["call"] = str(error)
"""
    report = run(site.root, then=then)
    assert "numbers" not in report
    assert report["out"]["call"] == report["out"]["error"]
    assert "muladd::muladd is blocked at CPU: 'vile' (muladd-vile 1.0) registered" in report["out"]["call"]
    assert "OPWHEEL-E054" in report["out"]["call"]


def test_status_of_a_backend_that_was_replaced(site: Site, compiler: Compiler, run: Run) -> None:
    site.install("vile", library=compiler.library("stuck-everywhere", EVERYWHERE, STUCK))
    # The driver's own call would raise: ask in its place.
    report = run(
        site.root,
        before="""
import muladd
statuses = muladd.backends()
out["vile"] = statuses["vile"].reason
out["cpu"] = statuses["cpu"]._asdict() | {"exception": None, "library": None}
out["add"] = muladd.add(__import__("torch").ones(2), 1 * __import__("torch").ones(2)).tolist()
""",
    )
    assert "muladd at CPU" in report["out"]["vile"]
    assert report["out"]["cpu"]["missing"] == ["muladd"]
    assert "'vile' replaced its kernels for muladd" in report["out"]["cpu"]["reason"]
    assert "add" in report["out"]["cpu"]["operators"]
    assert report["out"]["add"] == [2.0, 2.0]
    assert len(report["warnings"]) == 2


# ---- names ---------------------------------------------------------------------------------------------------------


def test_two_distributions_with_one_backend_name(site: Site, compiler: Compiler, run: Run) -> None:
    for distribution in ("zzz-acme", "aaa-acme"):
        site.install("acme", distribution=distribution, library=compiler.library("good", GOOD))
    report = run(
        site.root,
        doctor=True,
        then="""
try:
    muladd.load("acme@zzz-acme")
except opwheel.registry.BackendUnavailableError as error:
    out["error"] = str(error)
""",
    )
    assert report["statuses"]["acme"]["state"] == "loaded"
    assert report["statuses"]["acme"]["distribution"] == "aaa-acme"
    second = report["statuses"]["acme@zzz-acme"]
    assert (second["state"], second["code"]) == ("shadowed", "OPWHEEL-E023")
    assert "aaa-acme" in second["reason"]
    assert second["fix"] == "pip uninstall aaa-acme, or pip uninstall zzz-acme"
    assert "aaa-acme offers a backend of the same name" in report["out"]["error"]
    assert report["warnings"] == []
    assert report["doctor"]["exit"] == 0


def test_third_party_cannot_take_a_first_party_name(site: Site, compiler: Compiler, run: Run) -> None:
    site.install("cpu", distribution="aaa-cpu", library=compiler.library("good", GOOD))
    report = run(site.root)
    assert report["statuses"]["cpu"]["distribution"] == "muladd-cpu"
    assert report["statuses"]["cpu@aaa-cpu"]["state"] == "shadowed"
    assert "numbers" in report


def test_one_distribution_twice_on_the_path(tmp_path: Path, compiler: Compiler, run: Run) -> None:
    sites = [Site(tmp_path / "one"), Site(tmp_path / "two")]
    for site, version in zip(sites, ("2.0", "1.0"), strict=True):
        site.install("acme", version=version, library=compiler.library("good", GOOD))
    for paths in (sites, sites[::-1]):
        report = run(*(site.root for site in paths))
        status = report["statuses"]["acme"]
        assert status["state"] == "loaded"
        assert status["library"].startswith(str(paths[0].root))  # as Python takes the module from the first, too
        assert [name for name in report["statuses"] if name.startswith("acme")] == ["acme"]
        assert report["findings"] == report["warnings"] == []


@pytest.mark.parametrize("kind", ["package", "module"])
@pytest.mark.parametrize("place", ["same folder", "folder before", "folder behind"])
def test_metadata_of_an_earlier_version_is_left(
    place: str, kind: str, tmp_path: Path, site: Site, compiler: Compiler, run: Run
) -> None:
    package = site.install("acme", version="2.0", library=compiler.library("good", GOOD))
    if kind == "module":
        (site.root / f"{package.name}.py").write_text((package / "__init__.py").read_text())
        (package / "libkernels.so").rename(site.root / "libkernels.so")
        shutil.rmtree(package)
    left = site if place == "same folder" else Site(tmp_path / "left")
    left.install("acme", version="1.0", module=False)
    (left.root / "muladd_acme/__pycache__").mkdir(parents=True, exist_ok=True)  # as uninstalling leaves it
    paths = [site.root] if left is site else [left.root, site.root]
    report = run(*(paths[::-1] if place == "folder behind" else paths), doctor=True)
    assert report["statuses"]["acme"]["state"] == "loaded"
    if place == "folder behind":
        assert report["statuses"]["acme"]["version"] == "2.0"
        assert report["findings"] == []
        return
    [finding] = report["findings"]
    assert finding["code"] == "OPWHEEL-E026"
    for root, version in ((site.root, "2.0"), (left.root, "1.0")):
        assert f"{version} ({root / f'muladd_acme-{version}.dist-info'})" in finding["message"]
    assert finding["fix"].startswith("pip uninstall muladd-acme")
    assert len(report["warnings"]) == 1
    assert report["doctor"]["exit"] == 1


def test_one_version_is_there_twice(site: Site, compiler: Compiler, tmp_path: Path, run: Run) -> None:
    """As where a project is installed in editable mode: its folder has metadata, too."""
    site.install("acme", library=compiler.library("good", GOOD))
    other = Site(tmp_path / "source")
    other.install("acme", module=False)
    report = run(other.root, site.root)
    assert report["statuses"]["acme"]["state"] == "loaded"
    assert report["findings"] == []


def test_only_the_libraries_of_winners_are_opened(site: Site, compiler: Compiler, run: Run) -> None:
    library = compiler.library("good", GOOD)
    no = {"extra": "def probe(): return Probe(False)", "probe": "probe"}
    site.install("winner", library=library, priority="1")
    site.install("loser", library=library)
    site.install("absent", library=library, priority="2", **no)
    site.install("other", library=library, abi=7, priority="3")
    site.install("off", library=library, priority="4")
    maps = run(site.root, MULADD_BACKENDS="cpu,winner,loser,absent,other")["maps"]
    assert [path for path in maps if path.startswith(f"{site.root}/")] == [f"{site.root}/muladd_winner/libkernels.so"]
