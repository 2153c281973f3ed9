"""The dtypes that operators compute in: their references', and under ``torch.autocast``."""

import torch
from opwheel import Autocast
from torch import Tensor

ROWS_UNDER_AUTOCAST = Autocast("promote", result="x", devices={"cuda": "float32", "xpu": "float32"})
"""As PyTorch's softmax, layer_norm and rms_norm of rows ``x``: on CPUs the result has their dtype, on GPUs float32."""


def wide(tensor: Tensor) -> Tensor:
    """In the dtype that is computed in: float64 for float64, else float32."""
    return tensor if tensor.dtype is torch.float64 else tensor.float()
