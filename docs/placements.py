"""Writes docs/placements.md: on which parts of their arguments the operators of both libraries compute, by their rules.

python docs/placements.py            # after placements.json, a claim or a sharded reduction has changed
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import muladd
import transformer_ops
from opwheel.dispatch.placements import PlacementRule, parse, placement_rules

PAGE = Path(__file__).with_name("placements.md")
HEAD = """# More than one machine

## Training a model on several processes

FSDP2 (`fully_shard`) gathers a module's parameters before it runs: the operators get ordinary tensors. With tensor
parallelism each process has some of a layer's heads and features, and some of the vocabulary. A plan of PyTorch's own
styles is all that it takes:

```python
import transformer_ops
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

POSITIONS = Shard(1)  # of (batch, positions, width), between the blocks of a layer
PLAN = {
    "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=POSITIONS, use_local_output=False),
    "layers.*.attention_norm": SequenceParallel(),  # transformer_ops.RMSNorm
    "layers.*.attention": PrepareModuleInput(
        input_layouts=(POSITIONS, None, None), desired_input_layouts=(Replicate(), None, None)
    ),
    "layers.*.attention.q": ColwiseParallel(),  # transformer_ops.attention gets the heads that are here
    "layers.*.attention.k": ColwiseParallel(),
    "layers.*.attention.v": ColwiseParallel(),
    "layers.*.attention.o": RowwiseParallel(output_layouts=POSITIONS, use_local_output=False),
    "layers.*.feed_forward_norm": SequenceParallel(),
    "layers.*.feed_forward": PrepareModuleInput(input_layouts=POSITIONS, desired_input_layouts=Replicate()),
    "layers.*.feed_forward.gate_proj": ColwiseParallel(),  # transformer_ops.SwiGLU
    "layers.*.feed_forward.up_proj": ColwiseParallel(),
    "layers.*.feed_forward.down_proj": RowwiseParallel(output_layouts=POSITIONS, use_local_output=False),
    "norm": SequenceParallel(),
    "head": ColwiseParallel(),  # transformer_ops.FusedLinearCrossEntropyLoss gets its weight
}


def distribute(model, mesh):  # a mesh with the dimensions "data" and "tensor"
    parallelize_module(model, mesh["tensor"], PLAN)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh["data"])
    fully_shard(model, mesh=mesh["data"])
```

Norms compute on the positions that a process has, attention on its heads, SwiGLU on its features, and none of them
communicates. The loss exchanges four numbers of each row of logits, and never the logits. Targets are ordinary tensors
of integers, the same on every process of the dimension "tensor".

[A program that trains](../examples/language_model/train_sharded.py) on any mesh, and [its
model](../examples/language_model/llama.py), have selective checkpointing (`--recompute`), compiled layers
(`--compile`), and checkpoints that are saved on one mesh and read on another:

<!-- not run: examples/language_model/test_train_sharded.py does it -->

```console
$ torchrun --standalone --nproc-per-node 4 train_sharded.py --tensor 2 --dtype float64 --save checkpoint
2 x 2 processes, step 50: loss 2.637526
$ torchrun --standalone --nproc-per-node 2 train_sharded.py --dtype float64 --load checkpoint --steps 100
```

On 2 x 2, 4 x 1 and 1 x 2 processes each of 50 losses is that of one process: in float64 to a relative 1e-9, in float32
to 1e-3.

Models of transformers have a plan of their own, which needs `accelerate`; `patch` them after they are loaded:

<!-- not run: libraries/transformer/tests/test_sharded.py does it -->

```python
model = AutoModelForCausalLM.from_pretrained(name, distributed_config=DistributedConfig(tp_plan="auto", tp_size=2))
print(transformer_ops.patch(model))
```

Norms, rotary embeddings, attention and gated activations are then computed by these operators, on each process's heads
and features. What transformers has given a `forward` of its own is left alone, which `print` says: the head, whose
logits it gathers, and Qwen3's norms of heads.

## What operators compute on

On DTensors these operators compute on the parts that each process has, where that gives the right result, and else on
whole tensors, which DTensor gathers first. The table says what those parts are. Its lines follow from what an
operator's declaration claims, or have been found by evaluating its reference on parts of its samples; PyTorch's own
validator of sharding rules finds none of those wrong that return their results.

`R` is whole on every process, `S(1)` sharded along dimension 1, `S(:-1)` along any dimension but the last, `S(:)` along
any, `S(...)` along any as operands broadcast, and `P` a sum over the processes, `Partial("sum")`. Tensors that are not
named are whole. A line with \\* is for some calls, such as those without a mask: `placements.json` in the library's
package has the conditions. [Writing an operator](writing-an-operator.md#on-several-processes) says how lines are found.

A sharded reduction exchanges a few numbers of each row in the place of gathering the dimension that it reduces:
[which ones](transformer.md#on-several-processes).

| operator | on parts | of sums over processes | sharded reduction |
|---|---|---|---|
"""
LIBRARIES = (muladd.library, transformer_ops.library)


def page() -> str:
    """The page's text."""
    return HEAD + "".join(_row(library, name) for library in LIBRARIES for name in sorted(library.overloads))


def _row(library: Any, name: str) -> str:
    """A line of the table; none for variants, and for what computes on whole tensors alone."""
    overload = library.overloads[name]
    rules = placement_rules(overload, library)
    reduction = overload.operator.sharded
    if name != overload.operator.name or not (rules or reduction):
        return ""
    on_parts = [rule for rule in rules if any(one.startswith("S") for one in rule.arguments.values())]
    sums = [rule for rule in rules if rule not in on_parts and "P(sum)" in rule.arguments.values()]
    reductions = [parse(reduction.placements)] if reduction is not None else []
    return f"| `{name}` | {_cell(on_parts)} | {_cell(sums)} | {_cell(reductions)} |\n"


def _cell(rules: Iterable[PlacementRule]) -> str:
    """The rules without their conditions, each of them once; of sums and means over processes the sums."""
    conditional: dict[str, bool] = {}
    for rule in rules:
        if "P(avg)" in (*rule.arguments.values(), *rule.results):
            continue
        text = str(rule._replace(conditions={})).replace("P(sum)", "P")
        conditional[text] = conditional.get(text, True) and bool(rule.conditions)
    return "<br>".join(f"`{text}`" + r" \*" * is_some for text, is_some in conditional.items())


if __name__ == "__main__":
    PAGE.write_text(page())
