"""A command that prints nothing is seen to run."""

import re
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).parents[2] / "release/progress.py"


def run(code):
    command = [sys.executable, PROGRAM, sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_dots_while_it_is_quiet():
    result = run("import time; print('begun'); time.sleep(4.5); print('done')")
    assert re.fullmatch(r"(\.+\n)?begun\n\.+\ndone\n", result.stdout)  # on a busy machine Python starts slowly
    assert (result.returncode, result.stderr) == (0, "")


def test_quick_commands_are_as_they_are():
    result = run("import sys; print('out'); print('error', file=sys.stderr); sys.exit(3)")
    assert re.fullmatch(r"(\.+\n)?out\n", result.stdout)
    assert (result.stderr, result.returncode) == ("error\n", 3)
