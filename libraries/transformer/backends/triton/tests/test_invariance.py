"""What the library claims about bits, by Triton's interpreter with few rows; on a GPU the conformance kit proves it."""

import pytest
import torch
import transformer_ops
from opwheel.dispatch.invariance import held
from opwheel_tools.invariance.checks import Sizes
from opwheel_tools.testing.checks import Samples, declared
from opwheel_tools.testing.checks.applicable import NotApplicableError
from opwheel_tools.testing.checks.invariance import prove
from transformer_ops_triton._interpreted import IS_INTERPRETED

STATUS = transformer_ops.backends().get("triton")
if not IS_INTERPRETED or STATUS is None or not STATUS.operators:
    pytest.skip("needs TRITON_INTERPRET=1 TRANSFORMER_OPS_BACKENDS=triton", allow_module_level=True)

FEW = Sizes(rows=5, many=0, positions=9, divided=4, widths=(9,))
CPU = torch.device("cpu")
CLAIMS = [
    (overload, claim)
    for overload in transformer_ops.library.overloads.values()
    for claim in held(overload, STATUS)
    if claim not in ("compiled", "grad", "threads")  # of one process, and of the framework's
]
# The interpreter takes milliseconds for each row: of those that take less than a second, one of each kind of kernel.
BY_DAY = {
    ("swiglu", "batch"),
    ("softmax", "batch"),
    ("rope", "batch"),
    ("cross_entropy_rows", "batch"),
    ("rms_norm_backward", "order"),
}


def marks(overload, claim, dtype):
    """What is left to the night."""
    is_by_day = dtype is torch.float32 and (overload.name, claim) in BY_DAY
    return [] if is_by_day else [pytest.mark.slow, pytest.mark.nightly]


CASES = [
    pytest.param(*one, dtype, id=f"{one[0].name}-{one[1]}-{dtype}", marks=marks(*one, dtype))
    for one in CLAIMS
    for dtype in (torch.float32, torch.bfloat16, torch.float16)
]


@pytest.mark.parametrize(("overload", "claim", "dtype"), CASES)
def test_claims(overload, claim, dtype):
    tried = 0
    for index in range(len(declared(overload, dtype, CPU))):
        try:
            prove(claim, overload, Samples(overload, index, dtype, CPU), sizes=FEW)
        except NotApplicableError:
            continue
        tried += 1
        if claim != "prefix" and tried == 2:
            break
    assert tried
