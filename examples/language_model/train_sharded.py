"""Train a small Llama on several processes: FSDP2, tensor parallelism, or both, on a mesh of ``--data`` x ``--tensor``.

The tensor parallel plan is the usual one. Norms compute on the positions that a process has (``SequenceParallel``),
attention and SwiGLU on its heads and features, and the loss on its part of the vocabulary: of each row of logits the
processes exchange three numbers, never the logits. The weights, the batches and so, but for rounding, the losses are
the same on every mesh. A checkpoint may be loaded on another mesh than the one it was saved on.

    pip install transformer-ops-core transformer-ops-cpu
    torchrun --standalone --nproc-per-node 1 examples/language_model/train_sharded.py
    torchrun --standalone --nproc-per-node 4 examples/language_model/train_sharded.py --tensor 2 --save checkpoint
    torchrun --standalone --nproc-per-node 2 examples/language_model/train_sharded.py --load checkpoint --steps 100
    torchrun --standalone --nproc-per-node 4 examples/language_model/train_sharded.py --tensor 2 --recompute --compile
"""

from __future__ import annotations

import argparse
import json
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from characters import CHARACTERS, batches
from llama import CONTEXT, KEY_HEADS, Llama
from torch import Tensor, distributed, nn
from torch.distributed import checkpoint
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

BATCH = 8
# What --recompute keeps of a layer for the backward pass.
KEPT = [torch.ops.transformer_ops.attention_training.default, torch.ops.aten.mm.default]

POSITIONS = Shard(1)  # how (batch, positions, width) is shared out between the layers' blocks
TO_POSITIONS = RowwiseParallel(output_layouts=POSITIONS, use_local_output=False)
PLAN = {
    "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=POSITIONS, use_local_output=False),
    "layers.*.attention_norm": SequenceParallel(),
    "layers.*.attention": PrepareModuleInput(
        input_layouts=(POSITIONS, None, None), desired_input_layouts=(Replicate(), None, None)
    ),
    "layers.*.attention.q": ColwiseParallel(),
    "layers.*.attention.k": ColwiseParallel(),
    "layers.*.attention.v": ColwiseParallel(),
    "layers.*.attention.o": TO_POSITIONS,
    "layers.*.feed_forward_norm": SequenceParallel(),
    "layers.*.feed_forward": PrepareModuleInput(input_layouts=POSITIONS, desired_input_layouts=Replicate()),
    "layers.*.feed_forward.gate_proj": ColwiseParallel(),
    "layers.*.feed_forward.up_proj": ColwiseParallel(),
    "layers.*.feed_forward.down_proj": TO_POSITIONS,
    "norm": SequenceParallel(),
    "head": ColwiseParallel(),  # the weight alone: the loss computes with it
}


def distribute(model: Llama, mesh: DeviceMesh, compiled: bool) -> None:
    """Let each process have its share of the model: first of heads, features and vocabulary, then of parameters."""
    if mesh["tensor"].size() > 1:
        parallelize_module(model, mesh["tensor"], PLAN)
    if compiled:
        for layer in model.layers:
            layer.compile(fullgraph=True)
    if mesh["data"].size() > 1:
        for layer in model.layers:
            fully_shard(layer, mesh=mesh["data"])
        fully_shard(model, mesh=mesh["data"])


def mean(loss: Tensor, mesh: DeviceMesh) -> float:
    """Over the batch, of which each row of the mesh has seen a part; tensor parallel processes have the same loss."""
    local = loss.to_local() if isinstance(loss, DTensor) else loss
    return DTensor.from_local(local, mesh["data"], [Partial("avg")]).full_tensor().item()


class Progress:
    """The step, the model and the optimizer, as ``torch.distributed.checkpoint`` saves and loads them."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """At the first step."""
        self.model = model
        self.optimizer = optimizer
        self.step = 0

    def state_dict(self) -> dict[str, Any]:
        """Parameters as DTensors, which are saved in parts and loaded on any mesh."""
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer, "step": self.step}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        set_state_dict(self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        self.step = state["step"]


def train(progress: Progress, steps: int, mesh: DeviceMesh) -> list[float]:
    """The loss of each step from here to ``steps``."""
    losses = []
    for batch in islice(batches(steps, 0, BATCH, CONTEXT), progress.step, None):
        mine = batch.chunk(mesh["data"].size())[mesh.get_local_rank("data")]
        loss = progress.model(mine[:, :-1], mine[:, 1:])
        loss.backward()
        progress.optimizer.step()
        progress.optimizer.zero_grad()
        progress.step += 1
        losses.append(mean(loss.detach(), mesh))
    return losses


def main() -> None:
    """Train, and write what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tensor", type=int, default=1, help="processes that share each layer; the others share data")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    parser.add_argument("--recompute", action="store_true", help="keep few results for the backward pass")
    parser.add_argument("--compile", action="store_true", help="compile each layer")
    parser.add_argument("--load", type=Path, help="a checkpoint to go on from")
    parser.add_argument("--save", type=Path, help="a folder for a checkpoint")
    parser.add_argument("--losses", type=Path, help="a JSON file for the losses")
    options = parser.parse_args()

    distributed.init_process_group("gloo")
    data = distributed.get_world_size() // options.tensor
    if data * options.tensor != distributed.get_world_size() or KEY_HEADS % options.tensor or BATCH % data:
        parser.error(f"{distributed.get_world_size()} processes cannot share a batch of {BATCH} and {KEY_HEADS} heads")
    mesh = init_device_mesh("cpu", (data, options.tensor), mesh_dim_names=("data", "tensor"))

    torch.manual_seed(0)
    model = Llama(len(CHARACTERS), KEPT if options.recompute else None).to(getattr(torch, options.dtype))
    distribute(model, mesh, options.compile)
    progress = Progress(model, torch.optim.AdamW(model.parameters(), lr=2e-3, betas=(0.9, 0.95)))
    if options.load:
        checkpoint.load({"progress": progress}, checkpoint_id=options.load)
    losses = train(progress, options.steps, mesh)
    if options.save:
        checkpoint.save({"progress": progress}, checkpoint_id=options.save)
    if distributed.get_rank() == 0:
        print(f"{data} x {options.tensor} processes, step {progress.step}: loss {losses[-1]:.6f}")
        if options.losses:
            options.losses.write_text(json.dumps(losses))
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
