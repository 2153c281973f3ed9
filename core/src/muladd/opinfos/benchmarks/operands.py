"""The tensors of a case, laid out as it says."""

from __future__ import annotations

from collections.abc import Callable

import torch
from opwheel_tools.bench.suite import Case, Form, Operands
from torch import Tensor

_NUMBER = 2.0


def make_operands(case: Case, device: str) -> Operands:
    """Random a, b and c for ``a * b + c``, from a fixed seed; c is a number or a tensor."""
    generator = torch.Generator(device).manual_seed(0)

    def random(*shape: int) -> Tensor:
        # All positive, so that no result loses digits to cancellation; below 1, so that a repeated in-place call has a
        # fixed point and never overflows.
        numbers = torch.empty(shape, dtype=case.dtype, device=device)
        return numbers.uniform_(0.25, 0.75, generator=generator)

    a, b, c = _layout(case, random)
    out = torch.empty_like(a)
    if case.form in (Form.FORWARD, Form.BACKWARD):
        return Operands({"a": a.requires_grad_(), "b": b.requires_grad_(), "c": c}, out, random(*a.shape))
    return Operands({"a": a, "b": b, "c": c}, out)


def _layout(case: Case, random: Callable[..., Tensor]) -> tuple[Tensor, Tensor, float | Tensor]:
    exponent = case.elements.bit_length() - 1
    rows, columns = 2 ** (exponent // 2), 2 ** (exponent - exponent // 2)
    if case.layout == "contiguous":
        return random(case.elements), random(case.elements), _NUMBER
    if case.layout == "three tensors":
        return random(case.elements), random(case.elements), random(case.elements)
    if case.layout == "not aligned":
        return random(case.elements + 1)[1:], random(case.elements + 3)[3:], _NUMBER
    if case.layout == "transposed":
        return random(rows, columns), random(columns, rows).t(), _NUMBER
    if case.layout == "both transposed":
        return random(columns, rows).t(), random(columns, rows).t(), _NUMBER
    if case.layout == "sliced":
        return random(rows, columns + 16)[:, 8:-8], random(rows, columns + 16)[:, 8:-8], _NUMBER
    if case.layout == "stepped":
        return random(rows, 2 * columns)[:, ::2], random(rows, 2 * columns)[:, ::2], _NUMBER
    if case.layout == "[N,D]*[D], D odd":
        width = columns - 1
        return random(case.elements // width, width), random(width), random(width)
    if case.layout == "[B,T,D]*[B,1,D]":
        width = 1024 if exponent >= 20 else 64
        return random(8, case.elements // (8 * width), width), random(8, 1, width), random(8, 1, width)
    # Images: 8 of 64 channels.
    height, width = 2 ** ((exponent - 9) // 2), 2 ** (exponent - 9 - (exponent - 9) // 2)
    images = random(8, 64, height, width)
    if case.layout == "channels-last":
        images = images.contiguous(memory_format=torch.channels_last)
    return images, random(64, 1, 1), random(64, 1, 1)
