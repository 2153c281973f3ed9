"""Checks the schemas in a library that was just compiled, before anything opens it: PyTorch would end the process."""

from __future__ import annotations

from pathlib import Path

from .toolchain import ToolchainError


def check(library: Path) -> None:
    """Have PyTorch read every schema.

    Raises:
        ToolchainError: naming the one that it does not understand, with its reason.
    """
    from ..registry.abi import read_notes  # the build needs neither where nothing is built

    for text in read_notes(library).schemas:
        _check(text)


def _check(text: str) -> None:
    from .._torch_private import parse_schema

    if "::" in text.partition("(")[0]:
        raise ToolchainError(f"the schema {text!r} names a namespace; leave it out, it is the library's")
    try:
        parse_schema(text)
    except RuntimeError as error:
        reason = str(error).partition("\n")[0].strip()
        if "seen_default_arg" in reason:  # an assertion of PyTorch's
            reason = "an argument without a default follows one with a default"
        raise ToolchainError(f"PyTorch does not understand the schema {text!r}: {reason}") from None
