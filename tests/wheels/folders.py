"""Projects that are built with this Python and installed into a folder, for whichever Python is to run them."""

import os
import subprocess
import sys


def run(*command, **variables):
    """What a command prints; it must succeed."""
    result = subprocess.run(
        [str(word) for word in command], env=os.environ | variables, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, f"{result.stdout[-4000:]}{result.stderr[-2000:]}"
    return result.stdout


def install(site, *projects, **variables):
    """Build each project against what is in ``site`` already, and install it there."""
    options = ["--quiet", "--disable-pip-version-check", "--no-build-isolation", "--no-deps", "--upgrade"]
    for project in projects:
        command = (sys.executable, "-m", "pip", "install", *options, "--target", site, project)
        run(*command, PYTHONPATH=str(site), **variables)
