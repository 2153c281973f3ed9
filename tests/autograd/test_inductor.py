"""torch.compile's inductor fuses element-wise operators with their neighbours, forward and backward."""

import os
import subprocess
import sys

import muladd
import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from torch._inductor.utils import run_and_get_code

fused = pytest.mark.skipif(muladd.library.policy.compile != "fuse", reason="MULADD_COMPILE=fuse asks for it")


def scale_and_shift(x, scale, shift):
    return torch.relu(muladd.fma(x, scale, shift)) * 2.0


def expected(x, scale, shift):
    return torch.relu(x * scale + shift) * 2.0


def inputs(rows):
    torch.manual_seed(rows)
    return [torch.randn(shape, requires_grad=True) for shape in ((rows, 8), (8,), (8,))]


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()


@fused
def test_forward_and_backward_are_one_loop_each():
    tensors, others = inputs(4), inputs(4)

    def train():
        torch.compile(scale_and_shift, fullgraph=True)(*tensors).sum().backward()

    with torch._inductor.config.patch(force_disable_caches=True):
        _, codes = run_and_get_code(train)
    assert len(codes) == 2
    assert not any("torch.ops.muladd" in code for code in codes)
    assert codes[0].count("async_compile.cpp_pybinding(") == 1
    expected(*others).sum().backward()
    torch.testing.assert_close([t.grad for t in tensors], [t.grad for t in others])


def test_no_recompilation_over_batch_sizes():
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(scale_and_shift, fullgraph=True, backend=counter, dynamic=True)
    for rows in (2, 3, 5, 8, 13, 21):
        torch.testing.assert_close(compiled(*inputs(rows)), expected(*inputs(rows)))
    assert counter.frame_count == 1


CODE = """
import torch, muladd
from torch._inductor.utils import run_and_get_code
compiled = torch.compile(lambda x, y: torch.relu(muladd.muladd(x, y, 2.0)), fullgraph=True)
_, codes = run_and_get_code(compiled, torch.randn(8), torch.randn(8))
print("kernel" if any("torch.ops.muladd.muladd" in code for code in codes) else "fused")
"""


def test_a_change_of_policy_invalidates_the_caches_on_disk(tmp_path):
    def run(**environment):
        done = subprocess.run(
            [sys.executable, "-c", CODE],
            capture_output=True,
            text=True,
            env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path), **environment},
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.split()[-1]

    for policy, found in (("fuse", "fused"), ("kernel", "kernel"), ("fuse", "fused")):
        assert run(MULADD_COMPILE=policy) == found
