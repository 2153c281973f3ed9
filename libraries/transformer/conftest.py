"""What holds for the tests of transformer_ops and of its backends."""

import os
import re
from pathlib import Path

import pytest
from hypothesis import settings

# As for all tests of this repository: how long an example takes says nothing on a loaded machine.
settings.register_profile("unhurried", settings(), deadline=None)
settings.load_profile("unhurried")

HERE = Path(__file__).parent
# Triton's interpreter takes milliseconds for each row: no losses of hundreds of rows, and attention of short heads in
# float64 alone.
SLOW_INTERPRETED = re.compile(
    r"many_rows|fused_loss_in_16|test_fused_linear"
    r"|common_offset.*float32"
    r"|test_attention_is.*(float(?!64)|530|128)"
    r"|turns_by(?!.*float64)|turns_by.*(65|128)"
    r"|one_tensor(?!.*float64)"
    r"|given_positions(?!.*float64)|given_positions.*(257|300)"
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With TRITON_INTERPRET=1 what is slow there is left out, unless TEST_NIGHTLY=1 asks for it."""
    if os.environ.get("TRITON_INTERPRET") == "1" and os.environ.get("TEST_NIGHTLY") != "1":
        here = [item for item in items if item.path.is_relative_to(HERE)]
        slow = [item for item in here if SLOW_INTERPRETED.search(item.name)]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in slow]
