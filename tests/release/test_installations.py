"""The wheels of dist/ in fresh environments: any order, upgrades, downgrades, one taken away."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from .conftest import Environment
from .repack import repack

pytestmark = [pytest.mark.slow, pytest.mark.wheels]

COMPUTE = "import muladd, torch; print(muladd.muladd(torch.ones(3), torch.full((3,), 2.0), 0.5).tolist())"


def computes(environment: Environment) -> bool:
    return environment.run("-c", COMPUTE).stdout == "[2.5, 2.5, 2.5]\n"


def test_every_order(built: dict[str, Path], environment: Environment) -> None:
    """Whatever comes first, the end is the same; a backend alone is no trouble, and nothing yet."""
    names = sorted({"opwheel", "core", "cpu", "cuda"} & built.keys())
    distributions = ["opwheel" if name == "opwheel" else f"muladd-{name}" for name in names]
    ends = set()
    for order in itertools.permutations(names):
        for name in order:
            environment.install(built[name])
        report = environment.doctor()
        assert sorted(report["backends"]) == sorted(set(names) - {"opwheel", "core"})
        assert report["backends"]["cpu"]["state"] == "loaded"
        assert report["findings"] == []
        ends.add(report["digest"])
        environment.pip("uninstall", "--quiet", "--yes", *distributions)
    assert len(ends) == 1
    assert environment.run("-c", "import muladd").returncode != 0


def test_upgrade_and_downgrade_of_a_backend(built: dict[str, Path], environment: Environment, tmp_path: Path) -> None:
    environment.install(built["opwheel"], built["core"], built["cpu"])
    before = environment.doctor()
    version = before["backends"]["cpu"]["version"]
    environment.install(repack(built["cpu"], "0.1.7", tmp_path))
    assert environment.states() == {"cpu": ("loaded", "0.1.7")}
    assert environment.doctor()["digest"] != before["digest"]
    assert computes(environment)
    environment.install(built["cpu"])
    assert environment.states() == {"cpu": ("loaded", version)}
    assert environment.doctor()["digest"] == before["digest"]


@pytest.mark.parametrize(("name", "reported"), [("core", "version"), ("opwheel", "opwheel")])
def test_upgrade_and_downgrade_of_core_and_framework(
    built: dict[str, Path], environment: Environment, tmp_path: Path, name: str, reported: str
) -> None:
    environment.install(built["opwheel"], built["core"], built["cpu"])
    version = environment.doctor()[reported]
    environment.install(repack(built[name], "0.1.7", tmp_path))
    assert environment.doctor()[reported] == "0.1.7"
    assert computes(environment)
    environment.install(built[name])
    assert environment.doctor()[reported] == version
    assert computes(environment)


def test_a_backend_of_another_abi_until_it_is_downgraded(
    built: dict[str, Path], environment: Environment, tmp_path: Path
) -> None:
    other_abi = {b"opwheel\0\1\0\0\0": b"opwheel\0\2\0\0\0"}  # the note of opwheel/detail/abi.h
    environment.install(built["opwheel"], built["core"], repack(built["cpu"], "0.9.0", tmp_path, other_abi))
    report = environment.doctor()
    assert not report["ok"]
    assert report["backends"]["cpu"]["state"] == "incompatible"
    assert report["backends"]["cpu"]["fix"] == "upgrade the core"
    failed = environment.run("-W", "ignore", "-c", COMPUTE)
    assert failed.returncode == 1
    assert "OPWHEEL-E001" in failed.stderr
    assert "built for ABI 2, this core has ABI 1" in failed.stderr
    environment.install(built["cpu"])
    assert environment.doctor()["ok"]
    assert computes(environment)


def test_one_is_taken_away(built: dict[str, Path], environment: Environment) -> None:
    if "cuda" not in built:
        pytest.skip("the CUDA wheel was not built here")
    environment.install(built["opwheel"], built["core"], built["cpu"], built["cuda"])
    environment.pip("uninstall", "--quiet", "--yes", "muladd-cpu")
    report = environment.doctor()
    assert list(report["backends"]) == ["cuda"]
    assert report["not_installed"]["cpu"] == "pip install muladd-cpu"
    failed = environment.run("-c", COMPUTE)
    assert "pip install muladd-cpu" in failed.stderr
    environment.pip("uninstall", "--quiet", "--yes", "muladd-cuda")
    assert environment.doctor()["backends"] == {}
    environment.install(built["cpu"])
    assert environment.states()["cpu"][0] == "loaded"
    assert computes(environment)


def test_a_lock_of_one_installation_holds_in_another(
    built: dict[str, Path], environment: Environment, tmp_path: Path
) -> None:
    """The wheels as pip installs them, an upgrade that is refused, and the way back."""
    lock = tmp_path / "muladd.lock"
    environment.install(built["opwheel"], built["core"], built["cpu"])
    locked = environment.run("-m", "muladd", "lock", lock)
    assert locked.returncode == 0, locked.stdout + locked.stderr
    environment.pip("uninstall", "--quiet", "--yes", "muladd-core", "muladd-cpu")
    environment.install(built["cpu"])
    environment.install(built["core"])
    assert environment.run("-c", COMPUTE, MULADD_LOCK=str(lock)).stdout == "[2.5, 2.5, 2.5]\n"
    environment.install(repack(built["cpu"], "0.1.7", tmp_path))
    refused = environment.run("-c", COMPUTE, MULADD_LOCK=str(lock))
    assert refused.returncode == 1
    assert "muladd-cpu 0.1.7 is installed, 0.1.0 is locked" in refused.stderr
    check = environment.run("-m", "muladd", "lock", lock, "--check")
    assert check.returncode == 1
    assert "muladd-cpu 0.1.7 is installed, 0.1.0 is locked" in check.stdout
    environment.install(built["cpu"])
    assert environment.run("-m", "muladd", "lock", lock, "--check").returncode == 0
