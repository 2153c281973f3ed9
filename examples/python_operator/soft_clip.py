"""An opaque Python function as an operator: NumPy computes, PyTorch never looks inside."""

from __future__ import annotations

import numpy as np
import torch
from opwheel.dispatch import Elementwise, Operator, register_python
from torch import Tensor


def _with_numpy(x: Tensor, limit: float) -> Tensor:
    return torch.from_numpy(np.tanh(x.numpy() / limit, dtype=x.numpy().dtype) * np.asarray(limit, x.numpy().dtype))


soft_clip = register_python(
    "examples",
    {"soft_clip(Tensor x, float limit) -> Tensor": _with_numpy},
    [
        Operator(
            "soft_clip",
            reference=lambda x, limit: limit * torch.tanh(x / limit),
            rule=Elementwise(),
            derivatives={"x": lambda grad, x, limit: grad * (1 - torch.tanh(x / limit) ** 2)},
            autocast="float32",
            doc="""Return ``x`` where it is small against ``limit``, and never more than ``limit``.""",
        )
    ],
    module=__name__,
)["soft_clip"]
