"""Kernels for other runtimes than PyTorch: what doctor says of sound and of faulty ones."""

import pytest

SOURCE = """
from pathlib import Path
from opwheel import Runtime, hookimpl

@hookimpl
def opwheel_runtime():
    return Runtime(
        name="tiny",
        library=Path(__file__).parent / "libkernels.so",
        operators=["muladd.out", "add.out"],
        requires={requires},
    )
"""
HOOK = "from opwheel import hookimpl\n@hookimpl\ndef opwheel_runtime(): return {}"
SOUND = SOURCE.format(requires=["torch>=2.10"])
ENTRY_POINTS = "[muladd.runtimes]\ntiny = muladd_tiny\n"


def install(site, source=SOUND, **faults):
    given = {"library": b"\x7fELF", "entry_points": ENTRY_POINTS, **faults}
    return site.install("tiny", source=source, **given)


def test_a_sound_one_is_listed_and_not_opened(site, run):
    package = install(site)
    report = run(site.root, doctor=True, then="out['runtimes'] = muladd.library.runtimes()['tiny'].as_json()")
    status = report["out"]["runtimes"]
    assert status["state"] == "installed"
    assert status["operators"] == ["muladd.out", "add.out"]
    assert status["library"] == str(package / "libkernels.so")
    assert not [file for file in report["maps"] if file == status["library"]]
    assert report["doctor"]["exit"] == 0
    row = next(line for line in report["doctor"]["text"].splitlines() if line.startswith("tiny"))
    assert row.split() == ["tiny", "installed", "muladd-tiny", "1.0", "2"]


@pytest.mark.parametrize(
    ("faults", "state", "code", "words"),
    [
        ({"source": "import nothing_of_this_name"}, "broken", "OPWHEEL-E020", "nothing_of_this_name"),
        ({"source": "raise SystemExit(3)"}, "broken", "OPWHEEL-E020", "SystemExit"),
        ({"source": "RUNTIME = 5"}, "broken", "OPWHEEL-E021", "no function opwheel_runtime"),
        ({"source": HOOK.format("1 / 0")}, "broken", "OPWHEEL-E021", "ZeroDivisionError"),
        ({"source": HOOK.format("5")}, "broken", "OPWHEEL-E021", "returned 5, expected a Runtime"),
        (
            {"source": SOURCE.replace('"tiny"', '"mini"')},
            "broken",
            "OPWHEEL-E022",
            "but its Runtime names itself 'mini'",
        ),
        ({"source": SOURCE.replace('"muladd.out"', "7")}, "broken", "OPWHEEL-E022", "field operators"),
        ({"source": SOURCE.replace("Path(__file__)", "Path('here')")}, "broken", "OPWHEEL-E022", "field library"),
        ({"source": SOURCE.format(requires=["torch>=99"])}, "incompatible", "OPWHEEL-E031", "torch>=99"),
        ({"library": None}, "broken", "OPWHEEL-E050", "libkernels.so"),
    ],
    ids=[
        "no import",
        "exit",
        "no hook",
        "hook raises",
        "no runtime",
        "name",
        "operators",
        "relative path",
        "torch",
        "no library",
    ],
)
def test_a_faulty_one_is_a_finding(site, run, faults, state, code, words):
    source = faults.get("source")
    if source is not None and "{requires}" in source:
        faults = {**faults, "source": source.format(requires=[])}
    install(site, **faults)
    report = run(site.root, doctor=True, then="out['runtimes'] = muladd.library.runtimes()['tiny'].as_json()")
    status = report["out"]["runtimes"]
    assert (status["state"], status["code"]) == (state, code)
    assert words in status["reason"]
    assert report["doctor"]["exit"] == 1
    assert code in report["doctor"]["text"]
    # Backends are none the worse for it.
    assert report["statuses"]["cpu"]["state"] == "loaded"


def test_an_interrupt_is_not_swallowed(site, run):
    install(site, source="raise KeyboardInterrupt")
    then = "try:\n    muladd.library.runtimes()\nexcept KeyboardInterrupt:\n    out['interrupted'] = True"
    assert run(site.root, then=then)["out"] == {"interrupted": True}


def test_damaged_metadata_is_reported_once(site, run):
    install(site, metadata="Name: muladd-tiny\n")
    report = run(site.root, then="muladd.library.runtimes()\nout['findings'] = len(muladd.library.findings)\n"
                                 "muladd.library.runtimes()\nout['again'] = len(muladd.library.findings)")  # fmt: skip
    assert report["out"] == {"findings": 1, "again": 1}


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("[runtimes.mine]\nhint = 'x'", "has no 'distribution'"),
        ("[runtimes.mine]\ndistribution = 5", "expected a text"),
        ("[runtimes.mine]\ndistribution = 'x'\ndevice = 'cpu'", "is not a known key"),
    ],
)
def test_a_wrong_table_names_its_line(site, run, tmp_path, table, words):
    site.root.mkdir(exist_ok=True)
    file = tmp_path / "plugins.toml"
    file.write_text(table)
    findings = run(site.root, MULADD_PLUGINS=str(file))["findings"]
    assert [finding["code"] for finding in findings] == ["OPWHEEL-E010"]
    assert f"{file}:" in findings[0]["message"]
    assert words in findings[0]["message"]


def test_a_table_of_a_user_s_own_is_a_hint(site, run, tmp_path):
    file = tmp_path / "plugins.toml"
    file.write_text("[runtimes.mine]\ndistribution = 'muladd-mine'\nhint = 'pip install muladd-mine'")
    text = run(site.root, doctor=True, MULADD_PLUGINS=str(file))["doctor"]["text"]
    assert "pip install muladd-mine" in text


def test_the_description_is_imported_when_it_is_asked_for():
    from opwheel import registry

    assert registry.Runtime.__name__ == "Runtime"
    with pytest.raises(AttributeError, match="no attribute 'Runtimes'"):
        registry.Runtimes  # noqa: B018
