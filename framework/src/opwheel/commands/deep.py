"""Tries each installed backend in a process of its own, where a crash is only a result."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..registry import BackendStatus, State
from ..text import how_it_ended

if TYPE_CHECKING:
    from .. import Library

_TIMEOUT_S = 120.0

# Runs in the child: load one backend and print its status as JSON behind a marker.
_PROGRAM = """
import importlib, json, sys
from opwheel.registry import RegistryError

package, name = sys.argv[1:]
library = importlib.import_module(package).library
try:
    library.load(name)
except RegistryError:
    pass
print("\\nSTATUS " + json.dumps(library.backends()[name].as_json()))
"""


def statuses(library: Library) -> dict[str, BackendStatus]:
    """The status that each backend reaches when it is loaded alone, policy and conflicts aside.

    Several are tried at a time: each imports PyTorch, and one that hangs must not hold up the others.
    """
    before = library.backends()
    with ThreadPoolExecutor(max(2, os.cpu_count() or 1)) as pool:
        return dict(zip(before, pool.map(partial(_try, library), before.values()), strict=True))


def _try(library: Library, status: BackendStatus) -> BackendStatus:
    if "\0" in status.name:  # no process can be given that
        return status
    # Findings belong to this process: in the child they must neither raise nor become errors.
    environment = {
        **os.environ,
        f"{library.prefix}_AUTOLOAD": "0",
        f"{library.prefix}_STRICT": "0",
        "PYTHONWARNINGS": "ignore",
    }
    command = [sys.executable, "-c", _PROGRAM, library.package, status.name]
    try:
        child = subprocess.run(
            command, env=environment, capture_output=True, text=True, errors="replace", check=False, timeout=_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        return _broken(status, f"loading it did not finish within {_TIMEOUT_S:g} s")
    lines = [line for line in child.stdout.splitlines() if line.startswith("STATUS ")]
    if child.returncode < 0 or not lines:
        how = how_it_ended(child.returncode)
        return _broken(status, f"loading it ends the process: {how}{_last_line(child.stderr)}")
    fields = json.loads(lines[-1].removeprefix("STATUS "))
    fields["state"] = State(fields["state"])
    for name in ("operators", "by_reference", "missing"):
        fields[name] = tuple(fields[name])
    fields["served_by_others"] = tuple(fields["served_by_others"].items())
    fields["not_invariant"] = tuple((name, tuple(claims)) for name, claims in fields["not_invariant"].items())
    fields["library"] = None if fields["library"] is None else Path(fields["library"])
    fields["exception"] = None if fields["exception"] is None else RuntimeError(fields["exception"])
    return BackendStatus(**fields)


def _broken(status: BackendStatus, reason: str) -> BackendStatus:
    return BackendStatus(
        name=status.name,
        state=State.BROKEN,
        reason=reason,
        fix="in the plugin, correct what its libraries and its register function do when they are loaded; if it is not "
        f"yours, pip uninstall {status.distribution}, or disable {status.name!r} under [policy] in plugins.toml",
        code="OPWHEEL-E055",
        distribution=status.distribution,
        version=status.version,
        dispatch_key=status.dispatch_key,
        device_type=status.device_type,
        library=status.library,
    )


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return f": {lines[-1]}" if lines else ""
