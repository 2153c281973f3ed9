"""Scripts in several processes of one group: how tests run them, and how they end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).parents[1]


def in_processes(count: int, *arguments: str, python: str = sys.executable) -> str:
    """What a script prints that torchrun runs in so many processes, of another Python where one is named."""
    command = [python, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))}
    result = subprocess.run(
        [*command, *arguments], capture_output=True, text=True, check=False, timeout=600, env=environment
    )
    assert result.returncode == 0, result.stderr[-6000:]
    return result.stdout


def leave(said: str) -> NoReturn:
    """End a process of the group when all have come here; the first of them prints what its test looks for."""
    from torch import distributed  # which tests that only start scripts need not import

    distributed.barrier()
    if distributed.get_rank() == 0:
        print(said)
    distributed.destroy_process_group()
    # gloo's threads may outlive the group, and now and then abort the interpreter while it shuts down.
    sys.stdout.flush()
    os._exit(0)
