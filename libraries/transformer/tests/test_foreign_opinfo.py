"""PyTorch's own samples for the operators that have kernels of this library: off, on, and float64 say the same.

Admitted are all calls for which results are claimed to be right, whatever their size: the conditions on speed would
leave out nearly all samples.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
import transformer_ops
from opwheel.foreign import ForeignKernels
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.testing._internal import common_methods_invocations
from torch.utils import _pytree as pytree

OPERATORS = (
    "nn.functional.rms_norm",
    "nn.functional.layer_norm",
    "native_layer_norm",
    "softmax",
    "log_softmax",
    "nn.functional.cross_entropy",
    "nn.functional.scaled_dot_product_attention",
)
INFOS = {
    f"{info.name}{'.' if info.variant_test_name else ''}{info.variant_test_name}": info
    for info in common_methods_invocations.op_db
    if info.name in OPERATORS
}
EVERY_SAMPLE = pytest.param(1, marks=pytest.mark.nightly)
DTYPES = (torch.float32, torch.bfloat16)
# For each of them, which other dtypes are never admitted: their results are the same to the bit.
OTHER_DTYPES = (torch.float64, torch.float16)

KERNELS = ForeignKernels(
    transformer_ops.library, [replace(one, fast=()) for one in transformer_ops.library.foreign.declarations]
)
pytestmark = pytest.mark.skipif(
    "rms_norm" not in getattr(transformer_ops.backends().get("cpu"), "operators", ()),
    reason="they are for the CPU backend",
)


@contextmanager
def switched(is_on: bool) -> Iterator[None]:
    if not is_on:
        yield
        return
    with KERNELS.on():
        yield


def tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, Tensor)]


def as_leaves(sample: Any, dtype: torch.dtype, *, gradients: bool) -> Any:
    """The sample with tensors of its own, of the dtype, with the same strides."""

    def copied(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        is_number = leaf.is_floating_point()
        made = leaf.detach().clone().to(dtype if is_number else leaf.dtype)
        return made.requires_grad_(gradients and is_number and leaf.requires_grad)

    return pytree.tree_map(copied, (sample.input, tuple(sample.args), dict(sample.kwargs)))


def samples(info: Any, dtype: torch.dtype, step: int) -> list[Any]:
    torch.manual_seed(0)
    found = list(info.sample_inputs("cpu", dtype, requires_grad=True))
    found += [one.noncontiguous() for one in found[::3]]
    # Dropout is drawn in another order in a larger dtype.
    return [one for one in found if not one.kwargs.get("dropout_p")][::step]


def call(info: Any, given: Any) -> Any:
    input_, args, kwargs = given
    torch.manual_seed(1)
    return info.op(input_, *args, **kwargs)


def outcome(what: Callable[[], Any]) -> list[Tensor] | str:
    """Tensors, or the error in words."""
    try:
        return tensors(what())
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def derivatives(info: Any, sample: Any, dtype: torch.dtype, order: int) -> list[Tensor]:
    """Results, and their derivatives up to an order, by cotangents that are the same for every dtype."""
    given = as_leaves(sample, dtype, gradients=True)
    leaves = [leaf for leaf in tensors(given) if leaf.requires_grad]
    found = tensors(call(info, given))
    current, generator = found, torch.Generator().manual_seed(2)
    for _ in range(order):
        usable = [one for one in current if one.requires_grad]
        if not usable or not leaves:
            break
        cotangents = [torch.randn(one.shape, generator=generator, dtype=torch.float64).to(one.dtype) for one in usable]
        gradients = torch.autograd.grad(usable, leaves, cotangents, create_graph=order > 1, allow_unused=True)
        current = [one for one in gradients if one is not None]
        found = found + current
    return found


def check_same_kind(off: list[Tensor] | str, on: list[Tensor] | str) -> bool:
    """The same errors, or tensors of the same dtype, shape and strides; whether there are values to compare."""
    if isinstance(off, str) or isinstance(on, str):
        assert on == off
        return False
    assert [(one.dtype, one.shape, one.stride()) for one in on] == [(one.dtype, one.shape, one.stride()) for one in off]
    return True


def check_values(off: list[Tensor], on: list[Tensor], exact: list[Tensor]) -> None:
    """As far from float64 as PyTorch's own results are, times four, and some roundings."""
    for theirs, ours, reference in zip(off, on, exact, strict=True):
        if not ours.numel() or not ours.is_floating_point():
            continue
        assert torch.equal(ours.isnan(), theirs.isnan())
        ours, theirs, reference = (torch.nan_to_num(one.detach().double()) for one in (ours, theirs, reference))
        rounding = torch.finfo(off[0].dtype).eps * reference.abs().clamp(min=1e-2).max()
        bound = 4 * (theirs - reference).abs().max() + 8 * rounding
        assert (ours - reference).abs().max() <= bound


def pairs(info: Any, dtype: torch.dtype, order: int, step: int) -> Iterator[Any]:
    for sample in samples(info, dtype, step):
        results = []
        for is_on in (False, True):
            with switched(is_on):
                results.append(outcome(lambda sample=sample: derivatives(info, sample, dtype, order)))
        yield sample, *results


@pytest.mark.parametrize("step", [6, EVERY_SAMPLE])
@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", INFOS)
def test_values_and_derivatives(name: str, dtype: torch.dtype, order: int, step: int) -> None:
    info = INFOS[name]
    for sample, off, on in pairs(info, dtype, order, step):
        if check_same_kind(off, on):
            exact = outcome(lambda sample=sample: derivatives(info, sample, torch.float64, order))
            assert not isinstance(exact, str)
            check_values(off, on, exact)


@pytest.mark.parametrize("dtype", OTHER_DTYPES, ids=str)
@pytest.mark.parametrize("name", INFOS)
def test_other_dtypes_are_pytorchs(name: str, dtype: torch.dtype) -> None:
    for _, off, on in pairs(INFOS[name], dtype, 1, 4):
        if check_same_kind(off, on):
            # Of float16, what PyTorch composes attention of has a softmax in float32, which may be ours.
            is_composed = "scaled_dot_product" in name and dtype == torch.float16
            for theirs, ours in zip(off, on, strict=True):
                check_close(theirs, ours, 2 * torch.finfo(dtype).eps if is_composed else 0)


def check_close(off: Tensor, on: Tensor, tolerance: float) -> None:
    """Up to a share of the largest number."""
    scale = off.nan_to_num().abs().max().item() if off.numel() else 0
    torch.testing.assert_close(on, off, rtol=0, atol=tolerance * max(scale, 1), equal_nan=True)


def with_tangents(info: Any, sample: Any) -> list[Tensor]:
    input_, args, kwargs = as_leaves(sample, torch.float32, gradients=False)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(input_, torch.ones_like(input_))
        return [part for one in tensors(call(info, (dual, args, kwargs))) for part in forward_ad.unpack_dual(one)]


def vmapped(info: Any, sample: Any) -> Any:
    input_, args, kwargs = as_leaves(sample, torch.float32, gradients=False)
    rows = torch.stack((input_, input_ + 1))
    return torch.func.vmap(lambda one: call(info, (one, args, kwargs)), randomness="same")(rows)


def of_torch_func(info: Any, sample: Any) -> Any:
    input_, args, kwargs = as_leaves(sample, torch.float32, gradients=False)
    return torch.func.grad(lambda one: sum(x.sum() for x in tensors(call(info, (one, args, kwargs)))))(input_)


def in_inference_mode(info: Any, sample: Any) -> Any:
    with torch.inference_mode():
        return call(info, as_leaves(sample, torch.float32, gradients=False))


def gradients_of_sums(found: list[Tensor], given: Any) -> tuple[Tensor | None, ...]:
    leaves = [leaf for leaf in tensors(given) if leaf.requires_grad]
    sums = [one.sum() for one in found if one.requires_grad]
    return torch.autograd.grad(sums, leaves, allow_unused=True) if sums and leaves else ()


def autocast(info: Any, sample: Any) -> Any:
    given = as_leaves(sample, torch.float32, gradients=True)
    with torch.autocast("cpu", torch.bfloat16):
        found = tensors(call(info, given))
    return [*found, *gradients_of_sums(found, given)]


def compiled(info: Any, sample: Any, backend: str = "aot_eager") -> Any:
    torch.compiler.reset()
    given = as_leaves(sample, torch.float32, gradients=True)
    found = tensors(torch.compile(lambda *given: call_plainly(info, given), backend=backend)(*given))
    return [*found, *gradients_of_sums(found, given)]


def call_plainly(info: Any, given: Any) -> Any:
    input_, args, kwargs = given
    return info.op(input_, *args, **kwargs)


WAYS = {
    "forward mode": (with_tangents, 4),
    "vmap": (vmapped, 4),
    "torch.func.grad": (of_torch_func, 4),
    "inference_mode": (in_inference_mode, 4),
    "autocast": (autocast, 2),
    "compile": (compiled, 12),
}


# Of rows of one element PyTorch's decomposition of layer_norm multiplies a rounding error by 1 / sqrt(eps), 316.
TOLERANCES = {"autocast": 2e-2, "compile": 5e-5}


def check_ways(name: str, way: str, step: int) -> None:
    info, (function, _) = INFOS[name], WAYS[way]
    for sample in samples(info, torch.float32, step):
        results = []
        for is_on in (False, True):
            with switched(is_on):
                results.append(outcome(lambda sample=sample: function(info, sample)))
        if check_same_kind(*results):
            for off, on in zip(*results, strict=True):
                check_close(off, on, TOLERANCES.get(way, 2e-5))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", INFOS)
def test_ways_of_calling(name: str, way: str) -> None:
    check_ways(name, way, WAYS[way][1] * 2)


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", INFOS)
def test_ways_of_calling_every_sample(name: str, way: str) -> None:
    check_ways(name, way, 1)


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("name", INFOS)
def test_compiled_by_inductor(name: str) -> None:
    info = INFOS[name]
    for sample in samples(info, torch.float32, 4):
        results = []
        for is_on in (False, True):
            with switched(is_on):
                results.append(outcome(lambda sample=sample: compiled(info, sample, "inductor")))
        if check_same_kind(*results):
            for off, on in zip(*results, strict=True):
                check_close(off, on, TOLERANCES["compile"])


@pytest.mark.parametrize("name", INFOS)
def test_without_data(name: str) -> None:
    """Of tensors without data as of others: dtype, shape and strides."""
    info = INFOS[name]
    for sample in samples(info, torch.float32, 2):
        results = []
        for is_on in (False, True):
            with switched(is_on):
                mode = FakeTensorMode()
                given = pytree.tree_map_only(
                    Tensor, mode.from_tensor, as_leaves(sample, torch.float32, gradients=False)
                )

                def fake(given: Any = given, mode: Any = mode) -> Any:
                    with mode:
                        return call_plainly(info, given)

                results.append(outcome(fake))
        check_same_kind(*results)


@pytest.mark.parametrize("name", [name for name, info in INFOS.items() if info.error_inputs_func is not None])
def test_errors(name: str) -> None:
    info = INFOS[name]
    for error_input in info.error_inputs("cpu"):
        sample = error_input.sample_input
        results = []
        for is_on in (False, True):
            with switched(is_on):
                given = (sample.input, tuple(sample.args), dict(sample.kwargs))
                results.append(outcome(lambda given=given: call(info, given)))
        assert isinstance(results[0], str)
        assert results[1] == results[0]


def test_admitted() -> None:
    """Many of the samples are for our kernels: the tests above compare something."""
    counts = {}
    for name, operator in (
        ("nn.functional.rms_norm", "aten::rms_norm"),
        ("nn.functional.layer_norm", "aten::layer_norm"),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = samples(INFOS[name], torch.float32, 1)
        counts[name] = sum(KERNELS.why(operator, one.input, *one.args, **one.kwargs).ours for one in found)
    assert all(count >= 2 for count in counts.values()), counts
