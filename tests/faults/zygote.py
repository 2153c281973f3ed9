"""Forks a child for each request on standard input: each imports muladd anew, PyTorch is imported once for all.

A line of JSON asks for a child; a line with its exit code answers when it has ended. A child ends at once, unless it is
asked to end as Python does: that takes four times as long as all the rest, because it visits every object of PyTorch.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    """Serve until standard input ends."""
    import packaging.requirements  # noqa: F401
    import pluggy  # noqa: F401
    import torch  # noqa: F401
    from rich.console import Console  # noqa: F401
    from rich.table import Table  # noqa: F401
    from torch.utils import backend_registration  # noqa: F401

    _import_what_commands_need()
    gc.collect()
    gc.freeze()  # the children need not visit PyTorch's objects when they end
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            _become(request)
            return
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _import_what_commands_need() -> None:
    """Typer imports most of itself when a command with options is called."""
    import typer
    from typer.testing import CliRunner

    app = typer.Typer()
    app.command()(_command)
    CliRunner().invoke(app, ["--flag", "--text", ""], catch_exceptions=False)


def _command(flag: bool = False, text: str | None = None) -> None:
    """Do nothing."""


def _become(request: dict[str, Any]) -> None:
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    signal.alarm(request["timeout"])
    os.environ.update(request["environment"])
    sys.path[:0] = request["path"]
    sys.path.insert(0, str(Path(__file__).parent))
    import driver

    sys.path.pop(0)
    driver.main(request)
    if not request["finalize"]:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


main()
