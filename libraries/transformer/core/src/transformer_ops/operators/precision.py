"""The dtype that references compute in."""

import torch
from torch import Tensor


def wide(tensor: Tensor) -> Tensor:
    """In the dtype that is computed in: float64 for float64, else float32."""
    return tensor if tensor.dtype is torch.float64 else tensor.float()
