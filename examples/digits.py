"""Train a classifier whose features are scaled and shifted by a side condition (FiLM), with muladd's operators.

The 1,797 handwritten digits that ship inside scikit-learn are each shown twice: upright and upside down. A 6 turned
upside down looks like a 9, so the network is told which way up the page lies and modulates its features by it:
``features * gamma(side) + beta(side)``, which is one ``muladd.fma``.

The same network is trained twice, from the same weights on the same batches: once with muladd's operators and once with
plain torch expressions; then again with both under ``torch.compile``. Each pair must end with the same parameters and the
same accuracy, otherwise the exit code is 1.

    pip install muladd-core muladd-cpu scikit-learn rich
    python examples/digits.py
    python examples/digits.py --epochs 5 --no-compile
"""

from __future__ import annotations

import argparse
import copy
import sys
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import NamedTuple

import torch
from rich.progress import track
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.nn import functional

import muladd

WIDTH = 128
BATCH = 64


# The model: one class, which computes with whatever operators it is given.


class Operators(NamedTuple):
    """The element-wise operators that the network is made of."""

    muladd: Callable[[Tensor, Tensor, float], Tensor]
    fma: Callable[[Tensor, Tensor, Tensor], Tensor]
    add: Callable[[Tensor, Tensor], Tensor]


OPERATORS = {
    "muladd": Operators(muladd=muladd.muladd, fma=muladd.fma, add=muladd.add),
    "torch": Operators(
        muladd=lambda a, b, number: a * b + number,
        fma=lambda a, b, c: a * b + c,
        add=lambda a, b: a + b,
    ),
}


class FilmBlock(nn.Module):
    """``x + relu(linear(x) * gamma(side) + beta(side))``."""

    def __init__(self, ops: Operators) -> None:
        """Start with gamma = 1 and beta = 0: no modulation."""
        super().__init__()
        self.ops = ops
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.gamma = nn.Embedding.from_pretrained(torch.ones(2, WIDTH), freeze=False)
        self.beta = nn.Embedding.from_pretrained(torch.zeros(2, WIDTH), freeze=False)

    def forward(self, x: Tensor, side: Tensor) -> Tensor:
        """Transform the features ``x`` as befits ``side``."""
        modulated = self.ops.fma(self.linear(x), self.gamma(side), self.beta(side))
        return self.ops.add(x, torch.relu(modulated))


class DigitClassifier(nn.Module):
    """64 pixels from 0 to 16, and which way up they are, to the scores of ten digits."""

    def __init__(self, ops: Operators) -> None:
        """Two modulated blocks between a linear layer on either side."""
        super().__init__()
        self.ops = ops
        self.register_buffer("pixel_scale", torch.tensor(1 / 8))
        self.stem = nn.Linear(64, WIDTH)
        self.blocks = nn.ModuleList([FilmBlock(ops), FilmBlock(ops)])
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, pixels: Tensor, side: Tensor) -> Tensor:
        """Score the ten digits for each image."""
        x = self.stem(self.ops.muladd(pixels, self.pixel_scale, -1.0))  # from [0, 16] to [-1, 1]
        for block in self.blocks:
            x = block(x, side)
        return self.head(x)


# The data.


class Digits(NamedTuple):
    """Images as rows of 64 pixels, which way up each is (0 upright, 1 upside down), and which digit it shows."""

    pixels: Tensor
    side: Tensor
    digit: Tensor

    def select(self, rows: Tensor) -> Digits:
        """Pick some of the images."""
        return Digits(self.pixels[rows], self.side[rows], self.digit[rows])


def both_ways_up(pixels: Tensor, digit: Tensor) -> Digits:
    """Show every image upright and turned by 180 degrees, which reverses its row of pixels."""
    side = torch.arange(2).repeat_interleave(len(pixels))
    return Digits(torch.cat([pixels, pixels.flip(1)]), side, digit.repeat(2))


def load_data(seed: int) -> tuple[Digits, Digits]:
    """Split the digits into training and test data, then turn them: no test image is seen in training either way up."""
    images, labels = load_digits(return_X_y=True)
    rows = train_test_split(range(len(images)), test_size=0.2, stratify=labels, random_state=seed)
    pixels, digit = torch.tensor(images, dtype=torch.float32), torch.tensor(labels)
    train, test = (both_ways_up(pixels[part], digit[part]) for part in rows)
    return train, test


# The training.


def loss_of(model: nn.Module, data: Digits) -> Tensor:
    """Cross-entropy of the model's scores."""
    return functional.cross_entropy(model(data.pixels, data.side), data.digit)


@torch.no_grad()
def accuracy_of(model: nn.Module, data: Digits) -> float:
    """Fraction of images that the model recognises."""
    return (model(data.pixels, data.side).argmax(1) == data.digit).float().mean().item()


def train_epoch(model: nn.Module, optimizer: torch.optim.Optimizer, batches: list[Digits]) -> float:
    """Train on every batch once and return the seconds it took."""
    start = perf_counter()
    for batch in batches:
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        optimizer.step()
    return perf_counter() - start


def train_side_by_side(
    models: dict[str, nn.Module], data: Digits, epochs: int, seed: int, title: str
) -> dict[str, list[float]]:
    """Train all models on the same batches, taking turns so that noise hits all alike; return seconds per epoch."""
    # SGD rather than Adam: Adam divides by the gradient's size, which blows up rounding differences in tiny gradients.
    optimizers = {name: torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9) for name, model in models.items()}
    shuffle = torch.Generator().manual_seed(seed)
    seconds: dict[str, list[float]] = {name: [] for name in models}
    for _ in track(range(epochs), description=title):
        order = torch.randperm(len(data.digit), generator=shuffle)
        batches = [data.select(rows) for rows in order.split(BATCH) if len(rows) == BATCH]
        for name, model in models.items():
            seconds[name].append(train_epoch(model, optimizers[name], batches))
    return seconds
