"""Writes new projects: a backend for this library, or another operator library. What it writes builds as it is."""

from .backend import LANGUAGES, new_backend
from .names import ScaffoldError
from .operator_library import KINDS, new_library
from .render import Project

__all__ = ["KINDS", "LANGUAGES", "Project", "ScaffoldError", "new_backend", "new_library"]
