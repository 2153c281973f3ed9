"""``--version``: what a report of a defect should say first."""

from __future__ import annotations

from .._version import __version__
from .target import Target


def version(target: Target) -> str:
    """The library's version, if there is a library, the framework's and PyTorch's."""
    import torch

    versions = [f"opwheel {__version__}", f"torch {torch.__version__}"]
    if target.module is not None:
        library = target.open(load_backends=False, check_lock=False)
        versions.insert(0, f"{library.distribution} {library.version}")
    return ", ".join(versions)
