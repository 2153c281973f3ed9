"""Calls bitsandbytes' operators on small tensors, for ``opwheel audit bitsandbytes --record FILE -- python THIS``."""

import torch
from bitsandbytes import functional

ops = torch.ops.bitsandbytes


def main() -> None:
    """Each operator that has a kernel for the CPU, but for those that update the state of an optimizer."""
    generator = torch.Generator().manual_seed(0)

    def numbers(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.randn(shape, generator=generator).to(dtype)

    code = functional.create_dynamic_map()
    bytes_, largest = ops.quantize_blockwise(numbers(8, 64), code, 64)
    ops.dequantize_blockwise(bytes_, largest, code, 64, torch.float32)
    weight = numbers(32, 64, dtype=torch.bfloat16)
    for quant_type in ("nf4", "fp4"):
        packed, scales = ops.quantize_4bit(weight, 64, quant_type, torch.uint8)
        ops.dequantize_4bit(packed, scales, 64, quant_type, (32, 64), torch.bfloat16)
    packed, scales = ops.quantize_4bit(weight, 64, "nf4", torch.uint8)
    x = numbers(4, 64, dtype=torch.bfloat16)
    ops.gemm_4bit(x, packed, (32, 64), scales, 64, "nf4")
    ops.gemv_4bit(x[:1], packed, (32, 64), scales, functional.get_4bit_type("nf4", device="cpu"), 64)
    left, rows, _ = ops.int8_vectorwise_quant(numbers(4, 64, dtype=torch.float16))
    right, columns, _ = ops.int8_vectorwise_quant(numbers(8, 64, dtype=torch.float16))
    ops.int8_vectorwise_dequant(left, rows)
    ops.int8_mm_dequant(ops.int8_linear_matmul(left, right), rows, columns)
    ops.int8_scaled_mm(left, right, rows, columns)


if __name__ == "__main__":
    main()
