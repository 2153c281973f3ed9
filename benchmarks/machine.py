"""Describes the machine that a benchmark ran on."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import torch


def describe_machine() -> dict[str, object]:
    """Processor, cores, Python and torch; no host name."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
    return {
        "cpu": model,
        "capability": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "system": f"{platform.system()} {platform.machine()}",
    }
