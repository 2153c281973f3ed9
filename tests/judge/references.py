"""What the kernels in candidates.py are to compute, in PyTorch, and calls of each."""

import torch


def softmax(x):
    return torch.softmax(x, -1)


def rms_norm(x, weight, eps=1e-6):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


def swiglu(gate, value):
    return torch.nn.functional.silu(gate) * value


def row_sums(x):
    return x.sum(-1)


def take_rows(table, rows):
    return table[rows]


def top_index(x):
    return x.argmax(-1)


def clamp_into(x, low):
    return x.clamp(min=low)


class Model(torch.nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = torch.nn.Linear(features, 5)

    def forward(self, x):
        return torch.relu(self.linear(x))


def softmax_inputs():
    yield (torch.randn(4, 33),)


def softmax_over_a_dimension_inputs():
    yield torch.randn(3, 7), -1


def rms_norm_inputs():
    yield torch.randn(6, 40), torch.rand(40) + 0.5


def swiglu_inputs():
    yield torch.randn(5, 24), torch.randn(5, 24)


def row_sums_inputs():
    yield (torch.randn(7, 50),)


def take_rows_inputs():
    yield torch.randn(9, 6), torch.tensor([3, 0, 8, 3])


def top_index_inputs():
    yield (torch.randn(6, 21),)


def clamp_into_inputs():
    yield torch.randn(4, 9), 0.25


def get_inputs():
    return [torch.randn(3, 8)]


def get_init_inputs():
    return [8]


class Scaled(torch.nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(features) + 0.5)
        self.bias = torch.nn.Parameter(torch.randn(features))
        self.register_buffer("mean", torch.zeros(features))

    def forward(self, x):
        with torch.no_grad():
            self.mean.copy_(0.9 * self.mean + 0.1 * x.flatten(0, -2).mean(0))
        return torch.addcmul(self.bias, x, self.weight)


def neighbour_sums(x):
    elements = x.flatten()
    return torch.cat([elements[:-1] + elements[1:], elements[-1:]]).view(x.shape)


def neighbour_sums_inputs():
    yield (torch.randn(5, 12),)


def relu_inputs():
    yield (torch.randn(4, 10),)


def weigh(x, weight):
    return torch.einsum("...i, ...i", x.to(weight.dtype), weight).to(x.dtype)


def weigh_inputs():
    yield torch.randn(80, 5, 16).bfloat16(), torch.randn(5, 16)
