"""Operators of unusual declarations under transformations do what a function of PyTorch's operators would."""

import itertools
import subprocess
import sys
from types import MappingProxyType, ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
import torch._dynamo.compiled_autograd
from opwheel.dispatch import Elementwise, Opaque, Operator, Rows, implement_functions, overloads_of, register_python
from opwheel.dispatch.inductor import digest
from opwheel.dispatch.overload import Overload
from opwheel.registry.policy import Policy

from .declared import declare

_names = (f"waves_transformed_{number}" for number in itertools.count())
_kept = []  # registrations last as long as these


def randn(*shape):
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def detached(function):
    """A kernel that autograd does not look into."""

    def of(value):
        if isinstance(value, list):
            return [of(one) for one in value]
        return value.detach() if isinstance(value, torch.Tensor) else value

    return lambda *args: function(*map(of, args))


def operator(schema, reference, *, kernel=None, **claims):
    """An operator of a library of its own."""
    namespace, name = next(_names), schema.partition("(")[0]
    register_python(namespace, {schema: kernel or detached(reference)}, [Operator(name, reference=reference, **claims)])
    return getattr(getattr(torch.ops, namespace), name)


class TestGradientsOfSomeGradients:
    """The first gradient is asked for by one input, the second by another one."""

    @pytest.mark.parametrize("first", [0, 1])
    @pytest.mark.parametrize("second", [0, 1])
    @pytest.mark.parametrize("derivatives", [{}, {"x": "grad * aten::cos(x) * w"}], ids=["none", "of one"])
    def test_through_the_reference(self, derivatives, first, second):
        def reference(x, w):
            return x.sin() * w if derivatives else x.pow(3) * w.pow(2)

        f = operator("f(Tensor x, Tensor w) -> Tensor", reference, derivatives=derivatives)
        self.compare(f, reference, [randn(3), randn(3)], first, second)

    @pytest.mark.parametrize("first", [0, 1, 2])
    @pytest.mark.parametrize("second", [0, 1, 2])
    def test_of_a_list(self, first, second):
        f = operator("f(Tensor[] parts) -> Tensor", lambda parts: (parts[0] * parts[1]).exp() * parts[2])
        reference = lambda *parts: (parts[0] * parts[1]).exp() * parts[2]  # noqa: E731
        self.compare(lambda *parts: f(parts), reference, [randn(3) for _ in range(3)], first, second)

    def test_where_a_formula_keeps_a_result(self):
        def norm(x, w):
            r = x.pow(2).mean(-1, keepdim=True).rsqrt()
            return x * r * w, r

        f = operator(
            "f(Tensor x, Tensor w) -> (Tensor y, Tensor r)",
            norm,
            derivatives={"w": "aten::sum(grads[0] * x * r, [0])", "x": lambda grads, x, w: gradient(grads[0], x, w)},
            not_differentiable=("r",),
        )

        def gradient(grad, x, w):
            with torch.enable_grad():
                leaf = x.view_as(x)
                return torch.autograd.grad(norm(leaf, w)[0], leaf, grad, create_graph=True)[0]

        for first, second in itertools.product(range(2), repeat=2):
            self.compare(lambda x, w: f(x, w)[0], lambda x, w: norm(x, w)[0], [randn(2, 3), randn(3)], first, second)

    @staticmethod
    def compare(f, reference, inputs, first, second):
        found = []
        for function in (f, reference):
            (one,) = torch.autograd.grad(function(*inputs).pow(2).sum(), inputs[first], create_graph=True)
            found.append(torch.autograd.grad(one.pow(2).sum(), inputs[second])[0])
        torch.testing.assert_close(*found)


@pytest.mark.parametrize("formulas", [{}, {"x": "grad * aten::exp(x * y) * y"}], ids=["none", "of one"])
@pytest.mark.parametrize("needs", [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize("again", [False, True])
def test_in_place_without_a_formula(again, needs, formulas):
    schemas = "ex(Tensor x, Tensor y) -> Tensor", "ex_(Tensor(a!) x, Tensor y) -> Tensor(a!)"
    namespace = next(_names)
    definitions = torch.library.Library(namespace, "DEF")
    for schema in schemas:
        definitions.define(schema)
    reference = lambda x, y: (x * y).exp()  # noqa: E731
    declare(namespace, schemas, [Operator("ex", reference=reference, rule=Elementwise(), derivatives=formulas)])
    target = torch.library.Library(namespace, "IMPL", "CPU")
    _kept.extend((definitions, target))
    implement_functions(target, overloads_of(target).values(), "cpu")
    ex_ = getattr(torch.ops, namespace).ex_

    leaves = [torch.randn(3, requires_grad=need) for need in needs]
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    results = ex_(leaves[0] * 1, leaves[1]), reference(*leaves)
    for _ in range(2):  # what is kept is not overwritten
        found = [torch.autograd.grad(r.sum(), wanted, create_graph=again, retain_graph=True) for r in results]
        torch.testing.assert_close(*found)
    if again:
        second = [torch.autograd.grad(sum(g.pow(2).sum() for g in one), wanted) for one in found]
        torch.testing.assert_close(*second)


class TestResultsAreNew:
    """A reference or kernel may return an argument, part of one, or one tensor twice; the operator does not."""

    REFERENCES = (
        ("the argument", lambda x: (x, x * 2)),
        ("a view", lambda x: (x.view(-1).view_as(x), x * 2)),
        ("a part", lambda x: (x[:], x[:1])),
        ("one twice", lambda x: (y := x * 2, y)),
    )
    TRANSFORMS = (
        ("eager", lambda f: f),
        ("vmap", lambda f: torch.vmap(f)),
        ("vmap of vmap", lambda f: lambda x: torch.vmap(torch.vmap(f))(x[None])[0]),
        ("vjp", lambda f: lambda x: torch.func.vjp(f, x)[0]),
        ("jvp", lambda f: lambda x: torch.func.jvp(f, (x,), (x,))[0]),
        ("aot_eager", lambda f: torch.compile(f, backend="aot_eager")),
    )

    @pytest.mark.parametrize(("what", "reference"), REFERENCES, ids=[name for name, _ in REFERENCES])
    @pytest.mark.parametrize(("how", "transform"), TRANSFORMS, ids=[name for name, _ in TRANSFORMS])
    def test_of_references(self, how, transform, what, reference):
        f = operator("f(Tensor x) -> (Tensor, Tensor)", reference)

        def program(x):
            first, second = f(x)
            first.mul_(3)
            return x.sum() + second.sum()

        x = torch.rand(2, 3) + 1
        copies = [one.clone() for one in reference(x[0] if "vmap" in how else x)]
        expected = x.sum() + copies[1].sum() if "vmap" not in how else x[0].sum() + copies[1].sum()
        torch.testing.assert_close(transform(program)(x.clone()).flatten()[0], expected)

    def test_of_an_elementwise_operator_under_inductor(self):
        f = operator("f(Tensor x, float by) -> Tensor", lambda x, by: x * by if by else x, rule=Elementwise())
        x = torch.ones(3)
        torch.compile(lambda x: f(x, 0.0))(x).add_(1)
        assert x.equal(torch.ones(3))

    @pytest.mark.parametrize("needs", [False, True])
    def test_of_numpys_memory(self, needs):
        """Other libraries' arrays over an argument's memory have a storage of their own."""
        kernel = lambda x: torch.from_numpy(np.ascontiguousarray(x.detach().numpy()))  # noqa: E731
        f = operator("f(Tensor x) -> Tensor", lambda x: x.clone(), kernel=kernel)
        x = torch.ones(4, requires_grad=needs)
        y = f(x)
        with torch.no_grad():
            y.add_(1)
        assert x.equal(torch.ones(4))

    def test_of_two_results_over_one_array(self):
        def kernel(x):
            array = (x.detach() * 2).numpy()
            return torch.from_numpy(array), torch.from_numpy(array[:2])

        f = operator("f(Tensor x) -> (Tensor, Tensor)", lambda x: (x * 2, (x * 2)[:2]), kernel=kernel)
        first, second = f(torch.ones(4))
        first.zero_()
        assert second.equal(torch.full((2,), 2.0))

    @pytest.mark.parametrize("reference", [lambda x: x.conj(), lambda x: x.conj().imag, lambda x: x._neg_view()])
    def test_without_bits_that_tensors_of_other_memory_have(self, reference):
        f = operator("f(Tensor x) -> Tensor", reference, kernel=reference, derivatives=None)
        x = torch.randn(3, dtype=torch.complex64)
        assert not f(x).is_conj()
        assert not f(x).is_neg()
        torch.testing.assert_close(f(x), reference(x).resolve_conj().resolve_neg())


class TestAutocast:
    @pytest.mark.parametrize("rule", [Elementwise(), Opaque()], ids=repr)
    @pytest.mark.parametrize(("policy", "dtype"), [("float32", torch.bfloat16), ("lower_precision", torch.float32)])
    def test_transforms_follow_the_policy(self, policy, dtype, rule):
        f = operator("f(Tensor x) -> Tensor", lambda x: x.exp(), rule=rule, autocast=policy)
        x = torch.randn(3, 4, dtype=dtype)
        with torch.autocast("cpu"):
            expected = f(x).dtype
            assert expected is not dtype
            assert torch.vmap(f)(x).dtype is expected
            assert torch.func.vjp(f, x)[0].dtype is expected
            assert torch.func.jvp(f, (x,), (x,))[0].dtype is expected

    @pytest.mark.parametrize("forward", [False, True])
    @pytest.mark.parametrize("backward", [False, True])
    @pytest.mark.parametrize("compiled", [False, True])
    def test_gradients_through_the_reference_are_computed_in_the_kernels_dtype(self, compiled, backward, forward):
        if compiled and backward:
            pytest.skip("a compiled graph's own operators, PyTorch's too, are cast where it runs")
        f = operator("f(Tensor x, Tensor w) -> Tensor", lambda x, w: (x @ w).exp(), autocast="float32")
        function = torch.compile(f, backend="aot_eager") if compiled else f
        x, w = (torch.randn(4, 4, requires_grad=True) for _ in range(2))
        expected = torch.autograd.grad((x @ w).exp().sum(), (x, w))
        with torch.autocast("cpu", enabled=forward):
            y = function(x, w)
        with torch.autocast("cpu", enabled=backward):
            found = torch.autograd.grad(y, (x, w), torch.ones_like(y))
        torch.testing.assert_close(found, expected)


class TestWithoutAGradient:
    """What is declared to have none has none under transformations, too."""

    @staticmethod
    def norm(x):
        r = x.pow(2).mean(-1, keepdim=True).rsqrt()
        return x * r, r

    def test_results(self):
        f = operator("n(Tensor x) -> (Tensor y, Tensor r)", self.norm, not_differentiable=("r",))
        total = lambda x: sum(one.sum() for one in f(x))  # noqa: E731
        x = randn(3)
        expected = torch.autograd.grad(total(x), x)[0]
        torch.testing.assert_close(torch.func.grad(total)(x.detach()), expected)
        torch.testing.assert_close(torch.func.jacfwd(total)(x.detach()), expected)
        torch.testing.assert_close(torch.vmap(torch.func.grad(total))(x.detach()[None])[0], expected)
        torch.testing.assert_close(torch.autograd.grad(torch.vmap(total)(x[None]).sum(), x)[0], expected)

    def test_operators(self):
        f = operator("q(Tensor x) -> Tensor", torch.sin, derivatives=None)
        x = torch.randn(2, 3, requires_grad=True)
        with pytest.raises(RuntimeError, match="q: is not differentiable; under vmap"):
            torch.vmap(f)(x)
        with torch.no_grad():
            torch.testing.assert_close(torch.vmap(f)(x), x.sin())
        torch.testing.assert_close(torch.vmap(f)(x.detach()), x.sin())


class TestRandomOperatorsUnderVmap:
    """They obey ``randomness``, whether or not their arguments are batched."""

    @staticmethod
    def noisy(x, p):
        mask = torch.rand_like(x) < p
        return x * mask, mask

    @pytest.mark.parametrize("is_batched", [True, False])
    @pytest.mark.parametrize("rule", [Rows(x=1), Opaque()], ids=repr)
    @pytest.mark.parametrize("randomness", ["error", "same", "different"])
    def test_randomness(self, randomness, rule, is_batched):
        f = operator(
            "noisy(Tensor x, float p, Generator? generator=None) -> (Tensor y, Tensor mask)",
            lambda x, p, generator: self.noisy(x, p),
            rule=rule,
            derivatives={"x": lambda grads, mask: grads[0] * mask},
            not_differentiable=("mask",),
        )
        x, other = torch.ones(64), torch.zeros(4, 1)
        given, dims = (x.expand(4, 64), 0) if is_batched else (x, None)
        call = torch.vmap(lambda x, other: f(x, 0.5)[0] + other, in_dims=(dims, 0), randomness=randomness)
        if randomness == "error":
            with pytest.raises(RuntimeError, match="random"):
                call(given, other)
            return
        y = call(given, other)
        assert y.shape == (4, 64)
        assert bool((y == y[0]).all()) == (randomness == "same")


@pytest.mark.parametrize("dims", [1, 2, 3, 4])
@pytest.mark.parametrize("own", [1, 2, 3])
def test_vmap_over_rows_of_few_dimensions(own, dims):
    def over_last(x):
        return x / x.pow(2).sum(tuple(range(-min(own, x.dim()), 0)), keepdim=True)

    f = operator("f(Tensor x) -> Tensor", over_last, rule=Rows(x=own))
    x = torch.randn(2, *range(3, 2 + dims))
    torch.testing.assert_close(torch.vmap(f)(x), torch.stack([over_last(one) for one in x]))


class TestFormulasInText:
    @pytest.mark.parametrize("number", [2, True, 0.5, 1 + 2j])
    @pytest.mark.parametrize("formula", ["grad * (-a)", "aten::mul(grad, -a)", "grad * (0 - a)", "(-a) * grad"])
    def test_arithmetic_of_scalars(self, formula, number):
        f = operator("f(Tensor x, Scalar a) -> Tensor", lambda x, a: x * -a, derivatives={"x": formula})
        x = torch.ones(2, dtype=torch.complex64, requires_grad=True)
        (found,) = torch.autograd.grad(f(x, number), x, torch.ones(2, dtype=torch.complex64))
        torch.testing.assert_close(found, torch.full((2,), -number, dtype=torch.complex64))

    def test_minus_nothing(self):
        f = operator("f(Tensor x, float a) -> Tensor", lambda x, a: x / -a, derivatives={"x": "grad / -a"})
        x = torch.ones(1, requires_grad=True)
        assert torch.autograd.grad(f(x, 0.0), x)[0].item() == -torch.inf


def test_compiled_autograd_knows_the_places_in_a_list():
    weighed = lambda parts: sum(one * (i + 1) for i, one in enumerate(parts) if one is not None)  # noqa: E731
    f = operator("f(Tensor?[] p) -> Tensor", weighed, derivatives={"p": "[grad, grad * 2]"})
    for place in (0, 1):
        a = torch.ones(2, requires_grad=True)
        with torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager")):
            f([a if i == place else None for i in range(2)]).sum().backward()
        assert a.grad.equal(torch.full((2,), place + 1.0))


class TestCallsWithoutATensor:
    """They compute on PyTorch's default device, as there is no tensor to choose one by."""

    def test_an_empty_list(self):
        f = operator("f(Tensor[] parts, float v) -> Tensor", lambda parts, v: torch.full((2,), v), derivatives=None)
        assert f([], 3.0).equal(torch.full((2,), 3.0))

    def test_none(self):
        f = operator("f(Tensor? x, int n) -> Tensor", lambda x, n: torch.zeros(n), derivatives=None)
        assert f(None, 2).equal(torch.zeros(2))


@pytest.mark.parametrize("returns", ["()", "Tensor", "(Tensor, Tensor)"])
def test_vmap_of_no_examples_over_an_operator_that_writes(returns):
    def add(target, x):
        target.add_(x)
        return {"()": None, "Tensor": x * 2, "(Tensor, Tensor)": (x * 2, x.sum())}[returns]

    f = operator(f"f(Tensor(a!) c, Tensor x) -> {returns}", add, derivatives=None)
    result = torch.vmap(lambda c, x: (f(c, x), x)[returns == "()"])(torch.zeros(0, 2), torch.ones(0, 2))
    shapes = [one.shape for one in (result if isinstance(result, tuple) else (result,))]
    assert shapes == [(0, 2), (0,)][: 1 + (returns == "(Tensor, Tensor)")]


@pytest.mark.parametrize("results", [1, 2])
def test_a_kernel_of_an_elementwise_operator_may_return_a_tuple(results):
    returns = ", ".join(["Tensor"] * results)
    f = operator(f"f(Tensor x) -> ({returns})", lambda x: (x * 2,) * results, rule=Elementwise())
    found = f(torch.ones(3))
    for one in found if results > 1 else [found]:
        assert one.equal(torch.full((3,), 2.0))


class TestDigest:
    """Compiled programs that are kept on disk depend on all that a declaration says of how it computes."""

    BASE = MappingProxyType({"reference": lambda x: (x * 1.0, x), "rule": Opaque()})
    CHANGES = (
        {"reference": lambda x: (x * 2.0, x)},
        {"rule": Rows(x=1)},
        {"derivatives": {"x": "grads[0]"}},
        {"derivatives": {"x": "grads[0] * 2"}},
        {"derivatives": {"x": lambda grads: grads[0] * 3}},
        {"derivatives": None},
        {"not_differentiable": ("r",)},
        {"autocast": "float32"},
        {"fake": lambda x: (x.new_empty(x.shape), x)},
    )

    @staticmethod
    def digest(**claims):
        schema = "f(Tensor x) -> (Tensor y, Tensor r)"
        overload = Overload(Operator("f", **TestDigest.BASE | claims), "waves_digested", schema, {})
        return digest(SimpleNamespace(policy=Policy()), [overload])

    def test_of_every_field(self):
        digests = [self.digest(**change) for change in ({}, *self.CHANGES)]
        assert len({*digests}) == len(digests)
        assert digests == [self.digest(**change) for change in ({}, *self.CHANGES)]

    def test_of_what_is_called_in_other_modules(self, monkeypatch):
        def part(module, value):
            exec(f"def of(x): return x * {value}", vars(module))

        package, module = ModuleType("waves_package"), ModuleType("waves_package.inner")
        package.inner = module
        monkeypatch.setitem(globals(), "waves_package", package)
        part(module, 1.0)
        reference = lambda x: (waves_package.inner.of(x), x)  # noqa: E731, F821
        before = self.digest(reference=reference)
        assert self.digest(reference=reference) == before
        part(module, 2.0)
        assert self.digest(reference=reference) != before

    def test_of_what_is_not_known_yet(self):
        reference = lambda x: (later(x), x)  # noqa: E731
        assert self.digest(reference=reference) != self.digest(reference=reference)
        later = torch.sin

    def test_is_the_same_in_another_process_and_thread(self):
        code = (
            "import muladd, transformer_ops, torch._inductor.decomposition, threading;"
            "threading.Thread(target=lambda: print(torch.compiler.config.cache_key_tag)).start()"
        )
        done = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in "ab"]
        assert "transformer_ops:" in done[0].stdout
        assert done[0].stdout == done[1].stdout
