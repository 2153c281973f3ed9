"""Calls torchao's operators on small tensors, for ``opwheel audit torchao --record FILE -- python THIS``."""

import torch
import torchao.quantization  # noqa: F401  # registers the operators

ops = torch.ops.torchao


def main() -> None:
    """Each operator that is written in Python, which the CPU has, too."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn((4, 32), generator=generator)
    scale = ops.choose_scale_float8(x, [1, 32])
    bytes_ = ops.quantize_affine_float8_non_decomposed(x, scale)
    ops.dequantize_affine_float8_non_decomposed(bytes_, scale)
    scale, zero_point = ops.choose_qparams_affine(x, "ASYMMETRIC", [1, 32], torch.uint8)
    whole = ops.quantize_affine(x, [1, 32], scale, zero_point, torch.uint8)
    ops.dequantize_affine(whole, [1, 32], scale, zero_point, torch.uint8)


if __name__ == "__main__":
    main()
