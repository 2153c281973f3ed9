"""Train a classifier whose features are scaled and shifted by a side condition (FiLM), with muladd's operators.

The 1,797 handwritten digits that ship inside scikit-learn are each shown twice: upright and upside down. A 6 turned
upside down looks like a 9, so the network is told which way up the page lies and modulates its features by it:
``features * gamma(side) + beta(side)``, which is one ``muladd.fma``.

The same network is trained twice, from the same weights on the same batches: once with muladd's operators and once with
plain torch expressions. Both are then trained once more under ``torch.compile``, if the C++ compiler and the Python
headers that it needs are there. Each pair must end with the same parameters and the same accuracy, otherwise the exit
code is 1.

    pip install muladd-core muladd-cpu scikit-learn rich
    python examples/digits.py
    python examples/digits.py --epochs 10 --no-compile
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import NamedTuple

import muladd
import torch
from rich.progress import track
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.nn import functional

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
    "plain torch": Operators(
        muladd=lambda a, b, number: a * b + number,
        fma=lambda a, b, c: a * b + c,
        add=lambda a, b: a + b,
    ),
}


class FilmBlock(nn.Module):
    """``x + gelu(linear(x) * gamma(side) + beta(side))``."""

    def __init__(self, ops: Operators) -> None:
        """Start without modulation: gamma = 1 and beta = 0."""
        super().__init__()
        self.ops = ops
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.gamma = nn.Embedding.from_pretrained(torch.ones(2, WIDTH), freeze=False)
        self.beta = nn.Embedding.from_pretrained(torch.zeros(2, WIDTH), freeze=False)

    def forward(self, x: Tensor, side: Tensor) -> Tensor:
        """Transform the features ``x`` in the way that ``side`` asks for."""
        modulated = self.ops.fma(self.linear(x), self.gamma(side), self.beta(side))
        # GELU rather than ReLU, whose kink turns a rounding difference in x into a jump of the gradient.
        return self.ops.add(x, functional.gelu(modulated))


class DigitClassifier(nn.Module):
    """64 pixels from 0 to 16, and which way up they are, to the scores of ten digits."""

    pixel_scale: Tensor

    def __init__(self, ops: Operators) -> None:
        """Put two modulated blocks between two linear layers."""
        super().__init__()
        self.ops = ops
        self.register_buffer("pixel_scale", torch.tensor(1 / 8))
        self.stem = nn.Linear(64, WIDTH)
        self.blocks = nn.ModuleList([FilmBlock(ops), FilmBlock(ops)])
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, pixels: Tensor, side: Tensor) -> Tensor:
        """Score the ten digits for each image."""
        x = self.ops.muladd(pixels, self.pixel_scale, -1.0)  # from [0, 16] to [-1, 1]
        x = self.stem(x)
        for block in self.blocks:
            x = block(x, side)
        return self.head(x)


def new_models(seed: int) -> dict[str, nn.Module]:
    """Make one model with muladd's operators and one with plain torch, with the same weights."""
    models: dict[str, nn.Module] = {}
    for name, ops in OPERATORS.items():
        torch.manual_seed(seed)
        models[name] = DigitClassifier(ops)
    return models


# The data.


class Digits(NamedTuple):
    """Images as rows of 64 pixels, which way up each is (0 upright, 1 upside down), and which digit it shows."""

    pixels: Tensor
    side: Tensor
    digit: Tensor


def both_ways_up(pixels: Tensor, digit: Tensor) -> Digits:
    """Show every image upright and turned by 180 degrees, which reverses its row of pixels."""
    side = torch.arange(2).repeat_interleave(len(pixels))
    return Digits(torch.cat([pixels, pixels.flip(1)]), side, digit.repeat(2))


def load_data(seed: int) -> tuple[Digits, Digits]:
    """Split into training and test data first and turn then, so that no test image is trained on either way up."""
    images, labels = load_digits(return_X_y=True)
    split = train_test_split(images, labels, test_size=0.2, stratify=labels, random_state=seed)
    train_pixels, test_pixels = (torch.tensor(part, dtype=torch.float32) for part in split[:2])
    train_digit, test_digit = (torch.tensor(part) for part in split[2:])
    return both_ways_up(train_pixels, train_digit), both_ways_up(test_pixels, test_digit)


def shuffled_batches(data: Digits, generator: torch.Generator) -> list[Digits]:
    """Shuffle the images into full batches; what remains is left out, as torch.compile specialises on the size."""
    order = torch.randperm(len(data.digit), generator=generator)
    full = len(order) // BATCH * BATCH
    return [Digits(*(column[rows] for column in data)) for rows in order[:full].split(BATCH)]


# The training.


def loss_of(model: nn.Module, batch: Digits) -> Tensor:
    """Cross-entropy of the model's scores."""
    return functional.cross_entropy(model(batch.pixels, batch.side), batch.digit)


def new_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """SGD with momentum; fused, which is one operator for all parameters instead of two for each."""
    # SGD rather than Adam, which divides by the gradient's size and so enlarges rounding differences in tiny gradients.
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, fused=True)


def train_epoch(model: nn.Module, optimizer: torch.optim.Optimizer, batches: list[Digits]) -> float:
    """Train on every batch once and return the seconds it took."""
    start = perf_counter()
    for batch in batches:
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        optimizer.step()
    return perf_counter() - start


def train(title: str, models: dict[str, nn.Module], data: Digits, epochs: int, seed: int) -> None:
    """Train all models on the same batches and print the median time per epoch of each."""
    generator = torch.Generator().manual_seed(seed)
    optimizers = {name: new_optimizer(model) for name, model in models.items()}
    seconds: dict[str, list[float]] = {name: [] for name in models}
    order = list(models)
    for _ in track(range(epochs), description=title):
        batches = shuffled_batches(data, generator)
        # The models take turns, so that whatever else the machine is doing slows them alike, and the first is another
        # one each time: it is the first to read new batches.
        for name in order:
            seconds[name].append(train_epoch(models[name], optimizers[name], batches))
        order.reverse()
    times = ", ".join(f"{name} {1000 * median(epoch_times):.1f} ms" for name, epoch_times in seconds.items())
    print(f"time per epoch (median, a demonstration and not a benchmark): {times}")
    if models.keys() < {"muladd", "plain torch"}:
        return
    ratio = median(mine / plain for mine, plain in zip(seconds["muladd"], seconds["plain torch"], strict=True))
    comparison = f"{100 * abs(1 - ratio):.0f} % {'less' if ratio < 1 else 'more'} time than"
    # Two models of plain torch differ as well, by where their memory lies: benchmarks/digits.py.
    print(f"an epoch with muladd takes {comparison} one with plain torch (median of the ratios; 1 % is chance)")


# The comparison.


@torch.no_grad()
def count_right(model: nn.Module, data: Digits) -> int:
    """Count the images that the model recognises."""
    return int((model(data.pixels, data.side).argmax(1) == data.digit).sum())


@torch.no_grad()
def largest_difference(first: nn.Module, second: nn.Module) -> float:
    """Find the largest difference of any parameter between two models."""
    pairs = zip(first.parameters(), second.parameters(), strict=True)
    return max(float((a - b).abs().max()) for a, b in pairs)


def agree(models: dict[str, nn.Module], test: Digits, steps: int) -> bool:
    """Report how close the two trained models are, and whether rounding alone explains it."""
    # A step rounds each parameter, whose size is about 1, by at most half an epsilon in either model, and the smooth
    # network does not enlarge that: one epsilon per step is enough, in practice tens of times more than enough, while a
    # gradient that is left out makes a difference of 1e-2 within the first epoch.
    tolerance = steps * torch.finfo(torch.float32).eps
    difference = largest_difference(*models.values())
    right = [count_right(model, test) for model in models.values()]
    print(f"muladd and plain torch: {right[0]} and {right[1]} of {len(test.digit)} test images right, ", end="")
    print(f"parameters differ by at most {difference:.1e} (tolerance {tolerance:.1e})")
    # One image may be so close to a tie that rounding decides it.
    return difference <= tolerance and abs(right[0] - right[1]) <= 1


def why_no_compile() -> str | None:
    """Try torch.compile on a function without muladd, and return the reason if it does not work on this machine."""
    try:
        torch.compile(lambda x: x.sin() + 1)(torch.ones(8))
    except Exception as error:
        return str(error).partition("\n")[0]
    return None


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Train a small classifier with muladd's operators and plain torch's.")
    parser.add_argument("--epochs", type=int, default=30, help="passes over the training data (default: 30)")
    parser.add_argument("--seed", type=int, default=0, help="for the split, the weights and the batches (default: 0)")
    parser.add_argument("--no-compile", action="store_true", help="leave out the part under torch.compile")
    options = parser.parse_args()
    if options.epochs < 1:
        parser.error("--epochs must be at least 1")
    return options


def main() -> int:
    """Train eagerly, then compiled; 0 if muladd and plain torch agree in both, otherwise 1."""
    options = parse_options()
    data, test = load_data(options.seed)
    steps = options.epochs * (len(data.digit) // BATCH)
    print(f"{len(data.digit)} training and {len(test.digit)} test images, half of each upside down")

    models = new_models(options.seed)
    train("eager", models, data, options.epochs, options.seed)
    print(f"test accuracy: {100 * count_right(models['muladd'], test) / len(test.digit):.1f} %")
    if not agree(models, test, steps):
        print("muladd and plain torch differ in eager mode by more than rounding", file=sys.stderr)
        return 1

    if options.no_compile:
        return 0
    if reason := why_no_compile():
        print(f"torch.compile does not work here (no C++ compiler or Python headers?), going on eagerly: {reason}")
        return 0
    models = new_models(options.seed)
    compiled = {name: torch.compile(model, fullgraph=True) for name, model in models.items()}
    print("compiling both models, which takes a while the first time")
    first_batch = shuffled_batches(data, torch.Generator())[0]
    for model in compiled.values():
        loss_of(model, first_batch).backward()  # before the clock starts; the training begins by dropping the gradients
    train("torch.compile", compiled, data, options.epochs, options.seed)
    if not agree(models, test, steps):
        print("muladd and plain torch differ under torch.compile by more than rounding", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
