"""Describes the machine that a benchmark ran on."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import torch

from .._huge_pages import system_setting


def describe_machine(device: str = "cpu") -> dict[str, object]:
    """Processor, cores, Python and torch, and the accelerator if one is measured; no host name."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
    description: dict[str, object] = {
        "cpu": model,
        "capability": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "huge_pages": system_setting(),
    }
    if device != "cpu":
        description["accelerator"] = torch.get_device_module(device).get_device_name()
    return description


def available_memory(device: str) -> int:
    """Bytes that new tensors may take on the device."""
    if device != "cpu":
        return int(torch.get_device_module(device).mem_get_info()[0])
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    # A container's limit may lie far below what the machine has.
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if limit.exists() and used.exists() and limit.read_text().strip() != "max":
        free = min(free, int(limit.read_text()) - int(used.read_text()))
    return free
