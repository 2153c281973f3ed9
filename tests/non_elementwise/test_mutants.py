"""Do the generic checks notice? Wrong versions of several operators' kernels, each of which some check must catch."""

import itertools

import pytest
import torch
from opwheel.dispatch import overloads_of, register_python
from opwheel.dispatch.overload import as_tuple
from opwheel_tools.opinfo.lookup import register_op_infos
from opwheel_tools.testing import checks

from tests.non_elementwise.operators import KERNELS, OPERATORS
from tests.non_elementwise.opinfos import OP_INFOS

CPU = torch.device("cpu")
_names = (f"waves_mutants_{number}" for number in itertools.count())
_calls = itertools.count()
_kept = []


def first(change):
    """A mutant that changes the first result."""

    def mutate(kernel):
        def mutant(*args, **kwargs):
            results = kernel(*args, **kwargs)
            changed = change(as_tuple(results)[0])
            return (changed, *results[1:]) if isinstance(results, tuple) else changed

        return mutant

    return mutate


def around(before):
    """A mutant that does something with the arguments first."""

    def mutate(kernel):
        return lambda *args, **kwargs: kernel(*before(args), **kwargs)

    return mutate


def tensors(args):
    return [
        t for arg in args for t in (arg if isinstance(arg, (list, tuple)) else [arg]) if isinstance(t, torch.Tensor)
    ]


def each(change):
    return lambda args: [
        change(arg) if isinstance(arg, torch.Tensor) and arg.is_floating_point() else arg for arg in args
    ]


def flat(tensor):
    """Reads memory as if it were contiguous."""
    detached = tensor.detach()
    strides = torch.empty(tensor.shape).stride()
    reach = (
        sum((size - 1) * stride for size, stride in zip(tensor.shape, strides, strict=True)) if tensor.numel() else 0
    )
    room = detached.untyped_storage().nbytes() // detached.element_size() - detached.storage_offset()
    return detached.as_strided(tensor.shape, strides) if reach < room else detached


def without_offset(tensor):
    detached = tensor.detach()
    return detached.as_strided(tensor.shape, tensor.stride(), 0) if tensor.numel() else detached


def overwrite_an_argument(args):
    tensors(args)[0].detach().add_(1)
    return args


def keep(args):
    _kept.append(args)
    return args


MUTANTS = {
    "a result off by a percent": first(lambda y: (y * 1.01).to(y.dtype)),
    "a result shifted": first(lambda y: (y + (1 if not y.is_floating_point() else 0.01)).to(y.dtype)),
    "a result negated": first(lambda y: -y),
    "a result rounded": first(lambda y: y.bfloat16().to(y.dtype)),
    "a result reversed": first(lambda y: y.flip(-1)),
    "a result in another dtype": first(
        lambda y: y.to(torch.float64 if y.dtype is not torch.float64 else torch.float32)
    ),
    "a result with another shape": first(lambda y: y.unsqueeze(0)),
    "a result with a nan": first(lambda y: y.index_fill(-1, torch.tensor([0]), float("nan")) if y.numel() else y),
    "its last column not written": first(lambda y: torch.cat((y[..., :-1], torch.empty_like(y[..., -1:])), -1)),
    "a result that differs from call to call": first(lambda y: y * (1 + next(_calls) % 7 * 0.125)),
    "strides ignored": around(each(flat)),
    "offsets ignored": around(each(without_offset)),
    "an argument overwritten": around(overwrite_an_argument),
    "arguments kept": around(keep),
    "arguments rounded": around(each(lambda x: x.bfloat16().to(x.dtype))),
}
TARGETS = ("rms_norm", "rope", "softmax")


def registered(namespace, kernels, operators):
    """Overloads with these kernels, and the samples of the right ones."""
    register_python(namespace, kernels, operators)
    register_op_infos(namespace, OP_INFOS)
    return overloads_of(torch.library.Library(namespace, "FRAGMENT"))


def survivors():
    """Mutants that no check catches."""
    for (name, mutate), target in itertools.product(MUTANTS.items(), TARGETS):
        namespace = next(_names)
        kernels = {
            schema: mutate(kernel) if schema.partition("(")[0] == target else kernel
            for schema, kernel in KERNELS.items()
        }
        overload = registered(namespace, kernels, OPERATORS)[target]
        if not any(fails(overload, check, samples) for check, samples in checks.cases(overload, CPU)):
            yield f"{target}: {name}"


def fails(overload, check, samples):
    if check in ("compiled", "opcheck"):  # which take long
        return False
    try:
        checks.CHECKS[check](overload, samples)
    except Exception:
        return True
    return False


BACKWARD = "rms_norm_backward(grad, x, weight, rstd)"
# Right where both tensors require grad; wrong, or an error, where one of them is frozen.
FROZEN = {
    "twice the gradient of x alone": {"x, weight": BACKWARD, "x": "grad * 2"},
    "a gradient of weight alone that is zero": {"x, weight": BACKWARD, "weight": "weight * 0"},
}


@pytest.mark.parametrize("name", FROZEN)
def test_wrong_derivatives_of_some_tensors_are_found(name):
    namespace = next(_names)
    operators = [one._replace(derivatives=FROZEN[name]) if one.name == "rms_norm" else one for one in OPERATORS]
    overload = registered(namespace, KERNELS, operators)["rms_norm"]
    samples = checks.Samples(overload, 0, torch.float64, CPU)
    with pytest.raises(AssertionError, match=r"first derivatives of '(x|weight)' alone"):
        checks.CHECKS["first derivatives"](overload, samples)


def test_a_kernel_that_does_not_look_at_its_arguments_is_found():
    namespace = next(_names)

    def unchecked(x, weight, eps):
        y = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
        return y * weight.flatten()[: x.shape[-1]].to(x.dtype), torch.rsqrt(x.square().mean(-1) + eps)

    kernels = {
        schema: unchecked if schema.partition("(")[0] == "rms_norm" else kernel for schema, kernel in KERNELS.items()
    }
    overload = registered(namespace, kernels, OPERATORS)["rms_norm"]
    samples = checks.Samples(overload, 0, torch.float64, CPU)
    with pytest.raises(AssertionError, match=r"'(x|weight)' has one (more|less) in its last dimension: the"):
        checks.CHECKS["errors"](overload, samples)


@pytest.mark.slow
def test_mutants_are_killed():
    count = len(MUTANTS) * len(TARGETS)
    alive = list(survivors())
    assert count >= 30
    assert len(alive) <= 0.05 * count, alive
