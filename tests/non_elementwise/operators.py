"""Operators of a made-up library, one for each class of operator that real libraries have.

The kernels are NumPy, and so opaque to PyTorch: what works without looking inside works by the declaration alone.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from opwheel.dispatch import Operator, Rows, register_python

NAMESPACE = "waves_general"


def array(tensor):
    """The values, in an array of NumPy's, which has no bfloat16."""
    tensor = tensor.detach()
    return (tensor.float() if tensor.dtype in (torch.bfloat16, torch.float16) else tensor).numpy()


def tensor(values, like, dtype=None):
    return torch.from_numpy(np.ascontiguousarray(values)).to(dtype or like.dtype)


# --- rms_norm, with its backward operator and rstd kept ---------------------------------------------------------------


def rms_norm_reference(x, weight, eps):
    wide = x.double() if x.dtype is torch.float64 else x.float()
    rstd = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return (wide * rstd * weight).to(x.dtype), rstd.squeeze(-1)


def rms_norm_kernel(x, weight, eps):
    wide = array(x)
    rstd = 1 / np.sqrt((wide * wide).mean(-1, keepdims=True) + eps)
    return tensor(wide * rstd * array(weight), x), torch.from_numpy(np.array(rstd[..., 0]))


def rms_norm_backward_reference(grad_output, x, weight, rstd):
    grad_output, wide = grad_output.to(rstd.dtype), x.to(rstd.dtype)
    r = rstd.unsqueeze(-1)
    weighted = grad_output * weight
    inner = (weighted * wide).mean(-1, keepdim=True)
    d_weight = (grad_output * wide * r).reshape(-1, x.shape[-1]).sum(0)
    return (r * weighted - wide * r.pow(3) * inner).to(x.dtype), d_weight.to(weight.dtype)


def rms_norm_backward_kernel(grad_output, x, weight, rstd):
    grad_output, wide, r = array(grad_output), array(x), array(rstd)[..., None]
    weighted = grad_output * array(weight)
    inner = (weighted * wide).mean(-1, keepdims=True)
    d_weight = (grad_output * wide * r).sum(tuple(range(wide.ndim - 1)))
    return tensor(r * weighted - wide * r**3 * inner, x), tensor(d_weight, weight)


RMS_NORM = Operator(
    "rms_norm",
    reference=rms_norm_reference,
    rule=Rows(x=1),
    derivatives={"x, weight": "rms_norm_backward(grad, x, weight, rstd)"},
    not_differentiable=("rstd",),
    autocast="float32",
    doc="""Root mean square normalisation over the last dimension.""",
)
RMS_NORM_BACKWARD = Operator(
    "rms_norm_backward",
    reference=rms_norm_backward_reference,
)

# --- rope: rotary position embedding --------------------------------------------------------------------------------


def rope_reference(q, cos, sin):
    first, second = q.chunk(2, -1)
    return torch.cat((first * cos - second * sin, first * sin + second * cos), -1)


def rope_kernel(q, cos, sin):
    (first, second), cos, sin = np.split(array(q), 2, -1), array(cos), array(sin)
    return tensor(np.concatenate((first * cos - second * sin, first * sin + second * cos), -1), q)


ROPE = Operator(
    "rope",
    reference=rope_reference,
    rule=Rows(q=2),
    derivatives={"q": "rope(grad, cos, -sin)"},  # cos and sin through the reference
    doc="""Rotate the halves of the last dimension.""",
)

# --- quantisation by rows: results of several dtypes ------------------------------------------------------------------


def quantize_reference(x):
    scale = x.float().abs().amax(-1) / 127
    return (x.float() / scale.clamp_min(1e-12).unsqueeze(-1)).round().to(torch.int8), scale


def quantize_kernel(x):
    wide = x.float().numpy()
    scale = np.abs(wide).max(-1) / np.float32(127)
    rounded = np.rint(wide / np.maximum(scale, np.float32(1e-12))[..., None])
    return tensor(rounded, x, torch.int8), tensor(scale, x, torch.float32)


def dequantize_reference(q, scale, dtype=torch.float32):
    return (q.to(scale.dtype) * scale.unsqueeze(-1)).to(dtype)


def dequantize_kernel(q, scale, dtype):
    return tensor(q.numpy() * scale.detach().numpy()[..., None], scale, dtype)


QUANTIZE = Operator(
    "quantize_rowwise",
    reference=quantize_reference,
    rule=Rows(x=1),
    derivatives=None,
    doc="""Quantise rows to int8, with a scale each.""",
)
DEQUANTIZE = Operator(
    "dequantize",
    reference=dequantize_reference,
    rule=Rows(q=1, scale=0),
    doc="""Undo :func:`quantize_rowwise`.""",
)

# --- softmax over any dimension: a result is kept that has a gradient -------------------------------------------------


def softmax_kernel(x, dim):
    wide = array(x)
    exps = np.exp(wide - wide.max(dim, keepdims=True, initial=-np.inf))
    return tensor(exps / exps.sum(dim, keepdims=True), x)


def softmax_backward_reference(grad_output, y, dim):
    return (grad_output - (grad_output * y).sum(dim, keepdim=True)) * y


def softmax_backward_kernel(grad_output, y, dim):
    grad_output, y, like = array(grad_output), array(y), y
    return tensor((grad_output - (grad_output * y).sum(dim, keepdims=True)) * y, like)


SOFTMAX = Operator(
    "softmax",
    reference=lambda x, dim: torch.softmax(x, dim),
    derivatives={"x": "softmax_backward(grad, result, dim)"},
    autocast="float32",
    doc="""Softmax over a dimension.""",
)
SOFTMAX_BACKWARD = Operator("softmax_backward", reference=softmax_backward_reference)

# --- solve: no formula, derivatives through the reference -------------------------------------------------------------


def solve_kernel(a, b):
    if a.dtype != b.dtype:
        raise RuntimeError(f"argument 'b' is {b.dtype}, but 'a' is {a.dtype}")
    return tensor(np.linalg.solve(array(a), array(b)), a)


SOLVE = Operator(
    "solve",
    reference=lambda a, b: torch.linalg.solve(a, b),
    doc="""Solve ``a @ x = b``.""",
)

# --- nonzero: the shape depends on data -------------------------------------------------------------------------------


def nonzero_fake(x):
    count = torch.library.get_ctx().new_dynamic_size()
    return x.new_empty((count, x.dim()), dtype=torch.int64)


NONZERO = Operator(
    "nonzero",
    reference=lambda x: torch.nonzero(x),
    derivatives=None,
    fake=nonzero_fake,
    doc="""Indices of the elements that are not zero.""",
)

# --- reshape_and_cache: writes into an argument and returns nothing ---------------------------------------------------


def cache_reference(key, cache, slots):
    cache.index_copy_(0, slots, key.to(cache.dtype))


def cache_kernel(key, cache, slots):
    if slots.dtype != torch.int64 or slots.shape != key.shape[:1] or cache.shape[1:] != key.shape[1:]:
        raise RuntimeError(f"rows of {tuple(key.shape)} do not fit into {tuple(cache.shape)} at {tuple(slots.shape)}")
    for row, slot in enumerate(slots.tolist()):
        cache[slot] = key[row]


RESHAPE_AND_CACHE = Operator(
    "reshape_and_cache",
    reference=cache_reference,
    derivatives=None,
    doc="""Write rows into their slots of a cache.""",
)

# --- scale_all: writes into a list of tensors, and into one that may be left out --------------------------------------


def scale_all_reference(parts, factor, total=None):
    for part in parts:
        part.mul_(factor)
    if total is not None:
        for part in parts:
            total.add_(part)


def scale_all_kernel(parts, factor, total):
    for part in parts:
        part.copy_(tensor(array(part) * factor, part))
    if total is not None:
        total.copy_(tensor(array(total) + sum(map(array, parts)), total))


SCALE_ALL = Operator(
    "scale_all",
    reference=scale_all_reference,
    derivatives=None,
    doc="""Multiply all parts, and add them to a total.""",
)

# --- mixture: optional tensor, lists, flags, texts and defaults -------------------------------------------------------


def mixture_reference(parts, bias=None, *, weights=(1, 2), mean=False, mode="sum", scale=1.5):
    total = sum(part * weight for part, weight in zip(parts, list(weights) * len(parts), strict=False)) * scale
    if bias is not None:
        total = total + bias
    if mode == "square":
        total = total * total
    return total / len(parts) if mean else total


def mixture_kernel(parts, bias, *, weights, mean, mode, scale):
    result = mixture_reference(
        [array(p) for p in parts],
        None if bias is None else array(bias),
        weights=weights,
        mean=mean,
        mode=mode,
        scale=scale,
    )
    return tensor(result, parts[0])


MIXTURE = Operator(
    "mixture",
    reference=mixture_reference,
    doc="""A weighted sum of tensors.""",
)

# --- window: no tensor at all -----------------------------------------------------------------------------------------


def window_reference(size, dtype=torch.float32, device=None):
    steps = torch.arange(size, device=device, dtype=torch.float64)
    return (0.5 - 0.5 * torch.cos(2 * math.pi * steps / size)).to(dtype)


def window_kernel(size, dtype, device):
    return torch.from_numpy(0.5 - 0.5 * np.cos(2 * math.pi * np.arange(size) / size)).to(dtype)


WINDOW = Operator(
    "window",
    reference=window_reference,
    doc="""A Hann window.""",
)

# --- noisy: random, with the mask kept --------------------------------------------------------------------------------


def noisy_reference(x, p, generator=None):
    mask = torch.empty_like(x, dtype=torch.bool).bernoulli_(1 - p, generator=generator)
    return x * mask / (1 - p), mask


NOISY = Operator(
    "noisy",
    reference=noisy_reference,
    derivatives={"x": lambda grad, mask, p: grad * mask / (1 - p)},
    doc="""Dropout, with its mask.""",
)

KERNELS = {
    "rms_norm(Tensor x, Tensor weight, float eps) -> (Tensor y, Tensor rstd)": rms_norm_kernel,
    "rms_norm_backward(Tensor grad_output, Tensor x, Tensor weight, Tensor rstd) -> (Tensor, Tensor)": (
        rms_norm_backward_kernel
    ),
    "rope(Tensor q, Tensor cos, Tensor sin) -> Tensor": rope_kernel,
    "quantize_rowwise(Tensor x) -> (Tensor q, Tensor scale)": quantize_kernel,
    "dequantize(Tensor q, Tensor scale, *, ScalarType dtype=float) -> Tensor": dequantize_kernel,
    "softmax(Tensor x, int dim) -> Tensor": softmax_kernel,
    "softmax_backward(Tensor grad_output, Tensor y, int dim) -> Tensor": softmax_backward_kernel,
    "solve(Tensor a, Tensor b) -> Tensor": solve_kernel,
    "nonzero(Tensor x) -> Tensor": lambda x: torch.from_numpy(np.argwhere(array(x))),
    "reshape_and_cache(Tensor key, Tensor(a!) cache, Tensor slots) -> ()": cache_kernel,
    "scale_all(Tensor(a!)[] parts, float factor, Tensor(b!)? total=None) -> ()": scale_all_kernel,
    "mixture(Tensor[] parts, Tensor? bias=None, *, int[] weights=[1, 2], bool mean=False, str mode='sum', "
    "float scale=1.5) -> Tensor": mixture_kernel,
    "window(SymInt size, ScalarType dtype=float, Device? device=None) -> Tensor": window_kernel,
    "noisy(Tensor x, float p, Generator? generator=None) -> (Tensor y, Tensor mask)": noisy_reference,
}
OPERATORS = (
    RMS_NORM,
    RMS_NORM_BACKWARD,
    ROPE,
    QUANTIZE,
    DEQUANTIZE,
    SOFTMAX,
    SOFTMAX_BACKWARD,
    SOLVE,
    NONZERO,
    RESHAPE_AND_CACHE,
    SCALE_ALL,
    MIXTURE,
    WINDOW,
    NOISY,
)

functions = register_python(NAMESPACE, KERNELS, OPERATORS, module=__name__)
