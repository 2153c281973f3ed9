"""The operators as users call them, against PyTorch's own. What every backend must do is in the conformance kit."""

import itertools
import math
import os
import subprocess
import sys

import pytest
import torch
import transformer_ops
from hypothesis import given, settings
from hypothesis import strategies as st
from opwheel.dispatch import native_autograd
from opwheel.dispatch.registration import native_autograd_of
from opwheel.memory.usage import peak
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformer_ops.operators import OPERATORS
from transformer_ops.operators.rope import rotated

IS_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
ROWS, CLASSES = 6, 50
TOLERANCES = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 2e-3}


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def logits(dtype=torch.float64):
    target = torch.randint(CLASSES, (ROWS,))
    target[2] = -100
    return torch.randn(ROWS, CLASSES, dtype=dtype, requires_grad=True), target


def compare(mine, theirs, inputs, dtype=torch.float64):
    """Values and gradients."""
    tolerance = {"rtol": TOLERANCES[dtype], "atol": TOLERANCES[dtype], "check_dtype": False}
    torch.testing.assert_close(mine, theirs, **tolerance)
    grad = torch.randn_like(theirs)
    found = torch.autograd.grad(mine, inputs, grad.to(mine.dtype), retain_graph=True)
    torch.testing.assert_close(found, torch.autograd.grad(theirs, inputs, grad, retain_graph=True), **tolerance)


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_norms_are_pytorchs(dtype):
    x, w, b = (torch.randn(*shape, dtype=dtype, requires_grad=True) for shape in ((3, 4, 40), (40,), (40,)))
    wide = [t.double() for t in (x, w, b)]
    compare(
        transformer_ops.rms_norm(x, w, casting_mode="gemma"),
        functional.rms_norm(wide[0], (40,), wide[1], 1e-6),
        (x, w),
        dtype,
    )
    compare(transformer_ops.layer_norm(x, w, b), functional.layer_norm(wide[0], (40,), *wide[1:]), (x, w, b), dtype)


LENGTHS = (1, 2, 17, 100, 9000) if IS_INTERPRETED else (*range(1, 101), 100_000)
EPS = 1e-2  # gradients of equal numbers are differences, rounded, over its root


@pytest.mark.parametrize("offset", [0.0, 1e4 + 0.1, 3e7])
@pytest.mark.parametrize("rows", ["equal", "spread", "with an outlier"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_layer_norm_of_numbers_far_from_zero(dtype, rows, offset):
    for n in LENGTHS:
        x = torch.full((2, n), offset) + (0 if rows == "equal" else torch.randn(2, n))
        if rows == "with an outlier":
            x[:, 0] += 100
        x = x.to(dtype).requires_grad_()
        w, b = (torch.randn(n, dtype=dtype, requires_grad=True) for _ in range(2))
        theirs = functional.layer_norm(x.double(), (n,), w.double(), b.double(), EPS)
        compare_sums(transformer_ops.layer_norm(x, w, b, EPS), theirs, (x, w, b), dtype)
        if rows == "equal":
            assert not transformer_ops.layer_norm(x).any()


@pytest.mark.filterwarnings("ignore:overflow")  # of Triton's interpreter
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_layer_norm_of_numbers_whose_squares_overflow(dtype):
    x = (torch.randn(2, 30) * 1e20).to(dtype)
    assert transformer_ops.layer_norm(x).isnan().all()


def test_derivatives_are_text():
    """They run in C++, and in programs without Python."""
    formulas = {one.name: one.derivatives for one in OPERATORS if one.derivatives}
    assert "fused_add_rms_norm" in formulas
    assert {name for name, some in formulas.items() if not all(isinstance(f, str) for f in some.values())} == set()


def every_bfloat16():
    """All of its values, in 16 rows: infinities and nans of every payload, too."""
    return torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(torch.bfloat16).view(16, -1)


@pytest.mark.parametrize(
    ("operator", "exact"),
    [
        (transformer_ops.swiglu, functional.silu),
        (transformer_ops.geglu, lambda x: x * torch.sigmoid((8 / torch.pi) ** 0.5 * (x + 0.044715 * x**3))),
    ],
    ids=["swiglu", "geglu"],
)
def test_activations_of_every_bfloat16(operator, exact):
    x = every_bfloat16()
    found, expected = operator(x, torch.ones_like(x)).double(), exact(x.double())
    normal = expected.isfinite() & (expected.abs() > 1e-30)
    _, exponent = torch.frexp(expected[normal])
    units = (found - expected)[normal].abs() / torch.ldexp(torch.ones_like(expected[normal]), exponent - 8)
    assert units.max() <= 0.57  # of the last place: rounding takes up to 0.5
    assert (found[~normal & expected.isfinite()].abs() <= 2e-30).all()
    torch.testing.assert_close(found[~expected.isfinite()], expected[~expected.isfinite()], equal_nan=True)


@pytest.mark.parametrize(
    "operator",
    [transformer_ops.swiglu, transformer_ops.geglu, lambda a, b: transformer_ops.geglu(a, b, approximate="none")],
    ids=["swiglu", "geglu", "geglu by erf"],
)
def test_a_nan_of_any_payload_stays_one(operator):
    """Rounding adds to a number's bits, which might make another number of a nan."""
    x = every_bfloat16()
    is_nan = x.isnan()
    ones = torch.ones_like(x)
    for left, right in ((x, ones), (ones, x), (x, x)):
        assert operator(left, right)[is_nan].isnan().all()
        leaves = [left.clone().requires_grad_(), right.clone().requires_grad_()]
        gradients = torch.autograd.grad(operator(*leaves), leaves, x)
        assert all(gradient[is_nan].isnan().all() for gradient in gradients)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weighted", [False, True])
def test_cross_entropy_is_pytorchs(reduction, smoothing, weighted):
    x, target = logits()
    weight = torch.rand(CLASSES, dtype=torch.float64) if weighted else None
    options = {"weight": weight, "label_smoothing": smoothing, "reduction": reduction}
    compare(transformer_ops.cross_entropy(x, target, **options), functional.cross_entropy(x, target, **options), (x,))


def test_z_loss_and_softcap():
    x, target = logits()
    loss, z_loss = transformer_ops.cross_entropy(x, target, lse_square_scale=0.1, softcap=2.0, return_z_loss=True)
    capped = 2 * torch.tanh(x / 2)
    expected = 0.1 * capped.logsumexp(-1).square()[target != -100].mean()
    torch.testing.assert_close(z_loss, expected.detach())
    compare(loss, functional.cross_entropy(capped, target) + expected, (x,))


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("biased", [False, True])
def test_fused_linear_cross_entropy(reduction, biased):
    rows, width = 600, 24  # more than one part
    x, weight, bias = (
        torch.randn(*shape, dtype=torch.float64, requires_grad=True)
        for shape in ((rows, width), (CLASSES, width), (CLASSES,))
    )
    target = torch.randint(CLASSES, (rows,))
    target[::7] = -100
    inputs = (x, weight, bias)[: 2 + biased]
    mine = transformer_ops.fused_linear_cross_entropy(x, weight, target, bias if biased else None, reduction=reduction)
    theirs = functional.cross_entropy(
        functional.linear(x, weight, bias if biased else None), target, reduction=reduction
    )
    compare(mine, theirs, inputs)
    with torch.no_grad():
        torch.testing.assert_close(
            transformer_ops.fused_linear_cross_entropy(*inputs[:2], target, *inputs[2:], reduction=reduction), theirs
        )


def compare_sums(mine, theirs, inputs, dtype):
    """Values and gradients that are sums of many: relative to the largest of them, from which the rounding comes."""
    grad = torch.randn_like(theirs).to(dtype)
    found = mine, *torch.autograd.grad(mine, inputs, grad, retain_graph=True)
    wanted = theirs, *torch.autograd.grad(theirs, inputs, grad.double(), retain_graph=True)
    for a, b in zip(found, wanted, strict=True):
        assert (a.double() - b.double()).abs().max() <= TOLERANCES[dtype] * (1 + b.abs().max())


def attention_inputs(queries, keys, heads, shared, length, dtype=torch.float64):
    shapes = ((2, queries, heads, length), (2, keys, shared, length), (2, keys, shared, length))
    return [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes]


def pytorchs_attention(q, k, v, **options):
    first = [x.transpose(1, 2).double() for x in (q, k, v)]
    grouped = q.shape[2] != k.shape[2]
    with sdpa_kernel(SDPBackend.MATH):  # its faster one is not a number for causal heads and a negative scale
        return functional.scaled_dot_product_attention(*first, enable_gqa=grouped, **options).transpose(1, 2)


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(
    ("queries", "keys", "heads", "shared", "length"),
    [
        (1, 1, 1, 1, 1),
        (1, 300, 4, 2, 48),  # the next word
        (16, 257, 6, 1, 80),  # the most that are few queries, of a head of keys 96
        (3, 129, 2, 2, 37),
        (65, 65, 2, 2, 64),
        (33, 97, 4, 1, 5),
        (97, 33, 2, 2, 128),
        (70, 530, 2, 1, 33),  # more keys than a product takes at a time
    ],
)
def test_attention_is_pytorchs(queries, keys, heads, shared, length, is_causal, dtype):
    q, k, v = attention_inputs(queries, keys, heads, shared, length, dtype)
    mine = transformer_ops.attention(q, k, v, is_causal)
    assert mine.is_contiguous()
    compare_sums(mine, pytorchs_attention(q, k, v, is_causal=is_causal), (q, k, v), dtype)
    options = {"is_causal": is_causal, "scale": -0.3}
    compare_sums(
        transformer_ops.attention(q, k, v, **options), pytorchs_attention(q, k, v, **options), (q, k, v), dtype
    )


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_attention_of_few_queries_has_the_bits_that_they_have_among_many(dtype):
    """So that what is generated word by word is what a whole text gives."""
    if IS_INTERPRETED:
        pytest.skip("the kernels are Triton's")
    for keys, heads, shared, length in itertools.product((1, 33, 127, 300), (2, 6), (1, 2), (7, 32, 80, 128)):
        q, k, v = (x.detach() for x in attention_inputs(40, keys, heads, shared, length, dtype))
        of_all, lse = torch.ops.transformer_ops.attention_training(q, k, v)
        for count in (1, 2, 3, 5, 16):
            few, own = torch.ops.transformer_ops.attention_training(q[:, :count], k, v)
            assert torch.equal(few, of_all[:, :count]), (keys, heads, shared, length, count)
            assert torch.equal(own, lse[..., :count])


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize(
    ("queries", "keys", "heads", "shared", "length"),
    [(1, 300, 4, 2, 48), (16, 257, 6, 1, 80), (3, 7, 2, 2, 5), (40, 97, 2, 1, 33)],
)
@pytest.mark.parametrize("order", ["of one sequence", "of a batch", "shuffled"])
def test_causal_attention_of_queries_at_given_positions(queries, keys, heads, shared, length, order, dtype):
    q, k, v = attention_inputs(queries, keys, heads, shared, length, dtype)
    ids = torch.arange(keys)[-queries:]
    if order == "of a batch":
        ids = torch.stack((ids, torch.arange(queries)))
    elif order == "shuffled":
        ids = ids[torch.randperm(queries)].unsqueeze(0)
    seen = torch.arange(keys) <= ids.view(-1, 1, queries, 1)
    mine = transformer_ops.attention(q, k, v, is_causal=True, position_ids=ids)
    compare_sums(mine, pytorchs_attention(q, k, v, attn_mask=seen), (q, k, v), dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_attention_of_a_text_in_pieces_is_that_of_all_at_once(dtype):
    """To the bit; and what a cache has behind the last word of a sequence is not read."""
    if IS_INTERPRETED:
        pytest.skip("the kernels are Triton's")
    q, k, v = (x.detach() for x in attention_inputs(75, 75, 4, 2, 40, dtype))
    whole = transformer_ops.attention(q, k, v, is_causal=True)
    k_cache, v_cache = (torch.full((2, 128, 2, 40), torch.nan, dtype=dtype) for _ in range(2))
    starts = (0, 50, 57, 58, 74, 75)
    for start, end in itertools.pairwise(starts):
        k_cache[:, start:end], v_cache[:, start:end] = k[:, start:end], v[:, start:end]
        ids = torch.arange(start, end)
        piece = transformer_ops.attention(q[:, start:end], k_cache, v_cache, is_causal=True, position_ids=ids)
        assert torch.equal(piece, whole[:, start:end])
    k_cache[1, 20:], v_cache[1, 20:] = torch.nan, torch.nan
    ids = torch.tensor([[74], [19]])
    ends = torch.stack((q[0, 74:], q[1, 19:20]))
    last = transformer_ops.attention(ends, k_cache, v_cache, is_causal=True, position_ids=ids)
    assert torch.equal(last, torch.stack((whole[0, 74:], whole[1, 19:20])))


def test_attention_refuses_positions_that_do_not_fit():
    q, k, ids = torch.ones(2, 1, 3, 8), torch.ones(2, 5, 3, 8), torch.tensor([4])
    for positions, options, message in (
        (ids, {}, "without 'is_causal'.*pass None"),
        (ids.expand(3, 1), {"is_causal": True}, "'position_ids' (has|is)"),
        (ids.expand(2), {"is_causal": True}, "'position_ids' (has|is)"),
        (ids.int(), {"is_causal": True}, "'position_ids' (has|is)"),
        (ids + 1, {"is_causal": True}, "'position_ids' has"),
        (ids - 5, {"is_causal": True}, "'position_ids' has"),
    ):
        with pytest.raises(RuntimeError, match=message):
            transformer_ops.attention(q, k, k, position_ids=positions, **options)
    table = torch.ones(1, 8)
    with pytest.raises(RuntimeError, match="turn queries and keys with rope"):
        transformer_ops.attention(q, q, q, True, cos=table, sin=table, position_ids=ids - 4)


def turned(x, cos, sin):
    """By tables of as many columns as ``x``, as models write it."""
    u, v = x.chunk(2, -1)
    return x * cos.unsqueeze(-2) + torch.cat((-v, u), -1) * sin.unsqueeze(-2)


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(
    ("positions", "heads", "shared", "length", "table"),
    [(1, 1, 1, 2, ()), (65, 4, 2, 48, (2,)), (40, 2, 2, 34, (1,)), (33, 1, 1, 128, ())],
)
def test_attention_turns_by_its_tables(positions, heads, shared, length, table, is_causal, dtype):
    q, k, v = attention_inputs(positions, positions, heads, shared, length, dtype)
    angles = torch.randn(*table, positions, length // 2, dtype=torch.float64)
    cos, sin = (torch.cat((half, half), -1).to(dtype) for half in (angles.cos(), angles.sin()))
    wide = [turned(x.double(), cos.double(), sin.double()) for x in (q, k)]
    theirs = pytorchs_attention(*wide, v, is_causal=is_causal)
    compare_sums(transformer_ops.attention(q, k, v, is_causal, cos=cos, sin=sin), theirs, (q, k, v), dtype)
    apart = {"cos": torch.cat((cos, cos), -1)[..., :length], "sin": torch.cat((sin, sin), -1)[..., :length]}
    compare_sums(transformer_ops.attention(q, k, v, is_causal, **apart), theirs, (q, k, v), dtype)


def test_attention_refuses_tables_that_do_not_fit():
    q, table = torch.ones(2, 4, 3, 8), torch.ones(4, 8)
    for cos, sin, message in (
        (table, None, "'sin' is None, but 'cos' is not; pass both or none"),
        (table[:3], table[:3], "'cos' has"),
        (table[:, :2], table[:, :2], r"'cos' has shape \(4, 2\)"),
        (table[:, :4], table[:, :4], r"'cos' has shape \(4, 4\).*half as many.*pass torch.cat\(\(cos, cos\), -1\)"),
        (table, table[:, :4], "'sin' has shape"),
        (table.double(), table.double(), "'cos' has dtype|'cos' is"),
    ):
        with pytest.raises(RuntimeError, match=message):
            transformer_ops.attention(q, q, q, cos=cos, sin=sin)
    with pytest.raises(RuntimeError, match="'k'"):
        transformer_ops.attention(q, q[:, :3], q[:, :3], cos=table, sin=table)
    with pytest.raises(RuntimeError, match="even"):
        transformer_ops.attention(*[q[..., :7]] * 3, cos=table[:, :7], sin=table[:, :7])


def test_attention_of_views():
    qkv = torch.randn(2, 9, 3, 2, 8, dtype=torch.float64, requires_grad=True)
    first = qkv.permute(3, 0, 2, 4, 1).contiguous().permute(1, 4, 2, 0, 3)  # elements of a row are apart
    compare(
        transformer_ops.attention(*qkv.unbind(2), is_causal=True),
        pytorchs_attention(*qkv.unbind(2), is_causal=True),
        (qkv,),
    )
    torch.testing.assert_close(transformer_ops.attention(*first.unbind(2)), transformer_ops.attention(*qkv.unbind(2)))


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("turns", [False, True])
def test_attention_of_views_of_one_tensor(turns, is_causal, dtype):
    """As attention() of the three, to the last bit, and a gradient in one tensor."""
    qkv = torch.randn(2, 37, 3, 2, 34, dtype=dtype, requires_grad=True)
    grad = torch.randn(2, 37, 2, 34, dtype=dtype)
    cos, sin = torch.randn(2, 2, 37, 34, dtype=dtype) if turns else (None, None)
    options = {"is_causal": is_causal, "scale": 0.3, "cos": cos, "sin": sin}
    packed, unpacked = (
        transformer_ops.attention_qkvpacked(qkv, **options),
        transformer_ops.attention(*qkv.unbind(2), **options),
    )
    assert packed.is_contiguous()
    assert packed.equal(unpacked)
    found, expected = (torch.autograd.grad(y, qkv, grad)[0] for y in (packed, unpacked))
    assert found.is_contiguous()
    assert found.equal(expected)
    apart = qkv.detach().transpose(0, 4).contiguous().transpose(0, 4).requires_grad_()
    apart_y = transformer_ops.attention_qkvpacked(apart, **options)
    assert apart_y.equal(packed)
    assert torch.autograd.grad(apart_y, apart, grad)[0].equal(expected)


@pytest.mark.parametrize("shape", [(2, 4, 3, 8), (2, 4, 2, 3, 8), (2, 4, 3, 3, 8, 1)])
def test_attention_refuses_what_is_no_three_in_one(shape):
    with pytest.raises(RuntimeError, match="'qkv'"):
        transformer_ops.attention_qkvpacked(torch.ones(shape))


EMPTY = [
    sizes
    for sizes in itertools.product((0, 2), (0, 3), (0, 3), ((2, 1), (0, 2), (0, 0)))
    if 0 in (*sizes[:3], *sizes[3])
]


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(("batches", "queries", "keys", "heads"), EMPTY)
def test_attention_to_nothing(batches, queries, keys, heads, is_causal):
    shapes = [(batches, queries, heads[0], 4), *[(batches, keys, heads[1], 4)] * 2]
    inputs = [torch.randn(shape, requires_grad=True) for shape in shapes]
    tables = [(None, None), torch.randn(2, queries, 4)]
    for cos, sin in tables[: 1 + (queries == keys)]:
        y = transformer_ops.attention(*inputs, is_causal, cos=cos, sin=sin)
        assert y.shape == shapes[0]
        assert not y.any()
        for grad, shape in zip(torch.autograd.grad(y, inputs, torch.ones_like(y)), shapes, strict=True):
            assert grad.shape == shape
            assert not grad.any()


@pytest.mark.parametrize("shape", [s for s in itertools.product((0, 2), (0, 3), (3,), (0, 2), (4,)) if 0 in s])
@pytest.mark.parametrize("is_causal", [False, True])
def test_packed_attention_to_nothing(shape, is_causal):
    qkv = torch.randn(shape, requires_grad=True)
    y = transformer_ops.attention_qkvpacked(qkv, is_causal)
    assert y.shape == shape[:2] + shape[3:]
    (grad,) = torch.autograd.grad(y, qkv, torch.ones_like(y))
    assert grad.shape == shape


def test_attention_sees_what_it_may():
    """What is not seen does not matter, whatever number it is; a nan among what is seen comes out."""
    q, k, v = attention_inputs(40, 40, 1, 1, 8)
    with torch.no_grad():
        expected = transformer_ops.attention(q, k, v, is_causal=True)[:, :20]
        v[:, 20:], k[:, 20:] = 1e30, -1e3
        torch.testing.assert_close(transformer_ops.attention(q, k, v, is_causal=True)[:, :20], expected, rtol=0, atol=0)
        v[0, 3, 0, 2] = torch.nan
        found = transformer_ops.attention(q, k, v, is_causal=True)
    assert found[0, 3:, 0, 2].isnan().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("queries", [1, 40])  # few have kernels of their own
def test_attention_keeps_the_logarithms_of_infinite_scores(queries, dtype):
    """As torch.logsumexp does: they are infinite, or nan where a score is."""
    inf, nan = math.inf, math.nan
    for some in ([inf], [-inf], [inf, -inf], [inf, nan], [nan, inf], [-inf] * 50, [-inf] * 49 + [nan]):
        k = torch.zeros(1, 50, 1, 1, dtype=dtype)
        k[0, : len(some), 0, 0] = torch.tensor(some)
        q = torch.ones(1, queries, 1, 1, dtype=dtype)
        _, lse = torch.ops.transformer_ops.attention_training(q, k, k, False, 1.0, None, None, None)
        assert torch.allclose(lse, k.flatten().logsumexp(0), equal_nan=True), some


@pytest.mark.parametrize("score", [30.0, 777.7, 1e4, 1e10])
def test_the_gradient_of_a_key_that_has_all_of_the_weight(score):
    """It is the query's, to the last bit: a rounded logarithm of the sum would make other weights than 1."""
    k = torch.eye(8).view(1, 8, 1, 8)
    v, grad = (torch.randn(1, 8, 1, 8) for _ in range(2))
    y, lse = torch.ops.transformer_ops.attention_training(score * k, k, v, False, 1.0)
    *_, d_v = torch.ops.transformer_ops.attention_backward(grad, score * k, k, v, y, lse, False, 1.0, None, None, None)
    assert torch.equal(d_v, grad)


@pytest.mark.parametrize("largest", [1e6, 1e10])
def test_gradients_of_large_scores(largest):
    """A logarithm of a sum that has no digits after its point, from another kernel here, says nothing of weights."""
    torch.manual_seed(0)
    q, k, v, grad = (torch.randn(1, 40, 2, 8) for _ in range(4))
    q *= largest
    y, lse = torch.ops.transformer_ops.attention_training(q, k, v, False, 1.0)
    rest = False, 1.0, None, None, None  # is_causal, scale, cos, sin, position_ids
    expected = torch.ops.transformer_ops.attention_backward(grad, q, k, v, y, lse, *rest)
    for off in (1 - 3e-7, 1 + 3e-7):
        found = torch.ops.transformer_ops.attention_backward(grad, q, k, v, y, lse * off, *rest)
        assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))
    wide = [x.double().transpose(1, 2).requires_grad_() for x in (q, k, v)]
    functional.scaled_dot_product_attention(*wide, scale=1.0).backward(grad.double().transpose(1, 2))
    d_v = wide[2].grad.transpose(1, 2)
    assert (expected[2] - d_v).abs().max() <= 1e-4 * (1 + d_v.abs().max())


def test_attention_takes_less_memory_than_its_scores():
    """Of 4096 queries and keys, 64 MiB of float32 for each head."""
    if IS_INTERPRETED:
        pytest.skip("Triton's interpreter takes minutes")
    q, k, v = (torch.randn(1, 4096, 1, 16, requires_grad=True) for _ in range(3))

    def call():
        transformer_ops.attention(q, k, v, is_causal=True).sum().backward()

    call()
    taken = peak(call)
    if taken is None:
        pytest.skip("this system does not tell how much memory a process takes")
    assert taken < 16 << 20


@pytest.mark.parametrize("capability", ["baseline", "avx2"])
def test_attention_on_older_processors(capability):
    if IS_INTERPRETED:
        pytest.skip("the kernels are Triton's")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    environment = os.environ | {"TRANSFORMER_OPS_CPU_CAPABILITY": capability}
    chosen = ["-k", "attention and ((pytorchs or tables or bits or pieces) and (float32 or bfloat16) or views)"]
    done = subprocess.run([*command, *chosen], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
    assert "69 passed" in done.stdout


@pytest.mark.parametrize(
    "shape", [(0, 2, 3, 4), (2, 0, 3, 4), (2, 2, 0, 4)], ids=["no batch", "no heads", "no positions"]
)
def test_rope_of_nothing(shape):
    x, angles = torch.ones(shape), torch.ones(shape[2], 4)
    assert [turned.shape for turned in transformer_ops.rope(x, x, angles, angles)] == [shape, shape]


@settings(max_examples=5 if IS_INTERPRETED else 60)
@given(
    batch=st.integers(1, 3),
    heads=st.integers(1, 9),
    positions=st.integers(1, 150),
    unsqueeze_dim=st.sampled_from([1, 2]),
    is_view=st.booleans(),
    interleaved=st.booleans(),
    seed=st.integers(0, 2**31),
)
def test_rope_of_any_size_and_order(batch, heads, positions, unsqueeze_dim, is_view, interleaved, seed):
    """The order in which rows are turned, and shared out among threads, is seen in none of them."""
    torch.manual_seed(seed)
    shape = (batch, heads, positions, 64) if unsqueeze_dim == 1 else (batch, positions, heads, 64)
    q = torch.randn(shape)
    q = q.transpose(1, 2).contiguous().transpose(1, 2) if is_view else q
    angles = torch.randn(1, positions, 64)
    cos, sin = angles.cos(), angles.sin()
    turned, _ = transformer_ops.rope(q, q, cos, sin, None, unsqueeze_dim, interleaved)
    expected = rotated(q.double(), cos.double(), sin.double(), unsqueeze_dim, interleaved)
    torch.testing.assert_close(turned.double(), expected, rtol=1e-5, atol=1e-5)


def test_rope_keeps_lengths_and_turns_back():
    q, k = torch.randn(2, 4, 5, 16), torch.randn(2, 1, 5, 16)
    angles = torch.arange(5)[:, None] * 0.1 ** torch.arange(8)
    whole = {"rotary_dim": 16}  # tables have half as many columns
    turned = transformer_ops.rope(q, k, angles.cos(), angles.sin(), **whole)
    for one, before in zip(turned, (q, k), strict=True):
        torch.testing.assert_close(one.norm(dim=-1), before.norm(dim=-1))
    back = transformer_ops.rope(*turned, angles.cos(), -angles.sin(), **whole)
    torch.testing.assert_close(back, (q, k))
    transposed = [t.transpose(1, 2) for t in (q, k)]
    again = transformer_ops.rope(*transposed, angles.cos(), angles.sin(), unsqueeze_dim=2, **whole)
    torch.testing.assert_close(tuple(t.transpose(1, 2) for t in again), turned)


@pytest.mark.parametrize("length", [8, 64])
@pytest.mark.parametrize("unsqueeze_dim", [1, 2])
def test_rope_says_what_its_tables_are_for(length, unsqueeze_dim):
    """A head's rotary width of half its length, and tables of half the rotary width, have as many columns."""
    q = torch.randn(2, 3, 3, length, requires_grad=True)
    angles = torch.randn(3, length // 2)
    cos, sin = angles.cos(), angles.sin()
    with pytest.raises(RuntimeError, match=rf"'cos' has shape \(3, {length // 2}\).*say with rotary_dim"):
        transformer_ops.rope(q, q, cos, sin, None, unsqueeze_dim)
    whole, _ = transformer_ops.rope(q, q, cos, sin, None, unsqueeze_dim, rotary_dim=length)
    full = [torch.cat((table, table), -1) for table in (cos, sin)]
    for tables, rotary_dim in ((full, None), (full, length)):
        again, _ = transformer_ops.rope(q, q, *tables, None, unsqueeze_dim, rotary_dim=rotary_dim)
        assert again.equal(whole)
    torch.testing.assert_close(whole, rotated(q, cos, sin, unsqueeze_dim))
    grad = torch.randn_like(q)
    wanted = torch.autograd.grad(rotated(q, cos, sin, unsqueeze_dim), q, grad)
    torch.testing.assert_close(torch.autograd.grad(whole, q, grad), wanted)


@pytest.mark.parametrize("unsqueeze_dim", [1, 2])
def test_a_part_of_each_head_is_turned_by_passing_it(unsqueeze_dim):
    from transformers.models.gpt_neox.modeling_gpt_neox import apply_rotary_pos_emb

    q, angles = torch.randn(2, 3, 3, 64), torch.randn(1, 3, 16)
    cos, sin = (torch.cat((x, x), -1) for x in (angles.cos(), angles.sin()))
    for rotary_dim in (None, 64):
        with pytest.raises(RuntimeError, match="'cos' has" if rotary_dim is None else "'rotary_dim' is 32|'cos' has"):
            transformer_ops.rope(q, q, cos[..., :16], sin[..., :16], None, unsqueeze_dim, rotary_dim=rotary_dim)
    for tables in ((cos, sin), (cos[..., :16], sin[..., :16])):
        with pytest.raises(RuntimeError, match=r"'rotary_dim' is 32, but heads have 64.*q\[\.\.\., :rotary_dim\]"):
            transformer_ops.rope(q, q, *tables, None, unsqueeze_dim, rotary_dim=32)
    with pytest.raises(RuntimeError, match=r"'cos' has shape \(1, 3, 32\)"):
        transformer_ops.rope(q, q, cos, sin, None, unsqueeze_dim)
    turned = transformer_ops.rope(q[..., :32], q[..., :32], cos, sin, None, unsqueeze_dim)
    wanted = apply_rotary_pos_emb(q, q, cos, sin, unsqueeze_dim)
    for one, other in zip(turned, wanted, strict=True):
        torch.testing.assert_close(torch.cat((one, q[..., 32:]), -1), other)


def confident_attention(dtype):
    """Of each query one key is larger by 8, 16, 20 or 30, or all are nearly equal."""
    q, k, v = (torch.randn(2, 40, 2, 32) for _ in range(3))
    margins = torch.tensor([8.0, 16, 20, 30, 100, 0.1]).repeat(7)[:40, None, None]
    q = k / k.square().sum(-1, keepdim=True) * margins * 32**0.5
    return [x.to(dtype).requires_grad_() for x in (q, k, v)]


def rounding_of_factors(q, k, v, grad, is_causal, dtype):
    """By how much attention and its gradients are off at most where factors of products are rounded to a dtype."""
    q, k, v, grad = (x.detach().transpose(1, 2) for x in (q, k, v, grad))
    scale = q.shape[-1] ** -0.5
    scores = q @ k.mT * scale
    if is_causal:
        scores += torch.full(scores.shape[-2:], -torch.inf).triu(1)
    p = scores.requires_grad_().softmax(-1)
    (ds,) = torch.autograd.grad(p @ v, scores, grad)
    p, ds = p.detach(), ds.abs() * scale
    sums = p @ v.abs(), ds @ k.abs(), ds.mT @ q.abs(), p.mT @ grad.abs()
    return [torch.finfo(dtype).eps * x.transpose(1, 2) for x in sums]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("is_causal", [False, True])
def test_gradients_of_attention_to_one_key(is_causal, dtype):
    """What is left of dp - sum(grad * y) would be little but what y is rounded by.

    On a CPU each result is rounded once; Triton's kernels round factors of products in 16 bits, as FlashAttention's.
    """
    inputs = confident_attention(dtype)
    wide = [x.detach().double().requires_grad_() for x in inputs]
    y, exact = transformer_ops.attention(*inputs, is_causal), pytorchs_attention(*wide, is_causal=is_causal)
    grad = torch.randn_like(exact).to(dtype)
    found = (y, *torch.autograd.grad(y, inputs, grad))
    wanted = (exact, *torch.autograd.grad(exact, wide, grad.double()))
    in_between = rounding_of_factors(*wide, grad.double(), is_causal, dtype) if IS_INTERPRETED else [0.0] * 4
    for one, other, more in zip(found, wanted, in_between, strict=True):
        rounding = torch.finfo(dtype).eps / 2 * other.abs()
        beyond = 1e-4 * other.abs().amax(-1, keepdim=True) + 1e-5
        assert ((one.double() - other).abs() <= rounding + beyond + more).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("margin", [8.0, 16.0, 20.0, 30.0])
def test_gradients_of_confident_softmax(margin, dtype):
    x = torch.zeros(3, 100)
    x[:, 7] = margin
    x = (x + torch.randn(3, 100) / 8).to(dtype).requires_grad_()
    wide = x.detach().double().requires_grad_()
    grad = torch.randn(3, 100).to(dtype)
    (found,) = torch.autograd.grad(transformer_ops.softmax(x), x, grad)
    (wanted,) = torch.autograd.grad(torch.softmax(wide, -1), wide, grad.double())
    smallest = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
    allowed = 2 * torch.finfo(dtype).eps * wanted.abs().amax(-1, keepdim=True) + 1e-6
    assert ((found.double() - wanted).abs() <= allowed).all()
    sums = torch.finfo(dtype).eps * wanted.abs().sum(-1) + 1e-6 + 100 * smallest
    assert (found.double().sum(-1).abs() <= sums).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("name", "options"), [("swiglu", ()), ("geglu", ("tanh",))])
def test_derivatives_of_activations_of_every_number(name, options, dtype):
    """Where sigmoid is nearly 1, and near the derivative's zero, an approximation of 2^-12 leaves few digits."""
    x = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)
    x = x[x.isfinite() & (x.abs() < 80)][:: 16 if IS_INTERPRETED else 1].clone().requires_grad_()
    ones = torch.ones_like(x)
    (found,) = torch.autograd.grad(getattr(transformer_ops, name)(x, ones, *options), x, ones)
    wide = x.detach().double().requires_grad_()
    exact = {"swiglu": functional.silu, "geglu": lambda t: functional.gelu(t, approximate="tanh")}[name](wide)
    (wanted,) = torch.autograd.grad(exact, wide, ones.double())
    allowed = torch.finfo(dtype).eps / 2 * wanted.abs() + 1e-6
    assert ((found.double() - wanted).abs() <= allowed).all()


@pytest.mark.parametrize("slots", [1, 7, 300, 2**15])
@pytest.mark.parametrize("step", [1, 16, 2**13])
def test_the_last_token_of_a_slot_is_in_both_caches(slots, step):
    tokens = 40 if IS_INTERPRETED else 4000  # for several threads
    new = torch.arange(1.0, tokens + 1)[:, None, None].repeat(1, 2, 32)
    slot_mapping = torch.randint(-1, slots, (tokens,)) * step % slots
    slot_mapping[::5] = -1
    caches = torch.zeros(2, slots, 1, 2, 32)
    expected = torch.zeros(slots)
    for token, slot in zip(new[:, 0, 0], slot_mapping.tolist(), strict=True):
        if slot >= 0:
            expected[slot] = token
    for _ in range(1 if IS_INTERPRETED else 10):
        transformer_ops.reshape_and_cache(new, new, *caches, slot_mapping)
        assert torch.equal(caches, expected.view(1, -1, 1, 1, 1).expand_as(caches))


@pytest.mark.parametrize("blocks", [(0, 4), (2, 0), (0, 0)])
def test_a_cache_without_slots_takes_padding_alone(blocks):
    tokens, caches = torch.ones(2, 2, 3), torch.zeros(2, *blocks, 2, 3)
    transformer_ops.reshape_and_cache(tokens, tokens, *caches, torch.tensor([-1, -7]))
    with pytest.raises(RuntimeError, match="slot_mapping"):
        transformer_ops.reshape_and_cache(tokens, tokens, *caches, torch.tensor([-1, 0]))


SPECIAL = (math.nan, math.inf, -math.inf, 0.0, -0.0, 1e-45, 2e-43, 1e-11, -3e38, 65504.0)


@settings(max_examples=100, derandomize=True)
@given(
    st.lists(st.sampled_from(SPECIAL), max_size=3),
    st.floats(-45, 38).map(lambda exponent: 10**exponent),
    st.integers(0, 70),
    st.sampled_from([torch.float32, torch.float64, torch.bfloat16, torch.float16]),
)
def test_quantised_rows_come_back_within_half_a_step(special, size, length, dtype):
    """Whatever numbers are among them; where one is nan or infinite, so is all of the row."""
    row = (torch.randn(length) * size).to(dtype)
    at = torch.randperm(length)[: len(special)]
    row[at] = torch.tensor(special).to(dtype)[: len(at)]
    x = torch.stack([row, torch.ones_like(row)])
    q, scale = transformer_ops.quantize_rowwise(x)
    back = transformer_ops.dequantize_rowwise(q, scale, dtype=torch.float64)
    if row.float().isfinite().all():
        rounding = 2**-149  # of a scale that is subnormal, times 127
        assert ((back - x.double()).abs() <= 0.5001 * scale[:, None] + 127 * rounding).all()
        assert (scale[0] == 0) == (row.float().abs() <= 127 * rounding / 2).all()
    else:
        assert back[0].isnan().all()
        assert torch.isnan(scale[0]) == row.isnan().any()
    torch.testing.assert_close(back[1], torch.ones(length, dtype=torch.float64), rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: transformer_ops.rms_norm(x, casting_mode="qwen"), "casting_mode' is 'qwen', expected 'llama'"),
        (lambda x: transformer_ops.geglu(x, x, "fast"), "approximate' is 'fast', expected 'tanh' or 'none'"),
        (lambda x: transformer_ops.swiglu(x, x.double()), "'b' is torch.float64, but 'a' is torch.float32"),
        (lambda x: transformer_ops.softmax(x.long()), "'x' is torch.int64, expected one of torch.float16"),
        (lambda x: transformer_ops.cross_entropy(x, torch.tensor([0, 1, 4])), "'target' has .+ is no class"),
        (lambda x: transformer_ops.cross_entropy(x, torch.zeros(3).long(), reduction="max"), "reduction is 'max'"),
        (lambda x: transformer_ops.cross_entropy(x, torch.zeros(3).long(), softcap=-1.0), "softcap is -1.0"),
    ],
)
def test_errors_name_the_argument(call, message):
    with pytest.raises((RuntimeError, ValueError), match=message):
        call(torch.ones(3, 4))


SHARED = torch.zeros(6, 4)


@pytest.mark.parametrize(
    ("call", "names"),
    [
        (lambda: transformer_ops.fused_add_rms_norm_(SHARED, SHARED), "'residual' shares memory with 'x'"),
        (lambda: transformer_ops.fused_add_rms_norm_(SHARED[:4], SHARED[2:]), "'residual' shares memory with 'x'"),
        (
            lambda: transformer_ops.fused_add_rms_norm_(SHARED[:, :2], SHARED[:, :2]),
            "'residual' shares memory with 'x'",
        ),
        (
            lambda: transformer_ops.reshape_and_cache(
                *[torch.ones(1, 2, 2)] * 2, *[SHARED.view(6, 1, 2, 2)] * 2, torch.tensor([0])
            ),
            "'value_cache' shares memory with 'key_cache'",
        ),
    ],
)
def test_what_is_written_to_must_not_be_the_same_memory(call, names):
    with pytest.raises(RuntimeError, match=f"argument {names}, and both are written to; clone one of them first"):
        call()
    assert (SHARED == 0).all()


OUT = {"rms_norm": lambda x, w, **out: transformer_ops.rms_norm(x, w[0], **out), "swiglu": transformer_ops.swiglu}


@pytest.mark.parametrize("name", OUT)
@pytest.mark.parametrize(
    "layout", [torch.clone, lambda x: x.repeat(1, 2)[:, :8], lambda x: x.t().contiguous().t()], ids=("", "rows", "t")
)
def test_into_a_given_tensor(name, layout):
    x, y = torch.randn(6, 8), torch.randn(6, 8)
    out = layout(torch.full_like(x, torch.nan))
    assert OUT[name](x, y, out=out) is out
    assert torch.equal(out, OUT[name](x, y))


@pytest.mark.parametrize("name", OUT)
@pytest.mark.parametrize(
    ("out", "message"),
    [
        (lambda x, y: x, "'out' shares memory with '(x|a)', and it is read"),
        (lambda x, y: torch.as_strided(x, (3, 8), (8, 1), 8), "'out' shares memory with '(x|a)'"),
        (lambda x, y: y, "'out' shares memory with '(weight|b)'"),
        (lambda x, y: torch.empty(3, 7), "'out' has shape"),
        (lambda x, y: torch.empty(0), "'out' has shape"),
        (lambda x, y: torch.empty(3, 8, dtype=torch.float64), "'out' is torch.float64"),
    ],
)
def test_what_cannot_be_written_into(name, out, message):
    memory, y = torch.zeros(4, 8), torch.ones(3, 8)
    x = memory[:3]
    with pytest.raises(RuntimeError, match=message):
        OUT[name](x, y, out=out(x, y))
    assert (memory == 0).all()
    assert (y == 1).all()


def test_two_halves_of_a_tensor_may_be_written_to():
    both = torch.randn(3, 8)
    expected = transformer_ops.fused_add_rms_norm(both[:, :4], both[:, 4:])
    transformer_ops.fused_add_rms_norm_(both[:, :4], both[:, 4:])
    torch.testing.assert_close((both[:, :4], both[:, 4:]), expected, rtol=0, atol=0)


def test_messages_name_the_argument_that_was_given():
    target = torch.tensor([0, 1])
    with pytest.raises(RuntimeError, match=r"'weight' is torch.float64, but 'input' is torch.float32"):
        transformer_ops.cross_entropy(torch.randn(2, 3), target, torch.ones(3).double())
    q, scale = transformer_ops.quantize_rowwise(torch.randn(2, 3))
    with pytest.raises(RuntimeError, match=r"'dtype' is torch.int32, expected one of torch.float16"):
        transformer_ops.dequantize_rowwise(q, scale, dtype=torch.int32)


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("name", ["swiglu", "geglu"])
def test_gated_activations_keep_strides(name, dtype):
    """Where both have the same, without gaps; of the results and of the gradients."""
    operator = getattr(transformer_ops, name)
    for shape in ((40, 70), (3, 5, 7), (2, 4), (1100, 2)):
        a, b, grad = (torch.randn(shape, dtype=dtype).transpose(0, -1) for _ in range(3))
        leaves = [x.clone().requires_grad_() for x in (a, b)]
        rows = [x.contiguous().requires_grad_() for x in (a, b)]
        y, expected = operator(*leaves), operator(*rows)
        assert y.stride() == a.stride()
        assert torch.equal(y, expected)
        y.backward(grad)
        expected.backward(grad.contiguous())
        for one, other in zip(leaves, rows, strict=True):
            assert one.grad.stride() == a.stride()
            assert torch.equal(one.grad, other.grad)
        assert operator(a, rows[1]).is_contiguous()


def test_swiglu_out_of_transposed_tensors():
    a, b, out = (torch.randn(4, 6).t() for _ in range(3))
    transformer_ops.swiglu(a, b, out=out)
    assert torch.equal(out, transformer_ops.swiglu(a, b))


@pytest.mark.skipif(bool(native_autograd.why_not()), reason=native_autograd.why_not())
def test_no_call_goes_through_python():
    """Also of operators in whose place others are called where a gradient is recorded."""
    native = native_autograd_of(transformer_ops.library)
    assert native.refused == {}
    assert {"attention", "attention_qkvpacked", "fused_linear_cross_entropy"} <= native.operators
