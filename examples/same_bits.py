"""Trains a small language model on what it samples, and compares the log-probabilities of both, bit by bit.

Sampling computes one token at a time, from keys and values that it keeps; training computes all tokens of all sequences
at once. Policy gradients take the two for the same numbers. ``python same_bits.py`` prints how many differ with the
operators of transformer_ops, and with PyTorch's own in their place, in float32 and in bfloat16.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import transformer_ops
from torch import Tensor
from torch.nn import functional

CLASSES, WIDTH, HEADS, BLOCKS = 61, 64, 4, 2
LENGTH, SEQUENCES, STEPS = 24, 6, 3
HEAD = WIDTH // HEADS


class Operators(NamedTuple):
    """What the model computes with."""

    linear: Callable[..., torch.nn.Linear]
    norm: Callable[[Tensor, Tensor], Tensor]
    rope: Callable[..., Any]
    attention: Callable[[Tensor, Tensor, Tensor, bool], Tensor]
    gate: Callable[[Tensor, Tensor], Tensor]
    losses: Callable[[Tensor, Tensor], Tensor]


def _attention_of_torch(q: Tensor, k: Tensor, v: Tensor, is_causal: bool) -> Tensor:
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return functional.scaled_dot_product_attention(q, k, v, is_causal=is_causal).transpose(1, 2)


OURS = Operators(
    linear=transformer_ops.Linear,
    norm=transformer_ops.rms_norm,
    rope=transformer_ops.rope,
    attention=lambda q, k, v, is_causal: transformer_ops.attention(q, k, v, is_causal=is_causal),
    gate=transformer_ops.swiglu,
    losses=lambda logits, target: transformer_ops.cross_entropy(logits, target, reduction="none"),
)
PLAIN = OURS._replace(
    linear=torch.nn.Linear,
    norm=lambda x, weight: functional.rms_norm(x, x.shape[-1:], weight, 1e-6),
    attention=_attention_of_torch,
    gate=lambda a, b: functional.silu(a) * b,
    losses=lambda logits, target: functional.cross_entropy(logits, target, reduction="none"),
)


class Block(torch.nn.Module):
    """Attention and a gated layer, each after a norm."""

    def __init__(self, operators: Operators) -> None:
        super().__init__()
        self.operators = operators
        self.norms = torch.nn.ParameterList(torch.ones(WIDTH) for _ in range(2))
        self.qkv = operators.linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = operators.linear(WIDTH, WIDTH, bias=False)
        self.up = operators.linear(WIDTH, 4 * WIDTH, bias=False)
        self.down = operators.linear(2 * WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor, angles: tuple[Tensor, Tensor], kept: list[Tensor] | None = None) -> Tensor:
        """Of whole sequences; or of one token each, after those whose keys and values are kept."""
        normalised = self.operators.norm(x, self.norms[0])
        q, k, v = self.qkv(normalised).unflatten(-1, (3, HEADS, HEAD)).unbind(2)
        q, k = self.operators.rope(q, k, *angles, unsqueeze_dim=2)
        if kept is not None:
            kept[:] = [k, v] if not kept else [torch.cat(pair, 1) for pair in zip(kept, (k, v), strict=True)]
            k, v = kept
        x = x + self.out(self.operators.attention(q, k, v, kept is None).flatten(2))
        return x + self.down(self.operators.gate(*self.up(self.operators.norm(x, self.norms[1])).chunk(2, -1)))


class Model(torch.nn.Module):
    """A decoder."""

    def __init__(self, operators: Operators) -> None:
        super().__init__()
        self.operators = operators
        self.embedding = torch.nn.Embedding(CLASSES, WIDTH)
        self.blocks = torch.nn.ModuleList(Block(operators) for _ in range(BLOCKS))
        self.norm = torch.nn.Parameter(torch.ones(WIDTH))
        self.head = operators.linear(WIDTH, CLASSES, bias=False)
        turns = torch.arange(LENGTH)[:, None] / 1000 ** (torch.arange(HEAD // 2) * 2 / HEAD)
        self.register_buffer("angles", torch.cat((turns, turns), -1))

    def forward(self, tokens: Tensor, kept: list[list[Tensor]] | None = None, position: int = 0) -> Tensor:
        """Logits of the tokens that follow."""
        angles = self.angles[None, position : position + tokens.shape[1]]
        x = self.embedding(tokens)
        for i, block in enumerate(self.blocks):
            x = block(x, (angles.cos(), angles.sin()), None if kept is None else kept[i])
        return self.head(self.operators.norm(x, self.norm))


@torch.no_grad()
def sample(model: Model, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """A sequence, and the log-probability of each of its tokens but the first, as they were when it was drawn."""
    tokens, log_probabilities = [torch.zeros(1, 1, dtype=torch.int64)], []
    kept: list[list[Tensor]] = [[] for _ in range(BLOCKS)]
    for position in range(LENGTH):
        logits = model(tokens[-1], kept, position)[:, -1]
        tokens.append(torch.multinomial(logits.float().softmax(-1), 1, generator=generator))
        log_probabilities.append(-model.operators.losses(logits, tokens[-1][:, 0]))
    return torch.cat(tokens, 1), torch.stack(log_probabilities, 1)


def train(model: Model, tokens: Tensor, optimizer: torch.optim.Optimizer) -> Tensor:
    """A step that makes sequences with many small tokens more likely; the log-probabilities that it was made from."""
    logits = model(tokens[:, :-1])
    log_probabilities = -model.operators.losses(logits.flatten(0, 1), tokens[:, 1:].flatten()).unflatten(
        0, (-1, LENGTH)
    )
    reward = (tokens < CLASSES // 2).float().mean(1)
    loss = -((reward - reward.mean())[:, None] * log_probabilities).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return log_probabilities.detach()


def compare(operators: Operators, dtype: torch.dtype) -> tuple[int, int, float]:
    """How many log-probabilities differ between sampling and training, of how many, and by how much at most."""
    torch.manual_seed(0)
    model = Model(operators).to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    generator = torch.Generator().manual_seed(0)
    differences = []
    for _ in range(STEPS):
        drawn = [sample(model, generator) for _ in range(SEQUENCES)]
        tokens, sampled = (torch.cat(parts) for parts in zip(*drawn, strict=True))
        differences.append((train(model, tokens, optimizer).float() - sampled.float()).abs())
    found = torch.stack(differences)
    return int((found > 0).sum()), found.numel(), float(found.max())


def main() -> None:
    """Print both, in either dtype."""
    for dtype in (torch.float32, torch.bfloat16):
        for name, operators in {"transformer_ops": OURS, "plain torch": PLAIN}.items():
            count, total, largest = compare(operators, dtype)
            kind = str(dtype).removeprefix("torch.")
            print(f"{name}, {kind}: {count} of {total} log-probabilities differ, by {largest:g} at most")


if __name__ == "__main__":
    main()
