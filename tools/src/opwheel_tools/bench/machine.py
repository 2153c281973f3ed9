"""Describes the machine that a benchmark ran on."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import torch
from opwheel.memory.huge_pages import system_setting


def describe_machine(device: str = "cpu") -> dict[str, object]:
    """Processor, cores, Python and torch, and the accelerator if one is measured; no host name."""
    description: dict[str, object] = {
        "cpu": processor(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "last_level_caches_mib": last_level_caches() >> 20,
        "huge_pages": system_setting(),
    }
    if device != "cpu":
        description["accelerator"] = torch.get_device_module(device).get_device_name()
    return description


def processor() -> str:
    """The name of the processor; ``"unknown"`` where the system does not say."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def last_level_caches(cpus: Path = Path("/sys/devices/system/cpu")) -> int:
    """Bytes of all of the machine's last-level caches together; 0 where the system does not say."""
    sizes = {}
    for folder in cpus.glob("cpu[0-9]*/cache"):
        level, cache = max(
            ((int((one / "level").read_text()), one) for one in folder.glob("index*")), default=(0, None)
        )
        if cache is not None:
            # Processors that share one name the same processors.
            sizes[level, (cache / "shared_cpu_list").read_text()] = (cache / "size").read_text()
    units = {"K": 10, "M": 20, "G": 30}
    return sum(int(size.strip()[:-1]) << units[size.strip()[-1]] for size in sizes.values())


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
