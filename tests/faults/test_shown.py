"""What plugins, files and variables say is shown as it is, by every command: no markup, no escapes, no surprises."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

import pytest

from tests.forked_python import server

from .builder import Compiler, Site
from .conftest import Run, clean_environment, search_path

GOOD = {"KEY": "PrivateUse1"}
TEXTS = [
    "1.0[/]",
    "1.0[bold]",
    "[link=x]1",
    "1.0[/red]",
    "\\[1]",
    ":smile:",
    "[@click=x]",
    "1 [on red]x[/on red]",
    "ä",
    "{}%s",
]
NOT_PRINTABLE = ["1\x1b[31m", "1\x07", "1\u202e", "1\u2028", "1\x00", "1\ud800"]


@pytest.mark.parametrize("command", ["doctor", "explain"])
def test_texts(command: str, site: Site, compiler: Compiler, run: Run) -> None:
    """As the version, and as reason and fix of a probe."""
    for number, text in enumerate(TEXTS):
        probe = f"def probe(): return Probe(False, {'because ' + text!r}, {'do ' + text!r})"
        metadata = f"Metadata-Version: 2.1\nName: muladd-acme{number}\nVersion: {text}\n"
        library = compiler.library("good", GOOD)
        site.install(f"acme{number}", metadata=metadata, extra=probe, probe="probe", library=library)
    then = f"""
from opwheel.cli import make_app
from typer.testing import CliRunner
result = CliRunner().invoke(make_app("muladd"), {["doctor"] if command == "doctor" else ["explain", "add", "npu"]})
out["text"], out["exit"] = result.output, result.exit_code
"""
    report = run(site.root, then=then)
    out = report["out"]
    assert out["exit"] == (0 if command == "doctor" else 1), out
    for number, text in enumerate(TEXTS):
        assert report["statuses"][f"acme{number}"]["version"] == text
        assert f"because {text}" in out["text"]
        if command == "doctor":
            assert f"muladd-acme{number} {text}" in out["text"]
            assert f"fix: do {text}" in out["text"]


@pytest.mark.parametrize("text", NOT_PRINTABLE, ids=ascii)
def test_control_characters_do_not_reach_the_terminal(text: str, site: Site, compiler: Compiler, run: Run) -> None:
    site.install("acme", library=compiler.library("good", GOOD), probe="probe",
                 extra=f"def probe(): return Probe(False, {text!a}, {text!a})")  # fmt: skip
    report = run(site.root, doctor=True)
    assert report["statuses"]["acme"]["reason"] == text
    assert ascii(text)[1:-1] in report["doctor"]["text"]
    assert text[1] not in report["doctor"]["text"]
    assert json.loads(report["doctor_json"]["text"])["backends"]["acme"]["reason"] == text


@pytest.mark.parametrize(
    "name", ["cpu[fast]", "a b", "[/]", "ä", "-x", "x" * 101, "a@b", "a,b", "1\x1b[31m"], ids=ascii
)
def test_name_of_an_entry_point(name: str, site: Site, compiler: Compiler, run: Run) -> None:
    """One that cannot be written in a variable or on a command line is refused before the module is imported."""
    source = "raise SystemExit('imported')"
    site.install("acme", source=source, entry_points=f"[muladd.backends]\n{name} = muladd_acme\n")
    report = run(site.root, doctor=True)
    assert "numbers" in report
    [(found, status)] = [(key, value) for key, value in report["statuses"].items() if value["code"] == "OPWHEEL-E022"]
    assert found == name
    assert status["state"] == "broken"
    assert (
        f"its entry point is called {ascii(name)[:-1] if len(name) < 100 and name.isascii() else ''}"
        in status["reason"]
    )
    assert "imported" not in status["reason"]
    if name.isprintable() and len(name) < 20:
        assert f"{name}: its entry point is called" in report["doctor"]["text"]
        assert any(line.startswith(f"{name} ") for line in report["doctor"]["text"].splitlines())
    assert report["doctor"]["exit"] == report["doctor_json"]["exit"] == 1


WRONG_METADATA = {
    "name": "Name: muladd acme[/]\nVersion: 1",
    "control": "Name: muladd-acme\nVersion: 1\x1b[31m",
    "long": f"Name: muladd-acme\nVersion: {'1' * 101}",
}


@pytest.mark.parametrize("metadata", WRONG_METADATA.values(), ids=WRONG_METADATA)
def test_names_and_versions_that_are_none(metadata: str, site: Site, compiler: Compiler, run: Run) -> None:
    site.install("acme", library=compiler.library("good", GOOD), metadata=f"{metadata}\n")
    report = run(site.root, doctor=True)
    [finding] = report["findings"]
    assert finding["code"] == "OPWHEEL-E025"
    assert "METADATA must give Name and Version" in finding["message"]
    assert "acme" not in report["statuses"]
    assert "\x1b" not in report["doctor"]["text"]


def test_terminal_that_lacks_the_characters(
    site: Site, compiler: Compiler, python: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    site.install(
        "acme", library=compiler.library("good", GOOD), extra="def probe(): return Probe(False, 'für ☃')", probe="probe"
    )
    for command in (["doctor"], ["explain", "add", "npu"]):
        done = python(
            "-m", "muladd", *command, path=(site.root,), PYTHONIOENCODING="ascii", MULADD_PLUGINS="/tmp/\udcff"
        )
        assert "Traceback" not in done.stderr
        assert "f\\xfcr \\u2603" in done.stdout


# How code prints on standard output.
PRINTING = {
    "print": "print('NOISE print')",
    "unflushed": "sys.stdout.write('NOISE unflushed')",
    "own": "sys.__stdout__.write('NOISE own')",
    "descriptor": "os.write(1, b'NOISE descriptor')",
    "C": "ctypes.CDLL(None).puts(b'NOISE C')",
    "process": "subprocess.run(['echo', 'NOISE process'])",
}
PRINTER = f"""
import ctypes, os, subprocess, sys
from opwheel.registry import Backend, Probe, hookimpl

def noise():
    {"; ".join(PRINTING.values())}

noise()

@hookimpl
def opwheel_backend():
    noise()
    return Backend("acme", "npu", "PrivateUse1", probe=probe, register=register, operators=["add"])

@hookimpl
def opwheel_runtime():
    noise()

def probe():
    noise()
    return Probe(True)

def register(library):
    noise()
    library.impl("add", lambda a, b: a)
"""
SCRIPT = ("-c", "from opwheel.scripts import muladd; muladd()")
MODULE = ("-m", "muladd")
WITH_OPTION = ("-m", "opwheel", "--library", "muladd")


@pytest.mark.parametrize(
    ("start", "command", "beginning"),
    [
        *((start, "doctor --json", "{") for start in (SCRIPT, MODULE, WITH_OPTION)),
        *((start, "config --libs", "/") for start in (SCRIPT, MODULE, WITH_OPTION)),
        (SCRIPT, "doctor --json --deep", "{"),
        (MODULE, "doctor --json --deep", "{"),
        (SCRIPT, "doctor --suggest", "pip install muladd-core"),
        (SCRIPT, "explain add cpu", "cpu: add"),
        (MODULE, "explain add cpu", "cpu: add"),
        (MODULE, "--version", "muladd-core"),
        (MODULE, "-h", "Usage: "),
    ],
    ids=str,
)
def test_standard_output_is_the_commands(start: tuple[str, ...], command: str, beginning: str, site: Site) -> None:
    """Whatever a plugin prints while a command imports the library and asks the plugin."""
    entry_points = "[muladd.backends]\nacme = muladd_acme\n[muladd.runtimes]\nacme = muladd_acme\n"
    site.install("acme", source=PRINTER, entry_points=entry_points)
    environment = clean_environment({"PYTHONPATH": search_path([site.root])})
    done = server().run(*start, *command.split(), environment=environment, finalize=True)
    assert done.returncode in (0, 1), done.stderr  # the plugin has nothing for another runtime
    if command == "-h":  # for people
        assert beginning in done.stdout
        return
    assert "NOISE" not in done.stdout
    assert done.stdout.startswith(beginning)
    if "--json" in command:
        assert "acme" in json.loads(done.stdout)["backends"]
    for how in PRINTING:
        assert f"NOISE {how}" in done.stderr
