"""Candidates that keep claims about bits, and wrong ones."""

import os

import torch


def sums(x, order=reversed):
    """Sums of rows, in a fixed order."""
    total = torch.zeros(x.shape[:-1], dtype=x.dtype)
    for column in order(range(x.shape[-1])):
        total = total + x[..., column]
    return total


def sums_by_rows(x):
    """In an order that depends on how many rows there are."""
    return sums(x, iter if len(x) > 16 else reversed)


def sums_by_threads(x):
    """In an order that depends on the number of threads."""
    return sums(x, iter if torch.get_num_threads() == 3 else reversed)


def scaled(x, factors, by=1.0):
    """Two results, and an optional number."""
    return x * factors * by, sums(x)


def doubled_(x):
    """Writes to its argument."""
    x.mul_(2)


def of_even_widths(x):
    """Refuses other widths than even ones."""
    if x.shape[-1] % 2:
        raise ValueError("the width is odd")
    return sums(x)


def of_four_rows(x):
    """Refuses any other number of rows."""
    return sums(x.view(4, 8))


def ends(x):
    """Ends its process where there are many rows."""
    return sums(x) if len(x) < 100 else os._exit(3)


def variadic(*tensors):
    """Its arguments have no names."""
    return tensors[0]


def in_a_dict(x):
    """Returns no tensor."""
    return {"y": x}


class Scaled(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.factors = torch.nn.Parameter(torch.linspace(1, 2, width))

    def forward(self, x):
        return sums(x * self.factors)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


def one():
    yield (torch.linspace(0, 1, 32).view(4, 8),)


def two():
    x = torch.linspace(0, 1, 32).view(4, 8)
    yield x, x[:1]
    yield x, x[0], 2.0


def twice():
    yield from one()
    yield (torch.linspace(1, 2, 24).view(3, 8),)


def width():
    yield 8
