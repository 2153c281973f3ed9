"""torch.compile's inductor fuses element-wise operators with their neighbours, forward and backward."""

import os
import subprocess
import sys

import muladd
import pytest
import torch
from opwheel.aotinductor import keep_kernels
from torch._dynamo.testing import CompileCounterWithBackend
from torch._inductor.utils import run_and_get_code


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


@pytest.mark.slow
@pytest.mark.skipif(muladd.library.policy.compile == "kernel", reason="MULADD_COMPILE=kernel")
def test_forward_and_backward_are_one_loop_each():
    tensors, others = inputs(4), inputs(4)

    def train():
        torch.compile(scale_and_shift, fullgraph=True)(*tensors).sum().backward()

    with torch._inductor.config.patch(force_disable_caches=True):
        _, codes = run_and_get_code(train)
    assert not any("torch.ops.muladd" in code for code in codes)
    assert [code.count("async_compile.cpp_pybinding(") for code in codes] == [1, 1]  # forward, backward
    expected(*others).sum().backward()
    torch.testing.assert_close([t.grad for t in tensors], [t.grad for t in others])


def test_kernels_can_be_kept():
    def code_of(compiled):
        return "".join(run_and_get_code(compiled, *(tensor.detach() for tensor in inputs(4)))[1])

    with keep_kernels(muladd.library):
        assert "torch.ops.muladd.fma" in code_of(torch.compile(scale_and_shift, fullgraph=True))
    torch._dynamo.reset()
    again = code_of(torch.compile(scale_and_shift, fullgraph=True))
    assert ("torch.ops.muladd.fma" in again) == (muladd.library.policy.compile == "kernel")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_fused_code_rounds_at_most_once_less_or_more(dtype):
    """One operator alone: a kernel may round a product and a sum once (fused multiply-add), fused code rounds both."""
    a, b, c = (torch.randn(1000).to(dtype) for _ in range(3))
    exact = a.double() * b.double() + c.double()
    size = (a.double() * b.double()).abs() + c.double().abs()
    computed = torch.float64 if dtype is torch.float64 else torch.float32
    bound = torch.finfo(dtype).eps / 2 * exact.abs() + 2 * torch.finfo(computed).eps * size
    for found in (muladd.fma(a, b, c), torch.compile(muladd.fma, fullgraph=True)(a, b, c)):
        assert ((found.double() - exact).abs() <= bound).all()


def test_no_recompilation_over_batch_sizes():
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(scale_and_shift, fullgraph=True, backend=counter, dynamic=True)
    for rows in (2, 3, 5, 8, 13, 21):
        tensors, others = inputs(rows), inputs(rows)
        result, wanted = compiled(*tensors), expected(*others)
        torch.testing.assert_close(result, wanted)
        result.sum().backward()
        wanted.sum().backward()
        torch.testing.assert_close([t.grad for t in tensors], [t.grad for t in others])
    assert counter.frame_count == 1


def empty_caches(folder):
    """The environment of processes that share caches on disk, for which few kernels are compiled."""
    return {"TORCHINDUCTOR_CACHE_DIR": str(folder), "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0"}


CODE = """
import torch, muladd
from torch._inductor.utils import run_and_get_code
compiled = torch.compile(lambda x, y: torch.relu(muladd.muladd(x, y, 2.0)), fullgraph=True)
_, codes = run_and_get_code(compiled, torch.randn(8), torch.randn(8))
print("kernel" if any("torch.ops.muladd.muladd" in code for code in codes) else "fused")
"""


SCALED = """
import sys, torch
from types import SimpleNamespace
from opwheel.dispatch import Elementwise, Operator, register
from opwheel.registry.policy import Policy

schema, factor = sys.argv[1], sys.argv[2]
library = torch.library.Library("cached", "DEF")
library.define(schema)
FACTOR = float(factor)
helper = lambda x: x * FACTOR  # a value of the module that a function of the module uses
operator = Operator("scaled", reference=lambda x, by: helper(x) * by, rule=Elementwise())
register(SimpleNamespace(namespace="cached", schemas=(schema,), policy=Policy()), [operator])
print(torch.compile(lambda x: torch.ops.cached.scaled(x, 2.0).relu(), fullgraph=True)(torch.ones(3))[0].item())
counted = torch._dynamo.utils.counters
print(counted["inductor"]["fxgraph_cache_hit"] + counted["aot_autograd"]["autograd_cache_hit"])
"""


@pytest.mark.slow
def test_a_change_of_schema_or_reference_invalidates_the_caches_on_disk(tmp_path):
    def run(name, factor):
        done = subprocess.run(
            [sys.executable, "-c", SCALED, f"scaled(Tensor x, float {name}) -> Tensor", factor],
            capture_output=True,
            text=True,
            env={**os.environ, **empty_caches(tmp_path)},
            check=False,
        )
        assert done.returncode == 0, done.stderr
        value, hits = done.stdout.split()
        return float(value), int(hits) > 0

    assert run("by", "1.0") == (2.0, False)
    assert run("by", "1.0") == (2.0, True)
    assert run("by", "5.0") == (10.0, False)
    assert run("rate", "1.0") == (2.0, False)


@pytest.mark.nightly
def test_a_change_of_policy_invalidates_the_caches_on_disk(tmp_path):
    def run(**environment):
        done = subprocess.run(
            [sys.executable, "-c", CODE],
            capture_output=True,
            text=True,
            env={**os.environ, **empty_caches(tmp_path), **environment},
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.split()[-1]

    for policy, found in (("fuse", "fused"), ("kernel", "kernel")):
        assert run(MULADD_COMPILE=policy) == found
