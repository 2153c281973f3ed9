"""The audit finds nothing in operators that are right: PyTorch's own, and those of muladd."""

import json
import os
import re
import sys

import muladd
import pytest
import torch
from opwheel_tools.audit import checks, report, worker
from opwheel_tools.audit.outcomes import FINDINGS, key_of
from opwheel_tools.audit.recording import Recorder
from opwheel_tools.judge import calls

from . import torch_operators
from .command import ROOT, opwheel_audit


@pytest.fixture(scope="module")
def of_pytorch(tmp_path_factory):
    """The file of the calls, and the operators."""
    file = tmp_path_factory.mktemp("calls") / "calls"
    return file, torch_operators.record(file)


def findings(recorded, names):
    """Keys of what checks of calls find, in this process."""
    cells = [(call, check, *worker.judge(call, check)) for call in recorded for check in names]
    return {
        key_of(call.operator, check, outcome, line)
        for call, check, outcome, message in cells
        for line in (message.splitlines() if outcome in FINDINGS else ())
    }


def test_the_operators_of_pytorch_are_those_listed(of_pytorch):
    assert of_pytorch[1] == list(torch_operators.NAMES)
    assert len(set(torch_operators.NAMES)) == torch_operators.COUNT


@pytest.mark.slow
def test_nothing_is_found_in_operators_of_pytorch(of_pytorch):
    """By everything but compiling them, which takes minutes."""
    found = findings(calls.load(of_pytorch[0]), [check for check in checks.CHECKS if check != "compile"])
    # Some of what is wrong reads memory that nobody has written: it may show or not.
    assert found <= torch_operators.EXPLAINED
    assert checks_of(found) == checks_of(torch_operators.EXPLAINED)


def checks_of(keys):
    """Operators and checks of findings, without which result it is."""
    return {key.partition(": ")[0] for key in keys}


@pytest.mark.slow
@pytest.mark.skipif(os.environ.get("TEST_WHOLE_AUDIT") != "1", reason="100 operators are compiled: make nightly")
def test_nothing_is_found_in_operators_of_pytorch_by_the_command(of_pytorch, tmp_path):
    file, names = of_pytorch
    only = [option for name in names for option in ("--only", name)]
    opwheel_audit("aten", "--import", "torch", "--record", file, *only, "--json", tmp_path / "a.json")
    results = json.loads((tmp_path / "a.json").read_text())["results"]
    assert {row["operator"] for row in results} == set(names)
    assert report.known_findings(tmp_path / "a.json") <= torch_operators.EXPLAINED


@pytest.mark.filterwarnings("ignore:torch.triangular_solve is deprecated")
def test_what_is_explained_is_so():
    """The reasons of torch_operators.EXPLAINED, without the audit."""
    a, b = torch.tensor([[2.0, 0.0], [0.0, 2.0]]), torch.ones(2, 1)
    below = torch.tensor([[0.0, 0.0], [1.0, 0.0]])  # the triangle that the operator does not read
    assert torch.equal(torch.triangular_solve(b, a + below).solution, torch.triangular_solve(b, a).solution)
    tangent = torch.func.jvp(lambda a: torch.triangular_solve(b, a).solution, (a,), (below,))[1]
    assert not torch.equal(tangent, torch.zeros(2, 1))
    norm = torch.ops.aten._batch_norm_with_update.default
    given = [torch.ones(2, 3, 4).mT, *(torch.ones(4) for _ in range(4)), 0.1, 1e-5]
    with torch._subclasses.FakeTensorMode() as mode:
        guessed = norm(*(mode.from_tensor(x) if isinstance(x, torch.Tensor) else x for x in given))[0]
    assert guessed.stride() != norm(*given)[0].stride()
    assert torch.unsafe_split(a, 1)[0].data_ptr() == a.data_ptr()
    assert "Tensor(a" not in str(torch.ops.aten.unsafe_split.Tensor._schema)
    replaced, by = torch.ones(1, requires_grad=True), torch.ones(1)
    result = torch.as_strided_scatter(replaced, by, [1], [1], 0)
    assert torch.equal(result, by)
    assert torch.autograd.grad(result.sum(), replaced)[0].tolist() == [1.0]  # not zero
    pooled, places = torch.tensor([[[1.0, 2.0]]], requires_grad=True), torch.zeros(1, 1, 2, dtype=torch.int64)
    result = torch.nn.functional.max_unpool1d(pooled, places, 2)
    assert result.count_nonzero() == 1  # one of the elements
    assert torch.autograd.grad(result.sum(), pooled)[0].tolist() == [[[1.0, 1.0]]]
    x, weight = torch.arange(12.0).view(1, 4, 3), torch.tensor([[1.0, 9.0]] * 4)[:, 0]
    given = x, weight, None, 1, 4, 3, 2, 1e-5
    norm = torch.native_group_norm(x, weight.contiguous(), *given[2:])[0]
    assert not torch.allclose(torch.native_group_norm(*given)[0], norm)
    assert torch.allclose(torch.nn.functional.group_norm(x, 2, weight), norm)


def test_nothing_is_found_in_muladd():
    a, b, c = (torch.rand(3, 4, generator=torch.Generator().manual_seed(i)) + 0.5 for i in range(3))
    with Recorder({"muladd"}) as recorder:
        muladd.fma(a, b, c)
        muladd.muladd(a, b[:1], 2.0)
        muladd.mul(a, b)
        muladd.add(a, b)
        muladd.scale(a, 2.0)
        muladd.muladd_(a.clone(), b, 2.0)
        muladd.muladd(a, b, c, out=torch.empty(3, 4))
    assert {call.operator.partition(".")[0] for call in recorder.calls} >= {"muladd::fma", "muladd::scale"}
    assert findings(recorder.calls, checks.CHECKS) == set()


@pytest.mark.parametrize(
    ("operator", "arguments"),
    [
        ("aten::relu", (torch.zeros(3),)),
        ("aten::max.dim", (torch.zeros(3, 2), 0)),
        ("aten::floor", (torch.arange(3.0),)),
        ("aten::clamp", (torch.arange(4.0), 1.0, 2.0)),
    ],
)
@pytest.mark.parametrize(
    "check", ["gradients", "second derivatives", "forward mode", "torch.func.jvp", "torch.func.grad"]
)
def test_kinks_and_jumps_are_no_findings(operator, arguments, check):
    outcome, message = worker.judge(calls.Call(operator, arguments, {}), check)
    assert outcome not in FINDINGS, message


@pytest.mark.parametrize(("dtype", "is_measured"), [(torch.float64, True), (torch.float32, False)])
def test_steps_that_a_narrow_result_rounds_have_no_slope(dtype, is_measured):
    """Not even where the steps of both sizes are rounded alike."""
    x = torch.rand(100, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + 0.5
    (slope,) = checks.slopes.finite_difference(lambda x: [x.to(dtype)], [x], [torch.full_like(x, 0.75)], 1e-4)
    assert bool(slope.isfinite().all()) == is_measured
    assert bool(slope.isfinite().any()) == is_measured


@pytest.mark.slow
@pytest.mark.nightly
def test_nothing_is_found_in_transformer_ops(tmp_path):
    """By the command, from recorded calls, with every check."""
    script = ROOT / "examples/audit/transformer_calls.py"
    done = opwheel_audit("transformer_ops", "--record", tmp_path / "calls", "--", sys.executable, script)
    assert done.returncode == 0, done.stdout
    counts = dict(re.findall(r"(right|silently wrong|crashes): (\d+)", done.stdout))
    assert "no calls of" not in done.stdout
    assert int(counts["right"]) > 800
    assert (counts["silently wrong"], counts["crashes"]) == ("0", "0")
