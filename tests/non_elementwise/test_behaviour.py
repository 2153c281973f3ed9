"""Behaviour of single operators that no generic check can know of."""

import pytest
import torch
from opwheel.dispatch import Opaque, Operator, Rows, overloads_of, register_python
from opwheel_tools import Sample
from torch.autograd import gradcheck, gradgradcheck

from tests.non_elementwise.operators import NAMESPACE, functions, rms_norm_reference
from tests.recording import Recorded

ops = getattr(torch.ops, NAMESPACE)


def randn(*shape, requires_grad=False):
    return torch.randn(*shape, dtype=torch.float64, requires_grad=requires_grad)


class TestSecondDerivatives:
    """A kept result is a function of the inputs: finite differences know."""

    def test_a_kept_result_without_a_gradient(self):
        args = randn(3, 5, requires_grad=True), randn(5, requires_grad=True)
        norm = lambda x, w: ops.rms_norm(x, w, 1e-3)[0]  # noqa: E731
        assert gradcheck(norm, args, check_forward_ad=True)
        assert gradgradcheck(norm, args)

    def test_a_kept_result_with_a_gradient(self):
        x = randn(3, 4, requires_grad=True)
        assert gradgradcheck(lambda x: ops.softmax(x, 0), (x,))

    def test_through_the_reference(self):
        a = torch.eye(3, dtype=torch.float64) * 3 + randn(3, 3) * 0.2
        args = a.requires_grad_(), randn(3, 1, requires_grad=True)
        assert gradcheck(ops.solve, args)
        assert gradgradcheck(ops.solve, args)

    def test_a_part_with_formulas_and_a_part_without(self):
        q, cos, sin = randn(2, 3, 8, requires_grad=True), *(randn(3, 4, requires_grad=True) for _ in range(2))
        assert gradcheck(ops.rope, (q, cos, sin))
        assert gradgradcheck(ops.rope, (q, cos, sin))

    def test_third(self):
        x = randn(2, 3, requires_grad=True)
        weight = randn(3)

        def chain(f):
            (first,) = torch.autograd.grad(f(x, weight, 1e-3)[0].pow(3).sum(), x, create_graph=True)
            (second,) = torch.autograd.grad(first.pow(2).sum(), x, create_graph=True)
            return torch.autograd.grad(second.pow(2).sum(), x)[0]

        torch.testing.assert_close(chain(ops.rms_norm), chain(rms_norm_reference))


def test_the_kernel_runs_forward_and_the_declared_formula_backward():
    x, weight = randn(3, 5, requires_grad=True), randn(5, requires_grad=True)
    with Recorded() as recorded:
        ops.rms_norm(x, weight, 1e-6)[0].sum().backward()
    assert f"{NAMESPACE}.rms_norm" in recorded.names
    assert f"{NAMESPACE}.rms_norm_backward" in recorded.names
    assert "aten.rsqrt" not in recorded.names


def test_what_is_kept():
    x, weight = randn(3, 5, requires_grad=True), randn(5)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.shape) or t, lambda t: t):
        ops.softmax(x, 1)
        assert kept == [(3, 5)]  # the result alone
        kept.clear()
        ops.rms_norm(x, weight, 1e-6)
        assert kept == [(3, 5), (5,), (3,)]


def test_the_declared_kept_result_is_refused_a_gradient():
    _, rstd = ops.rms_norm(randn(3, 5, requires_grad=True), randn(5), 1e-6)
    assert not rstd.requires_grad


class TestVmap:
    def test_rows_are_one_call(self):
        with Recorded() as recorded:
            torch.vmap(lambda x: ops.rms_norm(x, torch.ones(5), 1e-6))(torch.randn(4, 3, 5))
        assert recorded.names.count(f"{NAMESPACE}.rms_norm") == 1

    def test_what_is_not_claimed_runs_the_reference(self):
        weights = randn(4, 5)
        x = randn(3, 5)
        with Recorded() as recorded:
            torch.vmap(lambda w: ops.rms_norm(x, w, 1e-6))(weights)
        assert f"{NAMESPACE}.rms_norm" not in recorded.names

    def test_lists_and_options(self):
        parts, bias = [randn(4, 3), randn(4, 3)], randn(3)
        got = torch.vmap(lambda a, b: ops.mixture([a, b], bias, weights=[2, 5]))(*parts)
        torch.testing.assert_close(got, ops.mixture(parts, bias, weights=[2, 5]))

    def test_writing_a_batch_into_one_cache_is_refused(self):
        cache, slots = torch.zeros(6, 8), torch.tensor([1, 2])
        with pytest.raises(RuntimeError, match=r"'cache'.*no batch dimension"):
            torch.vmap(lambda key: ops.reshape_and_cache(key, cache, slots))(torch.randn(3, 2, 8))
        assert not cache.any()


class TestWriting:
    def test_compiled(self):
        @torch.compile(fullgraph=True, backend="aot_eager")
        def step(key, cache, slots):
            ops.reshape_and_cache(key, cache, slots)
            return cache.sum() + key.sum()

        key, cache, slots = torch.randn(2, 8), torch.zeros(6, 8), torch.tensor([3, 1])
        result = step(key, cache, slots)
        assert torch.equal(cache[slots], key)
        torch.testing.assert_close(result, 2 * key.sum())

    def test_through_the_public_function_the_version_counts(self):
        key, cache, slots = torch.randn(2, 8), torch.zeros(6, 8), torch.tensor([3, 1])
        functions["reshape_and_cache"](key, cache, slots)
        assert cache._version == 1

    def test_a_saved_tensor_that_is_overwritten_is_noticed(self):
        weight = torch.randn(6, 8, requires_grad=True)
        cache = torch.zeros(6, 8)
        product = weight * cache
        ops.reshape_and_cache(torch.ones(1, 8), cache, torch.tensor([0]))
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            product.sum().backward()

    def test_a_gradient_would_be_lost(self):
        key = torch.randn(2, 8, requires_grad=True)
        cache, slots = torch.zeros(6, 8), torch.tensor([3, 1])
        with pytest.raises(RuntimeError, match=r"writes into 'cache'.*no_grad"):
            ops.reshape_and_cache(key, cache, slots)
        assert not cache.any()
        with torch.no_grad():
            ops.reshape_and_cache(key, cache, slots)
        assert torch.equal(cache[slots], key.detach())

    def test_inference_tensors(self):
        with torch.inference_mode():
            cache = torch.zeros(6, 8)
        with pytest.raises(RuntimeError, match="inference tensor"):
            ops.reshape_and_cache(torch.ones(1, 8), cache, torch.tensor([0]))


class TestNotDifferentiable:
    def test_forward_works_and_backward_raises(self):
        x = torch.randn(4, 16, requires_grad=True)
        q, scale = ops.quantize_rowwise(x)
        assert not q.requires_grad
        with pytest.raises(RuntimeError, match="quantize_rowwise: is not differentiable"):
            scale.sum().backward()

    def test_transforms_raise_and_vmap_works(self):
        x = torch.randn(4, 16)
        with pytest.raises(RuntimeError, match="not differentiable"):
            torch.func.grad(lambda x: ops.quantize_rowwise(x)[1].sum())(x)
        with pytest.raises(RuntimeError, match="not differentiable"):
            torch.func.jvp(lambda x: ops.quantize_rowwise(x)[1], (x,), (x,))
        torch.vmap(ops.quantize_rowwise)(x)


class TestRandom:
    def test_a_generator_and_a_seed(self):
        x = torch.ones(64)
        draws = [ops.noisy(x, 0.5, torch.Generator().manual_seed(7))[1] for _ in range(2)]
        assert torch.equal(*draws)
        assert not torch.equal(ops.noisy(x, 0.5)[1], ops.noisy(x, 0.5)[1])

    def test_the_gradient_goes_by_what_was_drawn(self):
        x = torch.randn(64, requires_grad=True)
        y, mask = ops.noisy(x, 0.5)
        y.sum().backward()
        torch.testing.assert_close(x.grad, mask / 0.5)

    def test_higher_orders_raise(self):
        x = torch.randn(64, requires_grad=True)
        (first,) = torch.autograd.grad(ops.noisy(x, 0.5)[0].pow(2).sum(), x, create_graph=True)
        with pytest.raises(RuntimeError, match="differentiate twice"):
            first.sum().backward()

    def test_the_compiler_is_told(self):
        assert torch.Tag.nondeterministic_seeded in ops.noisy.default.tags


class TestWithoutTensors:
    def test_the_device_is_found(self):
        assert ops.window(4, device="cpu").device.type == "cpu"
        assert ops.window(4).shape == (4,)
        assert ops.window(4, device="meta").device.type == "meta"

    def test_compiled_with_a_symbolic_size(self):
        f = torch.compile(lambda x: ops.window(x.shape[0]) * x, fullgraph=True, dynamic=True, backend="aot_eager")
        for size in (4, 7):
            torch.testing.assert_close(f(torch.ones(size)), ops.window(size))

    def test_no_kernel_for_the_device(self):
        with pytest.raises(RuntimeError, match="no kernel for cuda"):
            ops.window(4, device="cuda")


def test_autocast_reaches_lists_and_keywords():
    parts = [torch.ones(2, dtype=torch.bfloat16), torch.ones(2, dtype=torch.bfloat16)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert ops.mixture(parts, torch.ones(2)).dtype is torch.float32
        assert ops.mixture(parts).dtype is torch.bfloat16


def test_gradients_of_lists_and_options():
    parts, bias = [randn(3, requires_grad=True) for _ in range(2)], randn(3, requires_grad=True)
    assert gradcheck(lambda a, b, c: ops.mixture([a, b], c, mode="square"), (*parts, bias))
    assert gradgradcheck(lambda a, b, c: ops.mixture([a, b], c, mode="square"), (*parts, bias))


def test_a_formula_for_a_list():
    def total(parts, factor):
        return sum(parts) * factor

    functions = register_python(
        "waves_lists",
        {"total(Tensor[] parts, float factor) -> Tensor": total},
        [
            Operator(
                "total",
                reference=total,
                derivatives={"parts": lambda grad, parts, factor: [grad * factor for _ in parts]},
                doc="total",
            )
        ],
    )
    a, b = (randn(3, requires_grad=True) for _ in range(2))
    assert gradcheck(lambda a, b: functions["total"]([a, b], 2.0), (a, b))


def test_a_kernel_may_hand_back_its_argument():
    functions = register_python(
        "waves_same",
        {"same(Tensor x) -> (Tensor, Tensor)": lambda x: (x, x)},
        [Operator("same", reference=lambda x: (x.clone(), x.clone()), doc="same")],
    )
    x = torch.ones(3)
    first, second = functions["same"](x)
    first.add_(1)
    assert torch.equal(x, torch.ones(3))
    assert torch.equal(second, torch.ones(3))


@pytest.mark.parametrize("answer", [None, 3, (torch.ones(2),) * 3], ids=str)
def test_a_kernel_that_returns_something_else(answer):
    name = f"waves_answers_{type(answer).__name__}"
    functions = register_python(
        name,
        {"f(Tensor x) -> (Tensor, Tensor)": lambda x: answer},
        [Operator("f", reference=lambda x: (x, x), doc="f")],
    )
    with pytest.raises(RuntimeError, match=r"its kernel returned .*; the schema has 2 Tensors"):
        functions["f"](torch.ones(2))


def test_flops_of_a_call():
    from torch.utils.flop_counter import FlopCounterMode

    functions = register_python(
        "waves_flops",
        {"matmul(Tensor a, Tensor b) -> Tensor": torch.mm},
        [
            Operator(
                "matmul",
                reference=torch.mm,
                flops=lambda a, b: 2 * a.shape[0] * a.shape[1] * b.shape[1],
                doc="matmul",
            )
        ],
    )
    with FlopCounterMode(display=False) as counter:
        functions["matmul"](torch.ones(2, 3), torch.ones(3, 4))
    assert counter.get_total_flops() == 48


def test_a_rule_of_ones_own():
    """Columns(x): the first dimension belongs to the operator, the others are free."""

    class Columns(Opaque):
        def vmap(self, overload, size, in_dims, values):
            return overload.op(values[0].movedim(in_dims[0], -1)), -1

    functions = register_python(
        "waves_columns",
        {"center(Tensor x) -> Tensor": lambda x: x - x.mean(0)},
        [Operator("center", reference=lambda x: x - x.mean(0), rule=Columns(), doc="center")],
    )
    x = randn(5, 4, 3)
    with Recorded() as recorded:
        got = torch.vmap(functions["center"])(x)
    assert recorded.names.count("waves_columns.center") == 1
    torch.testing.assert_close(got, torch.stack([row - row.mean(0) for row in x]))


def test_overloads_say_what_they_are():
    overload = overloads_of(torch.library.Library(NAMESPACE, "FRAGMENT"))["reshape_and_cache"]
    assert overload.mutates
    assert not overload.is_in_place
    assert not overload.is_out
    assert repr(Rows(x=1)) == "Rows(x=1)"
    assert repr(Sample(torch.ones(2), [1], eps=2.0)) == "(float32[2], [1], eps=2.0)"
