"""A patched model gives what the unpatched one gives, and calls whom it calls, whatever was changed in it.

Drawn are a family, a submodule, a change of it, and whether it is made before or after patch(); the results, and what
hooks and wrappers have seen, are compared with those of a model that is changed in the same way and not patched.
"""

import functools
import importlib
import random
import re
from collections import Counter

import pytest
import torch
import transformer_ops
from torch import nn
from torch.nn.utils import parametrize, prune
from torch.utils import _pytree as pytree

from .recording import Operators

transformers = pytest.importorskip("transformers")

FAMILIES = ("Llama", "Qwen2", "Qwen3", "Gemma", "Gemma2", "Gemma3")
SIZES = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "max_position_embeddings": 32,
    "pad_token_id": 0,
    "attn_implementation": "eager",
}
# The operator that takes a module in or its place, by the last parts of its name.
PLACES = {
    "activation": "model.layers.0.mlp.act_fn",
    "block": "model.layers.0.mlp",
    "up": "model.layers.0.mlp.up_proj",
    "down": "model.layers.1.mlp.down_proj",
    "norm": "model.layers.1.input_layernorm",
    "last norm": "model.norm",
    "attention": "model.layers.0.self_attn",
    "query": "model.layers.0.self_attn.q_proj",
    "angles": "model.rotary_emb",
    "layer": "model.layers.1",
    "decoder": "model",
    "head": "lm_head",
    "model": "",
}
KINDS = re.compile("(RMSNorm|MLP|Attention|RotaryEmbedding|ForCausalLM)$")
WITH_WEIGHT = ("up", "down", "norm", "last norm", "query", "head")


def tiny(family):
    torch.manual_seed(0)
    config = getattr(transformers, f"{'Gemma3Text' if family == 'Gemma3' else family}Config")(**SIZES)
    model = getattr(transformers, f"{family}ForCausalLM")(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) / 20)
    return model.train()


def results(model):
    """Logits, loss and gradients."""
    tokens = torch.arange(2 * 10).reshape(2, 10) * 7 % 64
    out = model(input_ids=tokens, labels=tokens, use_cache=False)
    return out.logits, out.loss, *torch.autograd.grad(out.loss, list(model.parameters()))


def halved(tree):
    """Another value in each tensor, and not the same in each column."""

    def change(x):
        if not isinstance(x, torch.Tensor) or not x.is_floating_point():
            return x
        return x * (torch.linspace(0.5, 1, x.shape[-1], dtype=x.dtype) if x.dim() else 0.5)

    return pytree.tree_map(change, tree)


def shapes(tree):
    return tuple(tuple(x.shape) for x in pytree.tree_leaves(tree) if isinstance(x, torch.Tensor))


# Changes: called with the module, what notes an event, and monkeypatch.


def forward_hook(module, note, _):
    module.register_forward_hook(lambda m, args, out: note(shapes(out)))


def forward_hook_that_changes(module, note, _):
    module.register_forward_hook(lambda m, args, out: note() or halved(out))


def forward_hook_that_writes(module, note, _):
    def write(m, args, out):
        note()
        for x in pytree.tree_leaves(out):
            if isinstance(x, torch.Tensor) and not x.requires_grad:
                x.mul_(torch.linspace(0.5, 1, x.shape[-1]))

    module.register_forward_hook(write)


def forward_pre_hook(module, note, _):
    module.register_forward_pre_hook(lambda m, args, kwargs: note(shapes(args)) or (args, kwargs), with_kwargs=True)


def forward_pre_hook_that_changes(module, note, _):
    def change(m, args, kwargs):
        note()
        return halved(args), {key: halved(v) if key == "position_embeddings" else v for key, v in kwargs.items()}

    module.register_forward_pre_hook(change, with_kwargs=True)


def backward_hook(module, note, _):
    module.register_full_backward_hook(lambda m, grads, outs: note(shapes(grads), shapes(outs)))


def backward_pre_hook(module, note, _):
    module.register_full_backward_pre_hook(lambda m, outs: note(shapes(outs)))


def older_backward_hook(module, note, _):
    module.register_backward_hook(lambda m, grads, outs: note(shapes(grads), shapes(outs)))


def global_hook(module, note, monkeypatch):
    hooks = nn.modules.module._global_forward_hooks
    key = -len(hooks) - 1
    monkeypatch.setitem(hooks, key, lambda m, args, out: note(type(m).__name__, shapes(out)))


def forward_of_its_own(module, note, _):
    inner = module.forward

    @functools.wraps(inner)
    def forward(*args, **kwargs):
        note()
        return halved(inner(*args, **kwargs)) if isinstance(module, nn.Linear) else inner(*args, **kwargs)

    module.forward = forward


def call_of_its_own(module, note, _):
    inner = module._call_impl
    module._call_impl = lambda *args, **kwargs: note() or inner(*args, **kwargs)


def subclass(module, note, _):
    own = type(module)

    def forward(self, *args, **kwargs):
        note()
        return own.forward(self, *args, **kwargs)

    module.__class__ = type(f"My{own.__name__}", (own,), {"forward": forward})


def namesake(module, note, monkeypatch):
    subclass(module, note, monkeypatch)
    cls = type(module)
    cls.__name__ = cls.__qualname__ = cls.__bases__[0].__name__
    cls.__module__ = cls.__bases__[0].__module__


def class_with_another_forward(module, note, monkeypatch):
    cls = next(base for base in type(module).__mro__ if base.__module__.startswith(("transformers.", "torch.nn.")))
    inner = cls.forward
    monkeypatch.setattr(cls, "forward", lambda self, *args, **kwargs: note() or inner(self, *args, **kwargs))


def compiled_by_itself(module, note, _):
    module.compile(backend=lambda graph, _: note() or graph.forward)


class Doubled(nn.Module):
    def forward(self, weight):
        return 2 * weight


def parametrization(module, note, _):
    parametrize.register_parametrization(module, "weight", Doubled())


def pruning(module, note, _):
    prune.l1_unstructured(module, "weight", 0.3)


def weight_norm(module, note, _):
    nn.utils.weight_norm(module)


ANYWHERE = (
    *(forward_hook, forward_hook_that_changes, forward_hook_that_writes),
    *(forward_pre_hook, forward_pre_hook_that_changes),
    *(backward_hook, backward_pre_hook, older_backward_hook, global_hook),
    *(forward_of_its_own, call_of_its_own, subclass, namesake, class_with_another_forward),
)


def activation(make):
    def change(model, note, _):
        for layer in model.model.layers:
            layer.mlp.act_fn = make()

    return change


def options(name, value):
    def change(model, note, _):
        for layer in model.model.layers:
            setattr(layer.mlp.act_fn, name, value)

    return change


def function_of_the_family(name, change):
    def replace(model, note, monkeypatch):
        home = importlib.import_module(type(model).__module__)
        inner = getattr(home, name)
        monkeypatch.setattr(home, name, lambda *args, **kwargs: note() or change(inner(*args, **kwargs)))

    return replace


def function_of_the_loss(name):
    def replace(model, note, monkeypatch):
        home = importlib.import_module("transformers.loss.loss_utils")
        inner = getattr(home, name)
        changed = lambda *args, **kwargs: note() or inner(*args, **kwargs) * 2  # noqa: E731
        monkeypatch.setattr(home, name, changed)
        if name == "ForCausalLMLoss":
            monkeypatch.setitem(home.LOSS_MAPPING, "ForCausalLM", changed)

    return replace


def other_angles(model, note, _):
    class Angles(nn.Module):
        def forward(self, x, *args, **kwargs):
            note()
            return halved(own(x, *args, **kwargs))

    own = model.model.rotary_emb
    model.model.rotary_emb = Angles()


def scaled_angles(model, note, _):
    rotary = model.model.rotary_emb
    for name in [name for name in vars(rotary) if name.endswith("attention_scaling")]:
        setattr(rotary, name, 0.7)


def own_norm(model, note, _):
    norm = model.model.norm
    if hasattr(norm, "_norm"):
        norm._norm = lambda x: note() or x * 2


def another_eps(model, note, _):
    for module in model.modules():
        for name in ("eps", "variance_epsilon"):
            if hasattr(module, name):
                setattr(module, name, 0.5)


def another_loss(model, note, _):
    model.loss_function = lambda logits, labels, *_, **__: note() or logits.float().square().mean()


activations = importlib.import_module("transformers.activations")


class SiLUActivation(nn.Module):
    def forward(self, x):
        return x * 0.3


OF_MODELS = {
    "relu": activation(nn.ReLU),
    "silu": activation(nn.SiLU),
    "silu in place": activation(functools.partial(nn.SiLU, inplace=True)),
    "a namesake": activation(SiLUActivation),
    "gelu": activation(activations.GELUActivation),
    "gelu in python": activation(functools.partial(activations.GELUActivation, use_gelu_python=True)),
    "tanh gelu": activation(activations.GELUTanh),
    "tanh gelu in python": activation(functools.partial(activations.GELUTanh, use_gelu_tanh_python=True)),
    "another gelu": activation(activations.QuickGELUActivation),
    "another function in it": options("act", torch.tanh),
    "another rotation": function_of_the_family("apply_rotary_pos_emb", halved),
    "another half": function_of_the_family("rotate_half", torch.neg),
    "another attention": function_of_the_family("eager_attention_forward", lambda out: (out[0] * 2, out[1])),
    "another loss function": function_of_the_loss("ForCausalLMLoss"),
    "a loss of one's own": another_loss,
    "another cross entropy": function_of_the_loss("fixed_cross_entropy"),
    "other angles": other_angles,
    "scaled angles": scaled_angles,
    "another eps": another_eps,
    "a norm of its own": own_norm,
}
CHANGES = {
    **{f"{change.__name__} of {place}": (place, change) for place in PLACES for change in ANYWHERE},
    **{f"{c.__name__} of {p}": (p, c) for p in WITH_WEIGHT for c in (parametrization, pruning)},
    **{f"weight_norm of {place}": (place, weight_norm) for place in ("up", "down", "query")},
    "compiled_by_itself of activation": ("activation", compiled_by_itself),
    **{name: ("model", change) for name, change in OF_MODELS.items()},
}
# Made after patch(): of a function that a patched model does not ask for any more, and hooks of a deprecated kind: they
# see the gradients of the last operator in a module. The class of a patched head is its own, that of others is not.
ONLY_BEFORE = {
    "class_with_another_forward of head",
    *("another loss function", "another cross entropy"),
    *("older_backward_hook of model", "older_backward_hook of decoder"),
}
# Others' hooks, which change the angles on their way to a module that has none.
ANGLES_CHANGE = {f"forward_pre_hook_that_changes of {place}" for place in ("layer", "attention")}


def run(family, change, when):
    """Results and events of a model; and the patch, with the operators that ran."""
    place, apply = CHANGES[change]
    with pytest.MonkeyPatch.context() as monkeypatch:
        model, events, patch = tiny(family), Counter(), None
        module = model.get_submodule(PLACES[place])
        note = lambda *what: events.update([what])  # noqa: E731
        if when == "before":
            apply(module, note, monkeypatch)
        if when:
            patch = transformer_ops.patch(model)
        if when != "before":
            apply(module, note, monkeypatch)
        with Operators() as operators:
            got = results(model)
        return got, events, patch, operators.counts


def check(family, change, when):
    if when == "after" and change in ONLY_BEFORE:
        return
    wanted, events, _, none = run(family, change, "")
    got, seen, patch, ran = run(family, change, when)
    assert not none
    assert seen == events
    for mine, theirs in zip(got, wanted, strict=True):
        assert mine.dtype == theirs.dtype
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=2e-5)
    if when == "before":  # what is said to be replaced is
        forward = Counter({name: count for name, count in ran.items() if "backward" not in name})
        forward["rope"] //= 2  # its gradient is a rotation, too
        del forward["scaled"]  # of the gradients of the loss
        said = Counter(patch.operators())
        said["rope"] -= change in ANGLES_CHANGE
        said["cross_entropy_rows"] = said.pop("cross_entropy", 0)
        said["fused_linear_cross_entropy_training"] = said.pop("fused_linear_cross_entropy", 0)
        assert +forward == +said
    names = {name for name, module in tiny(family).named_modules() if KINDS.search(type(module).__name__)}
    assert names - {"model.rotary_emb"} <= {*patch.replaced, *patch.not_replaced}


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_patched_model_computes_the_same(change, when):
    """Of a family that is drawn; all of them in turn are too many for every day."""
    check(random.Random(f"{change} {when}").choice(FAMILIES), change, when)


@pytest.mark.nightly
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("change", CHANGES)
def test_a_patched_model_of_every_family_computes_the_same(change, family):
    for when in ("before", "after"):
        check(family, change, when)


REASONS = {
    "forward_hook of activation": ("model.layers.0.mlp", "its activation, SiLUActivation, has hooks"),
    "global_hook of activation": ("model.layers.1.mlp", "its activation, SiLUActivation, has hooks"),
    "forward_of_its_own of activation": (
        "model.layers.0.mlp",
        "its activation, SiLUActivation, has a forward of its own",
    ),
    "compiled_by_itself of activation": ("model.layers.0.mlp", "its activation, SiLUActivation, is compiled by itself"),
    "subclass of activation": ("model.layers.0.mlp", "its activation is MySiLUActivation"),
    "namesake of activation": ("model.layers.0.mlp", "its activation is transformers.activations.SiLUActivation"),
    "class_with_another_forward of activation": (
        "model.layers.0.mlp",
        "its activation is transformers.activations.SiLUActivation",
    ),
    "silu in place": ("model.layers.0.mlp", "its activation, SiLU, has options of its own"),
    "forward_of_its_own of block": (
        "model.layers.0.mlp",
        "it has a forward of its own, as by hooks of accelerate: patch() first",
    ),
    "subclass of block": ("model.layers.0.mlp", "the code of its forward is not known, digest "),
    "class_with_another_forward of block": (
        "model.layers.1.mlp",
        "the code of its forward cannot be told: its source cannot be found, or is not what runs",
    ),
    "older_backward_hook of norm": (
        "model.layers.1.input_layernorm",
        "register_backward_hook() was called, whose hooks see the gradients of operators inside",
    ),
    "parametrization of norm": (
        "model.layers.1.input_layernorm",
        "its weight is no parameter, as of a pruned or reparametrized module",
    ),
    "pruning of norm": (
        "model.layers.1.input_layernorm",
        "its weight is no parameter, as of a pruned or reparametrized module",
    ),
    "forward_hook of angles": ("model.rotary_emb", "it has hooks"),
    "backward_hook of angles": ("model.layers.0.self_attn", "it has hooks"),
    "other angles": (
        "model.layers.0.self_attn",
        "no rotary embedding of known code is in what is patched: patch the whole model",
    ),
    "another rotation": (
        "model.layers.0.self_attn",
        "its forward does not call a rotation of known code; apply_rotary",
    ),
    "another half": ("model.layers.0.self_attn", "its forward does not call a rotation of known code; apply_rotary"),
    "another cross entropy": ("", "its loss_function is not ForCausalLMLoss"),
}


@pytest.mark.parametrize("change", REASONS)
def test_the_reason_is_said(change):
    *_, patch, _ = run("Llama", change, "before")
    name, reason = REASONS[change]
    assert name not in patch.replaced
    assert f" ({reason}" in patch.not_replaced[name]


@pytest.mark.parametrize("place", ["activation", "angles"])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("family", ["Llama", "Gemma"])
def test_compiled_models_call_hooks(family, when, place):
    """Those that are there when a model is compiled; Dynamo does not look for others, patched or not."""
    found = []
    for patched in (False, True):
        torch._dynamo.reset()
        model, events, seen = tiny(family), Counter(), []

        def hook(module, args, out, events=events):
            events["calls"] += 1
            return halved(out)

        def backend(graph, _, seen=seen):
            targets = [str(node.target) for node in graph.graph.nodes]
            seen += [target.split(".")[1] for target in targets if "transformer_ops" in target]
            return graph.forward

        if patched and when == "after":
            transformer_ops.patch(model)
        model.get_submodule(PLACES[place]).register_forward_hook(hook)
        if patched and when == "before":
            transformer_ops.patch(model)
        found.append((*results(torch.compile(model, backend=backend, fullgraph=True)), events["calls"]))
        counts = seen.count("swiglu") + seen.count("geglu"), seen.count("rope")
        by_operators = (1, 2) if place == "activation" else (2, 0)
        assert counts == (by_operators if patched else (0, 0))
    assert found[0][-1] == found[1][-1]
    torch.testing.assert_close(found[1][:-1], found[0][:-1], rtol=1e-3, atol=2e-5)


def test_angles_of_a_callers_own():
    """The operator reads the first half of each table; transformers' own code reads all of it."""
    model = tiny("Llama")
    attention = model.model.layers[0].self_attn
    x, (cos, sin) = torch.randn(1, 3, 32), torch.randn(2, 1, 3, 16)
    wanted, _ = attention(x, (cos, sin), None)
    transformer_ops.patch(model)
    with Operators() as operators:
        torch.testing.assert_close(attention(x, (cos, sin), None)[0], wanted)
    assert "rope" not in operators.counts


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_operators_run_without_gradients(mode):
    model = tiny("Qwen3")
    tokens = torch.arange(5)[None]
    with mode():
        wanted = model(tokens).logits
        transformer_ops.patch(model)
        with Operators() as operators:
            torch.testing.assert_close(model(tokens).logits, wanted, rtol=1e-3, atol=2e-5)
    assert operators.counts == {"rms_norm": 9, "swiglu": 2, "rope": 2}


def test_projections_of_two_dtypes():
    model = tiny("Llama")
    transformer_ops.patch(model)
    block = model.model.layers[0].mlp
    block.up_proj.register_forward_hook(lambda module, args, out: out.bfloat16())
    x = torch.randn(3, 32)
    wanted = block.down_proj(nn.functional.silu(block.gate_proj(x)) * block.up_proj(x))
    torch.testing.assert_close(block(x), wanted)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_the_loss_has_transformers_own_dtype(dtype):
    model = tiny("Llama").to(dtype)
    tokens = torch.arange(5)[None]
    wanted = model(tokens, labels=tokens).loss.dtype
    transformer_ops.patch(model)
    assert model(tokens, labels=tokens).loss.dtype == wanted == torch.float32
