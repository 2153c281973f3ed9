"""``f.out`` of an operator that is not element-wise: declared by its schema and that of ``f``."""

import pytest
import torch
from opwheel.dispatch import Operator, Rows, overloads_of, register_python
from opwheel_tools import OpInfo, Sample
from opwheel_tools.opinfo.lookup import register_op_infos
from opwheel_tools.testing import checks
from torch.utils.flop_counter import FlopCounterMode

NAMESPACE = "waves_out"
CPU = torch.device("cpu")


def reversed_sum(x, scale=1.0, *, dtype=None):
    return (x.flip(-1).cumsum(-1) * scale).to(x.dtype if dtype is None else dtype)


def write_reversed_sum(x, scale=1.0, *, dtype=None, out):
    result = reversed_sum(x, scale, dtype=dtype)
    if out.shape != result.shape or out.dtype != result.dtype:
        raise RuntimeError("argument 'out' does not fit")
    out.copy_(result)


def count_sum(x, scale=1.0, *, dtype=None):
    return 2 * x.numel()


def samples(device, dtype, requires_grad):
    for shape in ((3, 4), (7,), (0, 2)):
        yield Sample(torch.randn(shape, device=device, dtype=dtype, requires_grad=requires_grad), 0.5)


FUNCTIONS = register_python(
    NAMESPACE,
    {
        "counted.out(Tensor x, *, Tensor(a!) out) -> ()": lambda x, *, out: out.copy_(x.sin()),
        "counted(Tensor x) -> Tensor": torch.sin,
        "f(Tensor x, float scale=1.0, *, ScalarType? dtype=None) -> Tensor": reversed_sum,
        "f.out(Tensor x, float scale=1.0, *, ScalarType? dtype=None, Tensor(a!) out) -> ()": write_reversed_sum,
    },
    [
        Operator("f", reference=reversed_sum, rule=Rows(x=1), flops=count_sum, doc="Reversed sum."),
        Operator("counted", reference=torch.sin, flops=3, doc="Sine."),
    ],
)
OVERLOADS = overloads_of(torch.library.Library(NAMESPACE, "FRAGMENT"))
register_op_infos(NAMESPACE, {"f": OpInfo(samples=samples)})
f = FUNCTIONS["f"]


@pytest.mark.parametrize(
    "check", [name for name in checks.CHECKS if not name.endswith("invariance")]
)  # nothing is claimed
def test_the_kits_checks(check):
    tried = [one for one in checks.cases(OVERLOADS["f.out"], CPU) if one[0] == check]
    assert tried
    for name, case in tried:
        checks.CHECKS[name](OVERLOADS["f.out"], case)


def test_the_kit_notices_a_result_that_is_not_written():
    declared = checks.declared(OVERLOADS["f.out"], torch.float32, CPU)
    assert [one.kwargs["out"].shape for one in declared] == [(3, 4), (7,), (0, 2)]
    wrong = register_python(
        "waves_out_wrong",
        {"g(Tensor x) -> Tensor": torch.sin, "g.out(Tensor x, *, Tensor(a!) out) -> ()": lambda x, *, out: None},
        [Operator("g", reference=torch.sin)],
    )
    info = OpInfo(samples=lambda d, t, r: [Sample(torch.ones(3, device=d, dtype=t))])
    register_op_infos("waves_out_wrong", {"g": info})
    assert wrong == {}  # without a docstring there is no public function
    overload = overloads_of(torch.library.Library("waves_out_wrong", "FRAGMENT"))["g.out"]
    noticed = set()
    for name, case in checks.cases(overload, CPU):
        try:
            checks.CHECKS[name](overload, case)
        except AssertionError:
            noticed.add(name)
    assert {"values", "errors"} <= noticed


@pytest.mark.parametrize("dtype", [None, torch.float64])
def test_the_public_function_hands_out_back(dtype):
    x = torch.randn(3, 4)
    out = torch.empty(3, 4, dtype=dtype or x.dtype)
    assert f(x, 2.0, dtype=dtype, out=out) is out
    assert torch.equal(out, f(x, 2.0, dtype=dtype))
    assert f(x) is not out
    assert f(x, out=None) is not out


def test_into_a_view():
    x, wide = torch.randn(3, 4), torch.zeros(3, 8)
    f(x, out=wide[:, ::2])
    assert torch.equal(wide[:, ::2], f(x))
    assert (wide[:, 1::2] == 0).all()


@pytest.mark.parametrize("call", [f, torch.compile(f, backend="aot_eager")])
@pytest.mark.parametrize("which", ["x", "out"])
def test_no_gradients_are_lost(call, which):
    x, out = torch.randn(3, requires_grad=which == "x"), torch.zeros(3, requires_grad=which == "out")
    with pytest.raises(RuntimeError, match=r"f\.out"):
        call(x, out=out)
    assert (out == 0).all()
    with torch.no_grad():
        assert torch.equal(call(x, out=out), f(x))


@pytest.mark.parametrize("refused", [torch.empty(4), torch.empty(3, dtype=torch.float64), torch.empty(0)])
def test_nothing_is_resized(refused):
    with pytest.raises(RuntimeError, match="'out'"):
        f(torch.randn(3), out=refused)
    with pytest.raises(RuntimeError, match=r"'out' has .* but the result has .*; pass a tensor like"):  # by reference
        OVERLOADS["f.out"].operator.reference(torch.randn(3), out=refused)


@pytest.mark.parametrize(("name", "for_one"), [("f", 2), ("counted", 3)])
def test_flops_are_those_of_the_operator(name, for_one):
    x = torch.randn(4, 5)
    for out in ({}, {"out": torch.empty(4, 5)}):
        with FlopCounterMode(display=False) as counter:
            FUNCTIONS[name](x, **out)
        assert counter.get_total_flops() == for_one * 20


def test_transformations():
    x = torch.randn(5, 3, 4)

    def call(x, out):
        f(x, 2.0, out=out)
        return out + 1

    expected = f(x, 2.0) + 1
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x, torch.empty_like(x)), expected)
    assert torch.equal(torch.vmap(call)(x, torch.empty_like(x)), expected)
    with pytest.raises(RuntimeError, match="no batch dimension"):
        torch.vmap(call, in_dims=(0, None))(x, torch.empty(3, 4))
