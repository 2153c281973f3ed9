"""Each kernel once or twice on small tensors: short enough for a checker that slows everything down."""

import itertools
import sys

import muladd
import torch

device = sys.argv[1] if len(sys.argv) > 1 else "cuda"


def values(*shape, dtype):
    return torch.rand(shape, dtype=torch.float64).mul_(4).sub_(2).to(dtype).to(device)


def inputs(dtype):
    """Contiguous with heads and tails, along rows, strided, repeated; three operands each."""
    for count, offset in itertools.product((1, 7, 1031), (0, 1)):
        yield [values(count + offset, dtype=dtype)[offset:] for _ in range(3)]
    yield values(33, 64, dtype=dtype), values(64, dtype=dtype), values(33, 1, dtype=dtype)
    yield values(33, 31, dtype=dtype), values(31, dtype=dtype), values(33, 1, dtype=dtype)
    yield values(17, 45, dtype=dtype).t(), values(45, 17, dtype=dtype), values(dtype=dtype)
    yield values(33, 64, dtype=dtype), values(64, dtype=torch.float32), values(33, 1, dtype=torch.float16)


for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
    for a, b, c in inputs(dtype):
        full = a.expand(torch.broadcast_shapes(a.shape, b.shape)).contiguous()
        # On the CPU: a checker is to see this project's kernels, not PyTorch's.
        wide_a, wide_b, wide_c, wide_full = (tensor.cpu().double() for tensor in (a, b, c, full))
        pairs = [
            (muladd.fma(a, b, c), wide_a * wide_b + wide_c),
            (muladd.muladd(a, b, 1.5), wide_a * wide_b + 1.5),
            (muladd.mul(a, b), wide_a * wide_b),
            (muladd.add(a, b), wide_a + wide_b),
            (muladd.scale(a, 1.5), wide_a * 1.5),
        ]
        if b.dtype == dtype:
            pairs.append((muladd.muladd_(full.clone(), b, 1.5), wide_full * wide_b + 1.5))
        grad_a, grad_b = torch.ops.muladd.muladd_backward(full, a, b)
        pairs += [(grad_a, wide_full * wide_b), (grad_b, wide_full * wide_a)]
        for result, reference in pairs:
            tolerance = 4 * torch.finfo(result.dtype).eps
            torch.testing.assert_close(result.cpu().double(), reference, rtol=tolerance, atol=tolerance * 4)
if device == "cuda":
    torch.cuda.synchronize()
print("every call was right")
