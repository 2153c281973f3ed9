"""The two commands of the README say in one line what a machine lacks."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def make(tmp_path, *, tools=("python3", "g++"), python=None, **variables):
    """Run the set-up check in an environment that has only the named tools."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in ("sed", "find", "sh", *tools):
        # Not the python3 on PATH: a version manager's is a script with needs of its own.
        (folder / tool).symlink_to(Path(sys.executable).resolve() if tool == "python3" else shutil.which(tool))
    if python is not None:
        (folder / "python3").write_text(python)
        (folder / "python3").chmod(0o755)
    command = [shutil.which("make"), "-C", str(ROOT), "tools"]
    return subprocess.run(
        command,
        env={"PATH": str(folder), "HOME": str(tmp_path), **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def test_all_there(tmp_path):
    assert make(tmp_path).returncode == 0


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"tools": ("g++",)}, ["no python3", "3.10"]),
        ({"tools": ("python3",)}, ["no C++ compiler", "g++"]),
        ({"CXX": "no-such-compiler"}, ["no-such-compiler"]),
        ({"tools": ("g++",), "python": "#!/bin/sh\ncase $2 in *version_info*) exit 1;; esac\n"}, ["older than 3.10"]),
        ({"tools": ("g++",), "python": "#!/bin/sh\ncase $2 in *ensurepip*) exit 1;; esac\n"}, ["python3-venv"]),
    ],
    ids=["no python", "no compiler", "wrong CXX", "old python", "no venv"],
)
def test_one_clear_line(tmp_path, given, words):
    result = make(tmp_path, **given)
    assert result.returncode != 0
    lines = [line for line in (result.stdout + result.stderr).splitlines() if line.startswith("muladd:")]
    assert len(lines) == 1
    assert all(word in lines[0] for word in words)
    assert "Traceback" not in result.stdout + result.stderr
