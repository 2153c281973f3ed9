"""PyTorch's own operator samples as an outside judge: values, dtype, shape, strides, and what is an error."""

import itertools

import muladd
import pytest
import torch
from opwheel_tools.testing.samples import DTYPES
from torch.testing._internal.common_methods_invocations import op_db

SAMPLED = ("mul", "add", "addcmul")
INFOS = {info.name: info for info in op_db if info.name in SAMPLED and info.variant_test_name == ""}


def ours(name, sample):
    """The same computation with muladd's operators, and a call of PyTorch whose result has the strides we expect.

    None where muladd has nothing that corresponds: a number in the place of the first tensor, complex numbers.
    """
    first, args, kwargs = sample.input, sample.args, sample.kwargs
    numbers = [*args, *kwargs.values()]
    if not isinstance(first, torch.Tensor) or any(isinstance(number, complex) for number in numbers):
        return None
    if name == "addcmul":
        a, b = args
        if kwargs.get("value", 1) == 1:
            return lambda: muladd.fma(a, b, first), lambda: torch.addcmul(a, b, first)
        return lambda: scaled_fma(a, b, first, kwargs["value"]), lambda: torch.addcmul(a, b, first)
    other, alpha = args[0], kwargs.get("alpha", 1)
    if name == "mul" and not isinstance(other, torch.Tensor):
        return lambda: muladd.scale(first, other), lambda: torch.neg(first)
    if not isinstance(other, torch.Tensor) or alpha != 1:
        return None
    mine = muladd.mul if name == "mul" else muladd.add
    return lambda: mine(first, other), lambda: torch.mul(first, other)


def scaled_fma(a, b, c, value):
    """addcmul's extra factor, without a rounding of its own."""
    dtype = (a * b + c).dtype
    if dtype not in DTYPES:
        return muladd.fma(a, b, c)
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    return muladd.fma(muladd.scale(a.to(wide), value), b.to(wide), c.to(wide)).to(dtype)


def tensors_of(sample):
    return [value for value in (sample.input, *sample.args) if isinstance(value, torch.Tensor)]


def samples(info, dtype):
    yield from info.sample_inputs("cpu", dtype)
    yield from (sample.noncontiguous() for sample in itertools.islice(info.sample_inputs("cpu", dtype), 40))
    yield from info.reference_inputs("cpu", dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", SAMPLED)
def test_agrees_with_torch(name, dtype):
    info, compared = INFOS[name], 0
    for sample in samples(info, dtype):
        pair = ours(name, sample)
        if pair is None:
            continue
        mine, same_layout = pair
        tensors = tensors_of(sample)
        if any(tensor.dtype not in DTYPES for tensor in tensors):
            with pytest.raises(RuntimeError, match="supported dtypes"):
                mine()
            continue
        theirs = info(sample.input, *sample.args, **sample.kwargs)
        result = mine()
        assert result.shape == theirs.shape
        assert result.dtype == theirs.dtype
        if len({tensor.dtype for tensor in tensors}) == 1:
            # With mixed dtypes PyTorch's CPU kernels convert inputs first, which may change the strides.
            assert result.stride() == same_layout().stride()
        torch.testing.assert_close(result, theirs, equal_nan=True)
        compared += 1
    assert compared > 10


@pytest.mark.parametrize("name", SAMPLED)
def test_the_same_shapes_are_errors(name):
    """Every pair of tensors from the samples: both accept it or both refuse it, and give the same shape."""
    info = INFOS[name]
    tensors = {value.shape: value for sample in samples(info, torch.float32) for value in tensors_of(sample)}
    refused = 0
    for a, b in itertools.product(tensors.values(), repeat=2):
        extra = (torch.ones(()),) if name == "addcmul" else ()
        calls = {"mul": (muladd.mul, torch.mul), "add": (muladd.add, torch.add), "addcmul": (muladd.fma, torch.addcmul)}
        mine, theirs = (outcome(function, a, b, *extra) for function in calls[name])
        assert mine == theirs
        refused += mine == "refused"
    assert refused > 10


def outcome(function, *tensors):
    try:
        return function(*(tensor.float() for tensor in tensors)).shape
    except RuntimeError:
        return "refused"
