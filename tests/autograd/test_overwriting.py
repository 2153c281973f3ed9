"""A formula that may overwrite what is kept for it: only the last use does, where nobody can see it."""

import contextlib
import gc
import threading
from itertools import count

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from opwheel.dispatch import Operator, native_autograd, register_python
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from tests.ways import WAYS, go

native = pytest.mark.skipif(bool(native_autograd.why_not()), reason=native_autograd.why_not() or "there")

_names = (f"waves_overwriting_{number}" for number in count())
DOUBLE = torch.float64


def dot_reference(x, w):
    return (x * w).sum(), x.clone()


def scaled_reference(x, factor):
    return x * factor


def scaled_in_place_reference(x, factor):
    x.copy_(x * factor)


def negated_in_place_reference(x):
    x.copy_(-x)


DOT = "dot(Tensor x, Tensor w) -> (Tensor y, Tensor d_w)"
SCALED = "scaled(Tensor x, Tensor factor) -> Tensor"
SCALED_IN_PLACE = "scaled_(Tensor(a!) x, Tensor factor) -> ()"
DERIVATIVES = {"x": "grad * w", "w": "scaled_(d_w, grad)"}


class Library:
    """A product of vectors whose gradient of ``w`` is computed along the way, and kept for a formula to scale.

    Attributes:
        dot: the operator.
        kept: addresses of the results that formulas keep.
        calls: of the operators that scale: names, and whether the memory is that of such a result.
    """

    def __init__(
        self,
        kept_of=torch.clone,
        reference=dot_reference,
        derivatives=DERIVATIVES,
        schemas=(DOT, SCALED, SCALED_IN_PLACE),
    ):
        self.kept, self.calls = [], []
        self._kept_of = kept_of
        namespace = next(_names)
        operators = [
            Operator("dot", reference=reference, derivatives=derivatives, not_differentiable=("d_w",)),
            Operator("scaled", reference=scaled_reference),
            Operator("scaled_", reference=scaled_in_place_reference, derivatives=None),
        ]
        kernels = {"dot": self._dot, "scaled": self._scaled, "scaled_": self._scaled_in_place}
        given = {schema.partition("(")[0]: schema for schema in schemas}
        register_python(
            namespace,
            {schema: kernels[name] for name, schema in given.items()},
            [one for one in operators if one.name in given],
        )
        self.dot = getattr(torch.ops, namespace).dot.default

    def _dot(self, x, w):
        kept = self._kept_of(x.detach())
        self.kept.append(kept.data_ptr())
        return (x.detach() * w.detach()).sum(), kept

    def _scaled(self, x, factor):
        self.calls.append(("scaled", x.data_ptr() in self.kept))
        return x.detach() * factor.detach()

    def _scaled_in_place(self, x, factor):
        self.calls.append(("scaled_", x.data_ptr() in self.kept))
        x.mul_(factor)

    def loss(self, x, w):
        return self.dot(x, w)[0]


def inputs(dtype=DOUBLE):
    torch.manual_seed(0)
    return torch.randn(5, dtype=dtype), torch.randn(5, dtype=dtype, requires_grad=True)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("factor", [1.0, 0.0, -3.0])
def test_the_last_use_overwrites(monkeypatch, way, factor):
    go(monkeypatch, way)
    library = Library()
    x, w = inputs()
    (library.loss(x, w) * factor).backward()
    torch.testing.assert_close(w.grad, x * factor)
    assert library.calls == [("scaled_" if way == "native" else "scaled", True)]
    assert (w.grad.data_ptr() in library.kept) == (way == "native")


@native
def test_a_second_pass_is_refused():
    library = Library()
    x, w = inputs()
    loss = library.loss(x, w)
    loss.backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        loss.backward()
    torch.testing.assert_close(w.grad, x)


@native
def test_a_graph_that_is_kept_gives_the_same_twice():
    library = Library()
    x, w = inputs()
    loss = library.loss(x, w)
    found = [torch.autograd.grad(loss, w, torch.tensor(g, dtype=DOUBLE), retain_graph=True)[0] for g in (-2.0, 1.0)]
    found += torch.autograd.grad(loss, w, torch.tensor(3.0, dtype=DOUBLE))
    for value, factor in zip(found, (-2.0, 1.0, 3.0), strict=True):
        torch.testing.assert_close(value, x * factor)
    assert [name for name, _ in library.calls] == ["scaled", "scaled", "scaled_"]


def test_gradients_add_up():
    """Over calls of one backward pass, and over passes with gradients that are there already."""
    library = Library()
    x, w = inputs()
    for _ in range(3):
        (library.loss(x, w) * 0.5 + library.loss(2 * x, w) * -1.0).backward()
    torch.testing.assert_close(w.grad, 3 * (0.5 * x - 2 * x))


class Recording(TorchDispatchMode):
    """Keeps what it sees."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(args)
        return func(*args, **(kwargs or {}))


def held(library, x, w):
    return library.dot(x, w)


def held_as(change):
    def held(library, x, w):
        y, d_w = library.dot(x, w)
        return y, change(d_w)

    return held


class Square(torch.autograd.Function):
    """Keeps a tensor for its own gradient."""

    @staticmethod
    def forward(ctx, v, other):
        ctx.save_for_backward(other)
        return (v * other).sum()

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0], None


def kept_by_another_graph(library, x, w):
    y, d_w = library.dot(x, w)
    v = torch.ones(5, dtype=DOUBLE, requires_grad=True)
    other = Square.apply(v, d_w)
    return y, lambda: torch.autograd.grad(other, v)[0]


def packed(library, x, w):
    kept = []

    def pack(tensor):
        kept.append(tensor)
        return len(kept) - 1

    with torch.autograd.graph.saved_tensors_hooks(pack, kept.__getitem__):
        y = library.dot(x, w)[0]
    return y, next(one for one in kept if one.data_ptr() in library.kept)


HELD = {
    "the result": held,
    "a view": held_as(lambda d: d[:]),
    "detached": held_as(torch.Tensor.detach),
    "its storage": held_as(lambda d: torch.empty(0, dtype=DOUBLE).set_(d.untyped_storage(), 0, (5,), (1,))),
    "an array": held_as(lambda d: d.numpy()),
    "another graph": kept_by_another_graph,
    "hooks on saved tensors": packed,
}


@native
@pytest.mark.parametrize("holder", HELD)
def test_what_others_hold_stays(holder):
    library = Library()
    x, w = inputs()
    y, kept = HELD[holder](library, x, w)
    gc.collect()
    (y * -3.0).backward()
    torch.testing.assert_close(w.grad, -3 * x)
    torch.testing.assert_close(torch.as_tensor(kept() if callable(kept) else kept), x)
    assert library.calls == [("scaled", True)]


def test_memory_of_others_stays():
    """An array that a kernel keeps, and gives to PyTorch without a copy."""
    cache = {}

    def kept_of(x):
        return torch.from_numpy(cache.setdefault("x", x.numpy().copy()))

    library = Library(kept_of)
    x, w = inputs()
    for _ in range(2):
        (gradient,) = torch.autograd.grad(library.loss(x, w) * -3.0, w)
        torch.testing.assert_close(gradient, -3 * x)
    numpy.testing.assert_array_equal(cache["x"], x.numpy())


def test_what_a_kernel_keeps_stays():
    cache = {}
    library = Library(lambda x: cache.setdefault("x", x.clone()))
    x, w = inputs()
    for _ in range(2):
        (gradient,) = torch.autograd.grad(library.loss(x, w) * -3.0, w)
        torch.testing.assert_close(gradient, -3 * x)
    torch.testing.assert_close(cache["x"], x)


def again(loss, x, w):
    """Twice differentiable: the graph may be freed in the first pass all the same."""
    y = loss(x, w) * w.detach().sum().requires_grad_()
    return torch.autograd.grad(y, w, create_graph=True, retain_graph=False)[0].detach()


def batched(loss, x, w):
    grads = torch.tensor([1.0, -2.0], dtype=DOUBLE)
    return torch.autograd.grad(loss(x, w), w, grads, is_grads_batched=True)[0].sum(0)


def under_a_mode(loss, x, w):
    y = loss(x, w)
    with Recording() as mode:
        (gradient,) = torch.autograd.grad(y, w)
    assert all((one == x).all() for args in mode.seen for one in args[:1] if one.shape == x.shape)
    return gradient


def checkpointed(use_reentrant):
    def run(loss, x, w):
        checkpoint(loss, x.clone().requires_grad_(), w, use_reentrant=use_reentrant).backward()
        return w.grad

    return run


def inside(loss, x, w):
    """A pass in a hook of a pass."""
    y, other = loss(x, w), loss(x, w)
    found = []
    y.register_hook(lambda _: found.extend(torch.autograd.grad(other, w)))
    y.backward()
    assert torch.equal(found[0], w.grad)
    return w.grad


def compiled(loss, x, w):
    torch.compile(loss, backend="aot_eager", fullgraph=True)(x, w).backward()
    return w.grad


PASSES = {
    "create_graph": (again, 1.0),
    "batched": (batched, -1.0),
    "mode": (under_a_mode, 1.0),
    "checkpoint": (checkpointed(False), 1.0),
    "reentrant checkpoint": (checkpointed(True), 1.0),
    "inside": (inside, 1.0),
    "grad": (lambda loss, x, w: torch.func.grad(loss, argnums=1)(x, w.detach()), 1.0),
    "vmap of grad": (
        lambda loss, x, w: torch.func.vmap(torch.func.grad(loss, argnums=1))(x[None], w.detach()[None])[0],
        1.0,
    ),
    "compiled": (compiled, 1.0),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", PASSES)
def test_passes_of_all_kinds(monkeypatch, way, name):
    go(monkeypatch, way)
    run, factor = PASSES[name]
    library = Library()
    x, w = inputs()
    if name == "create_graph":
        factor = w.detach().sum()
    for _ in range(2):  # what was overwritten once too often would show
        w.grad = None
        torch.testing.assert_close(run(library.loss, x, w), x * factor)


@native
@pytest.mark.parametrize("is_in_hook", [False, True])
def test_a_node_called_by_hand(is_in_hook):
    """It is not freed by that, also where a pass runs that frees its own graph."""
    library = Library()
    x, w = inputs()
    y, found = library.loss(x, w), []
    if is_in_hook:
        twice = torch.ones((), dtype=DOUBLE, requires_grad=True) * 2
        twice.register_hook(lambda grad: found.append(y.grad_fn(grad, None)[1]))
        twice.backward()
    else:
        found += [y.grad_fn(torch.ones((), dtype=DOUBLE), None)[1] for _ in range(2)]
    y.backward()
    for one in (*found, w.grad):
        torch.testing.assert_close(one, x)


@native
@pytest.mark.parametrize(
    ("kept_of", "factor"), [(torch.Tensor.float, 1), (lambda x: x.expand(2, 5).contiguous(), 2)], ids=["dtype", "shape"]
)
def test_another_form_of_the_gradient(kept_of, factor):
    """What is kept has another dtype than the input, or its gradient is still to be added up."""
    x, w = inputs()
    library = Library(kept_of, lambda x, w: ((x * w).sum(), kept_of(x)))
    library.loss(x, w).backward()
    torch.testing.assert_close(w.grad, x * factor, rtol=1e-6, atol=1e-6)
    assert library.calls == [("scaled", True)]


@native
def test_a_mode_sees_no_other_tensor():
    """It may keep what a formula overwrites, also where that is the operator's only tensor."""
    calls = []

    def negated(x):
        calls.append("negated")
        return -x

    def negated_in_place(x):
        calls.append("negated_")
        x.neg_()

    namespace = next(_names)
    register_python(
        namespace,
        {
            DOT: lambda x, w: (-(x * w.detach()).sum(), x.clone()),
            "negated(Tensor x) -> Tensor": negated,
            "negated_(Tensor(a!) x) -> ()": negated_in_place,
        },
        [
            Operator(
                "dot",
                reference=lambda x, w: (-(x * w).sum(), x.clone()),
                derivatives={"x": "grad * -w", "w": "negated_(d_w)"},  # of a gradient of 1
                not_differentiable=("d_w",),
            ),
            Operator("negated", reference=torch.neg),
            Operator("negated_", reference=negated_in_place_reference, derivatives=None),
        ],
    )
    x, w = inputs()
    for mode in (contextlib.nullcontext(), Recording()):
        y = getattr(torch.ops, namespace).dot(x, w)[0]
        with mode:
            torch.testing.assert_close(torch.autograd.grad(y, w)[0], -x)
    assert calls == ["negated_", "negated"]


@native
def test_the_gradient_does_not_require_one():
    """Also where what is kept was made to, in the meantime."""
    library = Library()
    x, w = inputs()
    y, kept = library.dot(x, w)
    kept.requires_grad_()
    del kept
    (gradient,) = torch.autograd.grad(y, w)
    torch.testing.assert_close(gradient, x)
    assert not gradient.requires_grad


def test_threads():
    """Passes over one graph at the same time: each is right or refused, as PyTorch's own are."""
    library = Library()
    x, w = inputs()
    for _ in range(50):
        y = library.loss(x, w)
        start, found = threading.Barrier(3), []

        def run(y=y, start=start, found=found):
            start.wait()
            try:
                found.append(torch.autograd.grad(y, w, torch.tensor(-2.0, dtype=DOUBLE))[0])
            except RuntimeError as error:
                assert "second time" in str(error)  # noqa: PT017  # what else would end the thread alone

        threads = [threading.Thread(target=run) for _ in range(3)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        assert found
        for gradient in found:
            torch.testing.assert_close(gradient, -2 * x)


class PlainDot(torch.autograd.Function):
    """The same in Python, which overwrites nothing."""

    @staticmethod
    def forward(ctx, x, w):
        d_w = x.clone()
        ctx.save_for_backward(w, d_w)
        ctx.mark_non_differentiable(d_w)
        return (x * w).sum(), d_w

    @staticmethod
    def backward(ctx, grad, _):
        w, d_w = ctx.saved_tensors
        return grad * w, d_w * grad


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["call", "hold", "let go", "view", "use", "pass", "pass and keep", "differentiable pass", "part"]
        ),
        st.integers(0, 7),
        st.sampled_from([1.0, -2.0, 0.5]),
    ),
    min_size=3,
    max_size=14,
)


def trace_of(dot, steps):
    """What a program sees: gradients, values of what it holds, errors."""
    generator = torch.Generator().manual_seed(0)
    xs = [torch.randn(3, dtype=DOUBLE, generator=generator).requires_grad_() for _ in range(2)]
    ws = [torch.randn(3, dtype=DOUBLE, generator=generator).requires_grad_() for _ in range(2)]
    losses, kept, trace = [], [], []
    for step, number, factor in steps:
        if step == "call":
            y, d_w = dot(xs[number % 2], ws[number // 2 % 2])
            losses.append(y * factor if number < 6 else y)
            kept.append(d_w if number % 3 else None)
            del d_w  # or the program would hold the last one
        elif not losses:
            continue
        elif step == "hold":
            kept.append(kept[number % len(kept)])
        elif step == "let go":
            kept[number % len(kept)] = None
        elif step == "view" and kept[number % len(kept)] is not None:
            kept[number % len(kept)] = kept[number % len(kept)][:2]
        elif step == "use" and kept[number % len(kept)] is not None:
            losses.append((kept[number % len(kept)] * ws[0][:1]).sum() * factor)
        elif step == "part":
            losses.append(losses[number % len(losses)] + losses[-1] * factor)
        elif "pass" in step:
            loss = losses[number % len(losses)]
            try:
                gradients = torch.autograd.grad(
                    loss,
                    (xs + ws) if number < 4 else ws,
                    torch.tensor(factor, dtype=DOUBLE),
                    retain_graph="keep" in step,
                    create_graph="differentiable" in step,
                    allow_unused=True,
                )
                trace.append([None if one is None else one.detach().clone() for one in gradients])
            except RuntimeError as error:
                trace.append(str(error).partition("(")[0])
        trace.append([None if one is None else one.clone() for one in kept])
    return trace


@native
def test_random_programs():
    """Calls, holders and passes in any order see what they see where nothing is overwritten."""
    library = Library()

    @settings(max_examples=300)
    @given(STEPS)
    def check(steps):
        library.kept.clear()
        for found, expected in zip(trace_of(library.dot, steps), trace_of(PlainDot.apply, steps), strict=True):
            if isinstance(expected, str):
                assert found == expected
            else:
                torch.testing.assert_close(found, expected)

    check()
    assert {"scaled", "scaled_"} == {name for name, _ in library.calls}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"derivatives": {"w": "scaled_(x, grad)"}}, "scaled_ overwrites its first argument; it has to be a result in"),
        ({"derivatives": {"w": "scaled_(grad, d_w)"}}, "scaled_ overwrites its first argument"),
        ({"derivatives": {"w": "scaled_(x=d_w, factor=grad)"}}, "scaled_ overwrites its first argument"),
        ({"derivatives": {"w": "scaled_(y, grad)"}}, "scaled_ overwrites its first argument"),
        ({"derivatives": {"w": "scaled_(d_w, grad) + 1"}}, "scaled_ is a part of a formula"),
        ({"derivatives": {"w": "scaled_(d_w, scaled_(d_w, grad))"}}, "scaled_"),
        ({"derivatives": {"w": "scaled_(d_w, grad)", "x": "grad * w * d_w"}}, "scaled_ overwrites 'd_w'; and formulas"),
        ({"derivatives": {"w": "scaled_(d_w, grad * d_w)"}}, "scaled_ overwrites 'd_w'; and formulas name it more"),
        ({"derivatives": {"w": "scaled_(d_w, grad)", "x": lambda grad, d_w: grad * d_w}}, "and formulas name it more"),
        ({"derivatives": {"(w, x)": "scaled_(d_w, grad)"}}, "it can be the gradient of one input alone"),
        ({"schemas": (DOT, SCALED)}, "calls ['scaled_']; which must be operators of the library"),
        ({"schemas": (DOT, SCALED_IN_PLACE)}, "calls ['scaled']; which must be operators of the library"),
        (
            {"schemas": (DOT, SCALED, "scaled_(Tensor(a!) x, Tensor by) -> ()")},
            "scaled_ is not scaled in place; their schemas are scaled(Tensor x, Tensor factor) -> Tensor and scaled_(",
        ),
        ({"schemas": (DOT, SCALED, "scaled_(Tensor x, Tensor(a!) factor) -> ()")}, "scaled_ is not scaled in place"),
        ({"schemas": (DOT, SCALED, "scaled_(Tensor(a!) x, Tensor factor) -> Tensor")}, "scaled_ is not scaled in"),
    ],
)  # fmt: skip
def test_what_is_refused(monkeypatch, way, changes, words):
    go(monkeypatch, way)
    with pytest.raises(ValueError, match="derivatives") as refusal:
        Library(**changes)
    assert words in str(refusal.value)
