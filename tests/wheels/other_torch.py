"""Another torch than the one of this environment, PyTorch's build for CUDA, with what tests need beside it.

    python tests/wheels/other_torch.py FOLDER

The Makefile keeps it in a folder, because it takes 5 GB and a minute; tests that find none there make their own.
"""

import subprocess
import sys
from pathlib import Path

VERSION = "2.14.1"
KEPT = Path(sys.prefix) / "other-torch"


def install(folder):
    """Install into a folder for sys.path."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    packages = [f"torch=={VERSION}", "pip", "pytest", "hypothesis", "expecttest", "numpy"]
    subprocess.run([*command, "--target", str(folder), *packages], check=True)


if __name__ == "__main__":
    install(sys.argv[1])
