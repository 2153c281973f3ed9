"""Every operator that has samples: the checks that hold for all classes of operators (``checks/``)."""

from __future__ import annotations

import pytest
import torch
from opwheel.dispatch.overload import Overload

from . import checks, refusals


def test_samples(
    sampled: Overload, check: str, sample_dtype: torch.dtype, device: torch.device, request: pytest.FixtureRequest
) -> None:
    if reason := checks.not_tried(check, device):
        pytest.skip(f"{check}: {reason}")
    for index in range(len(checks.declared(sampled, sample_dtype, device))):
        samples = checks.Samples(sampled, index, sample_dtype, device)
        try:
            checks.CHECKS[check](sampled, samples)
        except Exception as error:
            raise AssertionError(f"{samples!r}: {error}") from error
    if check == "errors" and device.type != "cpu":
        refusals.check(request.config.getoption("--library"), str(device), sampled)
