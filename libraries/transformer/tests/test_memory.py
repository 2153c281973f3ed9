"""Where arguments lie in memory: what is written to must be apart from all else, and there must be memory."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import transformer_ops
from hypothesis import given, settings
from hypothesis import strategies as st

IS_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


def places(tensor):
    """The addresses of its elements, in elements."""
    address = torch.tensor(tensor.storage_offset())
    for dim, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        shape = [1] * tensor.dim()
        shape[dim] = size
        address = address + (torch.arange(size) * stride).view(shape)
    return address.flatten().tolist()


MEMORY = 64
SHAPE = 3, 4


@st.composite
def views(draw):
    """The size, strides and offset of a view of SHAPE in one small storage: any that fit."""
    strides = [draw(st.integers(0, 8)) for _ in SHAPE]
    reach = sum((size - 1) * stride for size, stride in zip(SHAPE, strides, strict=True))
    return SHAPE, strides, draw(st.integers(0, MEMORY - 1 - reach))


@settings(max_examples=300, derandomize=True)
@given(views(), views(), views())
def test_a_result_is_right_or_refused(x_view, y_view, out_view):
    memory = torch.randn(MEMORY, generator=torch.Generator().manual_seed(0))
    x, y, out = (torch.as_strided(memory, *view) for view in (x_view, y_view, out_view))
    expected, before = transformer_ops.swiglu(x.clone(), y.clone()), memory.clone()
    written = places(out)
    is_apart = len(set(written)) == len(written) and not set(written) & {*places(x), *places(y)}
    try:
        transformer_ops.swiglu(x, y, out=out)
    except RuntimeError:
        assert torch.equal(memory, before)
    else:
        assert is_apart
        assert torch.equal(out, expected)


SPLITS = {
    "columns": lambda x: (x[:, :4], x[:, 4:]),
    "rows": lambda x: (x[:3], x[3:]),
    "every other row": lambda x: (x[::2], x[1::2]),
    "every other element": lambda x: (x[:, ::2], x[:, 1::2]),
    "parts of a dimension": lambda x: (x.view(3, 4, 4)[:, :2], x.view(3, 4, 4)[:, 2:]),
}


@pytest.mark.parametrize("name", SPLITS)
def test_parts_of_one_tensor_are_apart(name):
    x, out = SPLITS[name](torch.randn(6, 8))
    expected = transformer_ops.rms_norm(x.clone())
    assert torch.equal(transformer_ops.rms_norm(x, out=out), expected)
    first, second = SPLITS[name](torch.randn(6, 8))
    total = first + second
    transformer_ops.fused_add_rms_norm_(first, second)
    torch.testing.assert_close(second, total)


def expanded(*shape):
    return torch.zeros(1, *shape[1:]).expand(shape)


ROWS, MEMORY_OF_ROWS = torch.ones(4, 8), torch.zeros(6, 8)
SHIFTED = MEMORY_OF_ROWS[:4, :4], MEMORY_OF_ROWS[1:5, :4]
BEGIN = MEMORY_OF_ROWS[:4]
TOKEN, SLOT = torch.ones(1, 2, 2), torch.tensor([0])
CACHES = torch.zeros(2, 6, 1, 2, 2)
REFUSED = {
    "out": lambda: transformer_ops.swiglu(ROWS, ROWS, out=expanded(4, 8)),
    "rms_norm's out": lambda: transformer_ops.rms_norm(ROWS, out=expanded(4, 8)),
    "x": lambda: transformer_ops.fused_add_rms_norm_(expanded(4, 8), ROWS),
    "residual": lambda: transformer_ops.fused_add_rms_norm_(ROWS, expanded(4, 8)),
    "a row as weight": lambda: transformer_ops.fused_add_rms_norm_(BEGIN, ROWS, BEGIN[0]),
    "a residual's row as weight": lambda: transformer_ops.fused_add_rms_norm_(ROWS, BEGIN, BEGIN[0]),
    "shifted rows": lambda: transformer_ops.fused_add_rms_norm_(*SHIFTED),
    "shifted out": lambda: transformer_ops.rms_norm(SHIFTED[0], out=SHIFTED[1]),
    "expanded cache": lambda: transformer_ops.reshape_and_cache(TOKEN, TOKEN, expanded(6, 1, 2, 2), CACHES[1], SLOT),
    "a key in the cache": lambda: transformer_ops.reshape_and_cache(CACHES[0, 1], TOKEN, *CACHES, SLOT),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_overlaps_is_refused(name):
    with pytest.raises(RuntimeError, match=r"share one place in memory|shares memory with"):
        REFUSED[name]()
    assert (ROWS == 1).all()
    assert not MEMORY_OF_ROWS.any()
    assert not CACHES.any()


def given_back(*shape, dtype=torch.float32, part=slice(None)):
    tensor = torch.ones(shape).to(dtype)[part]
    tensor.untyped_storage().resize_(0)
    return tensor


@pytest.mark.skipif(IS_INTERPRETED, reason="the kernels are Triton's, which look at no memory on a GPU's behalf")
@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: transformer_ops.rms_norm(given_back(3, 8)), "x"),
        (lambda: transformer_ops.rms_norm(ROWS, given_back(8)), "weight"),
        (lambda: transformer_ops.softmax(given_back(3, 8, part=slice(1, 3))), "x"),
        (lambda: transformer_ops.swiglu(ROWS, given_back(4, 8)), "b"),
        (lambda: transformer_ops.cross_entropy(ROWS, given_back(4, dtype=torch.int64)), "target"),
        (lambda: transformer_ops.rms_norm(ROWS, out=given_back(4, 8)), "out"),
    ],
)
def test_memory_that_was_given_back(call, name):
    with pytest.raises(RuntimeError, match=f"argument '{name}' has no memory"):
        call()


NO_MEMORY = """
import resource
import torch
import transformer_ops

x = torch.zeros(1, 1 << 25, dtype=torch.float16)
q = torch.zeros(1, 1 << 21, 1, 2)
for call in (lambda x: transformer_ops.softmax(x), lambda x: transformer_ops.attention(x, q, q)):
    given = x if call.__code__.co_names[1] == "softmax" else q[:, :17]
    expected = call(given)
    resident = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (resident + (100 << 20), resource.RLIM_INFINITY))
    try:
        call(given)
    except RuntimeError as error:
        print("refused:", error)
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert torch.equal(call(given), expected)
"""


@pytest.mark.skipif(IS_INTERPRETED, reason="the kernels are Triton's")
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux")
def test_no_memory_for_a_row_is_an_error():
    assert resource.getrlimit(resource.RLIMIT_AS)[1] == resource.RLIM_INFINITY
    done = subprocess.run([sys.executable, "-c", NO_MEMORY], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("refused:") == 2
    assert "memory" in done.stdout
