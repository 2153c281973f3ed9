"""``muladd doctor --deep``: a library that takes the process with it is only a result."""

from __future__ import annotations

import json

import pytest

from .builder import Compiler, Site
from .conftest import Python

GOOD = {"KEY": "PrivateUse1"}
DOCTOR = "from opwheel.scripts import muladd; muladd()"  # the console script
QUICK = f"from opwheel.commands import deep; deep._TIMEOUT_S = 15.0; {DOCTOR}"

# name -> (macros of the library, what doctor says)
CRASHES = {
    "segv": ({**GOOD, "BEFORE": "raise(SIGSEGV)"}, "ends the process: killed by SIGSEGV"),
    "aborts": ({**GOOD, "BEFORE": "(abort(), 0)"}, "ends the process: killed by SIGABRT"),
    "throws": ({**GOOD, "BEFORE": "std::stoi(std::string())"}, "ends the process: killed by SIGABRT"),
    "exits": ({**GOOD, "BEFORE": "(_exit(7), 0)"}, "ends the process: ended with status 7"),
    "defines": ({**GOOD, "DEFINE": ""}, "ends the process: killed by SIG"),
    "hangs": ({**GOOD, "BEFORE": "sleep(600)"}, "did not finish within 15 s"),
}


@pytest.mark.slow
def test_crashes(site: Site, compiler: Compiler, python: Python) -> None:
    for name, (macros, _) in CRASHES.items():
        site.install(name, library=compiler.library(name, macros))
    site.install("good", library=compiler.library("good", GOOD))
    site.register_device()
    site.install("broken", source="raise OSError('no disk')")
    # What is wrong with the environment belongs to the parent: it must not end the children.
    done = python(
        "-c",
        _autoload_off(QUICK),
        "doctor",
        "--deep",
        "--json",
        path=(site.root,),
        MULADD_FALLBACK="bogus",
        PYTHONWARNINGS="ignore",
    )
    assert done.returncode == 1, done.stderr
    report = json.loads(done.stdout)
    for name, (_, words) in CRASHES.items():
        status = report["backends"][name]
        assert (status["state"], status["code"]) == ("broken", "OPWHEEL-E055")
        assert words in status["reason"]
        assert f"disable '{name}'" in status["fix"]
        assert status["distribution"] == f"muladd-{name}"
    assert report["backends"]["good"]["state"] == report["backends"]["cpu"]["state"] == "loaded"
    assert report["backends"]["broken"]["code"] == "OPWHEEL-E020"
    assert "OSError: no disk" in report["backends"]["broken"]["exception"]
    assert [finding["code"] for finding in report["findings"]] == ["OPWHEEL-E011"]

    # The advice works.
    policy = site.root / "mine.toml"
    policy.write_text(f"[policy]\ndisable = {[*CRASHES, 'broken']}\n")
    program = "import muladd; print({status.state.value for status in muladd.backends().values()})"
    done = python("-c", program, path=(site.root,), MULADD_PLUGINS=str(policy))
    assert done.returncode == 0, done.stderr
    assert "'loaded'" in done.stdout
    assert "'disabled'" in done.stdout


def _autoload_off(program: str) -> str:
    """What the console script does before muladd is imported, for a program that imports it earlier."""
    return f"import os; os.environ['MULADD_AUTOLOAD'] = '0'; {program}"


@pytest.mark.parametrize(
    "command", [("-c", DOCTOR), ("-m", "opwheel", "--library", "muladd")], ids=["script", "module"]
)
def test_the_command_opens_nothing_itself(
    command: tuple[str, ...], site: Site, compiler: Compiler, python: Python
) -> None:
    site.install("segv", library=compiler.library("segv", CRASHES["segv"][0]))
    site.register_device()
    done = python(*command, "doctor", "--deep", path=(site.root,), MULADD_LOCK="/nonexistent")
    assert done.returncode == 1, done.stderr
    assert "/nonexistent: cannot be read: No such file or directory [OPWHEEL-E070]" in done.stdout
    assert "OPWHEEL-E055" in done.stdout
    assert "SIGSEGV" in done.stdout
