"""A small Llama-style model of characters, which computes with whatever operators it is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import transformer_ops
from torch import Tensor, nn
from torch.nn import functional

WIDTH = 192
LAYERS = 4
HEADS = 4
HIDDEN = 512
CONTEXT = 256
EPS = 1e-6


class Operators(NamedTuple):
    """What the two sides compute differently; the layers' matrix products are PyTorch's on both."""

    add_norm: Callable[[Tensor, Tensor, Tensor], Any]
    """x, residual and weight to the normalised sum and the sum."""
    gated: Callable[[Tensor, Tensor], Tensor]
    attend: Callable[[Tensor, Tensor, Tensor], Tensor]
    """Queries, keys and values, in dimension 2 of ``(batch, positions, 3, heads, length)``, to what is attended to."""
    loss: Callable[[Tensor, Tensor], Any]


def _plain_add_norm(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    total = x + residual
    return functional.rms_norm(total, (WIDTH,), weight, EPS), total


def _plain_attend(qkv: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    def rotated(x: Tensor) -> Tensor:
        u, v = x.chunk(2, -1)
        return x * cos + torch.cat((-v, u), -1) * sin

    q, k, v = qkv.permute(2, 0, 3, 1, 4)
    return functional.scaled_dot_product_attention(rotated(q), rotated(k), v, is_causal=True).transpose(1, 2)


def _plain_gated(a: Tensor, b: Tensor) -> Tensor:
    return functional.silu(a) * b


def _add_norm(x: Tensor, residual: Tensor, weight: Tensor) -> Any:
    return transformer_ops.fused_add_rms_norm(x, residual, weight, EPS)


def _attend(qkv: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return transformer_ops.attention_qkvpacked(qkv, is_causal=True, cos=cos, sin=sin)


PLAIN = Operators(_plain_add_norm, _plain_gated, _plain_attend, functional.cross_entropy)
OURS = Operators(_add_norm, transformer_ops.swiglu, _attend, transformer_ops.cross_entropy)


class Attention(nn.Module):
    """Causal attention with rotary embedding."""

    def __init__(self, ops: Operators) -> None:
        """One linear layer for queries, keys and values."""
        super().__init__()
        self.ops = ops
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Let each of ``(batch, positions, width)`` look at those before it."""
        batch, positions, _ = x.shape
        y = self.ops.attend(self.qkv(x).view(batch, positions, 3, HEADS, -1), cos, sin)
        return self.out(y.flatten(2))


class Block(nn.Module):
    """Attention and a gated feed-forward layer, each behind a norm of the sum so far."""

    def __init__(self, ops: Operators) -> None:
        """Start with norms of weight 1."""
        super().__init__()
        self.ops = ops
        self.attention = Attention(ops)
        self.attention_norm = nn.Parameter(torch.ones(WIDTH))
        self.hidden_norm = nn.Parameter(torch.ones(WIDTH))
        self.gate, self.up = (nn.Linear(WIDTH, HIDDEN, bias=False) for _ in range(2))
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x: Tensor, residual: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        """Take and give the last layer's result and the sum of all before it."""
        x, residual = self.ops.add_norm(x, residual, self.attention_norm)
        x, residual = self.ops.add_norm(self.attention(x, cos, sin), residual, self.hidden_norm)
        return self.down(self.ops.gated(self.gate(x), self.up(x))), residual


class LanguageModel(nn.Module):
    """Characters to the scores of the next one."""

    cos: Tensor
    sin: Tensor

    def __init__(self, ops: Operators, characters: int) -> None:
        """The embedding's weights are also the last layer's."""
        super().__init__()
        self.ops = ops
        self.embedding = nn.Embedding(characters, WIDTH)
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.blocks = nn.ModuleList(Block(ops) for _ in range(LAYERS))
        self.norm = nn.Parameter(torch.ones(WIDTH))
        size = WIDTH // HEADS
        angles = torch.arange(CONTEXT)[:, None] * 10_000 ** -(torch.arange(0, size, 2) / size)
        angles = torch.cat((angles, angles), -1)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, characters: Tensor) -> Tensor:
        """From ``(batch, positions)`` to ``(batch, positions, characters)``."""
        cos, sin = self.cos[: characters.shape[1]], self.sin[: characters.shape[1]]
        x = self.embedding(characters)
        residual = torch.zeros_like(x)
        for block in self.blocks:
            x, residual = block(x, residual, cos, sin)
        x, _ = self.ops.add_norm(x, residual, self.norm)
        return functional.linear(x, self.embedding.weight)

    def loss(self, characters: Tensor) -> Tensor:
        """The mean cross entropy of predicting ``characters[:, 1:]``."""
        logits = self(characters[:, :-1])
        return self.ops.loss(logits.flatten(0, 1), characters[:, 1:].flatten())
