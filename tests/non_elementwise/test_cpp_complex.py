"""Complex numbers and float8 in C++ kernels: values, PyTorch's rules of conjugation, and what the kit makes of both."""

import ctypes

import pytest
import torch
from opwheel.dispatch import Operator
from opwheel_tools import OpInfo
from opwheel_tools.testing import checks
from opwheel_tools.testing.checks import agreement

from tests.non_elementwise import complex_library, cpp_library

from .declared import declare

FLOAT8 = complex_library.FLOAT8
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def overloads(tmp_path_factory):
    output = tmp_path_factory.mktemp("complex") / "libwaves_complex.so"
    ctypes.CDLL(str(cpp_library.build(cpp_library.SOURCES / "complex.cpp", output)))
    return complex_library.declare_operators()


@pytest.fixture(scope="module")
def ops(overloads):
    assert overloads
    return torch.ops.waves_complex


def numbers(*shape, dtype=torch.complex128):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(shape, dtype=dtype, generator=generator).requires_grad_()


@pytest.mark.slow
@pytest.mark.parametrize("operator", complex_library.OP_INFOS)
def test_the_kit(overloads, operator):
    """Every check that the kit has, of derivatives in complex128 as well as in float64."""
    tried = set()
    for check, samples in checks.cases(overloads[operator], CPU):
        checks.CHECKS[check](samples.overload, samples)
        tried.add((check, samples.dtype))
    assert {("values", dtype) for dtype in complex_library.OP_INFOS[operator].dtypes} <= tried
    if torch.complex128 in complex_library.OP_INFOS[operator].dtypes:
        assert {("second derivatives", torch.complex128), ("second derivatives", torch.float64)} <= tried


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_forward(ops, dtype):
    x, w = numbers(3, 4, dtype=dtype).detach(), numbers(4, 3, dtype=dtype).detach().t()
    torch.testing.assert_close(ops.product(x, w), x * w)
    torch.testing.assert_close(ops.power(x), x.abs().square())
    assert ops.power(x).dtype is dtype.to_real()
    torch.testing.assert_close(ops.row_sum(x), x.sum(-1))


def test_gradients_are_conjugated_as_pytorch_s(ops):
    """Of a product, and of what is real."""
    x, w = numbers(3, 4), numbers(3, 4)
    grad = numbers(3, 4).detach()
    got = torch.autograd.grad(ops.product(x, w), (x, w), grad)
    want = torch.autograd.grad(x * w, (x, w), grad)
    assert all(map(torch.equal, got, (one.resolve_conj() for one in want)))
    torch.testing.assert_close(torch.autograd.grad(ops.power(x).sum(), x), (2 * x.detach(),))
    assert torch.autograd.gradcheck(ops.product, (x, w))
    assert torch.autograd.gradgradcheck(ops.product, (x, w))
    assert torch.autograd.gradcheck(ops.power, (x,))
    assert torch.autograd.gradcheck(ops.row_sum, (x,))


def test_what_is_conjugated_or_negated_only_in_name(ops):
    """PyTorch writes these out before a kernel sees them, also among gradients."""
    x, w = numbers(3, 4), numbers(3, 4)
    assert x.conj().is_conj()
    assert torch.equal(ops.product(x.conj(), w), x.conj().resolve_conj() * w)
    imaginary = x.detach().conj().imag
    assert imaginary.is_neg()
    assert torch.equal(ops.product(imaginary, imaginary), imaginary.resolve_neg().square())
    (got,) = torch.autograd.grad(ops.product(x.conj(), w), x, w.detach().conj())
    (want,) = torch.autograd.grad(x.conj() * w, x, w.detach().conj())
    torch.testing.assert_close(got, want)


def test_other_dtypes_are_refused(ops):
    x = torch.ones(3)
    for refused in (torch.int64, torch.complex32, torch.float16, torch.float8_e5m2):
        with pytest.raises(RuntimeError, match=f"argument 'x' is {refused}, expected one of .*torch.complex64"):
            ops.row_sum(x.to(refused))
    with pytest.raises(RuntimeError, match=r"argument 'w' is torch.float32"):
        ops.product(x.to(torch.complex64), x)


@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
def test_float8(ops, dtype):
    """Rounded as PyTorch rounds, at every place of the range, with nan; stored and copied bit for bit."""
    x = torch.cat([torch.linspace(-500, 500, 4001), torch.tensor([0.0, -0.0, 1e-4, 2.0**-9, torch.nan, torch.inf])])
    scale = torch.tensor(0.5)
    got, want = ops.quantize(x, scale, dtype), (x / scale).to(dtype)
    assert torch.equal(got.view(torch.uint8), want.view(torch.uint8))
    torch.testing.assert_close(ops.dequantize(got, scale), want.float() * scale, rtol=0, atol=0, equal_nan=True)
    every = torch.arange(256, dtype=torch.uint8).view(dtype)
    assert torch.equal(ops.copy(every).view(torch.uint8), every.view(torch.uint8))
    for strided in (every[::2], every.view(16, 16).t()):
        assert torch.equal(ops.copy(strided).view(torch.uint8), strided.contiguous().view(torch.uint8))


@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
def test_autocast_leaves_float8_alone(ops, dtype):
    q = torch.ones(3).to(dtype)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert ops.copy(q).dtype is dtype


# ---- what the kit sees in them ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("conjugates", [True, False])
def test_the_kit_sees_a_gradient_that_is_not_conjugated(overloads, conjugates):
    """In float64 there is nothing to see."""
    namespace = f"waves_conjugates_{conjugates}".lower()
    library = torch.library.Library(namespace, "DEF")
    schema = "product(Tensor x, Tensor w) -> Tensor"
    library.define(schema)
    library.impl("product", lambda x, w: x * w, "CPU")

    def backward(grad, x, w):
        return (grad * w.conj(), grad * x.conj()) if conjugates else (grad * w, grad * x)

    info = OpInfo(samples=complex_library.OP_INFOS["product"].samples, dtypes=complex_library.COMPLEX)
    operator = Operator("product", reference=torch.mul, derivatives={"x, w": backward})
    one = declare(namespace, (schema,), [operator], {"product": info})["product"]
    failed = set()
    for check, samples in checks.cases(one, CPU):
        if check == "first derivatives":
            try:
                checks.CHECKS[check](one, samples)
            except AssertionError:
                failed.add(samples.dtype)
    assert failed == (set() if conjugates else {torch.complex128})
    library._destroy()


@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
def test_how_near_float8_has_to_be(overloads, dtype):
    """A neighbour may be another rounding; what is further off, zero for what is not, or nan, is wrong."""
    one = overloads["copy"]
    values = torch.tensor([1.0, 2.0**-4, 100.0]).to(dtype)
    neighbour = (values.view(torch.uint8) + 1).view(dtype)
    agreement.agree(one, "", [neighbour], [values])
    for wrong in (
        (values.view(torch.uint8) + 3).view(dtype),
        torch.tensor([1.0, 0.0, 100.0]).to(dtype),
        torch.tensor([1.0, 2.0**-4, torch.nan]).to(dtype),
        values.float(),
    ):
        with pytest.raises(AssertionError):
            agreement.agree(one, "", [wrong], [values])


def test_complex_results_are_compared_at_their_size(overloads):
    """What is small among large numbers may be the difference of these."""
    one = overloads["copy"]
    exact = torch.tensor([1e6, 1e-3j])
    agreement.agree(one, "", [exact + 1e-2], [exact])
    with pytest.raises(AssertionError):
        agreement.agree(one, "", [exact + 10], [exact])
