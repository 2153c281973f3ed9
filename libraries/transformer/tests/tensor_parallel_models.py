"""Run by torchrun in every process: models of transformers by their own tensor parallel plans, against one process.

``tensor_parallel_models.py FOLDER FAMILIES``, such as ``Llama Qwen2``. Their weights are written to the folder.
"""

import sys
from pathlib import Path

import torch
import transformer_ops
import transformers
from torch import distributed
from torch.distributed.tensor import DTensor
from transformers.distributed import DistributedConfig

from libraries.transformer.tests.tiny import TINY
from tests.torchrun import leave

SIZES = TINY | {"vocab_size": 101}  # not a multiple of the processes
TOKENS = torch.arange(2 * 20).view(2, 20) * 7 % SIZES["vocab_size"]
OPERATORS = {"cross_entropy": 1, "rope": 2, "attention": 2, "swiglu": 2, "rms_norm": 5}


def results(model):
    """Logits, loss, and gradients by their parameters' names."""
    model.train().zero_grad()
    out = model(input_ids=TOKENS, labels=TOKENS)
    out.loss.backward()
    return {"logits": out.logits, "loss": out.loss} | {name: one.grad for name, one in model.named_parameters()}


def check(family, folder):
    model_class = getattr(transformers, f"{family}ForCausalLM")
    torch.manual_seed(0)
    alone = model_class(getattr(transformers, f"{family}Config")(**SIZES)).double()
    if distributed.get_rank() == 0:
        alone.save_pretrained(folder)
    distributed.barrier()
    config = DistributedConfig(tp_plan="auto", tp_size=distributed.get_world_size())
    model = model_class.from_pretrained(folder, dtype=torch.float64, distributed_config=config)
    heads = model.model.layers[0].self_attn.q_proj.weight
    assert isinstance(heads, DTensor)
    assert heads.to_local().shape[0] < heads.shape[0]
    done = transformer_ops.patch(model)
    assert {name: done.operators().get(name) for name in OPERATORS} == OPERATORS, done
    theirs = results(alone)
    transformer_ops.patch(alone, defer_logits=False)
    ours = results(alone)
    for run in (model, torch.compile(model, backend="aot_eager")):
        found = {name.removeprefix("_orig_mod."): one for name, one in results(run).items()}
        assert found.keys() == ours.keys()
        for name, one in found.items():
            whole = one.full_tensor() if isinstance(one, DTensor) else one
            torch.testing.assert_close(whole, ours[name], rtol=1e-9, atol=1e-10)
            # transformers computes the loss, and with it the gradients, from logits of float32.
            torch.testing.assert_close(whole, theirs[name], rtol=1e-4, atol=1e-5)


def main():
    folder, *families = sys.argv[1:]
    distributed.init_process_group("gloo")
    for family in families:
        check(family, Path(folder, family))
    leave("all models right")


if __name__ == "__main__":
    main()
