"""Asks an operator library that has just been built what it declares: imports it, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from opwheel._build.toolchain import ToolchainError


def run_with(package: str, root: Path, module: str, *arguments: str) -> None:
    """Run a module of this package, as a program, where the library can be imported.

    Args:
        package: the library's.
        root: the folder that has the package's.
        module: ``"stubs"``, whose arguments begin with the package.
        arguments: the others.

    Raises:
        ToolchainError: the library cannot be imported.
    """
    # Alone: no backend, no lock and no policy of the machine that builds it.
    environment = {key: value for key, value in os.environ.items() if not key.startswith(f"{package.upper()}_")}
    environment[f"{package.upper()}_AUTOLOAD"] = "0"
    environment["PYTHONPATH"] = os.pathsep.join([str(root), *filter(None, sys.path)])
    # -B: the folder becomes a wheel, which has no compiled modules.
    command = [sys.executable, "-B", "-m", f"{__package__}.{module}", package, *arguments]
    done = subprocess.run(command, env=environment, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ToolchainError(f"{package} was built, but cannot be imported to read its declarations:\n{done.stderr}")
