"""Calls transformer_ops on small tensors, for ``opwheel audit transformer_ops --record FILE -- python THIS``."""

import torch
import transformer_ops
from torch import Tensor


def main() -> None:
    """Each operator; two of them with their backward operators."""
    generator = torch.Generator().manual_seed(0)

    def numbers(*shape: int) -> Tensor:
        return torch.randn(shape, dtype=torch.float64, generator=generator)

    x, weight, target = numbers(3, 8), numbers(8), torch.tensor([1, -100, 2])
    transformer_ops.rms_norm(x)
    transformer_ops.fused_add_rms_norm(x, numbers(3, 8), weight, 1e-6)
    transformer_ops.fused_add_rms_norm_(x.clone(), numbers(3, 8), weight, 1e-6)
    transformer_ops.swiglu(x, numbers(3, 8))
    for approximate in ("tanh", "none"):
        transformer_ops.geglu(x, numbers(3, 8), approximate)
    transformer_ops.softmax(x)
    transformer_ops.rope(numbers(1, 2, 3, 4), numbers(1, 2, 3, 4), numbers(1, 3, 4), numbers(1, 3, 4))
    transformer_ops.cross_entropy(numbers(3, 5), target)
    transformer_ops.fused_linear_cross_entropy(numbers(3, 4), numbers(5, 4), target)
    transformer_ops.dequantize_rowwise(*transformer_ops.quantize_rowwise(x.float()))
    key_cache, value_cache, slots = numbers(2, 4, 2, 4), numbers(2, 4, 2, 4), torch.tensor([0, 3, 5])
    transformer_ops.reshape_and_cache(numbers(3, 2, 4), numbers(3, 2, 4), key_cache, value_cache, slots)
    for norm in (transformer_ops.rms_norm, transformer_ops.layer_norm):
        inputs = [x.clone().requires_grad_(), weight.clone().requires_grad_()]
        norm(*inputs).sum().backward()


if __name__ == "__main__":
    main()
