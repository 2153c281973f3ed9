"""Doctor compares what the installed distributions require with what is installed; an import does not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .builder import Compiler, Site
from .conftest import Run

GOOD = {"KEY": "PrivateUse1"}
HEAD = "Metadata-Version: 2.1\nName: muladd-{0}\nVersion: {1}\n"

# What muladd-acme 1.0 requires, and what is said of it; nothing where all is right.
REQUIRED = {
    "torch>=2.10": "",
    "muladd-core<9,>=0.1": "",
    "Muladd_Core": "",
    "opwheel>=99": "muladd-acme 1.0 requires opwheel>=99, but opwheel 0.",
    "muladd-core>=0.5": "muladd-acme 1.0 requires muladd-core>=0.5, but muladd-core 0.1",
    "muladd-beta<2": "muladd-acme 1.0 requires muladd-beta<2, but muladd-beta 2.0rc1 is installed",
    "muladd-beta<2; python_version < '3'": "",
    "muladd-beta<2; python_version >= '3'": "muladd-acme 1.0 requires muladd-beta<2, but muladd-beta 2.0rc1 is inst",
    "muladd-beta>=2.0rc1": "",
    "muladd-beta>1": "",
    "muladd-beta==1.*": "muladd-acme 1.0 requires muladd-beta==1.*, but",
    "muladd-beta<2; extra == 'fast'": "",
    "muladd-beta[fast]": "muladd-beta 2.0rc1 requires not-there>=3, but that is not installed",
    "muladd-beta[Fast,unknown]>=1": "muladd-beta 2.0rc1 requires not-there>=3, but that is not installed",
    "muladd-beta[round]": "muladd-acme 1.0 requires not-there-either, but that is not installed",
    "not-there": "muladd-acme 1.0 requires not-there, but that is not installed",
    "torch<2": "muladd-acme 1.0 requires torch<2, but torch 2.",
    "muladd-beta @ https://example.org/beta.whl": "",
    "torch >> 2": "muladd-acme 1.0 requires 'torch >> 2', which cannot be read: InvalidRequirement",
    "torch; os_name ~= 'posix'": "which cannot be read: UndefinedComparison",
}
BETA = (
    "Provides-Extra: fast\nRequires-Dist: not-there>=3; extra == 'fast'\nRequires-Dist: pluggy\n"
    "Provides-Extra: round\nRequires-Dist: muladd-acme[back]; extra == 'round'\n"
)
BACK = (
    "Provides-Extra: back\nRequires-Dist: not-there-either; extra == 'back'\n"
    "Requires-Dist: muladd-beta[round]; extra == 'back'\n"
)


@pytest.mark.parametrize("required", REQUIRED)
def test_versions_that_contradict_each_other(required: str, site: Site, compiler: Compiler, run: Run) -> None:
    library = compiler.library("good", GOOD)
    acme = f"{HEAD.format('acme', '1.0')}Requires-Dist: {required}\n{BACK}"
    site.install("acme", library=library, metadata=acme)
    site.install("beta", library=library, metadata=HEAD.format("beta", "2.0rc1") + BETA, version="2.0rc1")
    report = run(site.root, doctor=True)
    assert report["findings"] == report["warnings"] == []
    findings = json.loads(report["doctor_json"]["text"])["findings"]
    told = REQUIRED[required]
    assert report["doctor"]["exit"] == report["doctor_json"]["exit"] == bool(told)
    assert len(findings) == bool(told), findings
    for finding in findings:
        assert finding["code"] == "OPWHEEL-E033"
        assert told in finding["message"]
        assert told in report["doctor"]["text"]
        assert "install" in finding["fix"]


def test_of_the_core_and_the_framework(tmp_path: Path, run: Run) -> None:
    """And what is wrong with both, each once."""
    site = Site(tmp_path / "first")
    for name, requires in (("muladd-core", ["opwheel>=99", "torch>=99"]), ("opwheel", ["torch>=99", "pluggy<0"])):
        lines = "".join(f"Requires-Dist: {one}\n" for one in requires)
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.0\n{lines}"
        site.install("x", distribution=name, version="0.1.0", entry_points="", module=False, metadata=metadata)
    report = run(site.root, doctor=True)
    findings = json.loads(report["doctor_json"]["text"])["findings"]
    assert [finding["message"].partition(", but")[0] for finding in findings] == [
        "muladd-core 0.1.0 requires opwheel>=99",
        "muladd-core 0.1.0 requires torch>=99",
        "opwheel 0.1.0 requires pluggy<0",
        "opwheel 0.1.0 requires torch>=99",
    ]
    fix = findings[0]["fix"]
    assert fix.startswith("pip install 'opwheel>=99', or a version of muladd-core that works with opwheel 0.")


def test_what_a_disabled_backend_requires_is_left_alone(site: Site, compiler: Compiler, run: Run) -> None:
    acme = f"{HEAD.format('acme', '1.0')}Requires-Dist: not-there\n"
    site.install("acme", library=compiler.library("good", GOOD), metadata=acme)
    for backends, is_told in (("cpu", False), ("cpu,acme", True)):
        report = run(site.root, doctor=True, MULADD_BACKENDS=backends)
        assert report["doctor"]["exit"] == is_told
        assert ("requires not-there" in report["doctor"]["text"]) == is_told


def test_a_library_without_metadata_requires_nothing(run: Run) -> None:
    before = (
        "from importlib import metadata\nmetadata.distribution = lambda name: metadata.Distribution.from_name('gone')"
    )
    assert json.loads(run(before=before, doctor=True)["doctor_json"]["text"])["findings"] == []
