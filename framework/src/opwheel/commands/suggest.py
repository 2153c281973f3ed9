"""``doctor --suggest``: the one command that installs what fits this machine."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .. import Library

ROOT = Path("/")
_INTEL, _INTEL_DRIVERS = "0x8086", {"i915", "xe"}


def suggest(library: Library) -> None:
    """Print ``pip install ...`` on stdout; why, and what it does not do, on stderr."""
    import torch  # not at the top: no command that fails early waits for it

    seen = dict(_devices())
    chosen = {library.distribution: None}  # in this order; one may have backends for several devices
    for backend in library.policy.backends.values():
        if backend.device in seen:
            chosen[backend.distribution] = None
            print(f"{backend.distribution}: {seen[backend.device]}", file=sys.stderr)
    for device in ("cuda", "xpu"):
        if device in seen and getattr(torch.version, device, None) is None:
            print(f"install PyTorch's build for {device} first: torch {torch.__version__} lacks it", file=sys.stderr)
    print(f"pip install {shlex.join(chosen)}")


def _devices() -> Iterator[tuple[str, str]]:
    """The device types that this machine has, and how that was seen; no driver is opened."""
    yield "cpu", "every machine has a CPU"
    driver = ROOT / "proc/driver/nvidia/version"
    if driver.exists():
        yield "cuda", f"there is an NVIDIA driver, {driver}"
    for card in sorted(ROOT.glob("sys/class/drm/card*/device")):
        vendor, name = card / "vendor", card / "driver"
        if vendor.exists() and vendor.read_text().strip() == _INTEL and name.resolve().name in _INTEL_DRIVERS:
            yield "xpu", f"there is an Intel GPU, {card}"
            return
