"""Triton's interpreter, within what it can do, and judgements without scripts."""

import threading

import pytest
import torch
from opwheel_tools.judge import interpreter, judge, judgement, worker

from .planted import HERE

KERNELS = """
import triton
import triton.language as tl

@triton.jit
def product(x, y, z, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z + at, tl.load(x + at, at < n) * tl.load(y + at, at < n), at < n)

@triton.jit
def product_in_float32(x, y, z, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    found = tl.load(x + at, at < n).to(tl.float32) * tl.load(y + at, at < n).to(tl.float32)
    tl.store(z + at, found.to(z.dtype.element_ty), at < n)
"""


@pytest.fixture
def kernels(monkeypatch, tmp_path):
    """Kernels in Triton's interpreter within its limits; it is as it was afterwards."""
    of_triton = pytest.importorskip("triton.runtime.interpreter")
    for name in interpreter.LIMITED:
        monkeypatch.setattr(of_triton.InterpreterBuilder, name, getattr(of_triton.InterpreterBuilder, name))
    monkeypatch.setattr(of_triton.GridExecutor, "__call__", of_triton.GridExecutor.__call__)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "kernels_of_limits.py").write_text(KERNELS)
    import kernels_of_limits

    assert interpreter.limit()
    assert not interpreter.limit()
    return kernels_of_limits


def called(kernel, x, y):
    z = torch.empty_like(x)
    kernel[(x.numel() + 15) // 16,](x, y, z, x.numel(), 16)
    return z


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_dtypes_that_the_interpreter_computes_in(kernels, dtype):
    x, y = torch.randn(2, 40).to(dtype)
    assert torch.equal(called(kernels.product, x, y), x * y)


def test_bfloat16_is_refused_where_a_kernel_computes_in_it(kernels):
    x, y = torch.randn(2, 40).bfloat16()
    with pytest.raises(Exception, match="cannot compute in bfloat16"):
        called(kernels.product, x, y)
    torch.testing.assert_close(called(kernels.product_in_float32, x, y), x * y)  # it rounds towards zero


def test_threads_wait_for_each_other(kernels):
    x = torch.randn(4, 400)
    found, barrier = [None] * 4, threading.Barrier(4)

    def run(i):
        barrier.wait()
        found[i] = called(kernels.product, x[i], x[i])

    threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert torch.equal(torch.stack(found), x * x)


given = []


def overwrites(x, low):
    given.append(x.clone())
    return x.fill_(low)


@pytest.mark.usefixtures("in_this_process")
def test_a_call_that_imports_triton_is_made_again(monkeypatch):
    """It was made without the limits; and no script is looked for where none is asked for."""
    answers = iter([False, True])
    monkeypatch.setattr(worker.interpreter, "limit", lambda: next(answers, False))
    monkeypatch.setattr(judgement.variants, "bases", lambda _: [])  # the given call alone
    file = f"{HERE}/references.py"
    verdict = judge(overwrites, reference=f"{file}:clamp_into", inputs=f"{file}:clamp_into_inputs", scripts=False)
    assert torch.equal(given[0], given[1])
    assert not torch.equal(given[0], torch.full((4, 9), 0.25))
    for finding in verdict.findings:
        assert finding.not_reproduced == "no script was asked for"
        assert len(finding.shown_by) == finding.trials
