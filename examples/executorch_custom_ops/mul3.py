"""mul3 for PyTorch, written in Python: input * 3, functional and out."""

from __future__ import annotations

import torch
from torch import Tensor

torch.library.define("my_ops::mul3", "(Tensor input) -> Tensor")
# Exporting for ExecuTorch replaces each operator by the overload called "out", with a keyword-only argument "out".
torch.library.define("my_ops::mul3.out", "(Tensor input, *, Tensor(a!) out) -> Tensor(a!)")


@torch.library.impl("my_ops::mul3", "CompositeExplicitAutograd")
def mul3(input: Tensor) -> Tensor:  # noqa: A002  # the schema's name
    """Run on every device, and on the shape-only tensors that exporting uses."""
    return input * 3


@torch.library.impl("my_ops::mul3.out", "CompositeExplicitAutograd")
def mul3_out(input: Tensor, *, out: Tensor) -> Tensor:  # noqa: A002
    """The result goes into out."""
    return torch.mul(input, 3, out=out)
