"""Every operator of this folder through every generic check, from its declared samples."""

import pytest
import torch
from opwheel.dispatch import overloads_of
from opwheel.testing import checks

from tests.general.operators import NAMESPACE, OPERATORS

OVERLOADS = overloads_of(torch.library.Library(NAMESPACE, "FRAGMENT"))
CPU = torch.device("cpu")


@pytest.mark.parametrize("check", checks.CHECKS)
@pytest.mark.parametrize("name", [operator.name for operator in OPERATORS])
def test_check(name, check):
    for found, samples in checks.cases(OVERLOADS[name], CPU):
        if found == check:
            checks.CHECKS[check](OVERLOADS[name], samples)
