"""A pytest plugin by which Liger-Kernel's own tests judge these operators, on a CPU: ``pytest -p liger_plugin``.

The operators take the place of Liger-Kernel's by ``transformer_ops.liger.install()``. What they leave to Liger-Kernel
is skipped, since its kernels need a GPU; a test in which no operator of ours ran is a failure, unless it is one that
asks for an error. Of the tests themselves only what says whether a device has bfloat16 is replaced.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import transformer_ops
import transformer_ops.liger

_calls: list[str] = []


def pytest_configure() -> None:
    """Replace them before the tests are imported."""
    replaced = transformer_ops.liger.install().replaced
    ops = import_module("liger_kernel.ops")
    for name in replaced:
        ours = getattr(ops, name)
        ours.apply = staticmethod(_noted(name, ours.apply))
        ours.original.apply = staticmethod(_skipping(name))
    # Liger-Kernel knows GPUs that have bfloat16, and takes a CPU for one that has not.
    import_module("test.utils").supports_bfloat16 = lambda: True  # type: ignore[attr-defined]


def _noted(name: str, apply: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(apply)
    def call(*args: Any) -> Any:
        _calls.append(name)
        return apply(*args)

    return call


def _skipping(name: str) -> Callable[..., Any]:
    def skip(*_: Any) -> Any:
        pytest.skip(f"this call is left to {name}, which needs a GPU")

    return skip


def pytest_report_header() -> str:
    """Whose tests judge what."""
    (tests,) = re.findall(r'^version = "(.+)"', Path("pyproject.toml").read_text(), re.MULTILINE)
    installed = ", ".join(f"{name} {version(name)}" for name in ("liger-kernel", "torch"))
    return f"Liger-Kernel's tests of {tests} judge transformer-ops-core {transformer_ops.__version__}, with {installed}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Any:
    """A test that passed without a call of ours would say nothing."""
    _calls.clear()
    result = yield
    if not _calls:
        pytest.fail(f"no operator of transformer_ops ran in {item.name}")
    return result
