"""Nodes in the autograd graph behave as those of PyTorch's own operators do."""

import contextlib
import threading

import muladd
import pytest
import torch
from opwheel.dispatch import native_autograd
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from tests.recording import Recorded


def inputs(count=3):
    torch.manual_seed(0)
    return [torch.randn(3, 4, dtype=torch.float64, requires_grad=True) for _ in range(count)]


def program(fma, multiply_in_place):
    """Uses a functional, an in-place and a several-result operator (through create_graph)."""

    def call(a, b, c):
        part = fma(a, b, c) * 1.0
        return multiply_in_place(part, b).sin().sum()

    return call


OURS = program(muladd.fma, lambda x, y: muladd.muladd_(x, y, 0.5))
THEIRS = program(lambda a, b, c: a * b + c, lambda x, y: x.mul_(y).add_(0.5))


def gradients(call, tensors, **options):
    return torch.autograd.grad(call(*tensors), tensors, **options)


def test_a_second_backward_is_refused_in_pytorchs_words():
    a, b, c = inputs()
    result = muladd.fma(a, b, c).sum()
    result.backward()
    with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time"):
        result.backward()


def test_retain_graph():
    tensors = inputs()
    result = OURS(*tensors)
    first = torch.autograd.grad(result, tensors, retain_graph=True)
    torch.testing.assert_close(torch.autograd.grad(result, tensors), first)
    torch.testing.assert_close(first, gradients(THEIRS, tensors))


def test_what_is_kept_must_not_change():
    a, b, c = inputs()
    factor = b * 1.0
    result = muladd.fma(a, factor, c).sum()
    factor.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.backward()


def test_an_out_variant_counts_the_modification():
    a, b, _ = inputs()
    kept = (b * 1.0).detach()
    result = muladd.mul(a, kept).sum()
    with torch.no_grad():
        muladd.muladd(a.detach(), b.detach(), 1.0, out=kept)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.backward()


def test_saved_tensor_hooks_see_what_the_formulas_name():
    a, b, c = inputs()
    packed = []

    def pack(tensor):
        packed.append(tensor)
        return tensor.detach() * 1.0

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = muladd.fma(a, b, c.detach())
        assert sorted(map(id, packed)) == sorted([id(a), id(b)])
        muladd.add(a, b)
        muladd.muladd(a, b.detach(), 1.0)
    assert len(packed) == 3
    assert packed[2].data_ptr() == b.data_ptr()
    torch.testing.assert_close(torch.autograd.grad(result.sum(), (a, b)), (b.detach(), a.detach()))


def test_tensors_can_be_kept_on_the_cpu():
    tensors = inputs()
    with torch.autograd.graph.save_on_cpu():
        found = gradients(OURS, tensors)
    torch.testing.assert_close(found, gradients(THEIRS, tensors))


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpoint(use_reentrant):
    tensors = inputs()
    checkpoint(OURS, *tensors, use_reentrant=use_reentrant).backward()
    torch.testing.assert_close(tuple(tensor.grad for tensor in tensors), gradients(THEIRS, tensors))


@pytest.mark.parametrize("policy", [CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_RECOMPUTE])
def test_selective_checkpoint(policy):
    tensors = inputs()
    seen = []

    def decide(context, op, *args, **kwargs):
        seen.append((context.is_recompute, op))
        return policy if op is torch.ops.muladd.fma.default else CheckpointPolicy.PREFER_RECOMPUTE

    def call(a, b, c):
        return muladd.mul(muladd.fma(a, b, c), b).sin().sum()

    def selective(*args):
        return checkpoint(
            call, *args, use_reentrant=False, context_fn=lambda: create_selective_checkpoint_contexts(decide)
        )

    torch.testing.assert_close(gradients(selective, tensors), gradients(call, tensors))
    assert (False, torch.ops.muladd.fma.default) in seen


def test_anomaly_mode_says_where_the_forward_was():
    a, b, c = inputs()
    with torch.no_grad():
        b[0, 0] = float("inf")
    with torch.autograd.set_detect_anomaly(True):
        result = (muladd.fma(a, b, c) * torch.zeros(3, 4, dtype=torch.float64)).sum()
        with pytest.warns(UserWarning, match="test_graph"), pytest.raises(RuntimeError, match="returned nan values"):
            result.backward()


def test_hooks_on_the_node():
    a, b, c = inputs()
    result = muladd.fma(a, b, c)
    seen = []
    result.grad_fn.register_hook(lambda grads, incoming: seen.append((len(grads), len(incoming))))
    result.grad_fn.register_prehook(lambda incoming: (incoming[0] * 2,))
    result.sum().backward()
    assert seen == [(3, 1)]
    torch.testing.assert_close(c.grad, torch.full_like(c, 2.0))


@pytest.mark.skipif(bool(native_autograd.why_not()), reason="a node in Python learns it when recorded")
def test_a_gradient_that_is_not_needed_is_not_computed():
    a, b, c = inputs()
    result = muladd.fma(a, b, c).sum()
    with Recorded() as recorded:
        torch.autograd.grad(result, c)
    assert recorded.names
    assert not [name for name in recorded.names if name.startswith("muladd.")]


def test_second_derivatives():
    def twice(call, tensors):
        first = gradients(call, tensors, create_graph=True)
        return torch.autograd.grad(sum((g * g).sum() for g in first), tensors)

    tensors = inputs()
    torch.testing.assert_close(twice(OURS, tensors), twice(THEIRS, tensors))


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_autograd(dynamic):
    def train(call, compiler):
        found = []
        for rows in (3, 5, 7):
            torch.manual_seed(rows)
            tensors = [torch.randn(rows, 4, dtype=torch.float64, requires_grad=True) for _ in range(3)]
            with compiler():
                call(*tensors).backward()
            found += [tensor.grad for tensor in tensors]
        return found

    def compiler():
        return torch._dynamo.compiled_autograd._enable(
            torch.compile(backend="aot_eager", fullgraph=True, dynamic=dynamic), dynamic=dynamic
        )

    torch._dynamo.reset()
    torch.testing.assert_close(train(OURS, compiler), train(THEIRS, contextlib.nullcontext))


def test_compiled_autograd_of_some_inputs():
    """What one backward pass needs must not be what a graph compiled for another one computes."""
    tensors = inputs()
    expected = gradients(THEIRS, tensors)
    torch._dynamo.reset()
    for wanted in ((2,), (0, 1, 2), (1,), (0, 2), (0, 1, 2)):
        with torch._dynamo.compiled_autograd._enable(torch.compile(backend="aot_eager", fullgraph=True)):
            found = torch.autograd.grad(OURS(*tensors), [tensors[i] for i in wanted])
        torch.testing.assert_close(found, tuple(expected[i] for i in wanted))


def test_backward_in_several_threads():
    tensors = inputs()
    expected = gradients(THEIRS, tensors)
    results = [None] * 8

    def work(index):
        for _ in range(20):
            results[index] = gradients(OURS, [tensor.detach().requires_grad_() for tensor in tensors])

    threads = [threading.Thread(target=work, args=(index,)) for index in range(len(results))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for found in results:
        torch.testing.assert_close(found, expected)
