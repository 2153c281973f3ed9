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
result = invoke("muladd", *{["doctor"] if command == "doctor" else ["explain", "add", "npu"]})
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


# Everything that somebody else writes and the registry repeats has one of these texts in it.
EVIL_LINE = "1\x1b[31m2\x073\u202e4\x9b5"
EVIL_FILE = EVIL_LINE + "6\u20287\r8"  # also in the name of a file, and in a variable
EVIL = EVIL_FILE + "9\b10\ud800"
EVIL_PLUGINS = {
    "raises-at-import": f"raise ImportError({EVIL!a})",
    "raises-in-hook": f"@hookimpl\ndef opwheel_backend(): raise OSError({EVIL!a})",
    "returns": f"@hookimpl\ndef opwheel_backend(): return {{{EVIL!a}: type({EVIL!a}, (), {{}})()}}",
    "names-itself": f"@hookimpl\ndef opwheel_backend(): return Backend({EVIL!a}, 'npu', 'PrivateUse1')",
    "claims": f"@hookimpl\ndef opwheel_backend(): return Backend('claims', 'npu', 'PrivateUse1', [{EVIL!a}])",
    "requires": "@hookimpl\ndef opwheel_backend(): return Backend("
    f"'requires', 'npu', 'PrivateUse1', register=print, requires=['x' + {EVIL!a}, 'x>=1; os_name != ' + {EVIL!a}])",
    "says-no": f"def probe(): return Probe(False, {EVIL!a}, {EVIL!a})\n@hookimpl\ndef opwheel_backend():\n"
    "    return Backend('says-no', 'npu', 'PrivateUse1', register=print, probe=probe)",
    "raises-in-probe": f"def probe(): raise type({'Evil' + EVIL_FILE!a}, (Exception,), {{}})({EVIL!a})\n"
    "@hookimpl\ndef opwheel_backend():\n"
    "    return Backend('raises-in-probe', 'npu', 'PrivateUse1', register=print, probe=probe)",
    "raises-in-register": f"def register(library): raise OSError({EVIL!a})\n@hookimpl\ndef opwheel_backend():\n"
    "    return Backend('raises-in-register', 'npu', 'PrivateUse1', register=register)",
    "library": "@hookimpl\ndef opwheel_backend():\n"
    f"    return Backend('library', 'npu', 'PrivateUse1', ['/' + {EVIL!a}])",
}
EVIL_POLICY = (
    '[backends.evil]\ndistribution = {0}\ndispatch-key = {0}\ndevice = "npu"\nhint = {0}\n[policy]\ndisable = [{0}]\n'
)
OBSERVE = """
import logging
records = out["records"] = []
class Keep(logging.Handler):
    def emit(self, record): records.append(record.getMessage())
logging.getLogger("opwheel.registry").addHandler(Keep())
logging.getLogger("opwheel.registry").setLevel("DEBUG")
"""
WAYS_OUT = """
def told(name, tell, *arguments):
    try:
        out[name] = str(tell(*arguments))
    except Exception as error:
        out[name] = str(error)
        assert isinstance(error, opwheel.registry.RegistryError), repr(error)

library = muladd.library
names = [*muladd.backends(), "evil", "no" + {evil!a}]
for name in names:
    told(f"require {{name!a}}", library.require, name)
    told(f"load {{name!a}}", library.load, name)
told("no kernel", library.no_kernel_error, "add", "npu")
told("lock", library.snapshot)
told("compare", library.compare, {lock!r})
told("repr", repr, muladd.backends())
told("html", muladd.backends()._repr_html_)
for number, finding in enumerate(library.findings):
    told(f"finding {{number}}", str, finding)
for command in (["doctor"], ["explain"], ["explain", "add", "npu"], ["lock", {lock!r}, "--check"], ["lock", "x"],
                ["check", "evil"], ["check", "no" + {evil!a}], ["check", "says-no"], ["config", "--libs"]):
    out[ascii(command)] = invoke("muladd", *command).output
"""


def check_printable(texts: dict[str, str]) -> None:
    """None has a character that does something; at least the ends of lines are there to be read."""
    for way, text in texts.items():
        assert [char for char in text if not char.isprintable() and char != "\n"] == [], (way, ascii(text))


def install_evil(site: Site) -> None:
    for name, body in EVIL_PLUGINS.items():
        source = f"from opwheel.registry import Backend, Probe, hookimpl\n{body}\n"
        site.install(name, source=source)
    for number, name in enumerate([EVIL_LINE, "b\x1b[0m", "c\x00"]):
        points = f"[muladd.backends]\n{name} = muladd_acme\nd{number} = {EVIL_LINE}\n"
        site.install(f"point{number}", entry_points=points)
    site.install("metadata", metadata=f"Name: muladd-metadata\nVersion: {EVIL_LINE}\n")


def test_every_way_out_is_printable(site: Site, run: Run) -> None:
    """Warnings, exceptions, log records, the trace, the table, findings and what commands print."""
    install_evil(site)
    policy, lock = site.root / f"policy{EVIL_FILE}.toml", site.root / f"lock{EVIL_FILE}"
    policy.write_text(EVIL_POLICY.format(json.dumps(EVIL_FILE)))
    locked = {
        "format": {"name": "opwheel lock", "version": 1},
        "library": "muladd",
        "distributions": {},
        "plugins": {"cpu": EVIL},
        "fallback": EVIL,
    }
    lock.write_text(json.dumps({**locked, "winners": {"CPU": {f"a{EVIL}": EVIL}}}))
    environment = {
        "MULADD_PLUGINS": str(policy),
        "MULADD_TRACE": "1",
        "MULADD_HUGE_PAGES": EVIL_FILE,
        f"MULADD_X{EVIL_FILE}": "1",
    }
    then = WAYS_OUT.format(evil=EVIL, lock=str(lock))
    report = run(site.root, before=OBSERVE, then=then, device=True, **environment)
    assert "error" not in report, report["error"]["traceback"]
    out = report["out"]
    assert len(report["statuses"]) >= len(EVIL_PLUGINS) + 6
    assert len(out["records"]) > len(EVIL_PLUGINS)
    assert any("\\x1b[31m" in text for text in out["records"])
    assert "\\u202e" in out["['doctor']"]
    assert "\\x1b[31m" in out["compare"]
    warnings = [warning["message"] for warning in report["warnings"]]
    assert len(warnings) > len(EVIL_PLUGINS)
    texts = {**{f"record {n}": text for n, text in enumerate(out.pop("records"))}, **out, "log": report["log"]}
    check_printable(
        {**texts, **{f"warning {n}": text for n, text in enumerate(warnings)}, "call": report["call"]["text"]}
    )


@pytest.mark.parametrize("plugin", [name for name in EVIL_PLUGINS if name != "says-no"])
def test_errors_of_the_import_are_printable(plugin: str, site: Site, run: Run) -> None:
    source = f"from opwheel.registry import Backend, Probe, hookimpl\n{EVIL_PLUGINS[plugin]}\n"
    site.install(plugin, source=source)
    error = run(site.root, MULADD_STRICT="1")["error"]
    assert error["type"] == "RegistryError"
    check_printable({"error": error["text"]})


def test_errors_of_files_are_printable(site: Site, run: Run) -> None:
    for variable in ("LOCK", "PLUGINS"):
        path = site.root / f"gone{EVIL_FILE}"
        error = run(MULADD_STRICT="1", **{f"MULADD_{variable}": str(path)})["error"]
        assert "gone1\\x1b" in error["text"]
        check_printable({variable: error["text"]})


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
WITH_OPTION = ("-m", "opwheel", "--library", "muladd")


@pytest.mark.parametrize(
    ("start", "command", "beginning"),
    [
        *((start, "doctor --json", "{") for start in (SCRIPT, WITH_OPTION)),
        *((start, "config --libs", "/") for start in (SCRIPT, WITH_OPTION)),
        (SCRIPT, "doctor --json --deep", "{"),
        (WITH_OPTION, "doctor --json --deep", "{"),
        (SCRIPT, "doctor --suggest", "pip install muladd-core"),
        (SCRIPT, "explain add cpu", "cpu: add"),
        (WITH_OPTION, "explain add cpu", "cpu: add"),
        (SCRIPT, "-h", "usage: "),
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
