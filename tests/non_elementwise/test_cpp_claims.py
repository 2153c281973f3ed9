"""Wrong claims about kernels in C++ are caught as those about kernels in Python are (test_claims.py)."""

import ctypes

import pytest
import torch
from opwheel.dispatch import Elementwise, Operator, Rows
from opwheel_tools import OpInfo, Sample

from tests.non_elementwise import cpp_library
from tests.non_elementwise.declared import declare
from tests.non_elementwise.failing_checks import failing_checks

NAMESPACE = "waves_claims_cpp"


def matrices(device, dtype, requires_grad):
    yield Sample(torch.randn(3, 4, device=device, dtype=dtype, requires_grad=requires_grad))
    yield Sample(torch.randn(2, 3, 4, device=device, dtype=dtype, requires_grad=requires_grad))


def softmax(x):
    return torch.softmax(x, 0)


OPERATORS = [
    Operator("softmax", softmax),
    Operator("softmax_of_rows", softmax, rule=Rows(x=1)),
    Operator("softmax_elementwise", softmax, rule=Elementwise()),
    Operator("round_to_int8", lambda x: x.round().to(torch.int8), derivatives=None, fake=torch.empty_like),
]


@pytest.fixture(scope="module")
def overloads(tmp_path_factory):
    output = tmp_path_factory.mktemp("claims") / "libwaves_claims.so"
    ctypes.CDLL(str(cpp_library.build(cpp_library.SOURCES / "claims.cpp", output)))
    info = OpInfo(samples=matrices, dtypes=(torch.float32, torch.float64))
    schemas = tuple(f"{one.name}(Tensor x) -> Tensor" for one in OPERATORS)
    return declare(NAMESPACE, schemas, OPERATORS, {one.name: info for one in OPERATORS})


@pytest.mark.parametrize(
    ("name", "noticed_by"),
    [
        ("softmax", set()),
        ("softmax_of_rows", {"vmap", "shardings"}),
        ("softmax_elementwise", {"vmap", "shardings"}),
        ("round_to_int8", {"fake"}),
    ],
)
def test_what_notices(overloads, name, noticed_by):
    found = failing_checks(overloads[name])
    assert noticed_by <= found
    assert noticed_by or not found
