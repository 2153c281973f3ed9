"""transformer_ops.patch on tiny models of transformers, with random weights."""

import copy
import functools
import io
import pickle
from collections import Counter

import pytest
import torch
import transformer_ops
from torch import distributed, nn
from torch.distributed.fsdp import fully_shard
from transformer_ops.hugging_face import activations

from .recording import Operators
from .tiny import TINY

transformers = pytest.importorskip("transformers")

# Norms in each layer and at the end, and the operator of the feed-forward block.
MODELS = {
    "Llama": (2 * 2 + 1, "swiglu"),
    "Qwen2": (2 * 2 + 1, "swiglu"),
    "Qwen3": (2 * 4 + 1, "swiglu"),
    "Gemma": (2 * 2 + 1, "geglu"),
    "Gemma2": (2 * 4 + 1, "geglu"),
    "Gemma3": (2 * 6 + 1, "geglu"),
}


def tiny(family, dtype=torch.float32):
    torch.manual_seed(0)
    name = "Gemma3Text" if family == "Gemma3" else family
    config = getattr(transformers, f"{name}Config")(**TINY)
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
    state, text = copy.deepcopy(model.state_dict()), repr(model)
    classes = [type(module) for module in model.modules()]
    patch = transformer_ops.patch(model)
    assert repr(model) == text
    assert [str(type(module)) for module in model.modules()] == [str(cls) for cls in classes]
    assert not patch.not_replaced
    replaced = {"rms_norm": norms, gated: 2, "rope": 2, "attention": 2, "fused_linear_cross_entropy": 1}
    if family == "Gemma2":  # whose softcap PyTorch's attention does not have
        del replaced["attention"]
    assert patch.operators() == replaced
    assert f"{norms} rms_norm" in str(patch)
    assert patch.replaced["model.layers.1.mlp"] == gated
    with Operators() as operators:
        mine = results(model)
    assert operators.counts["rms_norm"] == operators.counts["rms_norm_backward"] == norms
    assert operators.counts[gated] == operators.counts[f"{gated}_backward"] == 2
    assert operators.counts["rope"] == 4  # the gradient is a rotation, too
    assert operators.counts["fused_linear_cross_entropy_training"] == 1
    for found, other, right in zip(mine, own, expected, strict=True):
        scale = right.abs().max()
        error, theirs = ((one.double() - right).abs().max() / scale for one in (found, other))
        assert error <= max(2 * theirs, 1e-6)
    assert model.state_dict().keys() == state.keys()
    patch.restore()
    assert [type(module) for module in model.modules()] == classes
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

    compiled = torch.compile(model, backend=backend, fullgraph=True)
    torch.testing.assert_close(results(compiled), own, rtol=1e-4, atol=1e-5)
    assert {name.split(".")[1] for name in seen} == {"rms_norm", "swiglu", "rope", "attention", "cross_entropy_rows"}


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


def ran(model):
    """The operators that a forward pass calls."""
    tokens = torch.ones(1, 3, dtype=torch.long)
    with Operators() as operators, torch.no_grad():
        model(input_ids=tokens, labels=tokens)
    return set(operators.counts)


LLAMAS = {"rms_norm", "swiglu", "rope", "attention", "fused_linear_cross_entropy"}


def saved(model):
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


COPIES = {
    "deepcopy": copy.deepcopy,
    "torch.save": saved,
    **{f"pickle {n}": lambda model, n=n: pickle.loads(pickle.dumps(model, n)) for n in (0, 2, pickle.HIGHEST_PROTOCOL)},
}


@pytest.mark.parametrize("way", COPIES)
@pytest.mark.parametrize("family", ["Llama", "Gemma2"])
def test_copies_are_patched_and_of_their_own(family, way):
    model = tiny(family)
    own = results(model, num_items_in_batch=7)
    patch = transformer_ops.patch(model)
    operators = ran(model)
    copied = COPIES[way](model)
    assert [type(module) for module in copied.modules()] == [type(module) for module in model.modules()]
    assert ran(copied) == operators
    with torch.no_grad():
        for parameter in copied.parameters():
            parameter.zero_()
    torch.testing.assert_close(results(model, num_items_in_batch=7), own, rtol=1e-4, atol=1e-5)
    assert not model(torch.ones(1, 3, dtype=torch.long)).logits.equal(copied(torch.ones(1, 3, dtype=torch.long)).logits)
    patch.restore()
    assert not ran(model)
    assert ran(copied) == operators
    transformer_ops.unpatch(copied)
    assert not ran(copied)
    assert [type(module) for module in copied.modules()] == [type(module) for module in model.modules()]
    transformer_ops.patch(copied)
    assert ran(copied) == operators


def test_replicas_compute_with_their_own_parameters():
    model = tiny("Llama")
    layer = model.model.layers[0]
    cos, sin = torch.randn(2, 1, 3, 16)
    inputs = {
        "norm": (torch.ones(1, 3, 48),),
        "mlp": (torch.ones(1, 3, 48),),
        "attention": (torch.ones(1, 3, 48), (cos, sin)),
    }
    modules = {"norm": layer.input_layernorm, "mlp": layer.mlp, "attention": layer.self_attn}

    def replicas():
        found = {}
        for name, module in modules.items():
            replica = module._replicate_for_data_parallel()
            for child, inner in module.named_children():
                if isinstance(inner, nn.Linear):
                    replica._modules[child] = nn.Linear(inner.in_features, inner.out_features, bias=False)
                    nn.init.constant_(replica._modules[child].weight, 0.1)
            if name == "norm":
                replica.weight = torch.full((48,), 5.0)
            out = replica(*inputs[name], **({"attention_mask": None} if name == "attention" else {}))
            found[name] = out[0] if isinstance(out, tuple) else out
        return found

    own = replicas()
    transformer_ops.patch(model)
    torch.testing.assert_close(replicas(), own, rtol=1e-4, atol=1e-5)


def wrap(module, calls):
    """As accelerate's hooks do it."""
    inner = module.forward

    @functools.wraps(inner)
    def forward(*args, **kwargs):
        calls[type(module).__name__] += 1
        return inner(*args, **kwargs)

    module.forward = forward


@pytest.mark.parametrize("restore", ["restore", "unpatch"])
def test_wrappers_around_forward_stay(restore):
    model = tiny("Llama")
    own = results(model)
    patch = transformer_ops.patch(model)
    calls, layer = Counter(), model.model.layers[0]
    for module in (layer.input_layernorm, layer.mlp, layer.self_attn):
        wrap(module, calls)
    assert ran(model) == LLAMAS
    assert set(calls.values()) == {1}
    patch.restore() if restore == "restore" else transformer_ops.unpatch(model)
    assert not ran(model)
    torch.testing.assert_close(results(model), own, rtol=0, atol=0)
    assert set(calls.values()) == {3}


def test_a_loss_function_that_was_set_afterwards_stays():
    model = tiny("Llama")
    patch = transformer_ops.patch(model)
    model.loss_function = lambda **_: torch.tensor(42.0)
    patch.restore()
    tokens = torch.ones(1, 3, dtype=torch.long)
    assert model(input_ids=tokens, labels=tokens).loss == 42


def test_parts_are_restored_in_any_order():
    model = tiny("Llama")
    patches = [transformer_ops.patch(layer) for layer in model.model.layers]
    classes = [type(module) for module in tiny("Llama").modules()]
    for patch in (*patches, patches[0]):
        patch.restore()
    assert [type(module) for module in model.modules()] == classes
    first = transformer_ops.patch(model)
    first.restore()
    transformer_ops.patch(model)
    first.restore()
    assert ran(model) == LLAMAS


@pytest.mark.parametrize("family", ["Llama", "Gemma3"])
def test_hidden_states_and_attentions_are_recorded(family):
    model = tiny(family).eval()
    model.set_attn_implementation("eager")
    options = {"output_hidden_states": True, "output_attentions": True}
    tokens = torch.arange(7)[None]
    own = copy.deepcopy(model)(tokens, **options)
    transformer_ops.patch(model)
    mine = model(tokens, **options)
    assert len(mine.hidden_states) == 3
    assert len(mine.attentions) == 2
    torch.testing.assert_close(mine.hidden_states, own.hidden_states, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(mine.attentions, own.attentions, rtol=1e-4, atol=1e-5)


def test_gradient_checkpointing():
    model = tiny("Qwen3")
    own = results(model)
    transformer_ops.patch(model)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    with Operators() as operators:
        torch.testing.assert_close(results(model), own, rtol=1e-4, atol=1e-5)
    assert operators.counts["rms_norm"] > operators.counts["rms_norm_backward"]


class MyLlama(transformers.LlamaForCausalLM):
    def extra_repr(self):
        return "mine"


class Louder(nn.Module):
    def forward(self, *args, **kwargs):
        out = super().forward(*args, **kwargs)
        return (2 * out[0], *out[1:]) if isinstance(out, tuple) else 2 * out


def subclassed(model, *bases):
    """Each module of the layers has a class of its own."""
    for module in (
        part for layer in model.model.layers for part in (layer.input_layernorm, layer.mlp, layer.self_attn)
    ):
        module.__class__ = type(f"My{type(module).__name__}", (*bases, type(module)), {})
    return model


def test_subclasses_of_models_are_patched():
    model = MyLlama(tiny("Llama").config)
    classes = [type(module) for module in model.modules()]
    patch = transformer_ops.patch(model)
    replaced = {"rms_norm": 5, "swiglu": 2, "rope": 2, "attention": 2, "fused_linear_cross_entropy": 1}
    assert patch.operators() == replaced
    assert ran(model) == LLAMAS
    patch.restore()
    assert [type(module) for module in model.modules()] == classes
    assert not ran(model)


@pytest.mark.parametrize("bases", [(Louder,), ()], ids=["another forward", "the same forward"])
def test_what_is_not_replaced_is_named(bases):
    model = subclassed(tiny("Llama"), *bases)
    own = results(model)
    patch = transformer_ops.patch(model)
    if not bases:
        assert not patch.not_replaced
        return
    assert patch.operators() == {"rms_norm": 3, "fused_linear_cross_entropy": 1}
    reason = patch.not_replaced["model.layers.1.mlp"]
    assert reason.startswith("MyLlamaMLP (the code of its forward is not known, digest ")
    assert "3 rms_norm; not replaced: 2 MyLlamaAttention (its forward does not call a rotation" in str(patch)
    torch.testing.assert_close(results(model), own, rtol=1e-4, atol=1e-5)
    patch.restore()
    model.loss_function = lambda **_: torch.tensor(0.0)
    found = transformer_ops.patch(model)
    assert found.not_replaced[""] == "LlamaForCausalLM (its loss_function is not ForCausalLMLoss)"


def test_sharded_models():
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        for shard_first in (True, False):
            model = tiny("Llama")
            tokens = torch.arange(20)[None]
            own = model(tokens, labels=tokens).loss
            patch = transformer_ops.patch(model) if not shard_first else None
            for module in (*(layer.mlp for layer in model.model.layers), model.model.norm, model):
                fully_shard(module)
            patch = patch or transformer_ops.patch(model)
            assert patch.operators() == {
                "rms_norm": 5,
                "swiglu": 2,
                "rope": 2,
                "attention": 2,
                "fused_linear_cross_entropy": 1,
            }
            assert ran(model) == LLAMAS
            loss = model(tokens, labels=tokens).loss
            torch.testing.assert_close(loss, own)
            loss.backward()
            assert all(parameter.grad.norm() > 0 for parameter in model.parameters())
            if shard_first:
                patch.restore()
                assert not ran(model)
            else:
                with pytest.raises(ValueError, match="the class FSDPLlamaForCausalLM was made from a patched one"):
                    patch.restore()
                assert ran(model) == LLAMAS
    finally:
        distributed.destroy_process_group()


@pytest.mark.parametrize("family", MODELS)
def test_decorated_forwards(family, monkeypatch):
    """Transformers 4.56 has a decorator around the forward of attention."""
    model = tiny(family)
    own = results(model)
    attention, calls = type(model.model.layers[0].self_attn), []

    def decorate(function):
        @functools.wraps(function)
        def decorated(*args, **kwargs):
            calls.append(args)
            return function(*args, **kwargs)

        return decorated

    monkeypatch.setattr(attention, "forward", decorate(decorate(attention.forward)))
    patch = transformer_ops.patch(model)
    assert not patch.not_replaced
    with Operators() as operators:
        torch.testing.assert_close(results(model), own, rtol=1e-4, atol=1e-5)
    assert operators.counts["rope"] == 4
    assert operators.counts[MODELS[family][1]] == 2
    assert len(calls) == 4


def test_an_attention_without_the_known_name_is_not_replaced(monkeypatch):
    model = tiny("Llama")
    own = results(model)
    patched = copy.deepcopy(model)
    transformer_ops.patch(patched)
    pickled = pickle.dumps(patched)
    attention = type(model.model.layers[0].self_attn)
    forward = attention.forward
    monkeypatch.setattr(attention, "forward", lambda *args, **kwargs: forward(*args, **kwargs))
    patch = transformer_ops.patch(model)
    assert patch.not_replaced["model.layers.0.self_attn"] == (
        "LlamaAttention (its forward does not call a rotation of known code)"
    )
    for other in (model, pickle.loads(pickled)):
        assert ran(other) == LLAMAS - {"rope", "attention"}
        torch.testing.assert_close(results(other), own, rtol=1e-4, atol=1e-5)


def test_the_number_of_items_may_be_on_another_device():
    model = tiny("Llama")
    transformer_ops.patch(model)
    logits, labels = torch.empty(2, 5, 96, device="meta"), torch.empty(2, 5, dtype=torch.long, device="meta")
    for items in (7, torch.tensor(7), torch.tensor([7])):
        loss = model.loss_function(logits=logits, labels=labels, vocab_size=96, num_items_in_batch=items)
        assert loss.device.type == "meta"


def test_what_is_refused():
    model = tiny("Llama")
    transformer_ops.patch(model)
    for part in (model, model.model, model.model.layers[0].mlp):
        with pytest.raises(ValueError, match="is patched already"):
            transformer_ops.patch(part)
    with pytest.raises(ValueError, match="no module of Sequential can be replaced"):
        transformer_ops.patch(nn.Sequential(nn.Linear(2, 2)))
    transformer_ops.unpatch(model)
    wrap(model.model.norm, Counter())
    reason = r"1 LlamaRMSNorm \(it has a forward of its own, as by hooks of accelerate: patch\(\) first\)"
    with pytest.raises(ValueError, match=reason):
        transformer_ops.patch(model.model.norm)
    assert not ran(model)


def test_an_activation_that_is_not_known_stays():
    model = tiny("Llama")
    for layer in model.model.layers:
        layer.mlp.act_fn = nn.ReLU()
    own = results(model)
    patch = transformer_ops.patch(model)
    assert "swiglu" not in patch.replaced.values()
    assert patch.not_replaced["model.layers.1.mlp"] == "LlamaMLP (its activation is ReLU)"
    torch.testing.assert_close(results(model), own, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match=r"can be replaced; not replaced: 1 LlamaMLP \(its activation is ReLU\)"):
        transformer_ops.patch(model.model.layers[0].mlp)


def test_an_activation_may_change_afterwards():
    model = tiny("Llama")
    transformer_ops.patch(model)
    for activation in (nn.ReLU(), transformers.activations.ACT2FN["gelu_pytorch_tanh"]):
        mlp, x = model.model.layers[0].mlp, torch.randn(3, 48)
        mlp.act_fn = activation
        expected = mlp.down_proj(activation(mlp.gate_proj(x)) * mlp.up_proj(x))
        torch.testing.assert_close(mlp(x), expected, rtol=1e-4, atol=1e-5)


def test_activations_stay_known_while_they_are_looked_up(monkeypatch):
    """One thread's model computes while another thread patches a model."""
    activations.look_up_activations()
    found, seen = activations.shipped_class, []

    def find(*args):
        seen.append(activations.operator_for(nn.SiLU()))
        return found(*args)

    monkeypatch.setattr(activations, "shipped_class", find)
    activations.look_up_activations()
    assert seen
    assert None not in seen
