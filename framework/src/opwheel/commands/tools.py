"""The commands of ``opwheel-tools``, which production does without: entry points of the group ``opwheel.commands``."""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, PackageNotFoundError, distribution
from typing import Any

from .target import Target, UsageError

# By name, what help says of them.
COMMANDS = {
    "check": "run the conformance kit on a backend",
    "bench": "measure the operators against their alternatives",
    "new-backend": "write a backend project to start from",
    "new-library": "write the projects of an operator library to start from",
    "audit": "test the operators of a library that knows nothing of opwheel",
    "export-kernel": "write a library as a kernel for Hugging Face's kernels package",
    "judge": "compare any callable with a reference in PyTorch",
}
OF_NO_LIBRARY = ("new-library", "audit", "export-kernel", "judge")  # of the script ``opwheel`` alone


@cache
def _installed() -> dict[str, EntryPoint]:
    try:
        found = distribution("opwheel-tools").entry_points  # of all distributions, one that is damaged would end this
    except PackageNotFoundError:
        return {}
    return {point.name: point for point in found if point.group == "opwheel.commands"}


def is_missing(name: str) -> bool:
    """Whether nothing that is installed has it."""
    return name not in _installed()


def load(name: str, what: str) -> Any:
    """What is registered under a name.

    Args:
        name: of the entry point.
        what: needs it, for the message.

    Raises:
        UsageError: nothing is.
    """
    if is_missing(name):
        raise UsageError(f"{what} needs opwheel-tools: pip install opwheel-tools")
    return _installed()[name].load()


def run(command: str, name: str, words: list[str], target: Target) -> int:
    """Run a command: the exit status.

    Raises:
        UsageError: opwheel-tools is not installed.
    """
    status: int = load(command, f"`{name}`")(name, words, target)
    return status
