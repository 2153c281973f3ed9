"""The test of thinking-machines-lab/batch_invariant_ops on a CPU, with products of matrices by ``linear``.

    python batch_invariant_ops_test.py CHECKOUT

Its script compares one row of ``torch.mm`` with the same of many rows, with PyTorch's products and with its own, which
are Triton's. Here ``set_batch_invariant_mode(True)`` puts :func:`transformer_ops.linear` into their place.
"""

from __future__ import annotations

import runpy
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import torch
import transformer_ops
from torch import Tensor


def product(a: Tensor, b: Tensor) -> Tensor:
    """``a @ b``."""
    return transformer_ops.linear(a, b.t())


@contextmanager
def set_batch_invariant_mode(enabled: bool = True) -> Iterator[None]:
    """As the package's, for products alone."""
    with mock.patch.object(torch, "mm", product if enabled else torch.mm):
        yield


if __name__ == "__main__":
    package = types.ModuleType("batch_invariant_ops")
    package.set_batch_invariant_mode = set_batch_invariant_mode  # type: ignore[attr-defined]
    sys.modules["batch_invariant_ops"] = package
    runpy.run_path(str(Path(sys.argv[1]) / "test_batch_invariance.py"), run_name="__main__")
