"""The head and the loss of patched models: without the logits, which are there all the same for who looks at them."""

import copy
import pickle

import pytest
import torch
import transformer_ops
from opwheel.memory.usage import peak
from torch import nn
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from .recording import Operators

transformers = pytest.importorskip("transformers")

SIZES = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "max_position_embeddings": 32,
    "pad_token_id": 0,
}
# Heads followed by nothing, a softcap, a division and a multiplication.
FAMILIES = {"Llama": {}, "Gemma2": {"final_logit_softcapping": 3.0}, "Granite": {"logits_scaling": 4.0}, "Cohere": {}}


def tiny(family="Llama", dtype=torch.float32, **options):
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**SIZES, **FAMILIES[family], **options)
    model = getattr(transformers, f"{family}ForCausalLM")(config).to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) / 5)
    return model.train()


def inputs():
    tokens = torch.arange(2 * 10).reshape(2, 10) * 7 % 96
    labels = tokens.clone()
    labels[0, :4] = -100
    return {"input_ids": tokens, "labels": labels}


def gradients(model, loss):
    return torch.autograd.grad(loss, list(model.parameters()))


def pair(*args, **options):
    """A model, and a patched copy."""
    model = tiny(*args, **options)
    patched = copy.deepcopy(model)
    transformer_ops.patch(patched)
    return model, patched


OPTIONS = {
    "nothing": {},
    "num_items_in_batch": {"num_items_in_batch": 7},
    "num_items_in_batch, a tensor": {"num_items_in_batch": torch.tensor(7)},
    "shift_labels": {"shift_labels": torch.arange(20).reshape(2, 10)},
    "ignore_index": {"ignore_index": 5},
    "tuple": {"return_dict": False},
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("is_tied", [True, False])
@pytest.mark.parametrize("name", OPTIONS)
def test_the_loss_is_the_same(family, is_tied, name):
    model, patched = pair(family, torch.float64, tie_word_embeddings=is_tied)
    options = inputs() | OPTIONS[name]
    if name == "ignore_index":
        options["labels"] = options["labels"].clamp_min(5)
    expected = model(**options)
    with Operators() as operators:
        found = patched(**options)
    assert operators.counts["fused_linear_cross_entropy_training"] == 1
    assert not operators.counts["cross_entropy_rows"]
    torch.testing.assert_close(found[0], expected[0], rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(gradients(patched, found[0]), gradients(model, expected[0]), rtol=1e-5, atol=1e-6)
    assert isinstance(found[1], torch.Tensor)
    assert found[1].shape == expected[1].shape
    torch.testing.assert_close(found[1].detach(), expected[1].detach(), rtol=1e-6, atol=1e-6)


def test_fewer_logits_than_labels_are_refused_as_by_the_model():
    model, patched = pair()
    for one in (model, patched):
        with pytest.raises((ValueError, RuntimeError)):
            one(**inputs(), logits_to_keep=2)
    kept = inputs() | {"labels": inputs()["labels"][:, -2:]}
    expected, found = model(**kept, logits_to_keep=2), patched(**kept, logits_to_keep=2)
    torch.testing.assert_close(found.loss, expected.loss, rtol=1e-4, atol=1e-5)
    assert found.logits.shape == (2, 2, 96)


def test_logits_are_computed_once_when_they_are_used():
    model, patched = pair()
    expected, found = model(**inputs()), patched(**inputs())
    assert (found.logits.shape, found.logits.dtype, found.logits.device) == (
        expected.logits.shape,
        expected.logits.dtype,
        expected.logits.device,
    )
    assert found.logits.requires_grad
    torch.testing.assert_close(found.logits.softmax(-1), expected.logits.softmax(-1), rtol=1e-4, atol=1e-5)
    assert found.logits.argmax(-1).equal(expected.logits.argmax(-1))
    assert found.logits[:, -1].shape == (2, 96)
    assert found.logits.detach().numpy() is not None
    assert (2 * found.logits).data_ptr() != found.logits.data_ptr()
    # A loss of their own has its gradients, too.
    torch.testing.assert_close(
        gradients(patched, found.loss + found.logits.square().mean()),
        gradients(model, expected.loss + expected.logits.square().mean()),
        rtol=1e-3,
        atol=1e-4,
    )


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_evaluation(mode):
    model, patched = pair()
    model.eval(), patched.eval()
    with mode():
        expected, found = model(**inputs()), patched(**inputs())
        torch.testing.assert_close(found.loss, expected.loss, rtol=1e-4, atol=1e-5)
    assert not found.logits.requires_grad
    torch.testing.assert_close(found.logits.clone(), expected.logits.clone(), rtol=1e-4, atol=1e-5)


def test_logits_after_a_step_of_the_optimizer_are_refused():
    _, patched = pair()
    optimizer = torch.optim.SGD(patched.parameters(), 0.1)
    early, late = patched(**inputs()), patched(**inputs())
    early.logits.sum()
    late.loss.backward()
    optimizer.step()
    assert early.logits.sum().isfinite()
    with pytest.raises(RuntimeError, match="the logits of this step cannot be computed any more"):
        late.logits.sum()


class Sizes(TorchDispatchMode):
    """The shapes of all tensors that operators return."""

    def __init__(self):
        super().__init__()
        self.shapes = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        self.shapes |= {tuple(one.shape) for one in pytree.tree_leaves(made) if isinstance(one, torch.Tensor)}
        return made


def test_no_tensor_has_the_size_of_the_logits():
    found = []
    for model in pair():
        with Sizes() as sizes:
            model(**inputs()).loss.backward()
        found.append({shape for shape in sizes.shapes if torch.Size(shape).numel() == 20 * 96})
    assert found[0]
    assert not found[1]


def test_tensors_without_data():
    _, patched = pair()
    patched.to("meta")
    out = patched(**{name: tensor.to("meta") for name, tensor in inputs().items()})
    assert out.loss.is_meta
    assert out.logits.is_meta


def test_logits_that_are_not_deferred():
    model = tiny()
    expected = model(**inputs())
    patch = transformer_ops.patch(model, defer_logits=False)
    assert patch.replaced[""] == "cross_entropy"
    found = model(**inputs())
    assert type(found.logits) is torch.Tensor
    torch.testing.assert_close(found.loss, expected.loss, rtol=1e-4, atol=1e-5)


def test_logits_without_labels_are_a_tensor():
    _, patched = pair()
    assert type(patched(input_ids=inputs()["input_ids"]).logits) is torch.Tensor
    assert type(patched.lm_head(torch.randn(3, 32))) is torch.Tensor


def test_autocast():
    model, patched = pair()
    with torch.autocast("cpu", torch.bfloat16):
        expected = model(**inputs())
        with Operators() as operators:
            found = patched(**inputs())
    assert operators.counts["fused_linear_cross_entropy_training"] == 1
    assert found.logits.dtype == expected.logits.dtype == torch.bfloat16
    torch.testing.assert_close(found.loss, expected.loss, rtol=3e-2, atol=3e-2)
    torch.testing.assert_close(found.logits.float(), expected.logits.float(), rtol=5e-2, atol=5e-2)
    for one in gradients(patched, found.loss):
        assert one.isfinite().all()


class LoRA(nn.Module):
    """A linear layer with an addition of low rank, as peft's."""

    def __init__(self, base):
        super().__init__()
        self.base_layer = base
        self.down, self.up = nn.Linear(32, 4, bias=False), nn.Linear(4, 96, bias=False)

    def forward(self, x):
        return self.base_layer(x) + self.up(self.down(x)) / 2


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_head_with_an_addition_of_low_rank(when):
    model = tiny()
    model.lm_head = LoRA(model.lm_head)
    expected = model(**inputs()).loss
    wanted = gradients(model, expected)
    if when == "before":
        patch = transformer_ops.patch(model)
        assert patch.replaced[""] == "cross_entropy"
        assert patch.not_replaced["lm_head"] == "LoRA (it is no torch.nn.Linear)"
    else:
        head = model.lm_head
        model.lm_head = head.base_layer
        assert transformer_ops.patch(model).replaced[""] == "fused_linear_cross_entropy"
        model.lm_head = head
    loss = model(**inputs()).loss
    torch.testing.assert_close(loss, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(gradients(model, loss), wanted, rtol=1e-3, atol=1e-4)


def test_a_head_with_a_bias():
    model = tiny()
    model.lm_head.bias = nn.Parameter(torch.randn(96))
    patched = copy.deepcopy(model)
    transformer_ops.patch(patched)
    expected, found = model(**inputs()).loss, patched(**inputs()).loss
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(gradients(patched, found), gradients(model, expected), rtol=1e-3, atol=1e-4)


def test_a_loss_of_ones_own_gets_logits():
    _, patched = pair()
    patched.loss_function = lambda logits, **_: logits.square().mean()
    out = patched(**inputs())
    assert type(out.logits) is torch.Tensor
    torch.testing.assert_close(out.loss, out.logits.square().mean())


def test_outputs_can_be_pickled():
    _, patched = pair()
    with torch.no_grad():
        out = patched(**inputs())
    again = pickle.loads(pickle.dumps(out))
    torch.testing.assert_close(again.logits, out.logits.clone())
    torch.testing.assert_close(copy.deepcopy(out.logits), out.logits.clone())


def test_second_derivatives_are_refused_or_right():
    model, patched = pair(dtype=torch.float64)
    expected = torch.autograd.grad(model(**inputs()).loss, model.lm_head.weight, create_graph=True)[0]
    wanted = gradients_of(expected.square().sum(), model)
    found = torch.autograd.grad(patched(**inputs()).loss, patched.lm_head.weight, create_graph=True)[0]
    try:
        got = gradients_of(found.square().sum(), patched)
    except RuntimeError:
        return
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-6)


def gradients_of(value, model):
    return torch.autograd.grad(value, [model.lm_head.weight, model.model.norm.weight])


def test_transforms_of_functions():
    model, patched = pair(dtype=torch.float64)

    def loss_of(one):
        def loss(weight):
            return torch.func.functional_call(one, {"lm_head.weight": weight}, kwargs=inputs()).loss

        return torch.func.grad(loss)(one.lm_head.weight.detach())

    torch.testing.assert_close(loss_of(patched), loss_of(model), rtol=1e-5, atol=1e-7)


def test_a_step_takes_less_memory_than_the_logits():
    """Of 1,024 tokens and 64,000 classes, 250 MiB of float32; a plain step has several of them."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**{**SIZES, "vocab_size": 64_000, "max_position_embeddings": 1024})
    patched = transformers.LlamaForCausalLM(config)
    transformer_ops.patch(patched)
    tokens = torch.randint(64_000, (1, 1024))

    def step():
        patched(tokens, labels=tokens).loss.backward()

    step()  # the gradients are there from now on
    taken = peak(step)
    if taken is None:
        pytest.skip("this system does not tell how much memory a process takes")
    assert taken < 125 << 20
