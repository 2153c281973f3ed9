"""Train the classifier of digits.py on several processes, without changing a line of its model.

Two ways to outgrow one machine, both from the same weights and on the same batches as one process on its own:

fsdp
    The parameters live in slices on the processes (``fully_shard``), and each process computes on its share of a batch.
    The parameters are whole again while a module runs, so muladd's operators are given ordinary tensors.
tensor-parallel
    Each process computes some of the features for the whole batch (``parallelize_module``). muladd's operators are
    given DTensors that are sharded along the features. They have sharding rules, by which an element-wise operator
    communicates nothing.

Each must end with the parameters and the accuracy of the single process, and in tensor-parallel mode no operator of
muladd may have communicated; otherwise the exit code is 1.

    pip install muladd-core muladd-cpu scikit-learn rich
    torchrun --standalone --nproc-per-node 2 examples/digits_distributed.py
    torchrun --standalone --nproc-per-node 2 examples/digits_distributed.py --mode tensor-parallel --epochs 5
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from typing import NamedTuple, TextIO

import torch
from digits import (
    BATCH,
    OPERATORS,
    WIDTH,
    DigitClassifier,
    Digits,
    FilmBlock,
    count_right,
    load_data,
    shuffled_batches,
    train_epoch,
)
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.parallel import ColwiseParallel, PrepareModuleInputOutput, parallelize_module

# The two ways to distribute a model, and what each process sees of a batch.


def fsdp(model: DigitClassifier, mesh: DeviceMesh) -> None:
    """Slice the parameters; each block gathers its own shortly before it runs."""
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)


def tensor_parallel(model: DigitClassifier, mesh: DeviceMesh) -> None:
    """Shard the features inside each block; what goes in and what comes out is the same on every process."""
    by_feature = ColwiseParallel(use_local_output=False)  # a DTensor, sharded along its last dimension
    whole = PrepareModuleInputOutput(
        input_layouts=(Replicate(), Replicate()),
        desired_input_layouts=(Replicate(), Replicate()),
        output_layouts=Shard(-1),
        desired_output_layouts=Replicate(),
    )
    plan = {
        "blocks.*": whole,
        "blocks.*.linear": by_feature,
        "blocks.*.gamma": by_feature,
        "blocks.*.beta": by_feature,
    }
    parallelize_module(model, mesh, plan)


def share_of(batch: Digits, mesh: DeviceMesh) -> Digits:
    """Take the images of this process; the shares are equal, so the mean of their gradients is that of the batch."""
    return Digits(*(column.chunk(mesh.size())[mesh.get_rank()] for column in batch))


def all_of(batch: Digits, _mesh: DeviceMesh) -> Digits:
    """Take every image."""
    return batch


class Mode(NamedTuple):
    """How the model is distributed, and which images of a batch a process computes."""

    distribute: Callable[[DigitClassifier, DeviceMesh], None]
    images: Callable[[Digits, DeviceMesh], Digits]


MODES = {"fsdp": Mode(fsdp, share_of), "tensor-parallel": Mode(tensor_parallel, all_of)}


# The training, the same for one process and for several.


def new_model(seed: int) -> DigitClassifier:
    """Make the model, with the same weights in every process."""
    torch.manual_seed(seed)
    return DigitClassifier(OPERATORS["muladd"])


def train(model: nn.Module, batches: list[Digits]) -> None:
    """Train on the batches in their order."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    train_epoch(model, optimizer, batches)


# The checks.


def say(text: str, file: TextIO | None = None) -> None:
    """Print, on the first process only."""
    if distributed.get_rank() == 0:
        print(text, file=file, flush=True)


def everywhere(verdict: bool) -> bool:
    """Whether all processes come to this verdict."""
    vote = torch.tensor(int(verdict))
    distributed.all_reduce(vote, distributed.ReduceOp.MIN)
    return bool(vote)


def whole_parameters(model: nn.Module) -> dict[str, Tensor]:
    """Gather what is sharded."""
    return {name: p.full_tensor() if isinstance(p, DTensor) else p for name, p in model.named_parameters()}


@torch.no_grad()
def agree(model: nn.Module, alone: nn.Module, test: Digits, steps: int) -> bool:
    """Report how close the distributed model is to that of one process, and whether rounding alone explains it."""
    # Several processes add up the same numbers in another order, which moves each parameter, whose size is about 1, by
    # its rounding in a step at most. One epsilon per step is enough, in practice tens of times more than enough, while
    # gradients that the processes keep to themselves make a difference of 1e-2 within the first epoch.
    tolerance = steps * torch.finfo(torch.float32).eps
    found, expected = whole_parameters(model), whole_parameters(alone)
    difference = float(torch.stack([(found[name] - expected[name]).abs().max() for name in expected]).max())
    right, right_alone = count_right(model, test), count_right(alone, test)
    say(f"test accuracy: {100 * right / len(test.digit):.1f} %")
    say(
        f"distributed and single process: {right} and {right_alone} of {len(test.digit)} test images right, "
        f"parameters differ by at most {difference:.1e} (tolerance {tolerance:.1e})"
    )
    # One image may be so close to a tie that rounding decides it.
    return everywhere(difference <= tolerance and abs(right - right_alone) <= 1)


@torch.no_grad()
def communicates_nothing(block: FilmBlock, mesh: DeviceMesh) -> bool:
    """Report how often a block communicates in forward, and whether muladd's operators have no part in it."""
    side = torch.arange(2)
    x = torch.ones(2, WIDTH)
    with CommDebugMode() as in_block:
        block(x, side)

    x = distribute_tensor(x, mesh, [Replicate()])
    features, gamma, beta = block.linear(x), block.gamma(side), block.beta(side)
    with CommDebugMode() as in_operators:
        modulated = block.ops.fma(features, gamma, beta)
        block.ops.add(x, modulated)

    placements = [str(tensor.placements) for tensor in (features, gamma, beta, modulated)]
    say(f"placements of features, gamma, beta and their fma: {', '.join(placements)}")
    counts = in_block.get_total_counts(), in_operators.get_total_counts()
    say(f"collectives in the forward of one block: {counts[0]}, in its muladd.fma and muladd.add: {counts[1]}")
    # The block itself does communicate, to make its output whole, which shows that the counter counts.
    return everywhere(counts[0] > 0 and counts[1] == 0)


# The command.


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Train the classifier of digits.py on several processes.")
    parser.add_argument("--mode", choices=[*MODES, "both"], default="both", help="how to distribute (default: both)")
    parser.add_argument("--epochs", type=int, default=10, help="passes over the training data (default: 10)")
    parser.add_argument("--seed", type=int, default=0, help="for the split, the weights and the batches (default: 0)")
    options = parser.parse_args()
    if options.epochs < 1:
        parser.error("--epochs must be at least 1")
    return options


def compare(mesh: DeviceMesh, modes: list[str], epochs: int, seed: int) -> str | None:
    """Train on one process and in every mode; return what is wrong, if anything is."""
    data, test = load_data(seed)
    generator = torch.Generator().manual_seed(seed)
    batches = [batch for _ in range(epochs) for batch in shuffled_batches(data, generator)]
    alone = new_model(seed)
    train(alone, batches)  # in every process, so that each can compare

    for name in modes:
        say(f"\n{name} on {mesh.size()} processes")
        mode = MODES[name]
        model = new_model(seed)
        mode.distribute(model, mesh)
        train(model, [mode.images(batch, mesh) for batch in batches])
        if not agree(model, alone, test, len(batches)):
            return f"{name}: the distributed and the single process differ by more than rounding"
        if name == "tensor-parallel" and not communicates_nothing(model.blocks[0], mesh):
            return f"{name}: an operator of muladd communicates, or the block around it does not"
    return None


def main() -> int:
    """Compare in the modes asked for; 0 if all is well, 1 if not, 2 if started without torchrun."""
    options = parse_options()
    if not distributed.is_torchelastic_launched():
        print(f"start it with: torchrun --standalone --nproc-per-node 2 {sys.argv[0]}", file=sys.stderr)
        return 2
    distributed.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (distributed.get_world_size(),))
    if mesh.size() == 1 or BATCH % mesh.size():
        wrong = f"the {BATCH} images of a batch need 2 processes or more that share them equally, not {mesh.size()}"
    else:
        wrong = compare(mesh, [*MODES] if options.mode == "both" else [options.mode], options.epochs, options.seed)
    if wrong:
        say(wrong, file=sys.stderr)
    distributed.barrier()  # torchrun stops all processes as soon as one has failed, perhaps before the first has spoken
    distributed.destroy_process_group()
    return 1 if wrong else 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    # gloo's threads may outlive the group, and now and then abort the interpreter while it shuts down.
    os._exit(code)
