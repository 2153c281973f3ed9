"""Builds shared libraries with setuptools and ninja: what opwheel's own setup.py needs.

``opwheel_tools.build`` extends it for operator libraries and their backends. Nothing here imports torch or the rest of
opwheel, and nothing else in opwheel imports setuptools.
"""

from .commands import commands
from .extensions import NativeLibrary

__all__ = ["NativeLibrary", "commands"]
