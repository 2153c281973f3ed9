"""Which steps of an environment are done again, and that the Makefile asks for no other steps; nothing is installed."""

import os
import re
import time
from pathlib import Path

import pytest

from release.environments import Environment, StepError, backends, sources_of, step_of

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def in_the_repository(monkeypatch):
    monkeypatch.chdir(ROOT)


@pytest.fixture
def environment(tmp_path):
    """One in which every step is done."""
    env = Environment(tmp_path / "env", is_dry=True)
    env.make("installed")
    env.folder.mkdir()
    for name in env.done:
        env.stamp(name).touch()
    env.done.clear()
    return env


def redone(env, *names):
    for name in names:
        env.make(name)
    return {name for name, was_done in env.done.items() if was_done}


def make_older(env, name):
    """Than all sources: as if one of them had changed."""
    os.utime(env.stamp(name), (1, 1))


def test_nothing_is_done_twice(environment, capsys):
    assert redone(environment, "installed", "demo") == {"demo"}  # that was never asked for
    environment.stamp("demo").touch()
    environment.done.clear()
    capsys.readouterr()
    assert redone(environment, "installed", "demo") == set()
    assert capsys.readouterr().out == ""


def test_what_needs_a_changed_step_is_done_again_and_no_more(environment, capsys):
    make_older(environment, "transformer-core")
    assert redone(environment, "installed") == {
        "transformer-core",
        "transformer-cpu",
        "transformer-triton",
        "installed",
    }
    built = re.findall(r"--no-build-isolation \./(\S+)", capsys.readouterr().out)
    assert built == [f"libraries/transformer/{one}" for one in ("core", "backends/cpu", "backends/triton")]


def test_a_step_that_only_comes_first_changes_nothing(environment):
    environment.stamp("backend-cpu").touch()
    now = time.time() + 10
    os.utime(environment.stamp("core"), (now, now))
    assert redone(environment, "backend-cpu") == set()


def test_a_new_environment_has_everything_in_order(tmp_path, capsys):
    Environment(tmp_path / "new", torch="--pre torch", is_dry=True).make("demo")
    lines = capsys.readouterr().out.splitlines()
    commands = [line for line in lines if str(tmp_path) in line and ": " not in line]
    assert " -m venv " in commands[0]
    assert commands[2].endswith("--pre torch")
    assert [line.rpartition("./")[2] for line in commands[-4:]] == ["framework", "tools", "core", "backends/cpu"]


def test_another_environment_gets_what_is_compiled_in_the_first(environment, tmp_path, capsys):
    other = Environment(tmp_path / "sycl", is_dry=True, other=environment)
    other.make("installed")
    assert not any(environment.done.values())
    wheels = re.findall(r"^(\S+) -m pip wheel .* \./(\w+)$", capsys.readouterr().out, re.MULTILINE)
    assert wheels == [(environment.python, one) for one in ("framework", "tools", "core")]


def test_an_unknown_step_is_named():
    with pytest.raises(StepError, match=r"no step 'instaled'; known are dependencies, .*installed"):
        Environment(Path("nowhere"), is_dry=True).make("instaled")


def test_what_the_makefile_asks_for_is_there():
    text = (ROOT / "Makefile").read_text()
    main = Environment(Path("main"), is_dry=True)
    for folder, env in ("VENV", main), ("SYCL", Environment(Path("sycl"), is_dry=True, other=main)):
        asked = set(re.findall(rf"\$\({folder}\)/\.([a-z-]+)", text))
        assert "installed" in asked
        for name in asked:
            step_of(name, env)


def test_sources():
    files = set(map(str, sources_of("backends/cpu")))
    assert {"backends/cpu/setup.py", "backends/cpu/csrc/register.cpp"} <= files
    assert not any("/tests/" in file or file.endswith((".so", ".pyi", ".pyc")) for file in files)
    assert "cpu" in backends()
    assert "sycl" not in backends()
