"""The modules take the place of PyTorch's: same state dicts, same values and gradients."""

import copy
import inspect
import pickle
import re

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
LINEAR = {
    "Linear": (lambda: nn.Linear(40, 24), lambda: transformer_ops.Linear(40, 24)),
    "Linear without bias": (lambda: nn.Linear(40, 24, bias=False), lambda: transformer_ops.Linear(40, 24, bias=False)),
}


def results(module, x):
    x = x.detach().requires_grad_()
    y = module(x)
    return y, *torch.autograd.grad(y.square().sum(), (x, *module.parameters()))


@pytest.mark.parametrize("pair", PAIRS | LINEAR)
def test_norms_and_linear_layers(pair):
    theirs, mine = (make() for make in (PAIRS | LINEAR)[pair])
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


NORMS = ["RMSNorm", "LayerNorm"]


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("shape", [(2, 16), (2, 1), (3, 0), (), (8, 4)])
def test_rows_of_another_length_are_refused(name, affine, shape):
    module = getattr(transformer_ops, name)(8, elementwise_affine=affine)
    expected = re.escape(f"has the shape {list(shape)}, expected a last dimension of 8")
    with pytest.raises(RuntimeError, match=expected):
        module(torch.randn(shape))


@pytest.mark.parametrize("name", NORMS)
def test_arguments_are_pytorchs(name):
    theirs, mine = getattr(nn, name), getattr(transformer_ops, name)
    assert [*inspect.signature(mine.forward).parameters] == [*inspect.signature(theirs.forward).parameters]
    defaults = [p.default for p in inspect.signature(theirs).parameters.values()][1:-2]
    module = mine(8, *defaults, "meta", torch.float16)
    assert module.weight.device.type == "meta"
    assert module.weight.dtype == torch.float16
    assert repr(module) == repr(theirs(8, *defaults, "meta", torch.float16))


@pytest.mark.parametrize("offset", [0.0, 1.0, 0.25])
@pytest.mark.parametrize("mode", ["llama", "gemma", "none"])
def test_rms_norm_starts_as_the_identity_with_any_offset(offset, mode):
    module = transformer_ops.RMSNorm(8, eps=0.0, offset=offset, casting_mode=mode)
    x = torch.tensor([1.0, -1.0] * 4)
    torch.testing.assert_close(module(x), x)
    nn.init.zeros_(module.weight)
    module.reset_parameters()
    torch.testing.assert_close(module(x), x)
    assert (f", offset={offset}" in repr(module)) == (offset != 0)
    assert (f", casting_mode='{mode}'" in repr(module)) == (mode != "gemma")


def test_an_unknown_casting_mode_is_refused():
    with pytest.raises(ValueError, match="casting_mode is 'typo', expected one of 'llama', 'gemma', 'none'"):
        transformer_ops.RMSNorm(8, casting_mode="typo")


@pytest.mark.parametrize("loss", [transformer_ops.CrossEntropyLoss, transformer_ops.FusedLinearCrossEntropyLoss])
def test_losses_print_their_options(loss):
    options = {"ignore_index": 3, "reduction": "sum", "label_smoothing": 0.1, "lse_square_scale": 1e-4, "softcap": 30.0}
    assert repr(loss(**options)) == f"{loss.__name__}({', '.join(f'{key}={options[key]!r}' for key in options)})"
    assert "softcap=None" in repr(loss())


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
