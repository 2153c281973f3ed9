"""The language model trains for a few steps, as plain torch does, and notices a wrong operator."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("transformer_ops")
SCRIPT = Path(__file__).with_name("train.py")


def run(tmp_path, *arguments):
    plot = tmp_path / "losses.png"
    return subprocess.run(
        [sys.executable, *map(str, arguments), "--plot", str(plot), "--sample", "20"],
        env=os.environ | {"OMP_NUM_THREADS": "2", "PYTHONPATH": str(SCRIPT.parent)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.mark.slow
def test_both_sides_learn_the_same(tmp_path):
    report = tmp_path / "report.json"
    done = run(tmp_path, SCRIPT, "--steps", 5, "--no-compile", "--json", report)
    assert done.returncode == 0, done.stderr
    losses = re.findall(
        r"^(?:plain torch|transformer_ops), eager: loss (\d\.\d+), [\d,]+ tokens", done.stdout, re.MULTILINE
    )
    assert len(losses) == 2
    assert all(float(loss) < 4.5 for loss in losses)  # log(103) is 4.6
    assert len(re.findall(r"^[\w ]+: \d+ MiB at the peak of a step", done.stdout, re.MULTILINE)) == 2
    (difference,) = re.findall(r"^largest difference of a loss between the models: (\S+) %$", done.stdout, re.MULTILINE)
    assert float(difference) < 0.1
    assert "1,790,976 parameters" in done.stdout
    measured = json.loads(report.read_text())
    assert measured["tokens_per_second"].keys() == {"plain torch, eager", "transformer_ops, eager"}
    assert all(0 < mebibytes < 5000 for mebibytes in measured["peak_mebibytes"].values())
    assert (tmp_path / "losses.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.nightly
def test_compiled(tmp_path):
    done = run(tmp_path, SCRIPT, "--steps", 2)
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"compiled: loss", done.stdout)) == 2


@pytest.mark.slow
@pytest.mark.nightly
def test_two_processes_learn_what_one_does(tmp_path):
    alone = run(tmp_path, SCRIPT, "--steps", 2, "--no-compile")
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2]
    both = run(tmp_path, *torchrun, SCRIPT, "--steps", 2, "--no-compile")
    assert both.returncode == 0, both.stderr
    one, two = (re.findall(r"eager: loss (\d\.\d+)", done.stdout) for done in (alone, both))
    assert len(one) == 2
    assert [float(loss) for loss in one] == pytest.approx([float(loss) for loss in two], abs=2e-3)


@pytest.mark.nightly
@pytest.mark.slow
def test_a_wrong_operator_is_noticed(tmp_path):
    program = tmp_path / "wrong.py"
    program.write_text(
        "import runpy, sys, transformer_ops\n"
        "right = transformer_ops.cross_entropy\n"
        "transformer_ops.cross_entropy = lambda *given: 1.1 * right(*given)\n"
        f"sys.argv[0] = {str(SCRIPT)!r}\n"
        "if __name__ == '__main__':\n"
        f"    runpy.run_path({str(SCRIPT)!r}, run_name='__main__')\n"
    )
    done = run(tmp_path, program, "--steps", 1, "--no-compile")
    assert done.returncode == 1
    assert "an operator is wrong" in done.stderr
