"""An operator that Autograd replaces by another one, which computes gradients along the way."""

from functools import partial
from itertools import count

import pytest
import torch
from opwheel import operators_of
from opwheel.dispatch import Operator, register_python
from torch import Tensor
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts
from torch.utils.flop_counter import FlopCounterMode

from tests.recording import Recorded

NAMESPACE = "waves_training"
calls = []
numbers = count()


def cubes(x: Tensor) -> Tensor:
    return x.pow(3).sum(-1)


def cubes_kernel(x: Tensor) -> Tensor:
    calls.append("cubes")
    return cubes(x)


def cubes_training_kernel(x: Tensor) -> tuple[Tensor, Tensor]:
    calls.append("cubes_training")
    return cubes(x), 3 * x * x


functions = register_python(
    NAMESPACE,
    {
        "cubes(Tensor x) -> Tensor": cubes_kernel,
        "cubes_training(Tensor x) -> (Tensor y, Tensor d_x)": cubes_training_kernel,
        "scaled(Tensor grad_output, Tensor d_x) -> Tensor": lambda grad_output, d_x: grad_output.unsqueeze(-1) * d_x,
    },
    [
        Operator("cubes", reference=cubes, training="cubes_training", doc="Sums of cubes."),
        Operator(
            "cubes_training",
            reference=lambda x: (cubes(x), 3 * x * x),
            derivatives={"x": "scaled(grad, d_x)"},
            not_differentiable=("d_x",),
        ),
        Operator("scaled", reference=lambda grad_output, d_x: grad_output.unsqueeze(-1) * d_x),
    ],
)
op = torch.ops.waves_training.cubes.default
training = torch.ops.waves_training.cubes_training.default


@pytest.fixture(autouse=True)
def _no_calls():
    calls.clear()


def test_without_a_gradient_the_operator_itself_is_called():
    x = torch.randn(2, 3)
    torch.testing.assert_close(op(x), cubes(x))
    with torch.no_grad():
        op(x.requires_grad_())
    assert calls == ["cubes", "cubes"]


def test_with_a_gradient_the_other_one_is():
    x = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    y = op(x)
    assert isinstance(y, Tensor)
    assert calls == ["cubes_training"]
    torch.testing.assert_close(torch.autograd.grad(y.sum(), x)[0], 3 * x.detach() ** 2)
    assert torch.autograd.gradcheck(op, x)
    assert torch.autograd.gradgradcheck(op, x)


def test_a_gradient_that_no_formula_names_is_not_made():
    """It would be zeros of the size of what is kept."""
    x = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    y = op(x)
    with Recorded() as recorded:
        torch.autograd.grad(y, x, torch.ones(2, dtype=torch.float64))
    assert f"{NAMESPACE}.scaled" in recorded.names
    assert not [name for name in recorded.names if "zeros" in name]


def test_transforms():
    x = torch.randn(2, 3, dtype=torch.float64)
    torch.testing.assert_close(torch.func.grad(lambda t: op(t).sum())(x), 3 * x**2)
    torch.testing.assert_close(torch.func.jvp(op, (x,), (x,))[1], 3 * x.pow(3).sum(-1))
    torch.testing.assert_close(torch.vmap(op)(x), cubes(x))
    torch.testing.assert_close(torch.func.hessian(lambda t: op(t))(x[0]), torch.diag(6 * x[0]))


def test_compiled():
    x = torch.randn(2, 3, requires_grad=True)
    compiled = torch.compile(op, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(torch.autograd.grad(compiled(x).sum(), x)[0], 3 * x.detach() ** 2)
    assert calls.count("cubes") == 0
    torch.testing.assert_close(compiled(x.detach()), cubes(x.detach()))
    assert calls.count("cubes") == 1


def test_which_operators_a_call_may_be():
    assert operators_of(functions["cubes"]) == (op, training)
    with pytest.raises(TypeError, match="no public function of an operator library"):
        operators_of(cubes)


def test_modes_see_the_operator_for_training():
    """They stand below Autograd, and keep what an operator returns: of the other one that would be too little."""
    x = torch.randn(2, 3, requires_grad=True)
    with Recorded() as recorded:
        op(x)
    assert [name for name in recorded.names if NAMESPACE in name] == [f"{NAMESPACE}.cubes_training"]


def test_a_profiler_sees_both():
    with torch.profiler.profile() as profiler:
        op(torch.randn(2, 3, requires_grad=True))
    assert {f"{NAMESPACE}::cubes", f"{NAMESPACE}::cubes_training"} <= {event.key for event in profiler.key_averages()}


def test_the_flops_of_a_call_do_not_depend_on_whether_it_is_recorded():
    counted = []
    for needs in (False, True):
        with FlopCounterMode(display=False) as counter:
            op(torch.randn(2, 3, requires_grad=needs))
        counted.append(counter.get_total_flops())
    assert counted == [2, 2]


def saves(*wanted):
    """A policy that keeps what these operators return."""

    def policy(context, called, *args, **kwargs):
        assert args
        return CheckpointPolicy.MUST_SAVE if called in wanted else CheckpointPolicy.PREFER_RECOMPUTE

    return policy


POLICIES = {
    "list of the called one": ([op], 1),
    "list of that for training": ([training], 1),
    "list of both": (list(operators_of(functions["cubes"])), 1),
    "the called one": (saves(op), 1),
    "that for training": (saves(training), 1),
    "answers with a bool": (lambda context, called, *args, **kwargs: called is op, 1),
    "another one": (saves(torch.ops.aten.sin.default), 2),
}


@pytest.mark.parametrize("policy", POLICIES)
def test_selective_checkpointing(policy):
    """The kernel runs once where a policy keeps either operator, and twice where it keeps none."""
    keeps, runs = POLICIES[policy]
    x = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)

    def twice(t):
        return op(op(t.sin()).unsqueeze(-1) * t.sin()).sin()

    context = partial(create_selective_checkpoint_contexts, keeps)
    y = checkpoint(twice, x, use_reentrant=False, context_fn=context).sum()
    assert calls == ["cubes_training"] * 2
    (found,) = torch.autograd.grad(y, x)
    assert calls == ["cubes_training"] * 2 * runs
    calls.clear()
    torch.testing.assert_close(found, torch.autograd.grad(twice(x).sum(), x)[0], rtol=0, atol=0)


@pytest.mark.parametrize("keeps", [[op], [training]], ids=["the called one", "that for training"])
def test_selective_checkpointing_in_a_compiled_program(keeps):
    x = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)

    @torch.compile(backend="aot_eager_decomp_partition", fullgraph=True)
    def step(t):
        context = partial(create_selective_checkpoint_contexts, keeps)
        return checkpoint(lambda one: op(one.sin()).sin(), t, use_reentrant=False, context_fn=context)

    y = step(x).sum()
    (found,) = torch.autograd.grad(y, x)
    assert calls == ["cubes_training"]
    torch.testing.assert_close(found, torch.autograd.grad(op(x.sin()).sin().sum(), x)[0])


@pytest.mark.parametrize(
    ("schema", "claims", "message"),
    [
        ("other(Tensor x) -> Tensor", {"training": "nothing"}, "'nothing' is not another operator of the library"),
        ("other(Tensor x) -> Tensor", {"training": "other"}, "'other' is not another operator of the library"),
        ("other(Tensor z) -> Tensor", {"training": "target"}, "has the schema target"),
        ("other(Tensor x) -> (Tensor, Tensor, Tensor)", {"training": "target"}, "has the schema target"),
        ("other(Tensor x, Tensor(a!) y) -> ()", {"training": "target"}, "but it writes"),
        ("other(Tensor x) -> Tensor", {"training": "target", "derivatives": {"x": "grad"}}, "derivatives of its own"),
    ],
)
def test_what_cannot_take_its_place_is_refused(schema, claims, message):
    kernels = {"target(Tensor x) -> (Tensor, Tensor)": None, schema: None}
    operators = [Operator("target", reference=torch.exp), Operator("other", reference=torch.exp, **claims)]
    with pytest.raises(ValueError, match=message):
        register_python(f"{NAMESPACE}_{next(numbers)}", kernels, operators)
