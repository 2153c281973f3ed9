"""Names of the conformance checks that fail for an operator."""

import torch
from opwheel_tools.testing import checks


def failing_checks(overload):
    """The names of the checks that fail, without ``compiled`` and ``opcheck``, which take long and are not needed."""
    found = set()
    for check, samples in checks.cases(overload, torch.device("cpu")):
        if check not in found and check not in ("compiled", "opcheck"):
            try:
                checks.CHECKS[check](overload, samples)
            except Exception:
                found.add(check)
    return found
