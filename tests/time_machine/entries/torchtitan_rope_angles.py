"""Rotary embedding in bfloat16 with cosines and sines in float32."""

import torch

from tests.time_machine.entry import Entry
from tests.time_machine.prepare import absent, bare

ENTRY = Entry(
    repository="pytorch/torchtitan",
    fix="3da072e7bab7ccb8b44bef0e26129ff94e53b83c",
    wrong="cosines and sines are rounded to bfloat16 before they are used",
    group="dtypes",
    says="when input 2 is rounded to 8 bits",
    package="torchtitan",
)


def candidate(q, k, angles):
    absent("tyro")
    bare("torchtitan", "torchtitan.models", "torchtitan.models.common", "torchtitan.protocols")
    from torchtitan.models.common.rope import apply_rotary_emb_cos_sin

    return apply_rotary_emb_cos_sin(q, k, angles)


def reference(q, k, angles):
    if q.dim() != 4 or q.shape[1::2] != k.shape[1::2] or angles.shape != (q.shape[1], 2 * q.shape[3]):
        raise ValueError("the shapes do not fit")
    cos, sin = angles[:, None].chunk(2, -1)

    def rotated(x):
        left, right = x.chunk(2, -1)
        return (x * cos + torch.cat([-right, left], -1) * sin).to(x.dtype)

    return rotated(q), rotated(k)


def inputs():
    angles = torch.arange(5)[:, None] * torch.tensor([1.0, 0.3, 0.1, 0.03] * 2)
    angles = torch.cat([angles.cos(), angles.sin()], -1)
    yield torch.randn(2, 5, 3, 8).bfloat16(), torch.randn(2, 5, 2, 8).bfloat16(), angles
