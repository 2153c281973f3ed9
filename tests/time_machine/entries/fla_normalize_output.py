"""The normalisation of linear attention."""

import torch

from tests.time_machine.entry import Entry
from tests.time_machine.prepare import fla

ENTRY = Entry(
    repository="fla-org/flash-linear-attention",
    fix="1d48579a82e8071a14b9f236f20dd80a10ed19d6",
    wrong="keys are summed over heads, not over time",
    group="values",
    says="result",
    package="fla",
)


def candidate(q, k, o):
    fla("fla.ops", "fla.ops.linear_attn")
    from fla.ops.linear_attn.utils import normalize_output

    return normalize_output(q, k, o)


def reference(q, k, o):
    summed = torch.stack([k[:, : t + 1].sum(1) for t in range(k.shape[1])], 1)
    return o / ((q * summed).sum(-1, keepdim=True) + 1e-10)


def inputs():
    yield torch.rand(2, 5, 3, 4), torch.rand(2, 5, 3, 4), torch.randn(2, 5, 3, 6)
