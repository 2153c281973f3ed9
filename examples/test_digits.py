"""The digits example runs, learns, notices wrong operators, and does without a C++ compiler."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("digits.py")


def run(*arguments, **environment):
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.mark.slow
def test_learns_and_agrees_with_plain_torch():
    result = run(SCRIPT, "--epochs", 15, "--no-compile")
    assert result.returncode == 0, result.stderr
    (accuracy,) = re.findall(r"^test accuracy: (\d+\.\d) %$", result.stdout, re.MULTILINE)
    assert float(accuracy) >= 95
    (times,) = re.findall(r"^time per epoch .*muladd \d+\.\d ms, plain torch \d+\.\d ms$", result.stdout, re.MULTILINE)
    assert "not a benchmark" in times
    assert re.search(r"^an epoch with muladd takes \d+ % (less|more) time", result.stdout, re.MULTILINE)
    assert "torch.compile" not in result.stdout


def test_wrong_gradient_is_one_line_and_exit_code_1():
    wrong = "muladd.fma = lambda a, b, c: a * b + c.detach()"
    program = f"import muladd, runpy; {wrong}; runpy.run_path({str(SCRIPT)!r}, run_name='__main__')"
    result = run("-c", program, "--epochs", 1)
    assert result.returncode == 1
    assert result.stderr.strip() == "muladd and plain torch differ in eager mode by more than rounding"


@pytest.mark.slow
def test_goes_on_eagerly_without_a_compiler(tmp_path):
    result = run(SCRIPT, "--epochs", 1, CXX="/nonexistent", TORCHINDUCTOR_CACHE_DIR=str(tmp_path))
    assert result.returncode == 0, result.stderr
    (reason,) = re.findall(r"^torch.compile does not work here.*going on eagerly: (.+)$", result.stdout, re.MULTILINE)
    assert "compiler" in reason


@pytest.mark.slow
def test_compiled_agrees_with_plain_torch():
    result = run(SCRIPT, "--epochs", 2)
    assert result.returncode == 0, result.stderr
    if "torch.compile does not work here" in result.stdout:
        pytest.skip(result.stdout.splitlines()[-1])
    assert len(re.findall(r"^test accuracy: ", result.stdout, re.MULTILINE)) == 1
    assert len(re.findall(r"^time per epoch ", result.stdout, re.MULTILINE)) == 2
    assert len(re.findall(r"^muladd and plain torch: .* images right", result.stdout, re.MULTILINE)) == 2
