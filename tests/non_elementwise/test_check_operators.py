"""The kit's checks for operators that are in no package."""

import pytest
import torch
from opwheel.dispatch import Elementwise, Operator, overloads_of, register_python
from opwheel_tools import OpInfo, Sample
from opwheel_tools.opinfo.lookup import register_op_infos
from opwheel_tools.testing import checks
from opwheel_tools.testing.checks import check_operators


def samples(device, dtype, requires_grad):
    yield Sample(torch.randn(3, 4, device=device, dtype=dtype, requires_grad=requires_grad))


OP_INFOS = {
    "rows": OpInfo(samples=samples, dtypes=(torch.float32, torch.float64)),
    "twice": OpInfo(dtypes=(torch.float32,)),
}


def register(namespace, kernel):
    register_python(
        namespace,
        {
            "rows(Tensor x) -> Tensor": kernel,
            "twice(Tensor x) -> Tensor": lambda x: x * 2,
            "untested(Tensor x) -> Tensor": lambda x: x * 2,
        },
        [
            Operator("rows", reference=lambda x: x.softmax(-1)),
            Operator("twice", reference=lambda x: x * 2, rule=Elementwise()),
            Operator("untested", reference=lambda x: x * 2),
        ],
    )


@pytest.mark.slow
def test_right_operators_pass():
    register("waves_checked", lambda x: x.softmax(-1))
    check_operators("waves_checked", OP_INFOS, untested=["untested"])


@pytest.mark.parametrize("check", ["first derivatives", "second derivatives", "forward mode", "torch.func"])
def test_an_argument_without_a_gradient_is_held_to_it(check, monkeypatch):
    def weighted(x, w):
        return x.sin() * w.exp()

    operator = Operator(
        "weighted", reference=weighted, derivatives={"x": "grad * x.cos() * w.exp()"}, not_differentiable=("w",)
    )
    space = f"waves_constant_{check.replace(' ', '_').replace('.', '_')}"
    schema = "weighted(Tensor x, Tensor w) -> Tensor"
    register_python(space, {schema: lambda x, w: weighted(x.detach(), w.detach())}, [operator])
    overload = overloads_of(torch.library.Library(space, "FRAGMENT"))["weighted"]

    def pairs(device, dtype, requires_grad):
        yield Sample(*(torch.randn(3, device=device, dtype=dtype, requires_grad=requires_grad) for _ in range(2)))

    register_op_infos(space, {"weighted": OpInfo(samples=pairs, dtypes=(torch.float64,))})
    given = next(samples for name, samples in checks.cases(overload, torch.device("cpu")) if name == check)
    checks.CHECKS[check](overload, given)
    if check == "first derivatives":
        monkeypatch.setattr(checks.derivatives, "run_kernel", lambda overload, values: (weighted(*values),))
        with pytest.raises(AssertionError, match="an argument in not_differentiable has a gradient"):
            checks.CHECKS[check](overload, given)


def test_an_operator_without_samples_is_no_success():
    register("waves_unchecked", lambda x: x.softmax(-1))
    message = r"^waves_unchecked: untested cannot be checked: no samples .* untested=\['untested'\]$"
    with pytest.raises(ValueError, match=message):
        check_operators("waves_unchecked", OP_INFOS)
    with pytest.raises(ValueError, match=r"has no operators \['tested'\]; it has rows, twice, untested"):
        check_operators("waves_unchecked", OP_INFOS, untested=["tested"])


def test_samples_of_which_there_are_none_are_no_success():
    operator = Operator("f", reference=torch.sin, derivatives=None)
    register_python("waves_no_samples", {"f(Tensor x) -> Tensor": torch.sin}, [operator])
    with pytest.raises(ValueError, match="f cannot be checked"):
        check_operators("waves_no_samples", {"f": OpInfo(samples=lambda *_: iter(()))})


def test_what_is_wrong_is_named():
    register("waves_checked_wrong", lambda x: x.softmax(0))
    with pytest.raises(AssertionError, match=r"values of rows\(float32\[3, 4\]\): values: result 0"):
        check_operators("waves_checked_wrong", OP_INFOS, untested=["untested"])


def test_a_namespace_that_nobody_registered():
    with pytest.raises(KeyError, match="waves_nowhere"):
        check_operators("waves_nowhere")
