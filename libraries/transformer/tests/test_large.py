"""Results written with non-temporal stores: the same, to the last bit, as those of a few rows at a time, which are not.

But for the sign of nan: which of a product's two factors it comes from is up to the compiler, in each of two loops.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import transformer_ops

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
# Elements of a row: whole cache lines in any dtype, few and many of them, and not.
LENGTHS = (32, 1024, 1031)
FEW = 8  # rows


def least_streamed():
    """The bytes of operands from which on results are streamed, as ``opwheel/detail/cpu/streaming.h`` has it."""
    size = Path("/sys/devices/system/cpu/cpu0/cache/index3/size")
    last_level_cache = int(size.read_text().strip().removesuffix("K")) << 10 if size.exists() else 32 << 20
    return min(last_level_cache, 64 << 20)


def operators(length, dtype):
    w, b = torch.randn(length, dtype=dtype), torch.randn(length, dtype=dtype)
    ops = torch.ops.transformer_ops
    return {
        "rms_norm": lambda x, y: (transformer_ops.rms_norm(x, w),),
        "rms_norm_gemma": lambda x, y: (transformer_ops.rms_norm(x, w, offset=1.0, casting_mode="gemma"),),
        "rms_norm_out": lambda x, y: (transformer_ops.rms_norm(x, w, out=torch.empty_like(x)),),
        "rms_norm_backward": lambda x, y: ops.rms_norm_backward(y, x, w, 1e-6, 0.0, "llama")[:1],
        "fused_add_rms_norm": lambda x, y: transformer_ops.fused_add_rms_norm(x, y, w),
        "layer_norm": lambda x, y: (transformer_ops.layer_norm(x, w, b),),
        "layer_norm_backward": lambda x, y: ops.layer_norm_backward(y, x, w, 1e-5)[:1],
        "softmax": lambda x, y: (transformer_ops.softmax(x),),
        "softmax_backward": lambda x, y: (ops.softmax_backward(y, x),),
        "swiglu": lambda x, y: (transformer_ops.swiglu(x, y),),
        "swiglu_out": lambda x, y: (transformer_ops.swiglu(x, y, out=torch.empty_like(x)),),
        "swiglu_backward": lambda x, y: ops.swiglu_backward(y, x, y),
        "geglu": lambda x, y: (transformer_ops.geglu(x, y),),
    }


def bits(values):
    return torch.where(values.isnan(), torch.nan, values).view(torch.uint8)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_beyond_the_caches(dtype, length):
    torch.manual_seed(0)
    rows = least_streamed() // (length * dtype.itemsize) + 1
    few = torch.randn(FEW, length, dtype=dtype), torch.randn(FEW, length, dtype=dtype)
    few[0][3, 5], few[1][4, -1], few[0][5, 7] = torch.nan, torch.inf, 0.0
    many = [values.repeat(-(-rows // FEW), 1) for values in few]
    for name, operator in operators(length, dtype).items():
        for small, large in zip(operator(*few), operator(*many), strict=True):
            wanted = bits(small).expand(len(many[0]) // FEW, *bits(small).shape)
            assert torch.equal(bits(large).view(wanted.shape), wanted), name


@pytest.mark.parametrize(
    "dtypes", [DTYPES[:2], pytest.param(DTYPES[2:], marks=pytest.mark.nightly)], ids=["these", "others"]
)
@pytest.mark.parametrize("capability", ["baseline", "avx2"])
def test_rows_beyond_the_caches_on_older_processors(capability, dtypes):
    names = " or ".join(map(str, dtypes))
    options = ["-q", "-p", "no:cacheprovider", "-k", f"caches and not older and ({names})"]
    command = [sys.executable, "-m", "pytest", __file__, *options]
    run = subprocess.run(
        command,
        env={**os.environ, "TRANSFORMER_OPS_CPU_CAPABILITY": capability},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"{len(dtypes) * len(LENGTHS)} passed" in run.stdout
