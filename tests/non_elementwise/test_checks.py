"""Every operator of this folder through every generic check, from its declared samples."""

import pytest
import torch
from opwheel.dispatch import overloads_of
from opwheel_tools.opinfo.lookup import register_op_infos
from opwheel_tools.testing import checks

from tests.non_elementwise.operators import NAMESPACE, OPERATORS
from tests.non_elementwise.opinfos import OP_INFOS

OVERLOADS = overloads_of(torch.library.Library(NAMESPACE, "FRAGMENT"))
register_op_infos(NAMESPACE, OP_INFOS)
CPU = torch.device("cpu")
# test_cpp_kernels.py compiles the same samples, with other kernels.
LEFT_OUT = ("compiled", "opcheck")


@pytest.mark.parametrize(
    "check", [pytest.param(name, marks=pytest.mark.nightly) if name in LEFT_OUT else name for name in checks.CHECKS]
)
@pytest.mark.parametrize("name", [operator.name for operator in OPERATORS])
def test_check(name, check):
    for found, samples in checks.cases(OVERLOADS[name], CPU):
        if found == check:
            checks.CHECKS[check](OVERLOADS[name], samples)


@pytest.mark.parametrize("check", ["forward mode", "torch.func"])
def test_wrong_derivatives_of_transforms_are_noticed(check, monkeypatch):
    """By these checks alone: every other one would notice a kernel that is wrong, too."""
    right = checks.derivatives.run_kernel
    monkeypatch.setattr(
        checks.derivatives,
        "run_kernel",
        lambda *call: tuple(2 * r if r.is_floating_point() else r for r in right(*call)),
    )
    name, samples = next(one for one in checks.cases(OVERLOADS["rms_norm"], CPU) if one[0] == check)
    with pytest.raises(AssertionError):
        checks.CHECKS[name](OVERLOADS["rms_norm"], samples)
