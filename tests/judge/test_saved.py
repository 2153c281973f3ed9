"""A backward operator is judged with what its forward operator saves, for varied inputs as well."""

import pytest
import torch
import transformer_ops  # noqa: F401  # registers operators
from opwheel.dispatch import Operator, register_python
from opwheel_tools import OpInfo, Sample
from opwheel_tools.judge import cases, judge, reproduction, samples, saved, subjects, variants
from opwheel_tools.judge.comparison import Place
from opwheel_tools.judge.trials import Trial
from opwheel_tools.opinfo.lookup import register_op_infos

pytestmark = pytest.mark.usefixtures("in_this_process")
BACKWARD, WAVE_BACKWARD = (f"saved_by_exp::{name}_backward" for name in ("grow", "wave"))


def never_negative(grad, x, y):
    """The same wherever ``y`` is what the forward operator gives."""
    return torch.where(y < 0, 0, grad * y)


def cuts_large_results(grad, x, y):
    return grad * torch.where(x > 200, y.clamp(max=1e30), y)


def zero_at_infinities(grad, x, y):
    """Where ``y`` is nan that nobody has given."""
    return torch.where(x.isinf(), 0, grad * y)


def zero_for_nan(grad, x, y):
    return torch.where(y.isnan(), 0, grad * y)


@pytest.fixture(scope="module", autouse=True)
def library():
    def grow(x):
        return x.exp()

    def grow_backward(grad, x, y):
        return grad * y

    def wave(x):
        return x.sin()

    register_python(
        "saved_by_exp",
        {
            "grow(Tensor x) -> Tensor y": grow,
            "grow_backward(Tensor grad, Tensor x, Tensor y) -> Tensor": grow_backward,
            "wave(Tensor x) -> Tensor y": wave,
            "wave_backward(Tensor grad, Tensor x, Tensor y) -> Tensor": grow_backward,
        },
        [
            Operator("grow", reference=grow, derivatives={"x": "grow_backward(grad_y, x, y)"}),
            Operator("grow_backward", reference=grow_backward),
            Operator("wave", reference=wave, derivatives={"x": "wave_backward(grad_y, x, y)"}),
            Operator("wave_backward", reference=grow_backward),
        ],
    )

    def pairs(device, dtype, requires_grad):
        yield Sample(*(torch.randn(3, 5, device=device, dtype=dtype) for _ in range(3)))

    register_op_infos("saved_by_exp", dict.fromkeys(("grow_backward", "wave_backward"), OpInfo(samples=pairs)))


def test_what_is_saved_follows_from_the_formula():
    (case,) = samples.samples_of(BACKWARD)
    assert (case.saved, case.saving) == ({2: "saved(t[1])"}, "saved_by_exp::grow")
    assert torch.equal(case.tensors[2], case.tensors[1].exp())


def test_an_operator_that_no_formula_calls_saves_nothing():
    for name in ("transformer_ops::attention", "transformer_ops::scaled", "aten::mul"):
        assert all(case.saved == {} for case in samples.samples_of(name))


@pytest.mark.parametrize("operator", [BACKWARD, "transformer_ops::cross_entropy_backward"])
def test_every_variant_has_what_its_forward_operator_saves(operator):
    case = samples.samples_of(operator)[0]
    known = {one.name for one in variants.variants(variants.bases(case)[0], case.inputs)}
    places = tuple(case.saved)
    for i in places:
        assert not any(f"numbers of input {i}:" in name or name.startswith(f"input {i} is input") for name in known)
    assert any("far from zero" in name for name in known)
    for one in variants.variants(variants.bases(case)[0], case.inputs):
        try:
            varied = saved.made(one.make(case))
        except (RuntimeError, ValueError, IndexError):  # shapes that do not fit
            continue
        again = saved.made(varied)
        for i in places:
            assert torch.equal(varied.tensors[i].nan_to_num(7), again.tensors[i].nan_to_num(7)), one.name


def test_a_kernel_is_right_that_relies_on_what_is_saved():
    verdict = judge(never_negative, reference=BACKWARD + ":reference")
    assert verdict.is_right, verdict.report
    assert verdict.tried > 60


def test_a_kernel_is_wrong_that_fails_for_what_is_saved_of_varied_inputs():
    """It is right for any ``y`` that is not large, as all are that do not follow from varied inputs."""
    findings = judge(cuts_large_results, reference=BACKWARD + ":reference").findings
    assert [one.group for one in findings] == ["numbers"]


def test_nan_that_a_forward_operator_saves_of_infinities_is_none_that_was_given():
    assert judge(zero_at_infinities, reference=WAVE_BACKWARD + ":reference").is_right
    findings = judge(zero_for_nan, reference=WAVE_BACKWARD + ":reference").findings
    assert [(one.group, "nan once" in one.trial) for one in findings] == [("numbers", True)]


def test_a_call_with_saved_tensors_is_written_and_read(tmp_path):
    (case,) = samples.samples_of(BACKWARD)
    case.save(tmp_path / "case")
    read = cases.Case.load(tmp_path / "case")
    assert (read.saved, read.saving) == (case.saved, case.saving)


def test_a_script_makes_what_is_saved():
    (case,) = samples.samples_of(BACKWARD)
    every = variants.variants(variants.bases(case)[0], case.inputs)
    (variant,) = [one for one in every if one.name == "all numbers: far from zero"]
    wanted = reproduction.Wanted("numbers", "", Trial(0, variant, "values"), case, Place(0))
    names = reproduction.Names(subjects.name_of(cuts_large_results), f"{BACKWARD}:reference", "", "")
    script = next(reproduction.scripts(names, wanted))
    assert "t[2] = saved(t[1])" in script.splitlines()
    with pytest.raises(AssertionError):
        exec(script, {})
