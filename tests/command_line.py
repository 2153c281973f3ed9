"""Runs a command in this process, as its script would: importing PyTorch takes longer than most commands."""

from __future__ import annotations

import contextlib
import io
from typing import NamedTuple

from opwheel.commands import run


class Result(NamedTuple):
    exit_code: int
    stdout: str
    stderr: str

    @property
    def output(self) -> str:
        """Both streams, one after the other."""
        return self.stdout + self.stderr


def invoke(library: str | None, *words: object) -> Result:
    """Run ``<library> WORDS``, or ``opwheel WORDS`` where the library is None."""
    stdout, stderr = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
        try:
            code = run(library or "opwheel", library, [*map(str, words)])
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return Result(code, stdout.getvalue(), stderr.getvalue())
