"""The distributed digits example runs in both modes, notices a wrong distribution, and says how to start it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("digits_distributed.py")
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2]

NOT_SHARDED = """
import torch.distributed.fsdp
torch.distributed.fsdp.fully_shard = lambda module, mesh: None
"""
COMMUNICATES = """
import muladd
from torch.distributed.tensor import DTensor, Replicate
fma = muladd.fma
def gathering_fma(*args):
    return fma(*(x.redistribute(placements=[Replicate()]) if isinstance(x, DTensor) else x for x in args))
muladd.fma = gathering_fma
"""


def run(*arguments):
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(SCRIPT.parent)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.slow
def test_both_modes_end_where_a_single_process_does():
    result = run(*TORCHRUN, SCRIPT, "--epochs", 3)
    assert result.returncode == 0, result.stderr
    accuracies = re.findall(r"^test accuracy: (\d+\.\d) %$", result.stdout, re.MULTILINE)
    assert len(accuracies) == 2
    assert all(float(accuracy) >= 85 for accuracy in accuracies)
    (line,) = re.findall(r"^placements of .*$", result.stdout, re.MULTILINE)
    assert line.count("Shard(dim=1)") == 4
    (line,) = re.findall(r"^collectives in .*$", result.stdout, re.MULTILINE)
    assert line.endswith("one block: 1, in its muladd.fma and muladd.add: 0")


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize(
    ("mode", "mistake", "message"),
    [
        ("fsdp", NOT_SHARDED, "fsdp: the distributed and the single process differ by more than rounding"),
        ("tensor-parallel", COMMUNICATES, "tensor-parallel: an operator of muladd communicates"),
    ],
    ids=["not sharded", "communicates"],
)
def test_mistake_is_one_line_and_exit_code_1(tmp_path, mode, mistake, message):
    program = tmp_path / "mistaken.py"
    program.write_text(f"{mistake}\nimport runpy\nrunpy.run_path({str(SCRIPT)!r}, run_name='__main__')\n")
    result = run(*TORCHRUN, program, "--mode", mode, "--epochs", 1)
    assert result.returncode == 1
    assert result.stderr.count(message) == 1, result.stderr


@pytest.mark.slow
def test_without_torchrun_one_line_says_how_to_start():
    result = run(SCRIPT)
    assert result.returncode == 2
    assert result.stderr.strip() == f"start it with: torchrun --standalone --nproc-per-node 2 {SCRIPT}"
