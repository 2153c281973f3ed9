"""torch.autocast by argument, and results in the dtype that an argument was given in, under every transformation."""

import itertools

import pytest
import torch
from opwheel import Autocast, Elementwise, Operator
from opwheel.dispatch import overloads_of, register_python
from opwheel_tools import OpInfo, Sample
from opwheel_tools.opinfo.lookup import register_op_infos
from opwheel_tools.testing import checks
from torch._subclasses.fake_tensor import FakeTensorMode

_names = (f"waves_autocast_{number}" for number in itertools.count())
SCHEMA = "pool(Tensor x, Tensor boxes, Tensor? bias=None) -> (Tensor y, Tensor sums)"
HALF, BRAIN, SINGLE, DOUBLE = torch.float16, torch.bfloat16, torch.float32, torch.float64


def reference(x, boxes, bias=None):
    sums = boxes.sum(-1, keepdim=True).to(x.dtype)
    return x * sums + (0 if bias is None else bias.to(x.dtype)), sums


def overload(autocast, schema=SCHEMA, function=reference, seen=None, **declared):
    def kernel(*args):
        if seen is not None:
            seen.append([None if one is None else one.dtype for one in args])
        return function(*args)

    namespace, name = next(_names), schema.partition("(")[0]
    operator = Operator(name, reference=function, autocast=autocast, **declared)
    register_python(namespace, {schema: kernel}, [operator])
    return overloads_of(torch.library.Library(namespace, "FRAGMENT"))[name]


def arguments(dtype=BRAIN, boxes=SINGLE, bias=None, requires_grad=False):
    made = torch.randn(3, 4, dtype=dtype, requires_grad=requires_grad), torch.randn(3, 2, dtype=boxes)
    return (*made, None if bias is None else torch.randn(4, dtype=bias))


BY_ARGUMENT = {"x": "lower_precision", "boxes": "float32", "bias": None}


@pytest.mark.parametrize(
    ("declared", "given", "computed"),
    [
        (BY_ARGUMENT, (SINGLE, BRAIN, HALF), [BRAIN, SINGLE, HALF]),
        ({"x": "lower_precision"}, (SINGLE, HALF, SINGLE), [BRAIN, HALF, SINGLE]),
        ({"x": "promote", "bias": "promote"}, (BRAIN, SINGLE, BRAIN), [BRAIN, SINGLE, BRAIN]),
        ({"x": "promote", "bias": "promote"}, (BRAIN, BRAIN, SINGLE), [SINGLE, BRAIN, SINGLE]),
        (None, (BRAIN, SINGLE, HALF), [BRAIN, SINGLE, HALF]),
        (Autocast("float32"), (BRAIN, HALF, BRAIN), [SINGLE, SINGLE, SINGLE]),
        (Autocast(None, result="x"), (BRAIN, HALF, BRAIN), [BRAIN, HALF, BRAIN]),
        (BY_ARGUMENT, (DOUBLE, DOUBLE, DOUBLE), [DOUBLE, DOUBLE, DOUBLE]),
    ],
    ids=str,
)
def test_each_argument_is_cast_as_declared(declared, given, computed):
    seen = []
    one = overload(declared, seen=seen)
    with torch.autocast("cpu", BRAIN):
        one.op(*arguments(*given))
    assert seen == [computed]


@pytest.mark.parametrize(
    ("result", "dtypes"),
    [("x", [BRAIN, BRAIN]), ({"y": "x"}, [BRAIN, SINGLE]), ("boxes", [HALF, HALF]), ("", [SINGLE] * 2)],
)
def test_results_are_in_the_dtype_that_an_argument_was_given_in(result, dtypes):
    one = overload(Autocast("float32", result=result))
    given = arguments(BRAIN, HALF)
    with torch.autocast("cpu", BRAIN):
        found = one.op(*given)
    assert [r.dtype for r in found] == dtypes
    wide = [None if value is None else value.float() for value in given]
    torch.testing.assert_close(found, tuple(r.to(d) for r, d in zip(reference(*wide), dtypes, strict=True)))


@pytest.mark.parametrize("on_cpus", ["lower_precision", {"x": "lower_precision"}, Autocast(None, result="x")], ids=str)
def test_other_declarations_for_a_device(on_cpus):
    one = overload(Autocast("float32", result="boxes", devices={"cpu": on_cpus}))
    alone = overload(on_cpus)
    given = arguments(HALF, SINGLE)
    with torch.autocast("cpu", BRAIN):
        assert [r.dtype for r in one.op(*given)] == [r.dtype for r in alone.op(*given)]
    other = overload(Autocast(on_cpus, devices={"cuda": "float32"}) if not isinstance(on_cpus, Autocast) else on_cpus)
    with torch.autocast("cpu", BRAIN):
        assert [r.dtype for r in other.op(*given)] == [r.dtype for r in alone.op(*given)]


def test_results_without_a_fraction_and_of_float64_stay():
    one = overload(
        Autocast("float32", result="x"),
        "f(Tensor x, Tensor w) -> (Tensor, Tensor)",
        lambda x, w: (x.sign().int(), x * w),
    )
    with torch.autocast("cpu", BRAIN):
        assert [r.dtype for r in one.op(torch.randn(3, dtype=HALF), torch.randn(3))] == [torch.int32, HALF]
        assert one.op(torch.randn(3, dtype=DOUBLE), torch.randn(3))[1].dtype is DOUBLE


DECLARED = Autocast({"x": "float32", "boxes": "float32"}, result={"y": "x"})


class TestTransformations:
    """What a call gives under autocast, it gives under every transformation."""

    def test_disabled_inside_and_nested(self):
        one, (x, boxes, _) = overload(DECLARED), arguments()
        with torch.autocast("cpu", BRAIN):
            with torch.autocast("cpu", enabled=False):
                assert one.op(x, boxes)[1].dtype is BRAIN
                with torch.autocast("cpu", HALF):
                    assert [r.dtype for r in one.op(x, boxes)] == [BRAIN, SINGLE]
            assert [r.dtype for r in one.op(x, boxes)] == [BRAIN, SINGLE]

    def test_gradients(self):
        one, (x, boxes, _) = overload(DECLARED), arguments(requires_grad=True)
        with torch.autocast("cpu", BRAIN):
            y, _ = one.op(x, boxes)
        (found,) = torch.autograd.grad(y.sum(), x)
        assert found.dtype is BRAIN
        torch.testing.assert_close(found, boxes.sum(-1, keepdim=True).expand(3, 4).to(BRAIN))

    @pytest.mark.parametrize("rule", [None, Elementwise()], ids=repr)
    def test_functional_transforms(self, rule):
        declared = Autocast("float32", result="x")
        one = overload(declared, "f(Tensor x) -> Tensor", torch.exp, **({} if rule is None else {"rule": rule}))
        x = torch.randn(3, 4, dtype=BRAIN)
        with torch.autocast("cpu", BRAIN):
            expected = one.op(x)
            assert expected.dtype is BRAIN
            found = [
                torch.vmap(one.op)(x),
                torch.func.vjp(one.op, x)[0],
                torch.func.jvp(one.op, (x,), (x,))[0],
                torch.vmap(lambda row: torch.func.vjp(one.op, row)[0])(x),
                torch.func.functionalize(one.op)(x),
            ]
            for other in found:
                torch.testing.assert_close(other, expected)
            assert torch.func.grad(lambda x: one.op(x).sum())(x).dtype is BRAIN

    @pytest.mark.parametrize("is_inside", [True, False])
    def test_compile(self, is_inside):
        one, given = overload(DECLARED), arguments(requires_grad=True)
        enabled = torch.autocast("cpu", BRAIN)
        function = torch.compile(enabled(one.op) if is_inside else one.op, backend="aot_eager", fullgraph=True)
        found = function(*given) if is_inside else enabled(function)(*given)
        expected = enabled(one.op)(*given)
        torch.testing.assert_close(found, expected)
        gradients = [torch.autograd.grad(y.sum(), given[0])[0] for y, _ in (found, expected)]
        torch.testing.assert_close(*gradients)

    def test_export(self):
        class Module(torch.nn.Module):
            def forward(self, x, boxes):
                return one.op(x, boxes)

        one, (x, boxes, _) = overload(DECLARED), arguments()
        with torch.autocast("cpu", BRAIN):
            program = torch.export.export(Module(), (x, boxes))
            torch.testing.assert_close(program.module()(x, boxes), one.op(x, boxes))


@pytest.mark.parametrize("device", ["cuda", "xpu"])
def test_other_devices(device):
    """On tensors without memory: the kernels at the keys are the same ones."""
    one = overload(DECLARED)
    assert torch._C._dispatch_has_kernel_for_dispatch_key(one.qualified_name, f"Autocast{device.upper()}")
    with FakeTensorMode():
        x, boxes = torch.empty(3, 4, dtype=HALF, device=device), torch.empty(3, 2, device=device)
        here = torch.empty(3, 4, dtype=BRAIN)
        was = torch.is_autocast_enabled(device)
        torch.set_autocast_enabled(device, True)
        try:
            assert [r.dtype for r in one.op(x, boxes)] == [HALF, SINGLE]
            assert [r.dtype for r in one.op(here, torch.empty(3, 2))] == [BRAIN, BRAIN]
        finally:
            torch.set_autocast_enabled(device, was)


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ({"box": "float32"}, "'box' is not a tensor argument; a tensor argument is 'x' or 'boxes' or 'bias'"),
        ({"n": "float32"}, "'n' is not a tensor argument"),
        (
            {"x": "half"},
            "expected 'promote' or 'lower_precision' or 'float32', a dict from names of arguments to these",
        ),
        ({}, "expected 'promote' or"),
        (Autocast("half"), "expected 'promote' or"),
        (Autocast("float32", result=None), "expected 'promote' or"),
        (Autocast("float32", result={}), "expected 'promote' or"),
        (Autocast("float32", result="box"), "result: 'box' is not an argument that is one tensor; an argument that is"),
        (Autocast("float32", result="bias"), "'bias' is not an argument that is one tensor"),
        (Autocast("float32", result={"z": "x"}), "result: 'z' is not a result; a result is 'y' or 'sums'"),
        (Autocast("float32", result={"y": "z"}), "result: 'z' is not an argument that is one tensor"),
        (Autocast("float32", devices=None), "expected 'promote' or"),
        (Autocast("float32", devices={"mps": "float32"}), "expected 'promote' or"),
        (Autocast("float32", devices={"cuda": "half"}), "expected 'promote' or"),
        (Autocast("float32", devices={"cuda": Autocast(None, devices={"xpu": None})}), "expected 'promote' or"),
        (Autocast("float32", devices={"cuda": {"box": "float32"}}), "'box' is not a tensor argument"),
    ],
    ids=str,
)
def test_what_is_refused_where_it_is_declared(declared, words):
    schema = SCHEMA.replace("Tensor? bias=None", "Tensor? bias=None, int n=1")
    with pytest.raises(ValueError, match="autocast") as refusal:
        overload(declared, schema)
    assert words in str(refusal.value)


def test_an_operator_that_writes_has_no_policies():
    schema, problem = "fill(Tensor(a!) x) -> ()", "torch.autocast leaves operators that write as they are; leave it out"
    for declared in ({"x": "float32"}, Autocast("float32", result="x")):
        with pytest.raises(ValueError, match=problem):
            overload(declared, schema, torch.Tensor.zero_, derivatives=None)


@pytest.mark.parametrize(
    "declared", [BY_ARGUMENT, DECLARED, None, Autocast("lower_precision", result="boxes")], ids=str
)
def test_the_kit_checks_what_is_declared(declared, monkeypatch):
    def samples(device, dtype, requires_grad):
        yield Sample(*arguments(dtype, dtype, dtype, requires_grad))

    one = overload(declared)
    register_op_infos(one.namespace, {"pool": OpInfo(samples=samples, dtypes=(SINGLE, BRAIN))})
    made = [samples for check, samples in checks.cases(one, torch.device("cpu")) if check == "autocast"]

    def check():
        for case in made:
            checks.CHECKS["autocast"](one, case)

    assert made
    check()
    other = "float32" if declared is None or declared == BY_ARGUMENT else Autocast("float32")
    monkeypatch.setattr(one, "operator", one.operator._replace(autocast=other))  # the kernels have the other one
    with pytest.raises(AssertionError, match="autocast"):
        check()
