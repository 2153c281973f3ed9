"""A Llama of Hugging Face's, plain and with transformer_ops: the time of training steps, and the memory they take.

    python -m benchmarks.llama --json benchmarks/results/llama.json      # eight minutes

Hidden size 512, intermediate size 1,376, 8 layers of 8 heads, float32. Plain and patched models take steps by turns on
the same numbers, with AdamW: 8 sequences of 256 tokens of 32,000, eager and compiled. The memory is the most that the
forward and the backward pass of a sequence of 768 tokens of 64,000 take beyond the model and its gradients, of the
head and the loss alone and of a whole step, in a process for each model.
"""

from __future__ import annotations

import argparse
import copy
import json
import multiprocessing
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformer_ops
from opwheel.memory.usage import peak
from opwheel_tools.bench.machine import describe_machine

from .paired import seconds_of, summary

RUNS = 3


def make_model(classes: int) -> Any:
    """As Hugging Face has it, and not changed."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            hidden_size=512,
            intermediate_size=1376,
            num_hidden_layers=8,
            num_attention_heads=8,
            vocab_size=classes,
        )
    )


def training_step(model: Any, call: Callable[..., Any], tokens: torch.Tensor) -> Callable[[], None]:
    """A step of a model by what calls it: the model itself, or its compiled form."""
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        call(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    step()
    return step


def measure_speed(compiled: bool, steps: int) -> dict[str, Any]:
    """Pairs of steps of the plain and the patched model, in three runs: of them the median."""
    tokens = torch.randint(0, 32000, (8, 256), generator=torch.Generator().manual_seed(0))
    plain = make_model(32000)
    patched = copy.deepcopy(plain)
    transformer_ops.patch(patched)
    calls = [torch.compile(model) if compiled else model for model in (plain, patched)]
    of_plain, of_patched = (training_step(*one, tokens) for one in zip((plain, patched), calls, strict=True))
    runs = []
    for _ in range(RUNS):
        pairs = []
        for i in range(steps):
            if i % 2:
                off, on = seconds_of(of_plain), seconds_of(of_patched)
            else:
                on, off = seconds_of(of_patched), seconds_of(of_plain)
            pairs.append((off, on))
        runs.append(summary(pairs))
    runs.sort(key=lambda one: one["ratio"])
    return {"measured": f"a training step, {'compiled' if compiled else 'eager'}", **runs[RUNS // 2]} | {
        "ratios": [one["ratio"] for one in runs]
    }


class Given(torch.nn.Module):
    """In the place of the layers: their result, which is there already."""

    def __init__(self, hidden: torch.Tensor) -> None:
        super().__init__()
        self.hidden = hidden

    def forward(self, **_: Any) -> Any:
        from transformers.modeling_outputs import BaseModelOutputWithPast

        return BaseModelOutputWithPast(last_hidden_state=self.hidden)


def peak_of(is_patched: bool, is_whole: bool) -> int | None:
    """Bytes that the passes of a step take, with the gradients of an earlier one: the median of three."""
    model = make_model(64000)
    if is_patched:
        transformer_ops.patch(model)
    tokens = torch.randint(0, 64000, (1, 768))
    if not is_whole:
        model.model = Given(torch.randn(1, 768, 512, requires_grad=True))

    def step() -> None:
        model(input_ids=tokens, labels=tokens).loss.backward()

    step()
    found = []
    for _ in range(RUNS):
        model.zero_grad(set_to_none=False)
        found.append(peak(step))
    return None if None in found else statistics.median(found)  # type: ignore[type-var]


def measure_memory(is_whole: bool) -> dict[str, Any]:
    """Peaks of the plain and the patched model, in MiB."""
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        plain, patched = pool.starmap(peak_of, [(False, is_whole), (True, is_whole)], chunksize=1)
    return {
        "measured": f"peak of {'a step' if is_whole else 'the head and the loss'}",
        "plain_mib": round(plain / 2**20),
        "patched_mib": round(patched / 2**20),
        "ratio": round(patched / plain, 3),
    }


def main() -> None:
    """Measure, and write what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="where the results go")
    parser.add_argument("--steps", type=int, default=7, help="pairs of training steps in each of three runs")
    given = parser.parse_args()
    results = []
    for measure in (
        lambda: measure_memory(False),
        lambda: measure_memory(True),
        lambda: measure_speed(False, given.steps),
        lambda: measure_speed(True, given.steps),
    ):
        results.append(measure())
        print(*results[-1].values(), flush=True)
    if given.json:
        lines = ",\n  ".join(json.dumps(one) for one in results)
        machine = json.dumps(describe_machine())
        given.json.write_text(f'{{\n "machine": {machine},\n "results": [\n  {lines}\n ]\n}}\n')


if __name__ == "__main__":
    main()
