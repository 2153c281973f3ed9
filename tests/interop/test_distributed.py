"""DTensor over real process groups."""

import subprocess
import sys
from pathlib import Path

import pytest

CHECKS = Path(__file__).with_name("distributed_checks.py")


@pytest.mark.slow
@pytest.mark.parametrize("mesh", ["2", "4", "2x2"])
def test_sharding_rules(mesh):
    processes = 2 if mesh == "2" else 4
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    result = subprocess.run([*command, str(CHECKS), mesh], capture_output=True, text=True, check=False, timeout=600)
    assert result.returncode == 0, result.stderr[-6000:]
    assert "all placements right" in result.stdout
