"""DTensor over real process groups."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.portions import first_of

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def in_processes(count, *arguments):
    """What a script prints that torchrun runs in so many processes."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))}
    result = subprocess.run(
        [*command, *arguments], capture_output=True, text=True, check=False, timeout=600, env=environment
    )
    assert result.returncode == 0, result.stderr[-6000:]
    return result.stdout


@pytest.mark.slow
@pytest.mark.parametrize("mesh", first_of(["2", "4", "2x2"]))
def test_sharding_rules(mesh):
    output = in_processes(2 if mesh == "2" else 4, str(HERE / "distributed_checks.py"), mesh)
    assert "all placements right" in output


@pytest.mark.slow
def test_operators_of_every_class():
    assert "all operators right" in in_processes(2, str(HERE / "distributed_rows.py"))
