"""PyTorch's own operators with transformer_ops' kernels on and off: where they are faster, and what a model gains.

    python -m benchmarks.foreign --json benchmarks/results/foreign.json      # operators, twelve minutes
    python -m benchmarks.foreign --model --json benchmarks/results/foreign_model.json
    python -m benchmarks.foreign --table benchmarks/results/foreign.json     # the table of docs/accelerating-torch.md

Each case is timed by turns, off and on, and its number is the median of the ratios of these pairs: how many times
faster it is with the kernels on. All cases are measured in three runs, one after the other, and a case has the median
of its three: what disturbs the machine for some seconds is in one of them. Operators are measured with all calls
admitted for which the results are right, and the file says which of them the conditions on speed admit.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformer_ops
from opwheel.foreign import ForeignKernel, ForeignKernels
from opwheel_tools.bench.machine import describe_machine
from torch.nn import functional

from .llama import make_model, training_step
from .paired import seconds_of, summary

ELEMENTS = tuple(2**power for power in (12, 14, 16, 18, 20, 22, 23))
ROWS = (64, 512, 4096, 32000)
POSITIONS = (64, 256, 1024)
DTYPES = (torch.float32, torch.bfloat16)
SECONDS = 0.8  # for the pairs of a case
SHORTEST = 2e-3  # seconds of one side of a pair
PAIRS = (5, 31)


class Case(NamedTuple):
    """A call of one operator; ``gradients`` says whether its backward pass is timed as well."""

    operator: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    gradients: bool
    call: Callable[[], Any]
    admitted: bool


def shapes() -> Iterator[tuple[int, int]]:
    """Numbers of rows, and of their elements."""
    yield from ((elements // row, row) for elements in ELEMENTS for row in ROWS if elements >= row)


def cases(kernels: ForeignKernels) -> Iterator[Case]:
    """Everything that is measured; ``kernels`` are those with their conditions on speed."""
    for dtype in DTYPES:
        for gradients in (False, True):
            for rows, row in shapes():
                x = torch.randn(rows, row, dtype=dtype, requires_grad=gradients)
                w, b = (torch.randn(row, dtype=dtype, requires_grad=gradients) for _ in range(2))
                target = torch.randint(0, row, (rows,))
                sized = [row]
                calls: dict[str, tuple[Callable[..., Any], str, tuple[Any, ...]]] = {
                    "rms_norm": (lambda x, n, w: functional.rms_norm(x, n, w), "aten::rms_norm", (x, sized, w)),
                    "layer_norm": (
                        lambda x, n, w, b: functional.layer_norm(x, n, w, b),
                        "aten::layer_norm",
                        (x, sized, w, b),
                    ),
                    "softmax": (lambda x, dim, _: functional.softmax(x, dim), "aten::_softmax", (x, -1, False)),
                    "log_softmax": (
                        lambda x, dim, _: functional.log_softmax(x, dim),
                        "aten::_log_softmax",
                        (x, -1, False),
                    ),
                    "cross_entropy_loss": (
                        lambda x, t: functional.cross_entropy(x, t),
                        "aten::cross_entropy_loss",
                        (x, target),
                    ),
                }
                for name, (function, operator, arguments) in calls.items():
                    yield _case(kernels, name, operator, function, arguments, gradients)
            for elements in ELEMENTS:
                for positions in POSITIONS:
                    if 64 * positions <= elements and elements * positions <= 2**31:
                        yield _attention(kernels, elements // (64 * positions), positions, dtype, gradients)


def _attention(kernels: ForeignKernels, heads: int, positions: int, dtype: torch.dtype, gradients: bool) -> Case:
    # As models have them: a linear layer's result, with its heads moved forward.
    qkv = [torch.randn(1, positions, heads, 64, dtype=dtype, requires_grad=gradients) for _ in range(3)]

    def call(*given: torch.Tensor) -> torch.Tensor:
        q, k, v = (one.transpose(1, 2) for one in given)
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    operator = "aten::_scaled_dot_product_flash_attention_for_cpu"
    heads_first = tuple(one.transpose(1, 2) for one in qkv)
    admitted = kernels.why(operator, *heads_first, 0.0, True).ours
    case = _case(kernels, "scaled_dot_product_attention", None, call, tuple(qkv), gradients)
    return case._replace(shape=tuple(heads_first[0].shape), admitted=admitted)


def _case(
    kernels: ForeignKernels,
    name: str,
    operator: str | None,
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    gradients: bool,
) -> Case:
    wanted = [one for one in arguments if isinstance(one, torch.Tensor) and one.requires_grad]

    def call() -> Any:
        y = function(*arguments)
        return torch.autograd.grad(y, wanted, torch.ones_like(y)) if gradients else y

    admitted = operator is not None and kernels.why(operator, *arguments).ours
    return Case(name, arguments[0].dtype, tuple(arguments[0].shape), gradients, call, admitted)


def pairs(kernels: ForeignKernels, name: str, call: Callable[[], Any], seconds: float) -> list[tuple[float, float]]:
    """Times of a call off and on, by turns: which comes first changes."""
    call()
    times = max(1, int(SHORTEST / seconds_of(call, 1)))
    found: list[tuple[float, float]] = []
    start = time.perf_counter()
    while len(found) < PAIRS[0] or (len(found) < PAIRS[1] and time.perf_counter() - start < seconds):
        one: dict[bool, float] = {}
        for is_on in (False, True) if len(found) % 2 else (True, False):
            if is_on:
                with kernels.on(name):
                    call()
                    one[True] = seconds_of(call, times)
            else:
                call()
                one[False] = seconds_of(call, times)
        found.append((one[False], one[True]))
    return found


def measure_operators(seconds: float, only: str, runs: int) -> list[dict[str, Any]]:
    """All cases, with all calls admitted for which results are right: of each its median run."""
    conditioned = transformer_ops.library.foreign
    unconditioned = ForeignKernels(transformer_ops.library, [replace(one, fast=()) for one in conditioned.declarations])
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for _ in range(runs):
        for case in cases(conditioned):
            if only not in case.operator:
                continue
            key = (case.operator, str(case.dtype).removeprefix("torch."), case.shape, case.gradients, case.admitted)
            found.setdefault(key, []).append(summary(pairs(unconditioned, case.operator, case.call, seconds)))
            print(*key, *found[key][-1].values(), flush=True)
    results = []
    for key, of_runs in found.items():
        in_order = sorted(of_runs, key=lambda one: one["ratio"])
        case_of = dict(zip(("operator", "dtype", "shape", "gradients", "admitted"), key, strict=True))
        results.append({**case_of, **in_order[len(in_order) // 2], "ratios": [one["ratio"] for one in of_runs]})
    return results


def measure_model(steps: int) -> list[dict[str, Any]]:
    """Training steps of a Llama as Hugging Face has it, unchanged: 4 sequences of 256 tokens.

    With all kernels on, and with each alone that the model calls: what each of them contributes.
    """
    model = make_model(32000)
    step = training_step(model, model, torch.randint(0, 32000, (4, 256)))
    found = []
    for name in (None, *called_by(step)):
        result = summary(model_pairs(step, steps, [name] if name else []))
        found.append({"operator": f"a training step of Llama: {name or 'all'}", "dtype": "float32", **result})
        print(*found[-1].values(), flush=True)
    return found


def called_by(step: Callable[[], None]) -> list[str]:
    """The names of the kernels that compute something in a step."""
    names: dict[str, None] = {}

    def noted(declaration: ForeignKernel) -> ForeignKernel:
        def function(*args: Any, **kwargs: Any) -> Any:
            names[declaration.label] = None
            return declaration.function(*args, **kwargs)

        return replace(declaration, function=function)

    library = transformer_ops.library
    with ForeignKernels(library, [noted(one) for one in library.foreign.declarations]).on():
        step()
    return list(names)


def model_pairs(step: Callable[[], None], steps: int, names: list[str]) -> list[tuple[float, float]]:
    """Times of a step off and on, by turns."""
    found = []
    for i in range(steps):
        one = {}
        for is_on in (False, True) if i % 2 else (True, False):
            if is_on:
                with transformer_ops.accelerate_torch(*names):
                    one[True] = seconds_of(step)
            else:
                one[False] = seconds_of(step)
        found.append((one[False], one[True]))
    return found


def table(results: list[dict[str, Any]]) -> str:
    """For each operator and dtype: which calls are admitted, and the range of their ratios."""
    lines = ["| operator | dtype | pass | admitted | ratio: least | median | most |", "|---|---|---|---|---|---|---|"]
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for one in results:
        passes = "forward and backward" if one["gradients"] else "forward"
        groups.setdefault((one["operator"], one["dtype"], passes), []).append(one)
    for names, found in groups.items():
        ratios = [one["ratio"] for one in found if one["admitted"]]
        numbers = [f"{f(ratios):.2f}" for f in (min, statistics.median, max)] if ratios else ["", "", ""]
        lines.append("| " + " | ".join([*names, f"{len(ratios)} of {len(found)} sizes", *numbers]) + " |")
    return "\n".join(lines)


def main() -> None:
    """Measure, and write what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="where the results go")
    parser.add_argument("--model", action="store_true", help="a model's training steps, not operators")
    parser.add_argument("--steps", type=int, default=15, help="pairs of training steps")
    parser.add_argument("--runs", type=int, default=3, help="of all operators")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for the pairs of a case")
    parser.add_argument("--only", default="", help="operators whose name has this in it")
    parser.add_argument("--table", type=Path, help="print the table of a file of results, and measure nothing")
    given = parser.parse_args()
    if given.table:
        print(table(json.loads(given.table.read_text())["results"]))
        return
    results = measure_model(given.steps) if given.model else measure_operators(given.seconds, given.only, given.runs)
    if given.json:
        document = {"machine": describe_machine(), "results": results}
        given.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
