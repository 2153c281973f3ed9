"""All JSON that commands write says in the same way what it is: the key ``format``, with a name and a version."""

import json

import pytest
import torch
from opwheel.commands import _COMMANDS
from opwheel.commands.tools import COMMANDS
from opwheel_tools.audit import report
from opwheel_tools.bench.results import Results, load

from tests.command_line import invoke


def doctor(_):
    return invoke("muladd", "doctor", "--json").stdout


def lock(_):
    import muladd
    from opwheel.registry.lock import Snapshot

    return Snapshot({}, {}, "error", "off", {}).as_text(muladd.library.namespace)


def bench(folder):
    Results({"cpu": "x"}, {}).save(folder / "run.json")
    return (folder / "run.json").read_text()


def audit_report(_):
    return json.dumps(report.as_json(report.Audit("waves", "", torch.__version__, [], [], [])))


WRITERS = {"doctor": doctor, "lock": lock, "bench": bench, "audit": audit_report}


@pytest.mark.parametrize("command", WRITERS)
def test_the_format_has_the_command_s_name_and_a_version(command, tmp_path):
    found = json.loads(WRITERS[command](tmp_path))["format"]
    assert found.keys() == {"name", "version"}
    assert found["name"] == f"opwheel {command}"
    assert type(found["version"]) is int
    assert "schema_version" not in found


def test_no_command_is_forgotten():
    """Those whose help has --json, and the lock, whose file is JSON."""
    with_json = {
        command
        for command in {*_COMMANDS, *COMMANDS}
        if "--json" in invoke(None if command in ("audit", "new-library") else "muladd", command, "--help").stdout
    }
    assert with_json | {"lock"} == WRITERS.keys()


def test_results_are_read_back(tmp_path):
    bench(tmp_path)
    assert load(tmp_path / "run.json").machine == {"cpu": "x"}
