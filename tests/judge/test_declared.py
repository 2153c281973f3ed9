"""Operators of opwheel libraries, which bring their reference and their calls."""

import muladd
import pytest
import torch
import transformer_ops
from opwheel.dispatch import overloads_of
from opwheel_tools.judge import declared, judge, samples, subjects

NAMES = [
    f"{library}::{name}"
    for library in (muladd.__name__, transformer_ops.__name__)
    for name in overloads_of(torch.library.Library(library, "FRAGMENT"))
]
A, B = torch.tensor([1.0, 2.0]), torch.tensor([[3.0], [4.0]])


def test_an_operator_in_place_has_a_reference_that_writes():
    x = A.clone()
    assert declared.reference_of("muladd::muladd_")(x, A, 3.0) is x
    assert x.tolist() == [4.0, 7.0]


def test_out_has_a_reference_that_writes():
    out = torch.empty(2)
    assert declared.reference_of("muladd::add.out")(A, A, out=out) is out
    assert out.tolist() == [2.0, 4.0]
    out = torch.empty(2, 3)
    assert declared.reference_of("transformer_ops::rms_norm.out")(torch.ones(2, 3), out=out) is None  # as its schema is
    assert torch.allclose(out, torch.ones(2, 3))


def test_results_are_broadcast_as_the_rule_says():
    results = declared.reference_of("muladd::muladd_backward")(A, A, B)
    assert [one.shape for one in results] == [one.shape for one in torch.ops.muladd.muladd_backward(A, A, B)]


def test_results_without_a_gradient_have_none():
    x, target = torch.randn(2, 3, requires_grad=True), torch.tensor([0, 2])
    loss, kept = declared.reference_of("transformer_ops::cross_entropy_rows")(x, target, None, -100, 0.0, 0.0, 0.0)
    assert (loss.requires_grad, kept.requires_grad) == (True, False)


def test_what_no_library_declares_is_refused():
    with pytest.raises(KeyError):
        declared.reference_of("aten::add")
    with pytest.raises(subjects.SubjectError, match="name what it is to compute with --reference"):
        subjects.find(f"aten::add{subjects.DECLARED}")


@pytest.mark.parametrize("operator", ["muladd::add.out", "transformer_ops::rms_norm.out"])
def test_out_brings_calls(operator):
    assert all("out" in str(case.template) for case in samples.samples_of(operator))


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("operator", NAMES)
def test_nothing_is_found_in_muladd_and_transformer_ops(operator):
    verdict = judge(operator)
    assert verdict.is_right, verdict.report
    assert verdict.tried > 100


def test_a_namespace_s_package_is_imported():
    """What registers an operator has its namespace's name, mostly; aten is PyTorch's."""
    assert subjects.imports_of((), "muladd::add", "aten::add") == ("muladd",)
    assert subjects.imports_of((), "muladd::add", "muladd::mul:reference") == ("muladd",)
    assert subjects.imports_of((), "waves_absent::f", "file.py:name", "no package::f") == ()
    assert subjects.imports_of(["math", "muladd"], "muladd::add") == ("math", "muladd")
