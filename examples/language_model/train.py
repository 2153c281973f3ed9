"""Train a small Llama-style model of characters with transformer_ops, and with plain torch for comparison.

The text is that of Python's own help, which ships inside Python (``pydoc_data.topics``): English, 465,000 characters.
The same model, about 2 million parameters, is trained from the same weights on the same batches: by plain torch
(``F.rms_norm``, ``F.silu``, ``F.scaled_dot_product_attention``, ``F.cross_entropy``) and by transformer_ops, each
eagerly and under ``torch.compile``. The layers' matrix products are PyTorch's everywhere. The losses must stay the
same, otherwise the exit code is 1. At the end it draws the loss curves, writes some text, and says how many tokens a
second each has seen, and how much memory it took.

    pip install transformer-ops-core transformer-ops-cpu rich matplotlib
    python examples/language_model/train.py
    python examples/language_model/train.py --steps 20 --no-compile
    torchrun --standalone --nproc-per-node 2 examples/language_model/train.py --no-compile

Under torchrun each process computes its share of a batch, and has its share of the parameters (FSDP2, ``fully_shard``).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch
from characters import CHARACTERS, TEXT, batches
from model import CONTEXT, OURS, PLAIN, LanguageModel
from opwheel_tools.bench.machine import describe_machine
from rich.progress import track
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

BATCH = 16
SIDES = {"plain torch": PLAIN, "transformer_ops": OURS}
# Of a loss, relative. Both sides round differently, and Adam enlarges it: it divides by the gradient's size.
TOLERANCE = 0.02


def new_model(side: str, seed: int) -> LanguageModel:
    """The same weights for either side."""
    torch.manual_seed(seed)
    return LanguageModel(SIDES[side], len(CHARACTERS))


class Trainer:
    """A model in training, with what came of each step."""

    def __init__(self, model: LanguageModel, *, compiled: bool = False) -> None:
        self.model = model
        self.loss = torch.compile(model.loss) if compiled else model.loss
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, betas=(0.9, 0.95), fused=True)
        self.losses: list[float] = []
        self.seconds: list[float] = []

    def step(self, batch: Tensor, learning_rate: float) -> None:
        """Learn from one batch; under torchrun, from this process's part of it."""
        start = perf_counter()
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        self.optimizer.zero_grad()
        loss = self.loss(batch)
        loss.backward()
        self.optimizer.step()
        self.losses.append(loss.item())
        self.seconds.append(perf_counter() - start)

    def tokens_per_second(self) -> float:
        """The median, without the first two steps: they compile, and fill caches."""
        return BATCH * CONTEXT / median(self.seconds[2:] or self.seconds)


def learning_rate(step: int, steps: int) -> float:
    """Rises for 20 steps, then falls linearly."""
    return 2e-3 * min((step + 1) / 20, 1 - step / steps)


def peak_memory(side: str, seed: int) -> float:
    """MiB that two steps take in addition to what the process had before, in a process of their own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_peak_memory, (side, seed))


def _peak_memory(side: str, seed: int) -> float:
    trainer, given = Trainer(new_model(side, seed)), list(batches(2, seed, BATCH, CONTEXT))
    before = _resident("VmRSS")
    for batch in given:
        trainer.step(batch, 1e-4)
    return _resident("VmHWM") - before


def _resident(key: str) -> float:
    """MiB that this process has, or has had at most; ``getrusage`` would count what its parent had."""
    (kibibytes,) = re.findall(rf"^{key}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(kibibytes) / 1024


@torch.no_grad()
def write(model: nn.Module, length: int, seed: int) -> str:
    """Text that the model continues with, a character after the other."""
    generator = torch.Generator().manual_seed(seed)
    start = "The "
    written = torch.tensor([[CHARACTERS.index(character) for character in start]])
    for _ in range(length):
        scores = model(written[:, -CONTEXT:])[:, -1] / 0.8
        written = torch.cat((written, torch.multinomial(scores.softmax(-1), 1, generator=generator)), 1)
    return "".join(CHARACTERS[i] for i in written[0].tolist())


def draw(trainers: dict[str, Trainer], file: Path) -> None:
    """The losses of all steps."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for width, (name, trainer) in zip((5, 3.5, 2, 1), trainers.items(), strict=False):  # curves lie upon each other
        axes.plot(trainer.losses, label=name, linewidth=width)
    axes.set(xlabel="step", ylabel="cross entropy of a character", title="Python's help, character by character")
    axes.legend()
    figure.savefig(file, dpi=120)


def largest_difference(losses: list[list[float]]) -> float:
    """The largest relative difference of any step's losses from the first one's."""
    every = torch.tensor(losses)
    return float(((every - every[0]).abs() / every[0]).max())


@contextmanager
def processes() -> Iterator[tuple[int, int]]:
    """The number of this process, and how many there are: one, without torchrun."""
    if "RANK" not in os.environ:
        yield 0, 1
        return
    distributed.init_process_group("gloo")
    try:
        yield distributed.get_rank(), distributed.get_world_size()
    finally:
        distributed.destroy_process_group()


def shard(model: LanguageModel, count: int) -> LanguageModel:
    """Let each of several processes have its share of the parameters; modules gather them shortly before they run."""
    if count > 1:
        mesh = init_device_mesh("cpu", (count,))
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
    return model


def report(trainers: dict[str, Trainer], seed: int) -> dict[str, Any]:
    """Speed and memory: printed, and returned."""
    speeds = {name: trainer.tokens_per_second() for name, trainer in trainers.items()}
    for name, trainer in trainers.items():
        print(f"{name}: loss {trainer.losses[-1]:.3f}, {speeds[name]:,.0f} tokens per second")
    plain, mine = (speeds[f"{side}, eager"] for side in SIDES)
    print(f"transformer_ops: {mine / plain:.2f} times the tokens per second of plain torch")
    memory = {side: peak_memory(side, seed) for side in SIDES} if sys.platform == "linux" else {}
    for side, mebibytes in memory.items():
        print(f"{side}: {mebibytes:.0f} MiB at the peak of a step")
    return {"tokens_per_second": speeds, "peak_mebibytes": memory}


def main() -> int:
    """Train, compare, report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-compile", action="store_true", help="only the eager models")
    parser.add_argument("--plot", type=Path, default=Path("language_model.png"), help="the file for the loss curves")
    parser.add_argument("--json", type=Path, help="a file for speed, memory, and a description of the machine")
    parser.add_argument("--sample", type=int, default=300, help="characters to write at the end")
    options = parser.parse_args()
    modes = ("eager",) if options.no_compile else ("eager", "compiled")
    with processes() as (rank, count):
        if BATCH % count:
            parser.error(f"a batch of {BATCH} cannot be split among {count} processes")
        trainers = {
            f"{side}, {mode}": Trainer(shard(new_model(side, options.seed), count), compiled=mode == "compiled")
            for mode in modes
            for side in SIDES
        }
        if rank == 0:
            parameters = sum(parameter.numel() for parameter in new_model("plain torch", 0).parameters())
            print(f"{len(TEXT):,} characters, {len(CHARACTERS)} different ones; {parameters:,} parameters")
        given = enumerate(batches(options.steps, options.seed, BATCH, CONTEXT))
        steps = track(given, "training", options.steps, disable=rank > 0)
        for step, batch in steps:
            # The models take turns, so that whatever else the machine is doing slows them alike.
            for trainer in trainers.values():
                trainer.step(batch.chunk(count)[rank], learning_rate(step, options.steps))
        for trainer in trainers.values():
            trainer.losses = averaged(trainer.losses, count)
        text = write(trainers["transformer_ops, eager"].model, options.sample, options.seed)
        if rank > 0:
            return 0
        measured = report(trainers, options.seed)
    if options.json is not None:
        found = {"machine": describe_machine(), "steps": options.steps, **measured}
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    draw(trainers, options.plot)
    print(f"the losses are in {options.plot}; what transformer_ops's model writes:\n\n{text}\n")
    difference = largest_difference([trainer.losses for trainer in trainers.values()])
    print(f"largest difference of a loss between the models: {100 * difference:.3f} %")
    if not difference <= TOLERANCE:
        print(f"that is more than {100 * TOLERANCE} %: an operator is wrong", file=sys.stderr)
        return 1
    return 0


def averaged(losses: list[float], count: int) -> list[float]:
    """The means over all processes."""
    if count == 1:
        return losses
    every = torch.tensor(losses, dtype=torch.float64)
    distributed.all_reduce(every)
    return (every / count).tolist()


if __name__ == "__main__":
    sys.exit(main())
