"""What tests need of the operators of operators.py, as a library's module ``opinfos`` has it."""

from __future__ import annotations

import torch
from opwheel_tools import OpInfo, Sample, Tolerance


def randn(*shape, device, dtype, requires_grad=False):
    return torch.randn(*shape, device=device, dtype=dtype, requires_grad=requires_grad)


def rms_norm_samples(device, dtype, requires_grad):
    options = {"device": device, "dtype": dtype, "requires_grad": requires_grad}
    for shape in ((3, 8), (2, 3, 5), (7,), (0, 4), (2, 300)):
        yield Sample(randn(*shape, **options), randn(shape[-1], **options), 1e-6)


def rms_norm_backward_samples(device, dtype, requires_grad):
    options = {"device": device, "dtype": dtype, "requires_grad": requires_grad}
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    for shape in ((3, 8), (2, 3, 5)):
        rstd = torch.rand(*shape[:-1], device=device, dtype=wide) + 0.5
        yield Sample(randn(*shape, **options), randn(*shape, **options), randn(shape[-1], **options), rstd)


def rope_samples(device, dtype, requires_grad):
    options = {"device": device, "dtype": dtype}
    for lead in ((2,), (), (2, 3)):
        q = randn(*lead, 3, 8, **options, requires_grad=requires_grad)
        yield Sample(q, randn(3, 4, **options), randn(3, 4, **options))


def quantize_samples(device, dtype, requires_grad):
    for shape in ((4, 16), (2, 3, 8), (3, 300)):
        yield Sample(randn(*shape, device=device, dtype=dtype, requires_grad=requires_grad))


def dequantize_samples(device, dtype, requires_grad):
    q = torch.randint(-127, 127, (4, 16), device=device, dtype=torch.int8)
    scale = torch.rand(4, device=device, dtype=torch.float32).requires_grad_(requires_grad)
    yield Sample(q, scale)
    yield Sample(q, scale, dtype=dtype)


def softmax_samples(device, dtype, requires_grad):
    for shape, dim in (((3, 4, 5), 0), ((3, 4, 5), 1), ((3, 4, 5), -1), ((2, 300), -1)):
        yield Sample(randn(*shape, device=device, dtype=dtype, requires_grad=requires_grad), dim)


def softmax_backward_samples(device, dtype, requires_grad):
    grad_output, y = (randn(3, 4, device=device, dtype=dtype, requires_grad=requires_grad) for _ in range(2))
    yield Sample(grad_output, y, 1)


def solve_samples(device, dtype, requires_grad):
    for rows, columns in ((3, 1), (4, 2)):
        a = torch.eye(rows, device=device, dtype=dtype) * 4 + randn(rows, rows, device=device, dtype=dtype) * 0.3
        yield Sample(
            a.requires_grad_(requires_grad),
            randn(rows, columns, device=device, dtype=dtype, requires_grad=requires_grad),
        )


def nonzero_samples(device, dtype, requires_grad):
    x = randn(4, 5, device=device, dtype=dtype)
    yield Sample(torch.where(x > 0, x, 0).requires_grad_(requires_grad))


def cache_samples(device, dtype, requires_grad):
    slots = torch.tensor([4, 0, 2], device=device)
    yield Sample(randn(3, 8, device=device, dtype=dtype), torch.zeros(6, 8, device=device, dtype=dtype), slots)


def scale_all_samples(device, dtype, requires_grad):
    parts = [randn(3, 4, device=device, dtype=dtype) for _ in range(3)]
    yield Sample([part.clone() for part in parts], 2.0)
    yield Sample([part.clone() for part in parts[:1]], -0.5, parts[1].clone())
    yield Sample([], 2.0, parts[2].clone())


def mixture_samples(device, dtype, requires_grad):
    options = {"device": device, "dtype": dtype, "requires_grad": requires_grad}
    parts = [randn(3, 4, **options) for _ in range(3)]
    yield Sample(parts)
    yield Sample(parts[:1], randn(4, **options))
    yield Sample(parts[:2], randn(4, **options), weights=[3, -1], mean=True, mode="square", scale=0.5)


def window_samples(device, dtype, requires_grad):
    yield Sample(8, dtype, device)
    yield Sample(5, torch.float32, device)


def noisy_samples(device, dtype, requires_grad):
    yield Sample(randn(16, 16, device=device, dtype=dtype, requires_grad=requires_grad), 0.25)


OP_INFOS = {
    "rms_norm": OpInfo(samples=rms_norm_samples),
    "rms_norm_backward": OpInfo(samples=rms_norm_backward_samples),
    "rope": OpInfo(samples=rope_samples),
    "quantize_rowwise": OpInfo(samples=quantize_samples, tolerance={torch.int8: Tolerance(0, 1)}),
    "dequantize": OpInfo(samples=dequantize_samples),
    "softmax": OpInfo(samples=softmax_samples),
    "softmax_backward": OpInfo(samples=softmax_backward_samples),
    "solve": OpInfo(
        samples=solve_samples, dtypes=(torch.float32, torch.float64), tolerance={torch.float32: Tolerance(1e-4, 1e-5)}
    ),
    "nonzero": OpInfo(samples=nonzero_samples),
    "reshape_and_cache": OpInfo(samples=cache_samples),
    "scale_all": OpInfo(samples=scale_all_samples),
    "mixture": OpInfo(samples=mixture_samples),
    "window": OpInfo(samples=window_samples),
    "noisy": OpInfo(samples=noisy_samples),
}
