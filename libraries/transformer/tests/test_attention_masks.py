"""Which keys queries of attention see: masks, windows, several sequences in one batch; against PyTorch's in float64."""

import itertools
import os
import subprocess
import sys

import pytest
import torch
import transformer_ops
from torch.nn.attention import SDPBackend, sdpa_kernel

IS_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
needs_the_cpu_kernel = pytest.mark.skipif(IS_INTERPRETED, reason="the kernels are Triton's")
TOLERANCES = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 4e-2, torch.float16: 5e-3}
DTYPES = [torch.float32] if IS_INTERPRETED else list(TOLERANCES)
SIZES = [(3, 7, 2, 2, 5), (40, 70, 4, 2, 20)]  # queries, keys, heads, those of keys, length
SIZES += [] if IS_INTERPRETED else [(1, 300, 4, 2, 48), (16, 257, 6, 1, 33), (70, 530, 2, 1, 33), (97, 33, 1, 1, 40)]
attend_and_keep = torch.ops.transformer_ops.attention_training


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def inputs(queries, keys, heads, shared, length, dtype=torch.float32, batches=2, requires_grad=True):
    shapes = ((batches, queries, heads, length), *[(batches, keys, shared, length)] * 2)
    return [torch.randn(shape, dtype=dtype, requires_grad=requires_grad) for shape in shapes]


def compare(seen, qkv, **options):
    """Values and gradients with those of PyTorch's attention of the keys that are seen."""
    mine = transformer_ops.attention(*qkv, **options)
    q, k, v = (x.double().transpose(1, 2) for x in qkv)
    grouped = q.shape[1] != k.shape[1]
    with sdpa_kernel(SDPBackend.MATH):
        theirs = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen, enable_gqa=grouped)
    theirs = theirs.transpose(1, 2)
    grad = torch.randn_like(theirs)
    tolerance = {"rtol": TOLERANCES[mine.dtype], "atol": TOLERANCES[mine.dtype], "check_dtype": False}
    torch.testing.assert_close(mine, theirs, **tolerance)
    found = torch.autograd.grad(mine, qkv, grad.to(mine.dtype))
    torch.testing.assert_close(found, torch.autograd.grad(theirs, qkv, grad), **tolerance)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", ["bool", "added"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_masks(size, kind, dtype):
    queries, keys, heads, _, _ = size
    qkv = inputs(*size, dtype)
    for shape in ((2, heads, queries, keys), (2, 1, 1, keys), (heads, 1, keys), (queries, keys)):
        mask = torch.rand(shape) < 0.5
        if kind == "added":
            mask = torch.randn(shape, dtype=dtype).masked_fill(mask, -torch.inf)
        compare(mask if kind == "bool" else mask.double(), qkv, attn_mask=mask)
    causal = torch.ones(queries, keys, dtype=torch.bool).tril()
    padded = torch.arange(keys) < torch.tensor([keys, keys // 2 + 1]).view(2, 1, 1, 1)
    compare(causal & padded, qkv, is_causal=True, attn_mask=padded)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_windows(size, dtype):
    queries, keys, _, _, _ = size
    qkv = inputs(*size, dtype)
    ids = torch.randint(keys, (2, queries))
    for window, given in itertools.product((1, 7, 65), (None, ids, torch.arange(keys)[-queries:])):
        if given is not None and given.shape[-1] != queries:
            continue  # more queries than keys
        positions = torch.arange(queries) if given is None else given
        distance = positions.view(-1, 1, queries, 1) - torch.arange(keys)
        options = {"is_causal": True, "position_ids": given, "window_size": window}
        compare((distance >= 0) & (distance < window), qkv, **options)


LENGTHS = [((5, 0, 40, 33, 1), (5, 0, 40, 33, 1)), ((5, 0, 40, 1), (70, 3, 40, 0)), ((), ())]


def starts(lengths, dtype=torch.int32):
    return torch.tensor([0, *itertools.accumulate(lengths)], dtype=dtype)


def split(x, lengths):
    return x.split(lengths, 1) if lengths else ()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("queries", "keys"), LENGTHS)
@pytest.mark.parametrize("window", [None, 7])
def test_sequences_in_one_batch_have_the_bits_that_they_have_alone(queries, keys, window, dtype):
    q, k, v = inputs(sum(queries), sum(keys), 4, 2, 20, dtype, batches=1)
    ids = [
        torch.randint(max(n, 1), (count,)) if n else torch.zeros(0).long()
        for count, n in zip(queries, keys, strict=True)
    ]
    options = {} if window is None else {"is_causal": True, "window_size": window}
    packed = {"cu_seqlens_q": starts(queries), "cu_seqlens_k": starts(keys, torch.int64)}
    if window and queries != keys:  # those without a key have no position
        queries, q = queries[:-1], q[:, :-1]
        packed["cu_seqlens_q"] = starts((*queries, 0))
        packed["position_ids"] = torch.cat(ids[:-1])
    y = transformer_ops.attention(q, k, v, **options, **packed)
    grad = torch.randn_like(y)
    gradients = torch.autograd.grad(y, (q, k, v), grad)
    assert not y.isnan().any()
    whole = zip(*(split(x, n) for x, n in ((y, queries), (grad, queries), (gradients[0], queries))), strict=True)
    keys_of = zip(*(split(x, keys) for x in gradients[1:]), strict=True)
    for i, ((one, own_grad, d_q), (d_k, d_v)) in enumerate(zip(whole, keys_of, strict=False)):
        alone = [split(x, n)[i].detach().requires_grad_() for x, n in ((q, queries), (k, keys), (v, keys))]
        own = {"position_ids": ids[i]} if "position_ids" in packed else {}
        expected = transformer_ops.attention(*alone, **options, **own)
        wanted = (expected, *torch.autograd.grad(expected, alone, own_grad))
        torch.testing.assert_close((one, d_q, d_k, d_v), wanted, rtol=0, atol=0)


@needs_the_cpu_kernel
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_few_queries_have_the_bits_that_they_have_among_many(dtype):
    for keys, (heads, shared), length, window in itertools.product(
        (33, 300), ((2, 2), (6, 2)), (7, 80), (None, 5, 150)
    ):
        q, k, v = inputs(40, keys, heads, shared, length, dtype, requires_grad=False)
        mask = torch.randn(2, heads, 40, keys, dtype=dtype).masked_fill(torch.rand(2, 1, 40, keys) < 0.3, -torch.inf)
        mask[:, :, 3] = -torch.inf
        ids = torch.arange(keys)[torch.randint(keys, (40,))]
        for given in (mask, mask == 0, mask < 0):
            options = {"attn_mask": given}
            if window is not None:
                options |= {"is_causal": True, "position_ids": ids, "window_size": window}
            of_all, lse = attend_and_keep(q, k, v, **options)
            for count in (1, 4, 16):
                options["attn_mask"] = given[..., :count, :]
                options |= {"position_ids": ids[:count]} if window is not None else {}
                few, own = attend_and_keep(q[:, :count], k, v, **options)
                torch.testing.assert_close((few, own), (of_all[:, :count], lse[..., :count]), rtol=0, atol=0)


@needs_the_cpu_kernel
@pytest.mark.parametrize("queries", [3, 40])
def test_keys_before_a_window_are_not_read(queries):
    q, k, v = inputs(queries, 400, 4, 2, 24)
    ids = torch.arange(400)[-queries:]
    call = {"is_causal": True, "position_ids": ids, "window_size": 50}
    expected = transformer_ops.attention(q, k, v, **call)
    hidden = [x.detach().clone().requires_grad_() for x in (k, v)]
    for x in hidden:
        x.data[:, :256] = torch.nan
    y = transformer_ops.attention(q, *hidden, **call)
    torch.testing.assert_close(y, expected, rtol=0, atol=0)
    for gradient in torch.autograd.grad(y.sum(), (q, *hidden)):
        assert gradient.isfinite().all()


@pytest.mark.parametrize("queries", [2, 40])
def test_a_query_that_sees_no_key_gives_zero(queries):
    q, k, v = inputs(queries, 50, 4, 2, 16)
    mask = torch.rand(2, 1, queries, 50) < 0.5
    mask[:, :, 1] = False
    beyond = {"is_causal": True, "window_size": 3} if queries > 2 else {"attn_mask": mask}
    for options in ({"attn_mask": mask}, {"attn_mask": torch.where(mask, 0, -torch.inf)}, beyond):
        of_keys = [x[:, :20] for x in (k, v)] if "window_size" in options else (k, v)
        rows = slice(23, None) if "window_size" in options else slice(1, 2)
        y, lse = attend_and_keep(q, *of_keys, **options)
        assert not y[:, rows].any()
        assert torch.equal(lse[..., rows], torch.full_like(lse[..., rows], -torch.inf))
        grad = torch.randn_like(y)
        d_q, *others = torch.autograd.grad(y, (q, k, v), grad)
        assert not d_q[:, rows].any()
        grad[:, rows] = 1e30  # which matters to nothing
        again = torch.autograd.grad(transformer_ops.attention(q, *of_keys, **options), (q, k, v), grad)
        torch.testing.assert_close(again, (d_q, *others))


def test_gradients_of_a_mask():
    """And second derivatives, where a query sees no key as well."""
    qkv = inputs(3, 4, 2, 1, 2, torch.float64, batches=1)
    mask = torch.randn(1, 1, 3, 4, dtype=torch.float64)
    mask[..., 1, :] = -torch.inf
    mask[..., 0, 2] = -torch.inf
    mask.requires_grad_()

    def attend(q, k, v, added):
        return transformer_ops.attention(q, k, v, attn_mask=added)

    assert torch.autograd.gradcheck(lambda *args: attend(*args, mask.detach()), qkv)
    assert torch.autograd.gradgradcheck(lambda *args: attend(*args, mask.detach()), qkv)
    first = [x.transpose(1, 2) for x in qkv]
    theirs = torch.nn.functional.scaled_dot_product_attention(*first, attn_mask=mask, enable_gqa=True).transpose(1, 2)
    grad = torch.randn_like(theirs)
    found = torch.autograd.grad(attend(*qkv, mask), (*qkv, mask), grad)
    torch.testing.assert_close(found, torch.autograd.grad(theirs, (*qkv, mask), grad))


MASK, CU = torch.ones(4, 4, dtype=torch.bool), torch.tensor([0, 1, 4])
REFUSED = [
    ({"attn_mask": MASK[:3]}, r"'attn_mask' has shape \(3, 4\), expected \(1 or 1, 2 or 1, 4 or 1, 4\)"),
    ({"attn_mask": MASK[:, :1]}, "'attn_mask' has shape"),
    ({"attn_mask": MASK[0]}, "'attn_mask' has shape"),
    ({"attn_mask": MASK.expand(3, 4, 4)}, "'attn_mask' has shape"),
    ({"attn_mask": MASK.double()}, "'attn_mask' is .*float64, expected .*bool"),
    ({"window_size": 3}, "'window_size' is given, but without 'is_causal'"),
    ({"window_size": 0, "is_causal": True}, "'window_size' is 0, expected at least 1"),
    ({"cu_seqlens_k": CU}, "'cu_seqlens_q' is None"),
    ({"cu_seqlens_q": CU, "attn_mask": MASK}, "'attn_mask' is given, and so is 'cu_seqlens_q'"),
    ({"cu_seqlens_q": CU, "cos": torch.ones(4, 8), "sin": torch.ones(4, 8)}, r"turn queries and keys with rope\(\)"),
    ({"cu_seqlens_q": CU.float()}, "'cu_seqlens_q' is .*float32.*expected"),
    ({"cu_seqlens_q": CU, "cu_seqlens_k": CU[1:]}, "'cu_seqlens_k'"),
    ({"cu_seqlens_q": CU + 1}, "'cu_seqlens_q' does not say where sequences begin"),
    ({"cu_seqlens_q": CU - CU.eq(4).long()}, "'cu_seqlens_q' does not say where sequences begin"),
    ({"cu_seqlens_q": CU[[0, 2, 1, 2]]}, "'cu_seqlens_q' does not say where sequences begin"),
    ({"cu_seqlens_q": CU, "cu_seqlens_k": CU[[0, 2, 2]], "is_causal": True}, "causal queries need 'position_ids'"),
    ({"cu_seqlens_q": CU, "is_causal": True, "position_ids": torch.arange(4)}, "'position_ids' has"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_what_does_not_fit_is_refused(options, message):
    q = torch.ones(1, 4, 2, 8)
    with pytest.raises(RuntimeError, match=message):
        transformer_ops.attention(q, q, q, **options)


@needs_the_cpu_kernel
@pytest.mark.parametrize("capability", [pytest.param("baseline", marks=pytest.mark.nightly), "avx2"])
def test_older_processors(capability):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    environment = os.environ | {"TRANSFORMER_OPS_CPU_CAPABILITY": capability}
    chosen = ["-k", "(masks and bfloat16) or (windows and float32 and not bfloat16) or few or not_read or no_key"]
    done = subprocess.run([*command, *chosen], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout


@needs_the_cpu_kernel
def test_nan_of_a_hidden_key_is_none_of_a_query_s_gradients():
    """A mask of booleans hides it, as causal attention hides what comes after: memory of padding may hold anything."""
    torch.manual_seed(0)
    q, k, v, grad = (torch.randn(1, 40, 2, 8) for _ in range(4))
    seen = torch.ones(1, 1, 40, 40, dtype=torch.bool)
    seen[..., 30:] = False
    kept = attend_and_keep(q, k, v, attn_mask=seen)

    def gradients():
        rest = False, None, None, None, None  # is_causal, scale, cos, sin, position_ids
        return torch.ops.transformer_ops.attention_backward(grad, q, k, v, *kept, *rest, attn_mask=seen)

    expected = gradients()
    v[:, 30:] = torch.nan
    assert all(torch.equal(*pair) for pair in zip(gradients(), expected, strict=True))
