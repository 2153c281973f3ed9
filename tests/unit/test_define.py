"""opwheel.define: an operator from a function; what it refuses, and how it replaces one."""

import inspect
import pickle

import numpy as np
import opwheel
import pytest
import torch
from opwheel.dispatch import Elementwise, Operator, Rows, defining, python_operators, register_python, registration
from opwheel.registry import NoKernelError
from torch.nn import functional

SCHEMA = "notebook::softplus(Tensor x, float beta=1.0) -> Tensor"


def reference(x, beta):
    return torch.log1p(torch.exp(beta * x)) / beta


def kernel(x, beta):
    """Return ``log(1 + exp(beta * x)) / beta``."""
    return torch.from_numpy(np.log1p(np.exp(beta * x.numpy())) / np.asarray(beta, x.numpy().dtype))


def twice(x, beta):
    return 2 * reference(x, beta)


def kernel_of_any(*args):
    return args[0].clone()


def softplus(function=kernel, *, schema=SCHEMA, reference=reference, **fields):
    return opwheel.define(schema, reference=reference, **fields)(function)


def registrations():
    """All that PyTorch's dispatcher, its fake kernels and opwheel know of operators."""
    names = [
        name for name in torch._C._dispatch_get_all_op_names() if name.split("::")[0].startswith(("notebook", "mine"))
    ]
    fakes = torch._library.simple_registry.singleton._data
    return {
        **{
            name: (torch._C._dispatch_dump(name), len(fakes[name].fake_impl.kernels) if name in fakes else 0)
            for name in names
        },
        "without a schema": sorted(torch._C._dispatch_find_dangling_impls()),
        "functions": [sorted(vars(opwheel.functions_of(one))) for one in ("notebook", "mine")],
        "packets": [sorted(vars(getattr(torch.ops, one))) for one in ("notebook", "mine")],
    }


@pytest.fixture(scope="module", autouse=True)
def _others():
    library = torch.library.Library("mine", "FRAGMENT")
    library.define("taken(Tensor x) -> Tensor")
    register_python(
        "mine",
        {"registered(Tensor x) -> Tensor": torch.clone},
        [Operator("registered", reference=torch.clone, doc="A copy.")],
    )
    torch.ops.mine.taken, torch.ops.mine.registered  # noqa: B018  # found by name, from now on
    yield
    library._destroy()


@pytest.fixture(autouse=True)
def _defined_in_a_test():
    yield
    for (namespace, name), (operators, _) in list(defining._defined.items()):
        if namespace == "notebook":
            operators.remove()
            del defining._defined[namespace, name]


def test_the_function():
    """The signature and types of the schema, the kernel's docstring."""
    made = softplus()
    assert str(inspect.signature(made)) == "(x: torch.Tensor, beta: float = 1.0) -> torch.Tensor"
    assert made.__doc__ == kernel.__doc__
    assert (made.__name__, made.__module__) == ("softplus", __name__)
    assert opwheel.operators_of(made) == (torch.ops.notebook.softplus.default,)
    assert opwheel.functions_of("notebook").softplus is made
    globals()["softplus_of_pickle"] = made
    x = torch.randn(3)
    torch.testing.assert_close(made(x, 2), functional.softplus(x, 2))


def test_without_a_docstring_the_function_has_the_schema():
    assert softplus(lambda x, beta: kernel(x, beta)).__doc__ == SCHEMA


def test_everything_follows_from_the_declaration():
    made = softplus(
        schema="notebook::softplus(Tensor x, float beta) -> Tensor",
        rule=Elementwise(),
        derivatives={"x": lambda grad, x, beta: grad * torch.sigmoid(beta * x)},
    )
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    torch.autograd.gradcheck(made, (x, 2.0), check_forward_ad=True)
    torch.autograd.gradgradcheck(made, (x, 2.0))
    torch.testing.assert_close(torch.vmap(made, (0, None))(x, 1.0), functional.softplus(x))
    torch.testing.assert_close(torch.func.jacrev(made)(x[0], 1.0), torch.diag(torch.sigmoid(x[0])))
    compiled = torch.compile(made, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, 1.0), functional.softplus(x))
    torch.library.opcheck(torch.ops.notebook.softplus.default, (x, 1.0))


def test_a_function_of_pytorch_s_operators_is_its_own_reference():
    made = opwheel.define("notebook::cube(Tensor x) -> Tensor")(lambda x: x * x * x)
    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    torch.autograd.gradcheck(made, (x,))
    torch.testing.assert_close(torch.vmap(made)(x), x**3)


def test_kernels_for_several_devices():
    made = softplus(device_type="cuda", kernels={"xpu": twice})
    for key in ("CUDA", "XPU"):
        assert torch._C._dispatch_has_kernel_for_dispatch_key("notebook::softplus", key)
    with pytest.raises(NoKernelError, match="no kernel for cpu tensors: it computes on cuda and xpu; move them"):
        made(torch.ones(2))


MISTAKES = {
    "no schema": ({"schema": 5}, "takes the operator's schema, such as 'mine::softplus"),
    "no namespace": (
        {"schema": "softplus(Tensor x, float beta) -> Tensor"},
        "begins without a namespace; write it as",
    ),
    "no comma": (
        {"schema": "notebook::softplus(Tensor x float beta) -> Tensor"},
        r"not understood at position 28, 'float beta\) -> Tensor': expected \) but found 'ident'",
    ),
    "no result": ({"schema": "notebook::softplus(Tensor x, float beta)"}, "is not complete: .*; write arguments and"),
    "a name alone": ({"schema": "notebook::softplus"}, "is not complete: .*; write arguments and results"),
    "no default": (
        {"schema": "notebook::softplus(Tensor? x=None, float beta) -> Tensor"},
        "the argument 'beta' without a default follows one with a default",
    ),
    "an overload": ({"schema": "notebook::softplus.out(Tensor x, float beta) -> Tensor"}, "leave '.out' out"),
    "an unknown type": ({"schema": "notebook::softplus(Tensor x, flot beta) -> Tensor"}, "'beta' is a flot"),
    "a view": (
        {"schema": "notebook::softplus(Tensor(a) x, float beta) -> Tensor(a)"},
        "which would be a view; return",
    ),
    "in place": ({"schema": "notebook::softplus(Tensor(a!) x, float beta) -> Tensor(a!)"}, "end the schema with '-> "),
    "no tensor": (
        {"schema": "notebook::softplus(float beta) -> Tensor", "function": lambda beta: 0, "reference": lambda beta: 0},
        "nothing says on which device it computes",
    ),
    "a word of Python": (
        {
            "schema": "notebook::softplus(Tensor x, float async) -> Tensor",
            "function": kernel_of_any,
            "reference": kernel_of_any,
        },
        "cannot have the name 'async'",
    ),
    "aten": (
        {"schema": "aten::softplus(Tensor x, float beta) -> Tensor"},
        "the namespace 'aten' is PyTorch's; choose",
    ),
    "prims": ({"schema": "prims::sin(Tensor x, float beta) -> Tensor"}, "the namespace 'prims' is PyTorch's"),
    "opwheel": ({"schema": "opwheel::copy(Tensor x, float beta) -> Tensor"}, "of a library of operators; choose"),
    "installed": ({"schema": "muladd::mul(Tensor x, float beta) -> Tensor"}, "library of operators.*; choose"),
    "somebody's": ({"schema": "mine::taken(Tensor x, float beta) -> Tensor"}, "mine::taken is defined already, by"),
    "registered": ({"schema": "mine::registered(Tensor x, float beta) -> Tensor"}, "mine::registered is defined alr"),
    "a decorator without a schema": ({"schema": kernel}, "takes the operator's schema, such as"),
    "meta": ({"device_type": "meta"}, r"device_type is 'meta', whose tensors have no data; give define\(fake=...\)"),
    "gpu": ({"device_type": "gpu"}, "device_type is 'gpu', did you mean 'cuda'; PyTorch knows no device"),
    "cdua": ({"kernels": {"cdua": kernel}}, "device_type is 'cdua', did you mean 'cuda'"),
    "no function for a device": ({"kernels": {"cuda": 5}}, "its kernel for cuda is 5, expected a function"),
    "too few parameters": ({"function": lambda x: x}, r"its kernel .*<lambda>\(x\) is called as \(x, beta\); give it"),
    "too many parameters": ({"function": lambda x, beta, t: x}, "its kernel .* is called as"),
    "other names": ({"function": lambda beta, x: x}, r"its kernel .*\(beta, x\) is called as \(x, beta\)"),
    "reference with too few": ({"reference": lambda x: x}, "its reference .* is called as"),
    "reference with another name": ({"reference": lambda x, b: x}, "its reference .* is called as"),
    "a fake of another operator": ({"fake": lambda x: x}, "its fake .* is called as"),
    "no reference": ({"reference": None}, r"calls .numpy\(\), and PyTorch cannot look into NumPy; give define"),
    "reference is a number": ({"reference": 5}, "reference is 5, expected a function"),
    "rule is a class": ({"rule": Rows}, "rule is .*, expected a rule such as Opaque"),
    "rows of a number": ({"rule": Rows(beta=1)}, "beta"),
    "element-wise": (
        {"schema": "notebook::softplus(Tensor[] x, float beta) -> Tensor", "rule": Elementwise()},
        "softplus",
    ),
    "autocast": ({"autocast": "half"}, "autocast is 'half', expected 'promote'"),
    "compile": ({"compile": "never"}, "compile is 'never', expected"),
    "derivative of a number": ({"derivatives": {"beta": lambda grad: grad}}, r"derivatives of \['beta'\]"),
    "derivative of what it is not": ({"derivatives": {"y": "grad"}}, r"derivatives of \['y'\]; its tensors are"),
    "a formula's parameter": ({"derivatives": {"x": lambda grad, y: grad}}, r"uses \['y'\]; there are"),
    "a formula's text": ({"derivatives": {"x": "grad *"}}, "derivatives"),
    "a formula of what is not there": ({"derivatives": {"x": "sigmoid_of(grad)"}}, r"calls \['sigmoid_of'\]"),
    "not differentiable": ({"not_differentiable": ("y",)}, "not_differentiable names"),
}


# Whose message shows a place in the text, on lines of its own; all others are one line.
WITH_A_CARET = {"a formula's text", "a formula of what is not there"}


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize("is_there", [False, True], ids=["new", "replaced"])
def test_a_mistake_leaves_nothing_behind(mistake, is_there):
    """Refused by name; the dispatcher is as it was, and the corrected cell works."""
    fields, words = MISTAKES[mistake]
    made = softplus() if is_there else None
    before = registrations()
    with pytest.raises(ValueError, match=words) as error:
        softplus(**fields)
    assert registrations() == before
    assert ("\n" in str(error.value)) == (mistake in WITH_A_CARET)
    x = torch.randn(3)
    if made is not None:
        torch.testing.assert_close(made(x), functional.softplus(x))
    torch.testing.assert_close(softplus()(x), functional.softplus(x))


STEPS = [
    (registration, "_register_overload"),
    (registration, "_register_autograd"),
    (registration, "_register_later"),
    (registration, "NativeAutograd"),
    (python_operators, "fallback_kernel"),
    (python_operators, "make_functions"),
]


@pytest.mark.parametrize(("module", "step"), STEPS, ids=[step for _, step in STEPS])
@pytest.mark.parametrize("schema", [None, SCHEMA, SCHEMA.replace("1.0", "2.0")], ids=["new", "same", "changed"])
def test_what_fails_halfway_is_undone(monkeypatch, module, step, schema):
    """Errors that no check foresees."""
    made = softplus(schema=schema, derivatives={"x": lambda grad: grad}) if schema else None
    op = torch.ops.notebook.softplus.default if schema else None
    before = registrations()
    calls = []

    def fail(*args, **kwargs):
        calls.append(1)
        monkeypatch.undo()
        raise OSError("no memory")

    monkeypatch.setattr(module, step, fail)
    with pytest.raises(OSError, match="no memory"):
        softplus(twice, reference=twice, derivatives={"x": lambda grad: grad})
    assert calls == [1]
    assert registrations() == before
    if made is not None:
        x = torch.ones(2, requires_grad=True)
        for call in (made, op, torch.ops.notebook.softplus):
            torch.testing.assert_close(call(x, 1.0), functional.softplus(x))


def test_a_register_python_that_fails_leaves_nothing():
    before = registrations()
    with pytest.raises(ValueError, match="derivatives"):
        register_python(
            "notebook",
            {"f(Tensor x) -> Tensor": torch.clone},
            [Operator("f", reference=torch.clone, derivatives={"y": "grad"})],
        )
    assert registrations() == before


def test_a_register_python_of_what_is_there_leaves_the_first():
    with pytest.raises(RuntimeError, match="mine::registered"):
        register_python(
            "mine", {"registered(Tensor x) -> Tensor": torch.clone}, [Operator("registered", reference=torch.clone)]
        )
    x = torch.ones(3, requires_grad=True)
    torch.ops.mine.registered(x).sum().backward()
    assert x.grad.tolist() == [1.0] * 3


class Holder(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x) + 1


def test_the_cell_again_replaces_the_operator():
    """For all that holds it: functions, overloads, exported, traced and compiled programs."""
    x = torch.randn(3)
    made, op = softplus(), torch.ops.notebook.softplus.default
    holders = [
        Holder(made),
        Holder(op),
        torch.compile(Holder(made), fullgraph=True, backend="aot_eager"),
        torch.compile(Holder(op), fullgraph=True, backend="aot_eager"),
        torch.export.export(Holder(made), (x,)).module(),
        torch.jit.trace(Holder(made), (x,)),
    ]
    for holder in holders:
        torch.testing.assert_close(holder(x), functional.softplus(x) + 1)
    assert softplus(twice, reference=twice) is made
    assert torch.ops.notebook.softplus.default is op
    for holder in holders:
        torch.testing.assert_close(holder(x), 2 * functional.softplus(x) + 1)


def test_another_schema():
    """Functions of the old one say so; who looks it up by name gets the new one."""
    x = torch.randn(3)
    made, op, packet = softplus(), torch.ops.notebook.softplus.default, torch.ops.notebook.softplus
    named = [op, packet, torch.compile(op, backend="aot_eager")]
    named.append(torch.compile(lambda x: torch.ops.notebook.softplus(x), fullgraph=True, backend="aot_eager"))
    named.append(torch.export.export(Holder(made), (x,)).module())
    holders = [made, Holder(made), torch.compile(Holder(made), backend="aot_eager")]
    for call in (*named, *holders):
        call(x)
    traced = torch.jit.trace(Holder(made), (x,))
    schema = "notebook::softplus(Tensor x, *, float shift=1.0, float beta=2.0) -> Tensor"
    new = softplus(lambda x, *, shift, beta: reference(x, beta) + shift, schema=schema, reference=None)
    assert str(inspect.signature(new)).startswith("(x: torch.Tensor, *, shift: float = 1.0, beta: float = 2.0)")
    assert (torch.ops.notebook.softplus.default, torch.ops.notebook.softplus) == (op, packet)
    assert (op._schema.arguments[1].name, op.overloadpacket, packet.default) == ("shift", packet, op)
    for call in (new, torch.compile(new, fullgraph=True, backend="aot_eager"), *named):
        expected = functional.softplus(x, 2) + 1
        torch.testing.assert_close(call(x), expected + 1 if isinstance(call, torch.fx.GraphModule) else expected)
    for call in holders:
        with pytest.raises(RuntimeError, match=r"defined again with another schema, softplus\(Tensor x, \*, float s"):
            call(x)
    with pytest.raises(RuntimeError):
        traced(x)
    opwheel.define(SCHEMA, reference=reference)(kernel)
    torch.testing.assert_close(op(x), functional.softplus(x))


@pytest.mark.parametrize("derivatives", [{}, {"x": "grad * 3"}, {"x": lambda grad: grad * 3}])
def test_a_graph_that_was_recorded_before_has_the_gradients_of_before(derivatives):
    x = torch.randn(3, requires_grad=True)
    y = softplus(derivatives=derivatives)(x)
    (expected,) = torch.autograd.grad(y.sum(), x, retain_graph=True)
    softplus(lambda x, beta: 7 * x, reference=lambda x, beta: 7 * x)
    softplus(lambda x: 5 * x, reference=lambda x: 5 * x, schema="notebook::softplus(Tensor x) -> Tensor")
    torch.testing.assert_close(torch.autograd.grad(y.sum(), x), (expected,))


def test_a_formula_that_calls_an_operator_of_another_schema_says_so():
    backward = "notebook::backward(Tensor grad_output, Tensor x) -> Tensor"
    opwheel.define(backward)(lambda grad_output, x: grad_output * torch.sigmoid(x))
    made = softplus(derivatives={"x": "backward(grad, x)"})
    x = torch.randn(3, requires_grad=True)
    torch.testing.assert_close(torch.autograd.grad(made(x).sum(), x)[0], torch.sigmoid(x))
    recorded = made(x).sum()
    changed = backward.replace("x)", "x, float beta)")
    opwheel.define(changed)(lambda grad_output, x, beta: grad_output * torch.sigmoid(beta * x))
    with pytest.raises(RuntimeError, match="notebook::backward was defined again with another schema"):
        torch.autograd.grad(recorded, x)
    with pytest.raises(TypeError, match=r"missing .* 'beta'"):
        torch.autograd.grad(made(x).sum(), x)
    made = softplus(derivatives={"x": "backward(grad, x, beta)"})
    torch.testing.assert_close(torch.autograd.grad(made(x, 2.0).sum(), x)[0], torch.sigmoid(2 * x))


def test_another_module_may_replace_it():
    made = softplus()
    scope = {"define": opwheel.define, "twice": twice, "__name__": "another_module"}
    text = f"@define({SCHEMA!r}, reference=twice)\ndef softplus(x, beta):\n    return twice(x, beta)\n"
    exec(compile(text, "another_module.py", "exec"), scope)
    assert scope["softplus"] is made
    assert made.__module__ == "another_module"


def test_what_pytorch_keeps_of_operators_is_replaced():
    import torch._inductor.decomposition
    from torch.utils.flop_counter import FlopCounterMode

    elementwise = {"schema": "notebook::softplus(Tensor x, float beta) -> Tensor", "rule": Elementwise()}
    for flops in (2, 3):
        made = softplus(**elementwise, flops=flops)
        with FlopCounterMode(display=False) as counter:
            made(torch.ones(5), 1.0)
        assert counter.get_total_flops() == 5 * flops
    op = torch.ops.notebook.softplus.default
    assert op in torch._inductor.decomposition.decompositions
    tags = torch.compiler.config.cache_key_tag
    assert tags.count(" notebook:") == 1
    softplus(twice, reference=twice, **elementwise)
    assert torch.compiler.config.cache_key_tag.count(" notebook:") == 1
    assert torch.compiler.config.cache_key_tag != tags
    softplus()
    assert op not in torch._inductor.decomposition.decompositions


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (
            lambda x, beta: torch.zeros(5),
            r"returned float32\[5\] on cpu as 'result', expected float32\[3\] on cpu, as the",
        ),
        (
            lambda x, beta: x.double(),
            r"returned float64\[3\] on cpu as 'result', expected float32\[3\] on cpu, as the op",
        ),
        (lambda x, beta: x.numpy(), r"returned a NumPy ndarray, expected a tensor: return torch.from_numpy\(y\)"),
        (lambda x, beta: np.float32(1), "returned a NumPy float32, expected a tensor"),
        (lambda x, beta: (x, x), r"returned float32\[3\] on cpu, float32\[3\] on cpu; the schema has 1"),
        (lambda x, beta: None, "returned nothing; the schema has 1"),
    ],
)
def test_results_are_compared_with_the_reference(function, words):
    made = softplus(function)
    with pytest.raises(RuntimeError, match=f"notebook::softplus: its kernel {words}") as error:
        made(torch.ones(3))
    assert "test_define.<lambda>" in str(error.value)


def test_numpy_has_no_bfloat16():
    made = softplus()
    words = r"notebook::softplus: its kernel .*kernel called .numpy\(\) of a BFloat16 tensor.*write x.float\(\).numpy"
    with pytest.raises(TypeError, match=words):
        made(torch.ones(3, dtype=torch.bfloat16))


def test_kernels_get_tensors_that_record_nothing():
    def total(xs, *, bias):
        assert not any(x.requires_grad for x in (*xs, bias))
        return torch.from_numpy(sum(x.numpy() for x in xs) + bias.numpy())

    made = opwheel.define(
        "notebook::total(Tensor[] xs, *, Tensor bias) -> Tensor", reference=lambda xs, *, bias: sum(xs) + bias
    )(total)
    x, bias = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    made([x, x], bias=bias).sum().backward()
    assert (x.grad.tolist(), bias.grad.tolist()) == ([2.0] * 3, [1.0] * 3)


def test_a_gradient_that_would_be_lost():
    made = opwheel.define("notebook::detached(Tensor x) -> Tensor")(lambda x: x.detach() * 2)
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(
        RuntimeError, match=r"notebook::detached: a gradient is needed, and its function .* results withou"
    ):
        made(x).sum().backward()
    assert made(x.detach()).tolist() == [2.0] * 3


def test_pickle():
    globals()["softplus_in_module"] = made = softplus()
    made.__name__ = made.__qualname__ = "softplus_in_module"
    assert pickle.loads(pickle.dumps(made)) is made
