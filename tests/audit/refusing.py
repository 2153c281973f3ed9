"""An operator that refuses every call."""

import torch
from torch import Tensor


@torch.library.custom_op("refusing::every", mutates_args=())
def every(x: Tensor) -> Tensor:
    raise ValueError(f"{x.shape} does not fit")


def samples(operator):
    from torch.testing._internal.opinfo.core import SampleInput  # slow to import

    return [SampleInput(torch.ones(2))]
