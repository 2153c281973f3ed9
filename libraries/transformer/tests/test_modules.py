"""The modules take the place of PyTorch's: same state dicts, same values and gradients."""

import copy
import pickle

import pytest
import torch
import transformer_ops
from torch import nn

PAIRS = {
    "RMSNorm": (lambda: nn.RMSNorm(40), lambda: transformer_ops.RMSNorm(40)),
    "RMSNorm with eps": (lambda: nn.RMSNorm([40], 1e-3), lambda: transformer_ops.RMSNorm([40], 1e-3)),
    "RMSNorm without weight": (
        lambda: nn.RMSNorm(40, elementwise_affine=False),
        lambda: transformer_ops.RMSNorm(40, elementwise_affine=False),
    ),
    "LayerNorm": (lambda: nn.LayerNorm(40), lambda: transformer_ops.LayerNorm(40)),
    "LayerNorm without bias": (lambda: nn.LayerNorm(40, bias=False), lambda: transformer_ops.LayerNorm(40, bias=False)),
    "LayerNorm without anything": (
        lambda: nn.LayerNorm(40, elementwise_affine=False),
        lambda: transformer_ops.LayerNorm(40, elementwise_affine=False),
    ),
}


def results(module, x):
    x = x.detach().requires_grad_()
    y = module(x)
    return y, *torch.autograd.grad(y.square().sum(), (x, *module.parameters()))


@pytest.mark.parametrize("pair", PAIRS)
def test_norms(pair):
    theirs, mine = (make() for make in PAIRS[pair])
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.normal_()
    mine.load_state_dict(theirs.state_dict())
    assert mine.state_dict().keys() == theirs.state_dict().keys()
    x = torch.randn(3, 5, 40)
    torch.testing.assert_close(results(mine, x), results(theirs, x), rtol=1e-4, atol=1e-4)
    again = pickle.loads(pickle.dumps(copy.deepcopy(mine)))
    torch.testing.assert_close(again(x), mine(x))
    compiled = torch.compile(mine, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), mine(x))


@pytest.mark.parametrize("scale", [3e-4, 1.5e-8])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("pair", PAIRS)
def test_the_default_eps_is_pytorchs(pair, dtype, scale):
    """Of rows so small that it decides the result."""
    theirs, mine = (make().to(dtype) for make in PAIRS[pair])
    x = (scale * torch.randn(3, 40, dtype=torch.float64)).to(dtype)
    expected = theirs(x)
    torch.testing.assert_close(mine(x), expected, rtol=0, atol=8 * torch.finfo(dtype).eps * expected.abs().max().item())


@pytest.mark.parametrize("module", [transformer_ops.RMSNorm, transformer_ops.LayerNorm])
def test_several_dimensions_are_refused(module):
    with pytest.raises(ValueError, match=r"normalized_shape is \(3, 4\), expected one number"):
        module((3, 4))


def test_feed_forward_blocks():
    x = torch.randn(2, 3, 8)
    for module, activation in (
        (transformer_ops.SwiGLU(8, 24), nn.functional.silu),
        (transformer_ops.GEGLU(8, 24, bias=True), lambda t: nn.functional.gelu(t, approximate="tanh")),
    ):
        expected = module.down_proj(activation(module.gate_proj(x)) * module.up_proj(x))
        torch.testing.assert_close(module(x), expected)


def test_losses():
    x, weight = torch.randn(6, 8), torch.randn(10, 8, requires_grad=True)
    target = torch.tensor([1, 2, -100, 9, 0, 3])
    options = {"label_smoothing": 0.1, "reduction": "sum"}
    theirs = nn.CrossEntropyLoss(**options)(x @ weight.t(), target)
    mine = transformer_ops.CrossEntropyLoss(**options)(x @ weight.t(), target)
    fused = transformer_ops.FusedLinearCrossEntropyLoss(**options)(weight, x, target)
    for loss in (mine, fused):
        torch.testing.assert_close(loss, theirs)
        torch.testing.assert_close(
            torch.autograd.grad(loss, weight)[0], torch.autograd.grad(theirs, weight, retain_graph=True)[0]
        )
