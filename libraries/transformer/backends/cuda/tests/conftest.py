"""These tests need a GPU; where one is promised, they may not skip."""

import os

import pytest
import torch
import transformer_ops
from opwheel.registry import State

REQUIRED = "cuda" in os.environ.get("TRANSFORMER_OPS_REQUIRE", "").split(",")


@pytest.fixture(autouse=True)
def _device():
    torch.manual_seed(0)
    status = transformer_ops.backends()["cuda"]
    if status.state is State.LOADED:
        return
    if REQUIRED:
        pytest.fail(f"TRANSFORMER_OPS_REQUIRE promises a GPU, but the backend is {status.state}: {status.reason}")
    pytest.skip(f"needs a GPU; the backend is {status.state}: {status.reason}")
