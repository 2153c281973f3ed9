"""What dispatch/ registers for libraries of every kind, in calls that most libraries never see."""

import re
from types import SimpleNamespace

import muladd
import pytest
import torch
import torch.distributed.tensor
import torch.utils.flop_counter
from opwheel.dispatch import (
    Elementwise,
    Opaque,
    Operator,
    calls,
    implement_references,
    inductor,
    native_autograd,
    register,
    register_python,
    reinplacing,
)
from opwheel.dispatch.kernel_errors import raise_if_out_of_memory
from opwheel.dispatch.overload import Overload
from opwheel.registry.policy import Policy
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

A, B = torch.rand(3, 4), torch.rand(3, 4)


def twice(x):
    return x * 2


@pytest.fixture
def declared():
    """Defines operators of a namespace of its own, without kernels; register() gets the library's description."""
    libraries = []

    def declare(namespace, schemas, operators, **description):
        if not libraries:
            libraries.append(torch.library.Library(namespace, "DEF"))
            for schema in schemas:
                libraries[0].define(schema)
        known = {"policy": Policy(), "load_pending": lambda: False, **description}
        return register(SimpleNamespace(namespace=namespace, schemas=tuple(schemas), **known), operators)

    declare.libraries = libraries
    yield declare
    for library in libraries:
        library._destroy()


def test_a_call_without_a_kernel_computes_the_reference_and_says_so_once(declared, recwarn):
    policy = Policy().replaced(fallback="reference")
    declared("opwheel_reference", ["twice(Tensor x) -> Tensor"], [Operator("twice", reference=twice)], policy=policy)
    for _ in range(2):
        assert torch.equal(torch.ops.opwheel_reference.twice(A), A * 2)
    (warning,) = [one for one in recwarn if "opwheel_reference" in str(one.message)]
    assert "computes on cpu with ATen" in str(warning.message)


def test_a_call_waits_for_backends_that_are_still_to_be_loaded(declared):
    def load():
        declared.libraries[0].impl("twice", twice, "CPU")
        return True

    operators = [Operator("twice", reference=twice)]
    declared("opwheel_pending", ["twice(Tensor x) -> Tensor"], operators, load_pending=load)
    assert torch.equal(torch.ops.opwheel_pending.twice(A), A * 2)


def test_a_library_that_is_registered_again(declared):
    """As after an import that failed: what the first attempt has registered is removed."""
    schemas = ["twice(Tensor x) -> Tensor"]
    operators = [Operator("twice", reference=twice, derivatives={"x": "grad * 2"}, flops=1)]
    for _ in range(2):
        overloads = declared("opwheel_again", schemas, operators)
    declared.libraries[0].impl("twice", twice, "CPU")
    x = A.clone().requires_grad_()
    torch.ops.opwheel_again.twice(x).sum().backward()
    assert torch.equal(x.grad, torch.full_like(x, 2))
    assert repr(overloads["twice"]) == "Overload(opwheel_again::twice)"


def test_a_nested_tensor_is_refused_by_name():
    with pytest.raises(RuntimeError, match="argument 'b' is a nested tensor"):
        torch.ops.muladd.mul(A, torch.nested.nested_tensor([B, B], layout=torch.strided))


def test_a_python_library_names_its_device():
    register_python(
        "opwheel_one_device", {"twice(Tensor x) -> Tensor": twice}, [Operator("twice", reference=twice, doc="Twice.")]
    )
    with pytest.raises(RuntimeError, match=re.escape("of layout torch.sparse_coo; convert them with .to_dense()")):
        torch.ops.opwheel_one_device.twice(A.to_sparse())


@pytest.mark.parametrize(
    ("device", "error", "words"),
    [
        ("cpu", RuntimeError, "allocate"),
        ("meta", torch.OutOfMemoryError, "META out of memory"),
    ],
)
def test_a_kernel_without_memory(device, error, words):
    count = 10**17 if device == "cpu" else 64
    with pytest.raises(error, match=words):
        raise_if_out_of_memory(RuntimeError(f"[OPWHEEL:OOM] f: no memory (bytes={count} device={device})"))


def test_memory_that_has_become_free():
    raise_if_out_of_memory(RuntimeError("[OPWHEEL:OOM] f: no memory (bytes=64 device=cpu)"))
    raise_if_out_of_memory(RuntimeError("another error"))


def test_decompositions_for_exported_programs():
    table = muladd.library.decompositions()
    function = table[torch.ops.muladd.muladd.default]
    torch.testing.assert_close(function(A, B, 2.0), A * B + 2.0)


@pytest.mark.parametrize("address", [None, 0])
def test_a_pytorch_whose_tensors_lie_elsewhere_calls_the_operators_itself(monkeypatch, address):
    monkeypatch.delenv("OPWHEEL_AUTOGRAD", raising=False)
    monkeypatch.setattr(calls.private, "tensor_address", lambda tensor: address)
    assert "do not begin as the native library takes them to" in calls._library.__wrapped__()


def test_a_library_of_calls_that_cannot_be_opened(monkeypatch, tmp_path):
    monkeypatch.delenv("OPWHEEL_AUTOGRAD", raising=False)
    (tmp_path / "libcalls.so").write_text("no library")
    monkeypatch.setattr(calls, "library_file", lambda name: tmp_path / "libcalls.so")
    assert "libcalls.so" in calls._library.__wrapped__()


@pytest.mark.parametrize(("abiflags", "name"), [("t", "cpython"), ("td", "cpython"), ("", "pypy")])
def test_a_python_without_the_global_lock_has_no_library_of_calls(abiflags, name, monkeypatch):
    monkeypatch.delenv("OPWHEEL_AUTOGRAD", raising=False)
    monkeypatch.setattr(calls, "library_file", lambda name: pytest.fail(f"{name} is looked for"))
    python = SimpleNamespace(abiflags=abiflags, implementation=SimpleNamespace(name=name))
    monkeypatch.setattr(calls, "sys", python)
    assert "global lock" in calls._library.__wrapped__()


def test_native_autograd_that_is_wanted_and_not_there(monkeypatch):
    monkeypatch.setenv("OPWHEEL_AUTOGRAD", "native")
    monkeypatch.setattr(native_autograd, "open_library", lambda name: "there is none in this test")
    with pytest.raises(ImportError, match="OPWHEEL_AUTOGRAD=native, but there is none in this test"):
        native_autograd._library.__wrapped__()


def test_a_compiler_without_a_table_of_decompositions(monkeypatch):
    """As in a PyTorch that has moved it: nothing is fused, and nothing has to be kept."""
    monkeypatch.setattr(inductor.private, "decompositions", lambda: None)
    tags, overloads = ["before"], muladd.library.overloads.values()
    monkeypatch.setattr(inductor.private, "change_cache_key_tag", lambda change: tags.append(change(tags[-1])))
    inductor.register(muladd.library, overloads)
    with inductor.kept(overloads):
        assert [tag.startswith("before muladd:") for tag in tags] == [False, True]


def overload(schema, **declaration):
    name = schema.partition("(")[0]
    return Overload(Operator(name, reference=twice, doc="", **declaration), "opwheel_alone", schema)


def test_the_reference_of_what_claims_nothing_is_a_new_tensor():
    same = Overload(Operator("f", reference=lambda x: x, doc=""), "opwheel_alone", "f(Tensor x) -> Tensor")
    result = same.rule.reference(same, (A.t(),))
    assert result.is_contiguous()
    assert torch.equal(result, A.t())
    assert result.data_ptr() != A.data_ptr()
    nothing = overload("fill(Tensor(a!) x) -> ()")
    assert nothing.rule.reference(nothing, (A,)) is None


@pytest.mark.parametrize("size", [0, 2])
def test_a_batch_of_an_operator_that_writes(size):
    """Each example is a call; of none, nothing is called."""

    def add(x, others):
        for other in others:
            x.add_(other)

    schema = "gather(Tensor(a!) x, Tensor[] others) -> ()"
    register_python(f"opwheel_writes_{size}", {schema: add}, [Operator("gather", reference=add, rule=Opaque())])
    op = getattr(torch.ops, f"opwheel_writes_{size}").gather
    x, one, all_ = torch.zeros(size, 3), torch.ones(3, size), torch.full((3,), 2.0)
    torch.vmap(lambda x, one: (op(x, [one, all_]), x)[1], in_dims=(0, 1))(x, one)
    assert torch.equal(x, torch.full((size, 3), 3.0))


@pytest.mark.parametrize("size", [0, 2])
def test_results_of_a_batch_of_an_operator_that_writes(size):
    """Those of no examples have the shapes that the fake kernel says."""

    def count(x, seen):
        seen.add_(1)
        return x * 2, x.sum()

    schema = "count(Tensor x, Tensor(a!) seen) -> (Tensor, Tensor)"
    register_python(f"opwheel_counts_{size}", {schema: count}, [Operator("count", reference=count)])
    doubled, total = torch.vmap(getattr(torch.ops, f"opwheel_counts_{size}").count)(
        torch.ones(size, 3), torch.ones(size)
    )
    assert torch.equal(doubled, torch.full((size, 3), 2.0))
    assert torch.equal(total, torch.full((size,), 3.0))


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("f(Tensor(a) x) -> Tensor", "is annotated as the memory of a result"),
        ("f(float t) -> Tensor", "an Elementwise() operator without a tensor"),
        ("f(Tensor x, *, float t) -> Tensor", "is keyword-only"),
        ("f(Tensor x) -> ()", "the results of an Elementwise() operator are Tensors"),
    ],
)
def test_schemas_that_are_not_element_wise(schema, words):
    one = overload(schema, rule=Elementwise())
    with pytest.raises(ValueError, match=re.escape(words)):
        one.rule.check(one)


def graph_of(function, *shapes):
    """What a function computes on copies by ``opwheel::copy``, as the compiler's graph with its tensors."""
    with FakeTensorMode() as mode:
        graph = make_fx(function)(*(torch.empty(shape) for shape in shapes)).graph
    del mode
    return [node for node in graph.nodes if node.target is reinplacing._copy_operator()]


def copies(function, *shapes):
    """For each ``opwheel::copy`` of a function whether it has to be one."""
    return [reinplacing._needs_copy(node) for node in graph_of(function, *shapes)]


def copy(x, is_written=False):
    return reinplacing._copy_operator()(x, is_written)


@pytest.mark.parametrize(
    ("function", "needed"),
    [
        (lambda x: copy(x) + 1, [False]),
        (lambda x: (copy(x), x.add_(1))[0] * 2, [True]),
        (lambda x: (copy(x) * 2, x.add_(1))[0], [False]),
        (lambda x: copy(x, True).add_(1), [True]),
        (lambda x: copy(x + 1, True).add_(1), [False]),
        (lambda x: copy((x + 1)[0], True).add_(1), [True]),
    ],
    ids=["read", "read after a change", "read before a change", "an argument", "a new tensor", "a part"],
)
def test_copies_for_what_writes_are_made_where_the_compiler_needs_them(function, needed):
    assert copies(function, (2, 3)) == needed


def test_a_tensor_that_is_looked_at_later_is_not_written_to():
    def function(x):
        y = x + 1
        copy(y, True).add_(1)
        return y

    assert copies(function, (2, 3)) == [True]


@pytest.fixture
def backend(declared):
    """A backend in Python for a device of that name, whose kernels are the references: a sum, out= and in place."""
    targets = []

    def make(namespace, device_type="cpu", reference=torch.add):
        text = "Tensor x, Tensor y"
        schemas = [
            f"plus({text}) -> Tensor",
            f"plus.out({text}, *, Tensor(a!) out) -> Tensor(a!)",
            "plus_(Tensor(a!) x, Tensor y) -> Tensor(a!)",
        ]
        declared(namespace, schemas, [Operator("plus", reference=reference, rule=Elementwise())])
        targets.append(torch.library.Library(namespace, "IMPL", "CPU"))
        implement_references(targets[0], device_type)
        return getattr(torch.ops, namespace)

    yield make
    for target in targets:
        target._destroy()


def test_a_backend_in_python_writes_where_it_may(backend):
    ops = backend("opwheel_plus")
    out = torch.empty(0)
    assert ops.plus.out(A, B, out=out) is out
    torch.testing.assert_close(out, A + B)
    x = A.clone()
    torch.testing.assert_close(ops.plus_(x, B), A + B)
    both = torch.rand(4, 8)
    even, odd = both[:, ::2], both[:, 1::2]
    expected = even + odd
    assert ops.plus_(even, odd) is even  # computed elsewhere first
    torch.testing.assert_close(even, expected)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda ops, x: ops.plus.out(x[:-1], x[:-1], out=x[1:]), "'out' and 'x' share memory without being the same"),
        (lambda ops, x: ops.plus(x.reshape((1,) * 64 + (8,)), x), "more than 64 dimensions are not supported"),
        (lambda ops, x: ops.plus_(x[:1].expand(4), x[:4]), "several elements of 'x' share one place in memory"),
    ],
    ids=["overlap", "dimensions", "expanded"],
)
def test_a_backend_in_python_refuses(backend, call, words):
    with pytest.raises(RuntimeError, match=words):
        call(backend("opwheel_plus_refuses"), torch.rand(8))


def test_a_backend_in_python_gets_no_tensor_without_memory(backend):
    x = torch.rand(8)
    x.untyped_storage().resize_(0)
    with pytest.raises(RuntimeError, match="argument 'y' has no memory"):
        backend("opwheel_plus_memory").plus(torch.rand(8), x)


def test_a_backend_in_python_gets_no_tensors_of_other_devices(backend):
    with pytest.raises(RuntimeError, match="argument 'x' is on cpu, but this kernel computes on xpu"):
        backend("opwheel_plus_xpu", "xpu").plus(A, B)


def test_errors_of_other_classes_pass(backend):
    def absent(x, y):
        raise NotImplementedError("not yet")

    with pytest.raises(NotImplementedError, match="not yet"):
        backend("opwheel_plus_absent", reference=absent).plus(A, B)


def test_what_writes_has_no_gradient():
    """Whichever argument requires one; under a transform, too."""
    schema = "store(Tensor(a!) x, Tensor y) -> ()"
    operator = Operator("store", reference=lambda x, y: x.copy_(y), derivatives=None)
    register_python("opwheel_stores", {schema: lambda x, y: x.copy_(y)}, [operator])
    op = torch.ops.opwheel_stores.store
    with pytest.raises(RuntimeError, match="it writes into 'x', which cannot be differentiated"):
        op(A.clone(), B.clone().requires_grad_())
    with pytest.raises(RuntimeError, match="it writes into 'x', which cannot be differentiated"):
        torch.func.grad(lambda y: (op(torch.zeros(3, 4), y), y.sum())[1])(B)
    x = torch.zeros(3, 4)
    torch.vmap(lambda x, y: (op(x, y), x)[1])(x, B)
    assert torch.equal(x, B)
    torch.func.grad(lambda y: (op(x, A), y.sum())[1])(B)  # of what no gradient is asked for
    assert torch.equal(x, A)


def test_a_gradient_that_nothing_declares():
    register_python(
        "opwheel_no_gradient", {"f(Tensor x) -> Tensor": twice}, [Operator("f", reference=twice, derivatives=None)]
    )
    op = torch.ops.opwheel_no_gradient.f
    result = op(A.clone().requires_grad_())
    with pytest.raises(RuntimeError, match="is not differentiable, but a gradient has arrived at its result"):
        result.sum().backward()
    with pytest.raises(RuntimeError, match="is not differentiable; call it with"):
        torch.func.grad(lambda x: op(x).sum())(A)


def test_none_is_not_a_tensor():
    with pytest.raises(TypeError, match="argument 'b' is None"):
        torch.ops.muladd.mul(A, None)
    with pytest.raises(TypeError, match="argument 'a' is None"):
        torch.ops.muladd.muladd_(None, A, 1.0)


def test_an_inference_tensor_is_not_overwritten_elsewhere():
    with torch.inference_mode():
        x = torch.rand(3, 4)
        muladd.muladd_(x, B, 1.0)
    with pytest.raises(RuntimeError, match="inference tensor"):
        muladd.muladd_(x, B, 1.0)


def test_out_has_no_gradient():
    x = A.clone().requires_grad_()
    with pytest.raises(RuntimeError, match="functions with out= do not support automatic differentiation"):
        torch.ops.muladd.muladd.out(x, B, 1.0, out=torch.empty(3, 4))


def test_gradients_by_the_reference_of_tensors_in_a_list():
    def total(xs, y, z=None):
        return sum(xs) * y

    schema = "total(Tensor[] xs, Tensor y, Tensor? z=None) -> Tensor"
    register_python("opwheel_lists", {schema: total}, [Operator("total", reference=total)])
    xs = [A.clone().requires_grad_(), B.clone()]
    torch.ops.opwheel_lists.total(xs, B).sum().backward()
    torch.testing.assert_close(xs[0].grad, B)
