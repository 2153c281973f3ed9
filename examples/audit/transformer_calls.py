"""Calls transformer_ops on small tensors, for ``opwheel audit transformer_ops --record FILE -- python THIS``."""

import torch
import transformer_ops
from torch import Tensor


def backward(results: Tensor | tuple[Tensor, ...]) -> None:
    """Call the backward operators of what gave the results."""
    given = (results,) if isinstance(results, Tensor) else results
    torch.autograd.backward(given, [torch.ones_like(one) for one in given])


def main() -> None:
    """Each operator, with its backward operators."""
    generator = torch.Generator().manual_seed(0)

    def constant(*shape: int) -> Tensor:
        return torch.randn(shape, dtype=torch.float64, generator=generator)

    def numbers(*shape: int) -> Tensor:
        return constant(*shape).requires_grad_()

    target = torch.tensor([1, -100, 2])
    backward(transformer_ops.rms_norm(numbers(3, 8), numbers(8)))
    backward(transformer_ops.layer_norm(numbers(3, 8), numbers(8), numbers(8)))
    backward(transformer_ops.fused_add_rms_norm(numbers(3, 8), numbers(3, 8), numbers(8), 1e-6))
    transformer_ops.fused_add_rms_norm_(constant(3, 8), constant(3, 8), constant(8), 1e-6)
    backward(transformer_ops.swiglu(numbers(3, 8), numbers(3, 8)))
    for approximate in ("tanh", "none"):
        backward(transformer_ops.geglu(numbers(3, 8), numbers(3, 8), approximate))
    backward(transformer_ops.softmax(numbers(3, 8)))
    backward(transformer_ops.log_softmax(numbers(3, 8)))
    backward(transformer_ops.linear(numbers(3, 8), numbers(4, 8), numbers(4)))
    backward(transformer_ops.rope(numbers(1, 2, 3, 4), numbers(1, 2, 3, 4), constant(1, 3, 4), constant(1, 3, 4)))
    transformer_ops.attention(constant(1, 3, 2, 4), constant(1, 3, 2, 4), constant(1, 3, 2, 4), is_causal=True)
    backward(transformer_ops.attention(numbers(1, 3, 2, 4), numbers(1, 5, 1, 4), numbers(1, 5, 1, 4)))
    transformer_ops.attention_qkvpacked(constant(1, 3, 3, 2, 4))
    backward(transformer_ops.attention_qkvpacked(numbers(1, 3, 3, 2, 4), is_causal=True))
    backward(transformer_ops.cross_entropy(numbers(3, 5), target))
    transformer_ops.fused_linear_cross_entropy(constant(3, 4), constant(5, 4), target)
    for reduction in ("mean", "none"):
        backward(transformer_ops.fused_linear_cross_entropy(numbers(3, 4), numbers(5, 4), target, reduction=reduction))
    torch.ops.transformer_ops.scaled_(constant(3, 8), constant(), constant(3, 8))  # which losses call in C++
    transformer_ops.dequantize_rowwise(*transformer_ops.quantize_rowwise(constant(3, 8).float()))
    key_cache, value_cache, slots = constant(2, 4, 2, 4), constant(2, 4, 2, 4), torch.tensor([0, 3, 5])
    transformer_ops.reshape_and_cache(constant(3, 2, 4), constant(3, 2, 4), key_cache, value_cache, slots)


if __name__ == "__main__":
    main()
