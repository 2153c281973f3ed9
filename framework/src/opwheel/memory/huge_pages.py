"""What the operating system does about huge pages, and what that means for large results on a CPU."""

from __future__ import annotations

import re
from pathlib import Path

_SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def system_setting() -> str:
    """``"always"``, ``"madvise"`` or ``"never"``; ``"unknown"`` where the system does not tell."""
    try:
        chosen = re.search(r"\[(\w+)\]", _SETTING.read_text())
    except OSError:
        chosen = None
    return chosen[1] if chosen else "unknown"


def describe(policy: str) -> str:
    """One line for people.

    Args:
        policy: of the operator library, ``"advise"`` or ``"never"``.
    """
    system = system_setting()
    meaning = {
        "always": "every program has them",
        "madvise": "large results ask for them" if policy == "advise" else "large results do not ask for them",
    }.get(system, "there are none")
    return f"huge pages: {meaning} (policy: {policy}, system: {system})"
