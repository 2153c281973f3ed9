"""Which of many tests that are alike `make test` runs; `make nightly` runs the others, too."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def first_of(values: Iterable[Any], count: int = 1) -> list[Any]:
    """Values for ``parametrize``: from the first so many on, they are marked "nightly"."""
    return [value if i < count else pytest.param(value, marks=pytest.mark.nightly) for i, value in enumerate(values)]
