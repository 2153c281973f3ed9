"""The operators of cpp/complex.cpp, for complex numbers and float8: declarations, samples."""

import torch
from opwheel.dispatch import Operator, Rows
from opwheel_tools import OpInfo, Sample

from .declared import declare

NAMESPACE = "waves_complex"
COMPLEX = (torch.complex64, torch.complex128, torch.float32, torch.float64)
FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)
SCHEMAS = (
    "product(Tensor x, Tensor w) -> Tensor",
    "product_backward(Tensor grad, Tensor x, Tensor w) -> (Tensor, Tensor)",
    "power(Tensor x) -> Tensor",
    "power_backward(Tensor grad, Tensor x) -> Tensor",
    "row_sum(Tensor x) -> Tensor",
    "quantize(Tensor x, Tensor scale, ScalarType dtype) -> Tensor",
    "dequantize(Tensor q, Tensor scale) -> Tensor",
    "copy(Tensor x) -> Tensor",
)


def _power(x):
    return (x * x.conj()).real.clone() if x.is_complex() else x * x


def _product_backward(grad, x, w):
    return grad * w.conj(), grad * x.conj()


OPERATORS = [
    Operator("product", reference=lambda x, w: x * w, derivatives={"x, w": "product_backward(grad, x, w)"}),
    Operator("product_backward", reference=_product_backward),
    Operator("power", reference=_power, derivatives={"x": "power_backward(grad, x)"}),
    Operator("power_backward", reference=lambda grad, x: 2 * grad * x),
    Operator("row_sum", reference=lambda x: x.sum(-1), rule=Rows(x=1)),
    Operator("quantize", reference=lambda x, scale, dtype: (x / scale).to(dtype), derivatives=None),
    Operator("dequantize", reference=lambda q, scale: q.float() * scale, derivatives=None),
    Operator("copy", reference=lambda x: x.clone(), derivatives=None),
]


def _numbers(device, dtype, requires_grad, *shape):
    return torch.randn(shape, device=device, dtype=dtype, requires_grad=requires_grad)


def _product_samples(device, dtype, requires_grad):
    for shape in ((3, 4), (2, 0), ()):
        yield Sample(*(_numbers(device, dtype, requires_grad, *shape) for _ in range(2)))


def _product_backward_samples(device, dtype, requires_grad):
    yield Sample(*(_numbers(device, dtype, requires_grad, 3, 4) for _ in range(3)))


def _one(device, dtype, requires_grad):
    for shape in ((3, 4), (2, 3, 5)):
        yield Sample(_numbers(device, dtype, requires_grad, *shape))


def _power_backward_samples(device, dtype, requires_grad):
    grad = _numbers(device, dtype.to_real(), requires_grad, 3, 4)
    yield Sample(grad, _numbers(device, dtype, requires_grad, 3, 4))


def _quantize_samples(device, dtype, _):
    x = torch.randn(3, 4, device=device)
    yield Sample(x, torch.tensor(0.25, device=device), dtype)


def _dequantize_samples(device, dtype, _):
    yield Sample(torch.randn(3, 4, device=device).to(dtype), torch.tensor(0.25, device=device))


def _copy_samples(device, dtype, _):
    yield Sample(torch.randn(3, 4, device=device).to(dtype))


OP_INFOS = {
    "product": OpInfo(samples=_product_samples, dtypes=COMPLEX),
    "product_backward": OpInfo(samples=_product_backward_samples, dtypes=COMPLEX),
    "power": OpInfo(samples=_one, dtypes=COMPLEX),
    "power_backward": OpInfo(samples=_power_backward_samples, dtypes=COMPLEX),
    "row_sum": OpInfo(samples=_one, dtypes=COMPLEX),
    "quantize": OpInfo(samples=_quantize_samples, dtypes=FLOAT8),
    "dequantize": OpInfo(samples=_dequantize_samples, dtypes=FLOAT8),
    "copy": OpInfo(samples=_copy_samples, dtypes=(*COMPLEX, *FLOAT8)),
}


def declare_operators():
    """What follows from the declarations; the library of kernels is open."""
    return declare(NAMESPACE, SCHEMAS, OPERATORS, OP_INFOS)
