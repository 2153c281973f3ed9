"""What is still wrong in fixes, without the judge: a few lines of PyTorch for each finding that an entry accepts.

    python -m tests.time_machine.by_hand CHECKOUTS

CHECKOUTS is the folder that ``python -m tests.time_machine`` takes. Exit code 1 where one of them is right.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .entry import entries
from .run import ROOT, write_tree

F = Callable[..., Any]


def main(checkouts: Path) -> int:
    """Show all of them; gives the exit code."""
    codes = []
    for file, entry in entries().items():
        if entry.accepted:
            with tempfile.TemporaryDirectory() as folder:
                write_tree(checkouts / entry.clone, entry.fix, entry, Path(folder))
                environment = {**os.environ, "PYTHONPATH": f"{folder}/{entry.source}", "TRITON_INTERPRET": "1"}
                code = f"from tests.time_machine import by_hand; by_hand.show({file.stem!r})"
                codes.append(subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, check=False))
    return int(any(one.returncode for one in codes))


def show(name: str) -> None:
    """Print what the fix of an entry gives and what is right, for each finding that it accepts.

    Raises:
        AssertionError: both are the same.
    """
    module = importlib.import_module(f"tests.time_machine.entries.{name}")
    for group, _ in module.ENTRY.accepted:
        torch.manual_seed(0)
        got, right = SHOWN[name, group](module.candidate, module.reference)
        difference = (got.double() - right.double()).abs()
        place = int(difference.nan_to_num(torch.inf, torch.inf).flatten().argmax())
        numbers = [f"{one.dtype} {one.flatten()[place].item():.4g}" for one in (got, right)]
        print(f"{name}: {group}: {numbers[0]}, right is {numbers[1]}", flush=True)
        assert got.dtype != right.dtype or not torch.allclose(got, right, rtol=0.01, atol=0), (name, group)


def gradient(f: F, t: list[Tensor], i: int, incoming: float = 1.0, times: int = 1) -> Tensor:
    """The gradient of the sum for one tensor, by the last of several backwards."""
    t = [x.detach().requires_grad_(j == i) for j, x in enumerate(t)]
    results = f(*t)
    for _ in range(times):
        (found,) = torch.autograd.grad(results, t[i], torch.full_like(results, incoming), retain_graph=True)
    return found


def with_penalty(f: F, t: list[Tensor], i: int) -> Tensor:
    """The gradient for one tensor, where the square of its gradient is a term of the loss."""
    t = [x.detach().requires_grad_(j == i) for j, x in enumerate(t)]
    loss = f(*t).sum()
    (first,) = torch.autograd.grad(loss, t[i], create_graph=True)
    return torch.autograd.grad(loss + first.square().sum(), t[i])[0]


def penalty_on_logits(candidate: F, reference: F) -> tuple[Tensor, Tensor]:
    """Of which the loss is a part, whose gradient is not zero."""
    loss, logits = torch.randn(()), torch.randn(2, 3, 5)
    both = [lambda x, f=f: f(loss, x) * 1e4 + x.sum() for f in (candidate, reference)]
    return with_penalty(both[0], [logits], 0), with_penalty(both[1], [logits], 0)


def written_result(candidate: F, reference: F) -> tuple[Tensor, Tensor]:
    loss, right = torch.tensor(1.0), torch.tensor(1.0)
    for f, x in ((candidate, loss), (reference, right)):
        f(x, torch.randn(2, 3, 5)).zero_()
    return loss, right


def largest_with_nan(candidate: F, reference: F) -> tuple[Tensor, Tensor]:
    x = torch.tensor([1.0, torch.nan, 3.0])
    return candidate(x), torch.max(x)


def penalty_on_cross_entropy(candidate: F, reference: F) -> tuple[Tensor, Tensor]:
    t = [torch.randn(5, 11), torch.randint(0, 11, (5,))]
    return with_penalty(candidate, t, 0), with_penalty(reference, t, 0)


def penalty_on_linear_cross_entropy(candidate: F, reference: F) -> tuple[Tensor, Tensor]:
    t = [torch.randn(5, 8), torch.randn(11, 8), torch.randint(0, 11, (5,))]
    return with_penalty(candidate, t, 0), with_penalty(reference, t, 0)


def confident_row(candidate: F, reference: F) -> tuple[Tensor, Tensor]:
    t = [torch.ones(1, 1), torch.tensor([[16.0], [0.0], [0.0]]), torch.tensor([0])]
    return candidate(*t), torch.nn.functional.cross_entropy(t[0] @ t[1].mT, t[2], reduction="none")


def transposed_logits(candidate: F, reference: F) -> tuple[Tensor, Tensor]:
    logits, target = torch.randn(5, 11).mT.contiguous().mT, torch.randint(0, 11, (5,))
    return gradient(candidate, [logits, target], 0), gradient(reference, [logits, target], 0)


def penalty_on_divergence(candidate: F, reference: F) -> tuple[Tensor, Tensor]:
    t = [torch.randn(size, 4) for size in (8, 16, 8, 16)] + [torch.arange(8)]
    return with_penalty(candidate, t, 0), with_penalty(reference, t, 0)


def second_backward(candidate: F, reference: F) -> tuple[Tensor, Tensor]:
    t = [torch.randn(size, 4) for size in (8, 16, 8, 16)] + [torch.tensor([-100, 3, 1, -100, 2, 5, 0, -100])]
    return gradient(candidate, t, 0, -1.0, 2), gradient(candidate, t, 0, -1.0, 1)


def large_logits(candidate: F, reference: F) -> tuple[Tensor, Tensor]:
    t = [torch.randn(size, 4) for size in (8, 16, 8, 16)] + [torch.arange(8)]
    t[0], t[2] = t[0] * 100, t[2] * 100
    return candidate(*t), reference(*t)


def small_targets(candidate: F, reference: F) -> tuple[Tensor, Tensor]:
    scores, target = torch.zeros(1, 4), torch.full((1, 4), 1e-30)
    return candidate(scores, target), torch.nn.functional.kl_div(scores, target, reduction="batchmean")


def loss_of_float64(candidate: F, reference: F) -> tuple[Tensor, Tensor]:
    scores, target = torch.zeros(1, 4, dtype=torch.float64), torch.full((1, 4), 0.25, dtype=torch.float64)
    return candidate(scores, target), torch.nn.functional.kl_div(scores, target, reduction="batchmean")


def one_token(candidate: F, reference: F) -> tuple[Tensor, Tensor]:
    angles = torch.rand(2, 1, 4) * 6
    t = [torch.randn(2, 2, 1, 8), torch.randn(2, 2, 1, 8), angles.cos(), angles.sin()]
    return candidate(*t)[0], reference(*t)[0]


SHOWN: dict[tuple[str, str], Callable[[F, F], tuple[Tensor, Tensor]]] = {
    ("fla_l2wrap", "second derivatives"): penalty_on_logits,
    ("fla_l2wrap", "aliases"): written_result,
    ("gems_max_strides", "numbers"): largest_with_nan,
    ("liger_cross_entropy", "second derivatives"): penalty_on_cross_entropy,
    ("liger_cross_entropy_half", "second derivatives"): penalty_on_cross_entropy,
    ("liger_cross_entropy_half", "layouts"): transposed_logits,
    ("liger_fused_linear_cross_entropy", "second derivatives"): penalty_on_linear_cross_entropy,
    ("liger_fused_linear_cross_entropy", "numbers"): confident_row,
    ("liger_jsd_ignored_rows", "gradients"): second_backward,
    ("liger_jsd_ignored_rows", "numbers"): large_logits,
    ("liger_jsd_chunked_labels", "second derivatives"): penalty_on_divergence,
    ("liger_kl_div_zero", "numbers"): small_targets,
    ("liger_kl_div_zero", "dtypes"): loss_of_float64,
    ("liger_rope_batches", "shapes"): one_token,
    ("liger_rope_batches", "memory"): one_token,
}

if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
