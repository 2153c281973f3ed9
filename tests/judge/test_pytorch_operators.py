"""Nothing is found in PyTorch's own operators, written again in Python (``torch._refs``), but what is explained."""

import pytest
from opwheel_tools.judge import judge

pytestmark = pytest.mark.usefixtures("in_this_process")

# Of those that are in torch._refs, in aten and in PyTorch's OpInfos: drawn with the seed 52, every third, with samples.
NAMES = (
    *("broadcast_to", "ceil", "clone", "constant_pad_nd", "cumsum", "diagonal_scatter", "eq", "frac", "heaviside"),
    *("igamma", "index_select", "le", "log10", "logaddexp2", "logsumexp", "meshgrid", "permute", "prod", "reshape_as"),
    *("signbit", "squeeze_copy", "stft"),
)
EXPLAINED = {
    "constant_pad_nd": "its result requires grad, and its input gets none",
    "diagonal_scatter": "the gradient of the source is missing, and that of the input is one on the diagonal",
    "stft": "it centers unless it is told otherwise, the overload of aten without that argument does not",
}


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_found_but_what_is_explained(name):
    verdict = judge(f"torch._refs:{name}", reference=f"aten::{name}")
    assert verdict.is_right == (name not in EXPLAINED), verdict.report
    assert verdict.tried > 100


def test_an_operator_of_overloads_alone_is_judged():
    """bucketize has Tensor and Scalar, and no default."""
    assert judge("aten::bucketize", reference="torch:bucketize").is_right
