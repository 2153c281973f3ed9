"""Layers whose ``forward`` takes the place of a model's, as Hugging Face's kernels package does it.

They have no state and no constructor of their own: the model's layer has the attributes that they use.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["RMSNorm"]


class RMSNorm(nn.Module):
    """The RMS norm of Llama, Qwen and Mistral, over the last dimension, by :func:`transformer_ops.rms_norm`.

    Attributes:
        weight: ``(columns,)``, of the input's dtype.
        variance_epsilon: added to the mean of the squares.
    """

    can_torch_compile = True

    weight: Tensor
    variance_epsilon: float

    def forward(self, hidden_states: Tensor) -> Tensor:
        """The normalised rows of ``hidden_states``, ``(..., columns)``."""
        result: Tensor = torch.ops.transformer_ops.rms_norm(
            hidden_states, self.weight, self.variance_epsilon, 0.0, "llama"
        )
        return result
