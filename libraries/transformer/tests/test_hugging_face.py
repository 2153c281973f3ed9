"""transformer_ops.patch on tiny models of transformers, with random weights."""

import copy
from collections import Counter

import pytest
import torch
import transformer_ops
from torch.utils._python_dispatch import TorchDispatchMode

transformers = pytest.importorskip("transformers")

SIZES = {
    "vocab_size": 96,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
# Norms in each layer and at the end, and the operator of the feed-forward block.
MODELS = {
    "Llama": (2 * 2 + 1, "swiglu"),
    "Qwen2": (2 * 2 + 1, "swiglu"),
    "Qwen3": (2 * 4 + 1, "swiglu"),
    "Gemma": (2 * 2 + 1, "geglu"),
    "Gemma2": (2 * 4 + 1, "geglu"),
    "Gemma3": (2 * 6 + 1, "geglu"),
}


class Operators(TorchDispatchMode):
    """Counts those of transformer_ops that run."""

    def __init__(self):
        super().__init__()
        self.counts = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "transformer_ops":
            self.counts[func._schema.name.partition("::")[2]] += 1
        return func(*args, **(kwargs or {}))


def tiny(family, dtype=torch.float32):
    torch.manual_seed(0)
    name = "Gemma3Text" if family == "Gemma3" else family
    config = getattr(transformers, f"{name}Config")(**SIZES)
    model = getattr(transformers, f"{family}ForCausalLM")(config).to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) / 20)
    return model.train()


def results(model, **options):
    """Logits, loss and gradients."""
    tokens = torch.arange(2 * 20).reshape(2, 20) * 7 % 96
    labels = tokens.clone()
    labels[0, :5] = -100
    out = model(input_ids=tokens, labels=labels, **options)
    gradients = torch.autograd.grad(out.loss, [p for p in model.parameters() if p.requires_grad])
    return out.logits, out.loss, *gradients


@pytest.mark.parametrize("family", MODELS)
def test_a_patched_model_computes_the_same(family):
    norms, gated = MODELS[family]
    model = tiny(family).double()
    expected, own = results(model), results(tiny(family))
    model = tiny(family)
    state = copy.deepcopy(model.state_dict())
    patch = transformer_ops.patch(model)
    assert Counter(patch.replaced.values()) == {"rms_norm": norms, gated: 2, "rope": 2, "cross_entropy": 1}
    assert f"{norms} rms_norm" in str(patch)
    assert patch.replaced["model.layers.1.mlp"] == gated
    with Operators() as operators:
        mine = results(model)
    assert operators.counts["rms_norm"] == operators.counts["rms_norm_backward"] == norms
    assert operators.counts[gated] == operators.counts[f"{gated}_backward"] == 2
    assert operators.counts["rope"] == 4  # the gradient is a rotation, too
    assert operators.counts["cross_entropy_rows"] == 1
    for found, other, right in zip(mine, own, expected, strict=True):
        scale = right.abs().max()
        error, theirs = ((one.double() - right).abs().max() / scale for one in (found, other))
        assert error <= max(2 * theirs, 1e-6)
    assert model.state_dict().keys() == state.keys()
    patch.restore()
    assert not any("forward" in vars(module) for module in model.modules())
    with Operators() as operators:
        torch.testing.assert_close(results(model), own, rtol=0, atol=0)
    assert not operators.counts


def test_bfloat16():
    model = tiny("Llama", torch.bfloat16)
    own = results(model)
    transformer_ops.patch(model)
    mine = results(model)
    torch.testing.assert_close(mine[:2], own[:2], rtol=3e-2, atol=3e-2)


def test_compiled_models_call_the_operators():
    model = tiny("Llama")
    own = results(model)
    transformer_ops.patch(model)
    seen = Counter()

    def backend(graph, _):
        seen.update(str(node.target) for node in graph.graph.nodes if "transformer_ops" in str(node.target))
        return graph.forward

    torch.testing.assert_close(results(torch.compile(model, backend=backend)), own, rtol=1e-4, atol=1e-5)
    assert {name.split(".")[1] for name in seen} == {"rms_norm", "swiglu", "rope", "cross_entropy_rows"}


def test_under_autocast_what_has_two_dtypes_is_left_to_the_model():
    model = tiny("Llama")
    with torch.autocast("cpu", torch.bfloat16):
        own = results(model)
        transformer_ops.patch(model)
        mine = results(model)
    torch.testing.assert_close(mine[:2], own[:2], rtol=3e-2, atol=3e-2)


def test_other_models_are_not_touched():
    one, other = tiny("Qwen3"), tiny("Qwen3")
    transformer_ops.patch(one)
    with Operators() as operators:
        results(other)
    assert not operators.counts


def test_copies_and_the_number_of_items():
    model = tiny("Gemma2")
    own = results(model, num_items_in_batch=7)
    transformer_ops.patch(model)
    torch.testing.assert_close(results(copy.deepcopy(model), num_items_in_batch=7), own, rtol=1e-4, atol=1e-5)


def test_what_is_refused():
    model = tiny("Llama")
    transformer_ops.patch(model)
    with pytest.raises(ValueError, match=r"already has a forward of its own; is the model patched\?"):
        transformer_ops.patch(model)
    with pytest.raises(ValueError, match="Sequential has no module that is known; known are those of Llama, Qwen2"):
        transformer_ops.patch(torch.nn.Sequential(torch.nn.Linear(2, 2)))


def test_an_activation_that_is_not_known_stays():
    model = tiny("Llama")
    for layer in model.model.layers:
        layer.mlp.act_fn = torch.nn.ReLU()
    own = results(model)
    patch = transformer_ops.patch(model)
    assert "swiglu" not in patch.replaced.values()
    torch.testing.assert_close(results(model), own, rtol=1e-4, atol=1e-5)
