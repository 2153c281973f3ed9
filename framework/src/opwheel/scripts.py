"""Console scripts of operator libraries.

A library's pyproject.toml says, in one line::

    [project.scripts]
    waves = "opwheel.scripts:waves"

The name behind the colon is the library's module. Any name is there, so that the script knows its library whatever file
it is installed, renamed or copied to, and without importing it: a command first decides what the import may open.
"""

from collections.abc import Callable
from functools import partial

from .commands import main


def __getattr__(name: str) -> Callable[[], None]:
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return partial(main, name)
