"""Which calls of PyTorch's attention in a patched model the operator computes."""

import pytest
import torch
import transformer_ops

from .recording import Operators

transformers = pytest.importorskip("transformers")
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS  # noqa: E402

SIZES = {
    "vocab_size": 99,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
TOKENS = torch.arange(12).view(2, 6)


def tiny(**options):
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES | options)).train()


def attention_of(model, **inputs):
    """How often the operator ran, and the logits."""
    with Operators() as operators:
        logits = model(**{"input_ids": TOKENS} | inputs).logits.detach()
    return operators.counts["attention_training"] + operators.counts["attention"], logits


def check(model, expected, **inputs):
    """It runs as often as expected, and the logits are those of the model before."""
    count, own = attention_of(model, **inputs)
    assert count == 0
    transformer_ops.patch(model)
    count, logits = attention_of(model, **inputs)
    assert count == expected
    torch.testing.assert_close(logits, own, rtol=1e-3, atol=3e-2 if own.dtype == torch.bfloat16 else 1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("heads", [1, 2, 4])
def test_plain_calls(dtype, heads):
    check(tiny(num_key_value_heads=heads).to(dtype), 2)


PADDED = torch.ones_like(TOKENS)
PADDED[0, :2] = 0
OTHERS = {
    "bfloat16": ({}, {}),
    "a mask": ({}, {"attention_mask": PADDED}),
    "two sequences in one": ({}, {"position_ids": torch.tensor([[0, 1, 2, 0, 1, 2]]), "use_cache": False}),
    "one token": ({}, {"input_ids": TOKENS[:, :1]}),
    "eager": ({"attn_implementation": "eager"}, {}),
    "long heads": ({"head_dim": 256}, {}),
}


@pytest.mark.parametrize("case", OTHERS)
def test_other_calls_are_the_models_own(case):
    options, inputs = OTHERS[case]
    check(tiny(**options).to(torch.bfloat16 if case == "bfloat16" else torch.float32), 0, **inputs)


def test_what_is_replaced_depends_on_what_the_model_chose():
    found = [
        transformer_ops.patch(tiny(attn_implementation=name)).operators().get("attention") for name in ("sdpa", "eager")
    ]
    assert found == [2, None]


def test_dropout_is_the_models_own():
    model = tiny(attention_dropout=0.5)
    transformer_ops.patch(model)
    assert attention_of(model)[0] == 0
    assert attention_of(model.eval())[0] == 2


def test_a_cache_is_read_by_the_models_own():
    model = tiny().eval()
    own = model.generate(TOKENS, max_new_tokens=5, do_sample=False)
    transformer_ops.patch(model)
    with Operators() as operators:
        assert torch.equal(model.generate(TOKENS, max_new_tokens=5, do_sample=False), own)
    assert operators.counts["attention"] == 2  # of the prompt


def test_what_others_put_in_the_place_of_pytorchs_function_is_called(monkeypatch):
    model, calls = tiny(), []
    transformer_ops.patch(model)
    own = torch.nn.functional.scaled_dot_product_attention

    def theirs(*args, **kwargs):
        calls.append(args)
        return own(*args, **kwargs)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", theirs)
    assert attention_of(model)[0] == 0
    assert len(calls) == 2


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_function_that_others_have_registered_is_called(monkeypatch, when):
    model, calls = tiny(), []
    shipped = ALL_ATTENTION_FUNCTIONS["sdpa"]

    def theirs(*args, **kwargs):
        calls.append(args)
        return shipped(*args, **kwargs)

    def register():
        monkeypatch.setitem(ALL_ATTENTION_FUNCTIONS, "sdpa", theirs)

    if when == "before":
        register()
    patch = transformer_ops.patch(model)
    if when == "after":
        register()
    assert ("attention" in patch.operators()) == (when == "after")
    assert attention_of(model)[0] == 0
    assert len(calls) == 2
