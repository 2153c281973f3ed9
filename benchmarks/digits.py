"""How long an epoch of examples/digits.py takes with muladd's operators, over the same with plain torch's.

One model takes up to two percent longer than another one with the same operators: where its parameters lie in memory
decides, and under torch.compile which of the two kinds was compiled first. So every process trains two models of either
kind, in random turns, and the kind that is made and compiled first is the other one in the next process. A process
gives the median over the epochs of the ratio of both kinds' times; the result is the mean over the processes, with its
standard error. `one model over the other` is how far two models of plain torch in one process are apart: what would be
seen if there were no difference.

An optimizer that is not fused runs PyTorch's own operators for `*` and `+`, which are faster where the model has just
run them as well: that is measured apart.

    python benchmarks/digits.py --json benchmarks/results/digits.json
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
OURS, PLAIN = "muladd", "plain torch"
NOT_FUSED = "eager, optimizer not fused"
MODES = "eager", NOT_FUSED, "compiled"


class Process(NamedTuple):
    """What the models of one process took: medians over the epochs."""

    ratio: float  # muladd over plain torch
    control: float  # one model of plain torch over the other
    ms: float  # an epoch with plain torch


def measure(mode: str, first: str, epochs: int) -> Process:
    """Train two models of either kind in this process."""
    sys.path.insert(0, str(ROOT / "examples"))
    import torch
    from digits import OPERATORS, DigitClassifier, load_data, loss_of, new_optimizer, shuffled_batches, train_epoch

    data, _ = load_data(seed=0)
    generator = torch.Generator().manual_seed(0)
    second = PLAIN if first == OURS else OURS
    kinds = [first, second, second, first]
    models = [DigitClassifier(OPERATORS[kind]) for kind in kinds]
    if mode == "compiled":
        models = [torch.compile(model, fullgraph=True) for model in models]
        batch = shuffled_batches(data, generator)[0]
        for model in models:
            loss_of(model, batch).backward()
    optimizers = [new_optimizer(model) for model in models]
    if mode == NOT_FUSED:
        for optimizer in optimizers:
            optimizer.param_groups[0]["fused"] = False
    seconds: list[list[float]] = []
    for _ in range(epochs + 1):
        batches = shuffled_batches(data, generator)
        order = torch.randperm(len(models), generator=generator).tolist()
        taken = {number: train_epoch(models[number], optimizers[number], batches) for number in order}
        seconds.append([taken[number] for number in range(len(models))])
    del seconds[0]  # the first epoch allocates

    def both(epoch: list[float], kind: str) -> list[float]:
        return [time for time, of in zip(epoch, kinds, strict=True) if of == kind]

    return Process(
        ratio=statistics.median(sum(both(epoch, OURS)) / sum(both(epoch, PLAIN)) for epoch in seconds),
        control=statistics.median(a / b for a, b in (both(epoch, PLAIN) for epoch in seconds)),
        ms=statistics.median(1e3 * statistics.mean(both(epoch, PLAIN)) for epoch in seconds),
    )


def in_a_process(mode: str, first: str, epochs: int) -> Process:
    """The same in a fresh process."""
    command = [sys.executable, __file__, "--child", mode, first, "--epochs", str(epochs)]
    output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    return Process(*json.loads(output))


def summary(processes: list[Process]) -> dict[str, object]:
    """The mean over the processes and its standard error, and how far two equal models are apart."""
    ratios = [process.ratio for process in processes]
    apart = [abs(process.control - 1) for process in processes]
    return {
        "processes": len(processes),
        "ratio": round(statistics.mean(ratios), 4),
        "standard_error": round(statistics.stdev(ratios) / len(ratios) ** 0.5, 4),
        "least": round(min(ratios), 4),
        "most": round(max(ratios), 4),
        "one model over the other": {"median": round(statistics.median(apart), 4), "most": round(max(apart), 4)},
        "milliseconds_of_plain_torch": round(statistics.median(process.ms for process in processes), 1),
    }


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--processes", type=int, default=20, help="of either mode, an even number (default: 20)")
    parser.add_argument("--epochs", type=int, default=30, help="of each model (default: 30)")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measure(*options.child, options.epochs)))
        return
    if options.processes < 2 or options.processes % 2:
        parser.error("--processes must be an even number: half of them compile either kind first")
    from opwheel_tools.bench.machine import describe_machine
    from rich.progress import track

    found: dict[str, list[Process]] = {mode: [] for mode in MODES}
    for number in track(range(options.processes), description="processes"):
        for mode in MODES:
            found[mode].append(in_a_process(mode, (OURS, PLAIN)[number % 2], options.epochs))
    report = {"machine": describe_machine(), **{mode: summary(processes) for mode, processes in found.items()}}
    print(json.dumps(report, indent=2))
    if options.json:
        options.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
