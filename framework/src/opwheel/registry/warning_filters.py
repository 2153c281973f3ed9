"""The filters of warnings are the user's: what a plugin does to them is undone."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def kept_filters() -> Iterator[None]:
    """As ``warnings.catch_warnings``, also where that keeps filters in a context, as without the global lock.

    There another list in the place of ``warnings.filters`` stays when the context is left.
    """
    given = warnings.filters
    try:
        with warnings.catch_warnings():
            yield
    finally:
        if warnings.filters is not given:
            warnings.filters = given
