"""Under torch.autocast operators return what PyTorch's functions return there; norms take weights of other dtypes."""

import itertools

import pytest
import torch
import transformer_ops
from opwheel.dispatch.autocast_policy import dtype_sources, policies_of
from torch.nn import functional

SINGLE, BRAIN, HALF, DOUBLE = torch.float32, torch.bfloat16, torch.float16, torch.float64
OVERLOADS = transformer_ops.library.overloads
pytestmark = pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight")  # PyTorch's, of rms_norm


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def close(found, expected):
    """Of one dtype, and as near as its rounding."""
    assert found.dtype is expected.dtype
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("enabled", [False, True])
@pytest.mark.parametrize(("given", "parameters"), list(itertools.product([SINGLE, BRAIN, HALF], [SINGLE, BRAIN])))
def test_norms_as_pytorchs(given, parameters, enabled):
    """Modules with and without autocast; PyTorch's layer_norm refuses some dtypes together, and ours takes them."""
    x = torch.randn(3, 8).to(given).requires_grad_()
    for ours, theirs in (
        (transformer_ops.RMSNorm(8), torch.nn.RMSNorm(8)),
        (transformer_ops.LayerNorm(8), torch.nn.LayerNorm(8)),
    ):
        torch.nn.init.uniform_(theirs.weight)
        ours.load_state_dict(theirs.state_dict())
        ours.to(parameters)
        theirs.to(parameters)
        is_layer_norm = isinstance(theirs, torch.nn.LayerNorm)
        if is_layer_norm and given is not parameters and parameters is not SINGLE:
            theirs.float()
        wanted_of = x if not is_layer_norm or given is parameters else x.float()
        with torch.autocast("cpu", BRAIN, enabled=enabled):
            found, expected = ours(x), theirs(wanted_of).to(given)
        close(found, expected)
        grad = torch.randn_like(found)
        mine = torch.autograd.grad(found, (x, ours.weight), grad)
        others = torch.autograd.grad(expected, (x, theirs.weight), grad)
        for one, other in zip(mine, others, strict=True):
            torch.testing.assert_close(one.float(), other.float(), rtol=2e-2, atol=2e-2)
        assert [one.dtype for one in mine] == [given, parameters]


@pytest.mark.parametrize("given", [SINGLE, BRAIN, HALF, DOUBLE])
def test_functions_of_rows(given):
    x, weight = torch.randn(3, 8).to(given), torch.rand(8).to(given)
    with torch.autocast("cpu", BRAIN):
        close(transformer_ops.softmax(x), functional.softmax(x, -1))
        close(transformer_ops.layer_norm(x, weight, weight), functional.layer_norm(x, (8,), weight, weight))
        close(transformer_ops.rms_norm(x, weight, casting_mode="gemma"), functional.rms_norm(x, (8,), weight, 1e-6))


@pytest.mark.parametrize("given", [SINGLE, BRAIN, HALF, DOUBLE])
def test_attention(given):
    q, k, v = (torch.randn(1, 5, 2, 8).to(given).requires_grad_() for _ in range(3))
    qkv = torch.stack((q, k, v), 2)
    with torch.autocast("cpu", BRAIN):
        found = transformer_ops.attention(q, k, v, is_causal=True)
        packed = transformer_ops.attention_qkvpacked(qkv, is_causal=True)
        heads_first = (x.transpose(1, 2) for x in (q, k, v))
        expected = functional.scaled_dot_product_attention(*heads_first, is_causal=True).transpose(1, 2)
    assert found.dtype is packed.dtype is expected.dtype
    torch.testing.assert_close(found, expected, rtol=2e-2, atol=2e-2)
    torch.testing.assert_close(packed, found)
    assert [one.dtype for one in torch.autograd.grad(found.sum(), (q, k, v))] == [given] * 3


@pytest.mark.parametrize("device_type", ["cuda", "xpu"])
@pytest.mark.parametrize(
    ("name", "policy"),
    [
        ("layer_norm", "float32"),
        ("rms_norm", "float32"),
        ("softmax", "float32"),
        ("attention", "lower_precision"),
        ("attention_qkvpacked", "lower_precision"),
    ],
)
def test_what_gpus_do(name, policy, device_type):
    """PyTorch's own lists for them: results in float32, and attention in the lower precision."""
    overload = OVERLOADS[name]
    assert set(policies_of(overload, device_type)) == {policy}
    assert dtype_sources(overload, device_type) == (None,)


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("given", [SINGLE, BRAIN])
def test_losses(given, reduction):
    """Logits are computed with as if they had been cast to float32; those of a linear layer are in bfloat16."""
    x, head = torch.randn(6, 8).to(given).requires_grad_(), torch.randn(5, 8, requires_grad=True)
    weight, tokens, target = torch.rand(5), torch.rand(6), torch.randint(5, (6,))
    with torch.autocast("cpu", BRAIN):
        logits = functional.linear(x, head)
        expected = functional.cross_entropy(logits, target, weight, reduction=reduction)
        close(transformer_ops.cross_entropy(logits, target, weight, reduction=reduction), expected)
        fused = transformer_ops.fused_linear_cross_entropy(x, head, target, reduction=reduction, class_weight=weight)
        close(fused, expected)
        options = {"reduction": reduction, "token_weight": tokens.bfloat16()}
        fused_tokens = transformer_ops.fused_linear_cross_entropy(x, head, target, **options)
        close(transformer_ops.cross_entropy(logits, target, **options), fused_tokens)
    grad = torch.rand_like(expected)
    mine, theirs = (torch.autograd.grad(one, (x, head), grad) for one in (fused, expected))
    for one, other in zip(mine, theirs, strict=True):
        assert one.dtype is other.dtype
        torch.testing.assert_close(one, other, rtol=2e-2, atol=2e-2)
