"""Right kernels of many kinds. ``planted`` changes one line of one of them for each defect."""

import ctypes
import os  # noqa: F401  # for defects
import time  # noqa: F401

import torch

# --- softmax: rows, in float32 whatever the dtype, with a backward by hand ---


class Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        wide = x if x.dtype is torch.float64 else x.float()
        exponents = (wide - wide.amax(-1, keepdim=True)).exp()
        y = (exponents / exponents.sum(-1, keepdim=True)).to(x.dtype)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad):
        (y,) = ctx.saved_tensors
        return y * (grad - (grad * y).sum(-1, keepdim=True))


def softmax(x):
    if x.numel() == 0:
        return torch.softmax(x, -1)
    return Softmax.apply(x)


# --- rms_norm: two inputs with gradients, statistics in float32 ---


class RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, eps):
        wide = x if x.dtype is torch.float64 else x.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        return (wide * scale * weight).to(x.dtype)

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        wide = x if x.dtype is torch.float64 else x.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + ctx.eps)
        grad = grad.to(wide.dtype)
        normed = wide * scale
        grad_weight = (grad * normed).reshape(-1, x.shape[-1]).sum(0).to(weight.dtype)
        inner = grad * weight
        grad_x = (inner - normed * (inner * normed).mean(-1, keepdim=True)) * scale
        return grad_x.to(x.dtype), grad_weight, None


def rms_norm(x, weight, eps=1e-6):
    return RmsNorm.apply(x, weight, eps)


# --- swiglu: saved tensors, and a forward that writes nothing but its result ---


class Swiglu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gate, value):
        ctx.save_for_backward(gate, value)
        sigmoid = torch.sigmoid(gate)
        return gate * sigmoid * value

    @staticmethod
    def backward(ctx, grad):
        gate, value = ctx.saved_tensors
        sigmoid = torch.sigmoid(gate)
        grad_gate = grad * value * sigmoid * (1 + gate * (1 - sigmoid))
        return grad_gate, grad * gate * sigmoid


def swiglu(gate, value):
    return Swiglu.apply(gate, value)


# --- row_sums: memory read one element after the other ---


def row_sums(x):
    rows = x.contiguous().view(-1, x.shape[-1]) if x.numel() else x.flatten(0, -2)
    return torch.stack([row.sum() for row in rows]).view(x.shape[:-1]) if x.numel() else x.sum(-1)


# --- take_rows: indices ---


def take_rows(table, rows):
    return torch.index_select(table, 0, rows.reshape(-1)).view(*rows.shape, *table.shape[1:])


# --- top_index: integers ---


def top_index(x):
    return x.max(-1).indices


# --- clamp_into: a result in memory of its own ---


def clamp_into(x, low):
    return torch.where(x < low, torch.full_like(x, low), x)


# --- Model: a module ---


class Model(torch.nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = torch.nn.Linear(features, 5)

    def forward(self, x):
        return torch.clamp_min(x @ self.linear.weight.mT + self.linear.bias, 0)


# --- Scaled: a module whose parameters have gradients by hand, and which keeps a buffer ---


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight)
        return x * weight + bias

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        rows = tuple(range(grad.dim() - 1))
        return grad * weight, (grad * x).sum(rows) if rows else grad * x, grad.sum(rows) if rows else grad


class Scaled(torch.nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(features) + 0.5)
        self.bias = torch.nn.Parameter(torch.randn(features))
        self.register_buffer("mean", torch.zeros(features))

    def forward(self, x):
        with torch.no_grad():
            self.mean.mul_(0.9).add_(x.detach().reshape(-1, x.shape[-1]).mean(0), alpha=0.1)
        return Scale.apply(x, self.weight, self.bias)


# --- neighbour_sums: memory by its address ---


def raw(x, first=0, last=0):
    """The elements of contiguous memory, from ``first`` in front of it to ``last`` behind it."""
    size = (first + x.numel() + last) * x.element_size()
    address = x.data_ptr() - first * x.element_size()
    return torch.frombuffer((ctypes.c_char * size).from_address(address), dtype=x.dtype)


def neighbour_sums(x):
    """Each element and the next one."""
    if x.numel() == 0:
        return x.clone()
    x = x.detach().contiguous()
    y = torch.empty(x.shape, dtype=x.dtype)
    elements, sums = raw(x), raw(y)
    sums.copy_(elements)
    sums[:-1] += elements[1:]
    return y


# --- relu: the reference is an operator of PyTorch ---


def relu(x):
    return x.masked_fill(x < 0, 0)


# --- weigh: numbers in float32 beside narrower ones ---


def weigh(x, weight):
    return (x * weight).sum(-1).to(x.dtype)
