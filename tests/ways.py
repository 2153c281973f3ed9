"""The two ways in which derivatives run."""

import pytest
from opwheel.dispatch import native_autograd

NATIVE = pytest.param(
    "native", marks=pytest.mark.skipif(bool(native_autograd.why_not()), reason=native_autograd.why_not() or "there")
)
WAYS = [NATIVE, "python"]


def go(monkeypatch, way):
    """What is registered from now on has kernels of that way."""
    if way == "python":
        monkeypatch.setattr(native_autograd, "_library", lambda: "the test wants Python")
