"""Every operator that has samples: the checks that hold for all classes of operators (``checks/``)."""

from __future__ import annotations

import pytest
import torch
from opwheel.dispatch.overload import Overload

from . import checks, refusals
from .report import LEFT_OUT


def test_samples(
    sampled: Overload, check: str, sample_dtype: torch.dtype, device: torch.device, request: pytest.FixtureRequest
) -> None:
    if reason := checks.not_tried(check, device):
        pytest.skip(f"{check}: {reason}")
    count = len(checks.declared(sampled, sample_dtype, device))
    each = [checks.Samples(sampled, index, sample_dtype, device) for index in range(count)]
    for samples in each:
        try:
            checks.CHECKS[check](sampled, samples)
        except Exception as error:
            raise AssertionError(f"{samples!r}: {error}") from error
        finally:
            request.node.user_properties += [(LEFT_OUT, words) for words in samples.left_out]
    if each and all(samples.is_left_out for samples in each):
        pytest.skip(f"{check}: {each[0].left_out[-1]}")
    if check == "errors" and device.type != "cpu":
        refusals.check(request.config.getoption("--library"), str(device), sampled)
