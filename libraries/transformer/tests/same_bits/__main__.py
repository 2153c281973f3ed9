"""Lets the tests of others judge what the library claims about bits, on a CPU.

    python libraries/transformer/tests/same_bits CHECKOUTS

CHECKOUTS is a folder with clones of RL-Align/RL-Kernel and thinking-machines-lab/batch_invariant_ops, in ``RL-Kernel``
and ``batch_invariant_ops``. Their tests run unchanged. Exit code 1 where one fails, or finds that bits differ.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
RL_KERNEL = ("rms_norm", "swiglu", "lm_head", "op_accuracy", "linear_logp", "ratio_kl", "grpo_loss", "reference_ops")


def rl_kernel(checkout: Path) -> bool:
    """Whether RL-Kernel's tests of what the operators compute pass."""
    tests = [f"tests/test_{name}.py" for name in RL_KERNEL]
    command = [sys.executable, "-m", "pytest", "-p", "rl_kernel_plugin", "-q", "--tb=short", *tests]
    paths = os.pathsep.join((str(HERE), str(checkout)))
    return not subprocess.run(command, cwd=checkout, env=os.environ | {"PYTHONPATH": paths}, check=False).returncode


def batch_invariant_ops(checkout: Path) -> bool:
    """Whether its script finds the same bits, of which it prints two lines for PyTorch's products, and two for ours."""
    command = [sys.executable, str(HERE / "batch_invariant_ops_test.py"), str(checkout)]
    printed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    print(printed)
    ours = printed.partition("Batch-Invariant Mode:")[2]
    return ours.count("Batch Deterministic: True") == 2


def main() -> int:
    """Run both; gives the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkouts", type=Path, help="the folder with both clones")
    checkouts = parser.parse_args().checkouts.resolve()
    held = rl_kernel(checkouts / "RL-Kernel"), batch_invariant_ops(checkouts / "batch_invariant_ops")
    return int(not all(held))


if __name__ == "__main__":
    sys.exit(main())
