"""What the conformance kit's samples do not have; on a GPU, or by Triton's interpreter with TRITON_INTERPRET=1."""

import pytest
import torch
import transformer_ops
from opwheel_tools.testing.checks.kernels import uninitialized_memory_filled
from transformer_ops_triton._interpreted import IS_INTERPRETED

DEVICE = "cpu" if IS_INTERPRETED else "xpu" if torch.xpu.is_available() else "cuda"
if not any(status.name.startswith("triton") for status in transformer_ops.backends().values() if status.operators):
    pytest.skip("needs a GPU, or TRITON_INTERPRET=1 TRANSFORMER_OPS_BACKENDS=triton", allow_module_level=True)

from transformer_ops_triton.kernels import FUNCTIONS, linear_cross_entropy  # noqa: E402  # takes Triton
from transformer_ops_triton.kernels.launch import MAX_BLOCK  # noqa: E402  # takes Triton

LONG = MAX_BLOCK + 5
EXACT = {"rtol": 1e-12, "atol": 1e-12}


@pytest.fixture(autouse=True)
def _same_numbers_in_memory():
    """What a kernel reads without having written it is not 0 by chance."""
    torch.manual_seed(0)
    with uninitialized_memory_filled():
        yield


def make(*shape, dtype=torch.float64, requires_grad=True):
    return torch.randn(*shape, dtype=dtype, device=DEVICE, requires_grad=requires_grad)


def compare(name, *args, tensors):
    """Values and gradients of an operator, and of its reference."""
    reference = transformer_ops.library.overloads[name].operator.reference
    mine, theirs = getattr(torch.ops.transformer_ops, name)(*args), reference(*args)
    mine, theirs = (one if isinstance(one, tuple) else (one,) for one in (mine, theirs))
    torch.testing.assert_close(mine, theirs, **EXACT)
    grad = torch.randn_like(theirs[0])
    found = torch.autograd.grad(mine[0], tensors, grad)
    torch.testing.assert_close(found, torch.autograd.grad(theirs[0], tensors, grad), **EXACT)


def test_norms_of_rows_longer_than_a_block():
    x, residual, weight, bias = make(3, LONG), make(3, LONG), make(LONG), make(LONG)
    compare("rms_norm", x, weight, 1e-6, 1.0, "gemma", tensors=(x, weight))
    compare("fused_add_rms_norm", x, residual, weight, 1e-6, 0.0, "llama", tensors=(x, residual, weight))
    compare("layer_norm", x, weight, bias, 1e-5, tensors=(x, weight, bias))


def test_weights_of_more_rows_than_a_group_has():
    x, weight, bias = make(70, 3), make(3), make(3)
    compare("layer_norm", x, weight, bias, 1e-5, tensors=(x, weight, bias))


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_of_rows_longer_than_a_block(name):
    x = make(2, LONG)
    compare(name, x, tensors=(x,))


@pytest.mark.parametrize("weighted", [False, True])
def test_cross_entropy_of_rows_longer_than_a_block(weighted):
    x, target = make(3, LONG), torch.tensor([LONG - 1, -100, 0], device=DEVICE)
    weight = torch.rand(LONG, dtype=torch.float64, device=DEVICE) if weighted else None
    compare("cross_entropy_rows", x, target, weight, -100, 1e-2, 0.1, 3.0, tensors=(x,))


def test_cross_entropy_where_logits_are_infinite():
    """A whole block of classes that are ruled out; and a logit of inf, whose row has no loss."""
    x = make(2, LONG, requires_grad=False)
    x[0, :MAX_BLOCK] = -torch.inf
    x[1, 7] = torch.inf
    target = torch.tensor([LONG - 1, 0], device=DEVICE)
    losses = transformer_ops.cross_entropy(x, target, reduction="none")
    theirs = torch.nn.functional.cross_entropy(x, target, reduction="none")
    assert theirs.isnan().tolist() == [False, True]
    torch.testing.assert_close(losses, theirs, equal_nan=True, **EXACT)


@pytest.mark.parametrize(("dtype", "longest"), [(torch.float64, 128), (torch.bfloat16, 256)], ids=str)
def test_attention_of_heads_that_do_not_fit_into_shared_memory(dtype, longest):
    q = make(1, 2, 1, longest, dtype=dtype, requires_grad=False)
    assert transformer_ops.attention(q, q, q).shape == q.shape
    q = make(1, 2, 1, longest + 1, dtype=dtype, requires_grad=False)
    with pytest.raises(RuntimeError, match=f"'q' has heads of {longest + 1} elements, supported are up to {longest}"):
        transformer_ops.attention(q, q, q)


@pytest.mark.parametrize("is_causal", [False, True])
def test_attention_backward_of_arguments_that_do_not_belong_together(is_causal):
    """As under vmap over one of them: it is its reference for any y and lse."""
    q, grad, y = (make(2, 3, 4, 5, requires_grad=False) for _ in range(3))
    k, v = (make(2, 6, 2, 5, requires_grad=False) for _ in range(2))
    arguments = grad, q, k, v, y, make(2, 4, 3, requires_grad=False), is_causal, None, None, None
    expected = transformer_ops.library.overloads["attention_backward"].operator.reference(*arguments)
    torch.testing.assert_close(FUNCTIONS["attention_backward"](*arguments), expected, **EXACT)


@pytest.mark.parametrize("interleaved", [False, True])
def test_rope_of_rows_longer_than_two_blocks(interleaved):
    q = make(1, 2, 1, 2 * LONG, requires_grad=False)
    k, angles = q[:, :1] + 1, make(1, LONG, requires_grad=False)
    arguments = q, k, angles.cos(), angles.sin(), None, 1, interleaved, 2 * LONG
    expected = transformer_ops.library.overloads["rope"].operator.reference(*arguments)
    torch.testing.assert_close(FUNCTIONS["rope"](*arguments), expected, **EXACT)


ATTENTION = (1, 3, 4, 16), (1, 5, 4, 16), (1, 5, 4, 16)
ROPE = (3, 4, 5, 6), (3, 3, 5, 6)
CACHES = (3, 4, 6), (3, 4, 5), (3, 3, 4, 6), (3, 3, 4, 5)


def attention_backward(q, k, v, grad):
    y, lse = FUNCTIONS["attention_training"](q, k, v, True, None, None, None)
    return FUNCTIONS["attention_backward"](grad, q, k, v, y, lse, True, None, None, None)


def reshape_and_cache(key, value, *caches):
    FUNCTIONS["reshape_and_cache"](key, value, *caches, torch.tensor([7, -1, 3], device=DEVICE))
    return caches


def rope(q, k, interleaved):
    cos, sin = torch.ones(2, 5, 3, dtype=q.dtype, device=DEVICE)
    return FUNCTIONS["rope"](q, k, cos, sin, None, 1, interleaved, q.shape[-1])


STRIDED = {
    "attention": (ATTENTION, lambda q, k, v: FUNCTIONS["attention"](q, k, v, True, None, None, None)),
    "attention_backward": ((*ATTENTION, ATTENTION[0]), attention_backward),
    "rope": (ROPE, lambda q, k: rope(q, k, False)),
    "rope of neighbours": (ROPE, lambda q, k: rope(q, k, True)),
    "reshape_and_cache": (CACHES, reshape_and_cache),
    "rms_norm": (((3, 4),), lambda x: FUNCTIONS["rms_norm"](x, None, 1e-6, 0.0, "llama")),
    "rms_norm_backward": (((3, 4),) * 2, lambda g, x: FUNCTIONS["rms_norm_backward"](g, x, x[0], 1e-6, 0.0, "llama")),
    "layer_norm": (((3, 4),), lambda x: FUNCTIONS["layer_norm"](x, None, None, 1e-5)),
    "layer_norm_backward": (((3, 4),) * 2, lambda g, x: FUNCTIONS["layer_norm_backward"](g, x, None, 1e-5)),
    "swiglu": (((3, 4),) * 2, FUNCTIONS["swiglu"]),
    "swiglu_backward": (((3, 4),) * 3, FUNCTIONS["swiglu_backward"]),
    "softmax": (((3, 4),), FUNCTIONS["softmax"]),
    "softmax_backward": (((3, 4),) * 2, FUNCTIONS["softmax_backward"]),
    "log_softmax": (((3, 4),), FUNCTIONS["log_softmax"]),
    "log_softmax_backward": (((3, 4),) * 2, FUNCTIONS["log_softmax_backward"]),
    "quantize_rowwise": (((3, 4),), FUNCTIONS["quantize_rowwise"]),
}


def far_apart(x, dim):
    """The same numbers, the last of them along a dimension 2^31 elements from the first: memory that is not touched."""
    one = x.select(dim, 0).contiguous()
    step = 2**31 // (x.shape[dim] - 1) + 5
    strides = [*one.stride()[:dim], step, *one.stride()[dim:]]
    try:
        size = ((x.shape[dim] - 1) * step + one.numel()) * x.element_size()
        memory = torch.UntypedStorage(size, device=x.device)  # not filled, as a new tensor is
    except RuntimeError as error:
        pytest.skip(f"there is no memory to reserve: {error}")
    return x.new_empty(0).set_(memory, 0, x.shape, strides).copy_(x)


@pytest.mark.parametrize("name", STRIDED)
def test_elements_that_are_far_apart(name):
    shapes, call = STRIDED[name]
    tensors = [make(*shape, dtype=torch.bfloat16, requires_grad=False) for shape in shapes]
    expected = call(*[x.clone() for x in tensors])
    for i, x in enumerate(tensors):
        for dim in range(x.dim()):
            if x.shape[dim] > 2:
                found = call(*[far_apart(x, dim) if j == i else other.clone() for j, other in enumerate(tensors)])
                torch.testing.assert_close(found, expected, rtol=0, atol=0)


def surrounded(x, by):
    """All of the memory, and in its middle a view of these numbers."""
    memory = torch.full((3, *x.shape), by, dtype=x.dtype, device=x.device)
    memory[1] = x
    return memory, memory[1]


@pytest.fixture
def _without_assertions(monkeypatch):
    """As in PyTorch's builds for ROCm."""
    monkeypatch.setattr(torch, "_assert_async", lambda *_: None)


@pytest.mark.usefixtures("_without_assertions")
@pytest.mark.parametrize("index", [-5, -1, 6, 11])
def test_indices_that_do_not_exist_read_and_write_nothing(index):
    cos, sin = (surrounded(make(6, 2, requires_grad=False), torch.nan)[1] for _ in range(2))
    q = make(1, 1, 1, 4, requires_grad=False)
    for turned in FUNCTIONS["rope"](q, q, cos, sin, torch.tensor([index], device=DEVICE), 1, False, 4):
        assert turned.isfinite().all()
    (keys, key_cache), (values, value_cache) = (surrounded(make(3, 2, 1, 4, requires_grad=False), 7) for _ in range(2))
    before = keys.clone(), values.clone()
    token, slots = make(1, 1, 4, requires_grad=False), torch.tensor([index], device=DEVICE)
    FUNCTIONS["reshape_and_cache"](token, token, key_cache, value_cache, slots)
    torch.testing.assert_close((keys, values), before, rtol=0, atol=0)


@pytest.mark.usefixtures("_without_assertions")
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("index", [-5, -1, 6, 11])
def test_classes_that_do_not_exist_are_not_read(index, weighted):
    _, x = surrounded(make(1, 6, requires_grad=False), 1)
    weight = surrounded(torch.ones(6, dtype=torch.float64, device=DEVICE), torch.nan)[1] if weighted else None
    arguments = x, torch.tensor([index], device=DEVICE), weight
    numbers = -100, 0.0, 0.0, 0.0, "none", None
    loss, kept = FUNCTIONS["cross_entropy_rows"](*arguments, *numbers)
    assert loss.isnan().all()
    dx = FUNCTIONS["cross_entropy_backward"](kept[:1], *arguments, kept, *numbers)
    assert dx.isfinite().all()


def test_quantize_rows_longer_than_a_block():
    x = make(2, LONG, dtype=torch.float32, requires_grad=False)
    q, scale = transformer_ops.quantize_rowwise(x)
    reference = transformer_ops.library.overloads["quantize_rowwise"].operator.reference(x)
    assert torch.equal(q, reference[0])
    torch.testing.assert_close(scale, reference[1], rtol=0, atol=0)
    assert (transformer_ops.dequantize_rowwise(q, scale) - x).abs().max() <= 0.5001 * scale.max()


@pytest.mark.parametrize("biased", [False, True])
def test_a_linear_layer_in_several_parts(monkeypatch, biased):
    monkeypatch.setattr(linear_cross_entropy, "ROWS", 4)
    x, weight, target = make(10, 8), make(7, 8), torch.randint(7, (10,), device=DEVICE)
    target[3] = -100
    bias = (make(7),) if biased else (None,)
    tensors = (x, weight, *bias[:biased])
    compare("fused_linear_cross_entropy", x, weight, target, *bias, -100, 0.0, 0.1, "mean", 0.0, tensors=tensors)
    weights = (torch.rand(n, dtype=torch.float64, device=DEVICE) for n in (7, 10))
    numbers = -100, 0.1, 0.1, 0.0
    compare("linear_cross_entropy_rows", x, weight, target, *bias, *numbers, *weights, tensors=tensors)


def test_bfloat16_is_rounded_to_the_nearest():
    x = make(4, 100, dtype=torch.float32, requires_grad=False).bfloat16()
    residual = make(4, 100, dtype=torch.float32, requires_grad=False).bfloat16()
    _, total = transformer_ops.fused_add_rms_norm(x, residual)
    assert torch.equal(total, x + residual)


def test_a_weight_on_another_device_is_refused():
    """The kernel itself: PyTorch gives a call with a tensor of the meta device to another one."""
    x, elsewhere = make(3, 4, requires_grad=False), torch.ones(4, dtype=torch.float64, device="meta")
    with pytest.raises(RuntimeError, match=r"argument 'weight' is on meta, but 'x' is on .*; move it with"):
        FUNCTIONS["rms_norm"](x, elsewhere, 1e-6, 0.0, "llama")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: transformer_ops.rms_norm(x, x), r"'weight' has shape \(3, 4\), expected \(4,\)"),
        (lambda x: transformer_ops.rms_norm(x[0, 0]), "'x' has 0 dimensions, expected at least 1"),
        (lambda x: transformer_ops.rope(x[None, None], x[None, None], x, x, None, 3), "unsqueeze_dim' is 3"),
        (lambda x: transformer_ops.rope(*[x[None, None, :, :3]] * 2, x, x), "rows of 3 elements, expected an even"),
        (lambda x: transformer_ops.rope(*[x[None, None]] * 2, x[:, :3], x[:, :3]), "'cos' has shape"),
        (lambda x: transformer_ops.rope(*[x[None, None]] * 2, x[:2], x[:2]), "there are 3 positions of 1 batches"),
        (lambda x: transformer_ops.dequantize_rowwise(x.to(torch.int8)[0, 0], x[0, 0]), "'q' has 0 dimensions"),
        (lambda x: transformer_ops.swiglu(x, x[:2]), r"'b' has shape \(2, 4\), but 'a' has \(3, 4\)"),
    ],
)
def test_errors_name_the_argument(call, message):
    with pytest.raises(RuntimeError, match=message):
        call(make(3, 4, requires_grad=False))


def test_position_ids_are_checked():
    x = make(2, 1, 3, 4, requires_grad=False)
    ids = torch.zeros(5, 3, dtype=torch.int64, device=DEVICE)
    with pytest.raises(RuntimeError, match=r"'position_ids' has shape \(5, 3\), expected \(2 or 1, 3\)"):
        transformer_ops.rope(x, x, x[0, 0], x[0, 0], ids)
    with pytest.raises(RuntimeError, match="'cos' has batches"):
        transformer_ops.rope(x, x, x[:, 0], x[:, 0], ids[:2])
