"""Builds for another processor: what is taken from where; nothing is compiled here."""

import os
import platform

import pytest
from opwheel._build import toolchain
from opwheel._build.toolchain import ToolchainError
from opwheel_tools.build import instruction_sets

from release import cross, platforms

OTHER = "aarch64" if platform.machine() != "aarch64" else "x86_64"


@pytest.fixture
def for_another(monkeypatch):
    monkeypatch.setenv("_PYTHON_HOST_PLATFORM", f"linux-{OTHER}")
    monkeypatch.setenv("CXX", "other-g++ --sysroot=/other")
    monkeypatch.delenv("OPWHEEL_TORCH", raising=False)


def torch_in(folder):
    (folder / "torch/include/torch/csrc/stable").mkdir(parents=True)
    (folder / "torch/include/torch/csrc/stable/library.h").touch()
    return folder


def test_the_installed_torch_is_for_this_machine_alone(for_another):
    assert toolchain.is_cross()
    with pytest.raises(ToolchainError, match=f"this is a build for {OTHER} on {platform.machine()}.*OPWHEEL_TORCH"):
        toolchain.find_torch()


def test_a_torch_that_is_named(for_another, monkeypatch, tmp_path):
    monkeypatch.setenv("OPWHEEL_TORCH", str(torch_in(tmp_path / "named")))
    assert toolchain.find_torch().lib == tmp_path / "named/torch/lib"
    assert toolchain.find_torch(torch_in(tmp_path / "given")).lib == tmp_path / "given/torch/lib"


def test_what_is_asked_is_built_for_this_machine(for_another, monkeypatch):
    monkeypatch.setenv("LDFLAGS", "-L/other")
    before = dict(os.environ)
    with toolchain.for_this_machine():
        assert toolchain.machine() == platform.machine()
        assert not {"CXX", "LDFLAGS"} & os.environ.keys()
    assert dict(os.environ) == before


def test_a_build_for_this_machine_keeps_its_compiler(monkeypatch):
    monkeypatch.setenv("CXX", "clang++")
    with toolchain.for_this_machine():
        assert os.environ["CXX"] == "clang++"


@pytest.mark.parametrize(
    ("machine", "names"),
    [("x86_64", {"baseline", "avx2", "avx512"}), ("aarch64", {"baseline", "bf16"}), ("riscv64", {"baseline"})],
)
def test_instruction_sets_are_those_of_the_processor(machine, names, monkeypatch):
    monkeypatch.setenv("_PYTHON_HOST_PLATFORM", f"linux-{machine}")
    sets = instruction_sets("{}", contract=True)
    assert sets.keys() == names
    assert sets["baseline"] == ["-ffp-contract=fast", "-fno-math-errno"]


def test_a_compiler_that_is_not_there_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(cross.shutil, "which", lambda name: None)
    with pytest.raises(SystemExit, match="apt-get install g\\+\\+-aarch64-linux-gnu"):
        cross.variables("aarch64", [], tmp_path)


def test_an_installer_takes_what_is_for_an_older_system():
    tags = platforms.platform_tags("aarch64", 28)
    assert tags[0] == "manylinux_2_28_aarch64"
    assert {"manylinux_2_17_aarch64", "manylinux2014_aarch64"} <= set(tags)
    assert not any("_2_29_" in tag for tag in tags)
