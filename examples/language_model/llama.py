"""A small Llama made of transformer_ops: grouped-query attention, SwiGLU, and a head that is part of the loss."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
import transformer_ops
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

WIDTH = 64
LAYERS = 2
HEADS = 4
KEY_HEADS = 2
HEAD = WIDTH // HEADS
HIDDEN = 176
CONTEXT = 64
EPS = 1e-6


class Attention(nn.Module):
    """Causal attention with rotary embedding; of a tensor parallel layer each process has some of the heads."""

    def __init__(self) -> None:
        """Several heads of queries share one of keys and values."""
        super().__init__()
        self.q = nn.Linear(WIDTH, HEADS * HEAD, bias=False)
        self.k, self.v = (nn.Linear(WIDTH, KEY_HEADS * HEAD, bias=False) for _ in range(2))
        self.o = nn.Linear(HEADS * HEAD, WIDTH, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Let each of ``(batch, positions, width)`` look at those before it."""
        q, k, v = (linear(x).unflatten(-1, (-1, HEAD)) for linear in (self.q, self.k, self.v))
        return self.o(transformer_ops.attention(q, k, v, is_causal=True, cos=cos, sin=sin).flatten(2))


class Layer(nn.Module):
    """Attention and a gated feed-forward block, each behind a norm."""

    def __init__(self, kept: Sequence[Any] | None) -> None:
        """With ``kept`` only these operators' results are kept for the backward pass, which computes the rest anew."""
        super().__init__()
        self.kept = kept
        self.attention_norm = transformer_ops.RMSNorm(WIDTH, EPS)
        self.attention = Attention()
        self.feed_forward_norm = transformer_ops.RMSNorm(WIDTH, EPS)
        self.feed_forward = transformer_ops.SwiGLU(WIDTH, HIDDEN)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Of the shape of ``x``, ``(batch, positions, width)``."""
        if self.kept is None:
            return self.compute(x, cos, sin)
        context = partial(create_selective_checkpoint_contexts, self.kept)
        return checkpoint(self.compute, x, cos, sin, use_reentrant=False, context_fn=context)

    def compute(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """The same, with everything kept."""
        x = x + self.attention(self.attention_norm(x), cos, sin)
        return x + self.feed_forward(self.feed_forward_norm(x))


class Llama(nn.Module):
    """Characters to the loss of predicting those that follow them."""

    cos: Tensor
    sin: Tensor

    def __init__(self, characters: int, kept: Sequence[Any] | None = None) -> None:
        """Of an alphabet of so many characters; ``kept`` as :class:`Layer` has it."""
        super().__init__()
        self.embedding = nn.Embedding(characters, WIDTH)
        self.layers = nn.ModuleList(Layer(kept) for _ in range(LAYERS))
        self.norm = transformer_ops.RMSNorm(WIDTH, EPS)
        self.head = nn.Linear(WIDTH, characters, bias=False)
        self.loss = transformer_ops.FusedLinearCrossEntropyLoss()
        angles = torch.arange(CONTEXT)[:, None] * 10_000 ** -(torch.arange(0, HEAD, 2) / HEAD)
        angles = torch.cat((angles, angles), -1)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, characters: Tensor, targets: Tensor) -> Tensor:
        """The mean cross entropy; both are int64, ``(batch, positions)``."""
        cos, sin = (table[: characters.shape[1]] for table in (self.cos, self.sin))
        x = self.embedding(characters)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.loss(self.head.weight, self.norm(x).flatten(0, 1), targets.flatten())
