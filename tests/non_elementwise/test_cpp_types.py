"""Every type of a schema reaches a C++ kernel as opwheel/kernels.h says: what has arrived comes back as text."""

import ctypes
import gc
import weakref

import pytest
import torch

from tests.non_elementwise import cpp_library

X = torch.zeros(1)


@pytest.fixture(scope="session")
def ops():
    cpp_library.open_types()
    return torch.ops.waves_types


def text(result):
    return bytes(result.tolist()).decode()


VALUES = [
    ("number", 0.1, "0.10000000000000001"),
    ("number", 3, "3"),
    ("integer", -(2**40), "-1099511627776"),
    ("symbolic", 7, "7"),
    ("boolean", True, "True"),
    ("boolean", False, "False"),
    ("string", "grüße", "grüße"),
    ("string", "", ""),
    ("dtype", torch.bfloat16, "torch.bfloat16"),
    ("dtype", torch.float8_e4m3fn, "torch.float8_e4m3fn"),
    ("device", torch.device("cuda", 1), "cuda:1"),
    ("layout", torch.strided, "strided"),
    ("memory_format", torch.channels_last, "channels_last"),
    ("tensor", torch.zeros(4), "tensor of 4"),
    ("numbers", [1.5, -2.0], "[1.5, -2]"),
    ("integers", [3, 4], "[3, 4]"),
    ("integers", 5, "[5, 5]"),  # int[2]
    ("symbolics", [3, 4], "[3, 4]"),
    ("booleans", [True, False], "[True, False]"),
    ("strings", ["a", "bc"], "[a, bc]"),
    ("strings", [], "[]"),
    ("tensors", [torch.zeros(2), torch.zeros(3)], "[tensor of 2, tensor of 3]"),
    ("optional_tensors", [None, torch.zeros(3)], "[None, tensor of 3]"),
    ("optional_list", [torch.zeros(3)], "[tensor of 3]"),
    ("generator", torch.Generator(), "generator on cpu"),
]


@pytest.mark.parametrize(("name", "value", "expected"), VALUES, ids=lambda v: str(v)[:30])
def test_value(ops, name, value, expected):
    assert text(getattr(ops, name)(X, value)) == expected


FIRST = {row[0]: row for row in reversed(VALUES)}
CAN_BE_NONE = (
    *("number", "integer", "symbolic", "boolean", "string", "dtype", "device", "layout", "memory_format"),
    *("tensor", "generator", "numbers", "integers", "symbolics", "booleans", "strings"),
)


@pytest.mark.parametrize("name", CAN_BE_NONE)
def test_optional(ops, name):
    operator = getattr(ops, f"optional_{name}")
    _, value, expected = FIRST[name]
    assert text(operator(X, None)) == "None"
    assert text(operator(X, value)) == expected


def test_an_optional_list_of_tensors_can_be_none(ops):
    assert text(ops.optional_list(X, None)) == "None"


def test_twelve_arguments_and_defaults(ops):
    assert text(ops.twelve(X, 1, 2.5, True, "d")) == "1; 2.5; True; d; 5; 0.5; [7, 8]; None; None; torch.float64; l"
    given = ops.twelve(X, 1, 2.5, False, "d", 6, 1.5, g=[9], h=3, i=X, j=torch.int8, k="m")
    assert text(given) == "1; 2.5; False; d; 6; 1.5; [9]; 3; tensor of 1; torch.int8; m"


@pytest.mark.parametrize(
    ("x", "words"),
    [
        (torch.zeros(2, 4), r"argument 'x' has shape \(2, 4\), expected \(-1, 3\)"),
        (torch.zeros(3), r"argument 'x' has shape \(3,\), expected \(-1, 3\)"),
        (torch.zeros(3, 2).T, "argument 'x' is not contiguous"),
    ],
    ids=["another size", "another number of dimensions", "transposed"],
)
def test_a_shape_of_which_one_size_is_free(ops, x, words):
    ops.triples(torch.zeros(2, 3))
    with pytest.raises(RuntimeError, match=words):
        ops.triples(x)


def test_a_generator_decides_what_is_drawn(ops):
    x = torch.ones(1000, dtype=torch.float64)
    first, again, other = (ops.dropout(x, 0.25, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert torch.equal(first[0], again[0])
    assert torch.equal(first[1], again[1])
    assert not torch.equal(first[1], other[1])
    torch.testing.assert_close(first[0], x * first[1] / 0.75)
    assert 650 < int(first[1].sum()) < 850
    torch.manual_seed(3)
    drawn = ops.dropout(x, 0.25)[1]
    torch.manual_seed(3)
    assert torch.equal(drawn, ops.dropout(x, 0.25)[1])


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("tensor", lambda tensor: tensor),
        ("tensors", lambda tensor: [tensor, tensor]),
        ("optional_tensor", lambda tensor: tensor),
        ("optional_tensors", lambda tensor: [None, tensor]),
        ("optional_list", lambda tensor: [tensor]),
    ],
)
def test_a_tensor_is_given_back(ops, name, given):
    tensor = torch.zeros(3)
    watched = weakref.ref(tensor)
    getattr(ops, name)(X, given(tensor))
    del tensor
    gc.collect()
    assert watched() is None


EVERY_VALUE = [(name, value) for name, value, _ in VALUES]
EVERY_VALUE += [(f"optional_{name}", FIRST[name][1]) for name in CAN_BE_NONE]


@pytest.mark.parametrize(("name", "value"), EVERY_VALUE, ids=lambda v: str(v)[:30])
def test_nothing_stays_allocated(ops, name, value):
    cpp_library.check_nothing_stays_allocated(getattr(ops, name).default, X, value)


SCALAR = """
#include <torch/csrc/stable/library.h>
static void kernel(StableIValue*, uint64_t, uint64_t) {}
STABLE_TORCH_LIBRARY(waves_scalar, m) { m.def("f(Tensor x, Scalar value) -> ()"); }
STABLE_TORCH_LIBRARY_IMPL(waves_scalar, CPU, m) { m.impl("f", &kernel); }
"""


def test_pytorch_passes_no_scalar(tmp_path):
    """Why a Scalar is refused when a kernel is compiled: PyTorch would refuse every call."""
    source = tmp_path / "scalar.cpp"
    source.write_text(SCALAR)
    ctypes.CDLL(str(cpp_library.build(source, tmp_path / "libscalar.so", torch_target="2.13")))
    with pytest.raises(RuntimeError, match=r"Not yet supported conversion .* schema type: Scalar"):
        torch.ops.waves_scalar.f(X, 2.5)
