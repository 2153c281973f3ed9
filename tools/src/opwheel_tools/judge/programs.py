"""Ways to call a function of tensors: each gives tensors, and is a part of reproductions as it stands here.

A program takes the function, its tensors, and numbers that say which of them it is about. It runs on the candidate; on
the reference runs the same one, or the one that :data:`PROGRAMS` names as what is wanted.
"""

# ruff: noqa: D103
from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from . import memory

MANY, MANY_SECONDS = 600, 2.0  # calls, and after which time they are enough
F = Callable[..., Any]
Tensors = list[Tensor]


class Refused(Exception):  # noqa: N818  # no error of the program's
    """The candidate said that it cannot do this."""

    code = None


def values(f: F, t: Tensors) -> Tensors:
    return [r for r in tree_leaves(f(*t)) if isinstance(r, Tensor)]


def without_grad(f: F, t: Tensors) -> Tensors:
    with torch.no_grad():
        return values(f, t)


def in_inference_mode(f: F, t: Tensors) -> Tensors:
    with torch.inference_mode():
        return [r.clone() for r in values(f, t)]


def weights(r: Tensor) -> Tensor:
    return moved(((torch.arange(r.numel()) * 5 % 17 - 8) / 8).to(r.dtype).view(r.shape))


def moved(x: Tensor) -> Tensor:
    """The same, or each element moved at random by a part of itself, inside :func:`moving`."""
    if not _moving:
        return x
    size, generator = _moving[-1]
    return x * (1 + size * (torch.randint(0, 2, x.shape, generator=generator) * 2 - 1).to(x.dtype))


_moving: list[tuple[float, torch.Generator]] = []


@contextmanager
def moving(size: float, generator: torch.Generator) -> Iterator[None]:
    """Incoming gradients and tangents are moved by a part of themselves, as inputs are."""
    _moving.append((size, generator))
    try:
        yield
    finally:
        _moving.pop()


def differentiable(f: F, t: Tensors) -> Tensors:
    results = [r for r in values(f, t) if r.requires_grad]
    if not results:
        raise Refused("the results do not require grad")
    return results


def leaves(t: Tensors, wrt: tuple[int, ...]) -> Tensors:
    return [x.detach().requires_grad_() if i in wrt else x.detach() for i, x in enumerate(t)]


def gradients(f: F, t: Tensors, *wrt: int) -> list[Tensor | None]:
    t = leaves(t, wrt)
    results = differentiable(f, t)
    return list(torch.autograd.grad(results, [t[i] for i in wrt], [weights(r) for r in results], allow_unused=True))


def gradients_of_transposed(f: F, t: Tensors, *wrt: int) -> list[Tensor | None]:
    t = leaves(t, wrt)
    results = differentiable(f, t)
    incoming = [weights(r).mT.contiguous().mT if r.dim() > 1 else weights(r) for r in results]
    return list(torch.autograd.grad(results, [t[i] for i in wrt], incoming, allow_unused=True))


def gradients_of_sum(f: F, t: Tensors, *wrt: int) -> list[Tensor | None]:
    t = leaves(t, wrt)
    total = torch.stack([r.sum() for r in differentiable(f, t)]).sum()
    return list(torch.autograd.grad(total, [t[i] for i in wrt], allow_unused=True))


def gradients_again(f: F, t: Tensors, *wrt: int) -> list[Tensor | None]:
    t = leaves(t, wrt)
    results = differentiable(f, t)
    for _ in range(2):
        found = torch.autograd.grad(
            results, [t[i] for i in wrt], [weights(r) for r in results], retain_graph=True, allow_unused=True
        )
    return list(found)


def incoming_after_backward(f: F, t: Tensors, *wrt: int) -> Tensors:
    t = leaves(t, wrt)
    incoming = {r: weights(r) for r in values(f, t) if r.is_floating_point()}
    results = [r for r in incoming if r.requires_grad]  # of two functions that compute the same, others may
    if not results:
        raise Refused("the results do not require grad")
    torch.autograd.grad(results, [t[i] for i in wrt], [incoming[r] for r in results], allow_unused=True)
    return list(incoming.values())


def gradients_after_inputs_changed(f: F, t: Tensors, *wrt: int) -> list[Tensor | None]:
    t = leaves(t, wrt)
    given = [x * 1 if i in wrt else x for i, x in enumerate(t)]
    results = differentiable(f, given)
    with torch.no_grad():
        for i in wrt:
            given[i].mul_(0.5)
    try:
        return list(torch.autograd.grad(results, [t[i] for i in wrt], [weights(r) for r in results], allow_unused=True))
    except RuntimeError as error:
        raise Refused("a backward whose saved tensors were changed") from error


def second_derivatives(f: F, t: Tensors, *wrt: int) -> list[Tensor | None]:
    t = leaves(t, wrt)
    inputs, results = [t[i] for i in wrt], differentiable(f, t)
    found = torch.autograd.grad(results, inputs, [weights(r) for r in results], create_graph=True, allow_unused=True)
    first = [g for g in found if g is not None and g.requires_grad]
    if not first:
        return [torch.zeros_like(x) for x in inputs]
    found = torch.autograd.grad(first, inputs, [weights(g) for g in first], allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for x, g in zip(inputs, found, strict=True)]


def tangents(f: F, t: Tensors, *wrt: int) -> Tensors:
    with torch.autograd.forward_ad.dual_level():
        duals = [
            torch.autograd.forward_ad.make_dual(x.detach(), weights(x)) if i in wrt else x for i, x in enumerate(t)
        ]
        found = [torch.autograd.forward_ad.unpack_dual(r).tangent for r in values(f, duals) if r.is_floating_point()]
        if all(one is None for one in found):
            raise Refused("the results have no tangents")
        return [torch.zeros(()) if one is None else with_memory(one) for one in found]


def with_memory(x: Tensor) -> Tensor:
    """The same; autograd gives tensors of zeros that have no memory, and cannot be written to a file."""
    if type(x) not in (Tensor, torch.nn.Parameter):
        raise TypeError(f"a {type(x).__name__} cannot be compared")
    return torch.empty(x.shape, dtype=x.dtype).copy_(x.detach()) if x.layout is torch.strided else x.detach()


def compiled(f: F, t: Tensors) -> Tensors:
    torch._dynamo.reset()
    return values(torch.compile(f, backend="aot_eager", dynamic=False), t)


def compiled_for_any_size(f: F, t: Tensors) -> Tensors:
    torch._dynamo.reset()
    return values(torch.compile(f, backend="aot_eager", dynamic=True), t)


def shapes(f: F, t: Tensors) -> Tensors:
    return [torch.zeros(r.shape, dtype=torch.uint8) for r in values(f, t) if r.layout is torch.strided]


def compiled_shapes(f: F, t: Tensors) -> Tensors:
    """Those that a fake kernel names: of the results themselves nobody can tell."""
    torch._dynamo.reset()
    return torch.compile(lambda *t: shapes(f, list(t)), backend="aot_eager", dynamic=False)(*t)


def batch(t: Tensors, i: int) -> list[Tensors]:
    return [[x * (1 - k / 4) if j == i else x for j, x in enumerate(t)] for k in range(3)]


def vmapped(f: F, t: Tensors, i: int, dim: int) -> Tensors:
    stacked = [torch.stack([one[j] for one in batch(t, i)], dim) if j == i else x for j, x in enumerate(t)]
    in_dims = tuple(dim if j == i else None for j in range(len(t)))
    return list(torch.vmap(lambda *t: tuple(values(f, list(t))), in_dims)(*stacked))


def one_by_one(f: F, t: Tensors, i: int, _: int) -> Tensors:
    return [torch.stack(parts) for parts in zip(*(values(f, one) for one in batch(t, i)), strict=True)]


def under_autocast(f: F, t: Tensors) -> Tensors:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return values(f, t)


def four(t: Tensors) -> list[Tensors]:
    return [[x * (1 - k / 8) if x.is_floating_point() else x.clone() for x in t] for k in range(4)]


def in_threads(f: F, t: Tensors) -> Tensors:
    given, barrier = four(t), threading.Barrier(4)
    results: list[Tensors] = [[]] * 4

    def run(k: int) -> None:
        barrier.wait()
        results[k] = values(f, given[k])

    threads = [threading.Thread(target=run, args=(k,)) for k in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    return list(chain.from_iterable(results))


def one_after_another(f: F, t: Tensors) -> Tensors:
    return list(chain.from_iterable(values(f, one) for one in four(t)))


def repeatedly(f: F, t: Tensors) -> Tensors:
    return list(chain.from_iterable(values(f, t) for _ in range(10)))


def after_memory_changed(f: F, t: Tensors) -> Tensors:
    t = [x.clone() for x in t]
    values(f, t)
    for x in t:
        if x.is_floating_point():
            x.mul_(0.5)
    return values(f, t)


def after_another_call(f: F, t: Tensors) -> Tensors:
    results = values(f, t)
    values(f, four(t)[3])
    return results


def in_new_memory(f: F, t: Tensors) -> Tensors:
    settings: Any = torch.utils.deterministic
    settings.fill_uninitialized_memory = True
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        return values(f, t)
    finally:
        torch.use_deterministic_algorithms(False)


def after_unseen_change(f: F, t: Tensors) -> Tensors:
    t = [x.clone() for x in t]
    values(f, t)
    for x in t:
        if x.is_floating_point():
            x.data.mul_(0.5)  # of which the version of the tensor does not tell
    return values(f, t)


def after_many_calls(f: F, t: Tensors) -> Tensors:
    end = time.monotonic() + MANY_SECONDS
    for _ in range(MANY):
        results = values(f, [x.clone() for x in t])
        if time.monotonic() > end:
            break
    return results


def among_nan(f: F, t: Tensors) -> Tensors:
    return list(memory.among_nan(lambda t: values(f, t), t))


def among_large(f: F, t: Tensors) -> Tensors:
    return list(memory.among_large(lambda t: values(f, t), t))


def gradients_among_nan(f: F, t: Tensors, *wrt: int) -> list[Tensor | None]:
    return list(memory.among_nan(lambda t: gradients(f, t, *wrt), t))


def inputs_after(f: F, t: Tensors, *which: int) -> Tensors:
    t = [x.clone() for x in t]
    values(f, t)
    return [t[i] for i in which]


def inputs_after_backward(f: F, t: Tensors, *wrt: int) -> Tensors:
    t = [x.clone() for x in t]
    gradients(f, t, *wrt)
    return t


def inputs_after_writing_results(f: F, t: Tensors) -> Tensors:
    t = [x.clone() for x in t]
    for r in values(f, t):
        r.detach().zero_()
    return t


def inputs_after_failure(f: F, t: Tensors, *which: int) -> Tensors:
    t = [x.clone() for x in t]
    for i in which:
        with suppress(Exception):  # whatever it is
            f(*t[:i], t[i].new_ones(2, 3, 5, 7), *t[i + 1 :])
    return [t[i] for i in which]


def rounded_to(x: Tensor, bits: int) -> Tensor:
    fraction, exponent = torch.frexp(x)
    return torch.ldexp((fraction * 2**bits).round(), exponent - bits)


def counts_lower_bits(f: F, t: Tensors, i: int, bits: int) -> Tensors:
    both = zip(values(f, t), values(f, [*t[:i], rounded_to(t[i], bits), *t[i + 1 :]]), strict=True)
    return [torch.tensor(any(bool(((a != b) & ~(a.isnan() & b.isnan())).any()) for a, b in both))]


DERIVATIVES = (gradients, gradients_of_sum, second_derivatives)  # one by each of the inputs that their numbers name


class Program(NamedTuple):
    """A way to call a function.

    Args:
        run: on the candidate.
        group: of the findings.
        want: on the reference; the same where it is None.
        own: on the reference in its own dtype, whose error says how far the candidate may be off.
    """

    run: Callable[..., Any]
    group: str
    want: Callable[..., Any] | None = None
    own: Callable[..., Any] | None = None


PROGRAMS = {
    "values": Program(values, "values"),
    "without_grad": Program(without_grad, "no_grad", values),
    "in_inference_mode": Program(in_inference_mode, "inference mode", values),
    "gradients": Program(gradients, "gradients"),
    "gradients_of_transposed": Program(gradients_of_transposed, "gradients", gradients),
    "gradients_of_sum": Program(gradients_of_sum, "gradients"),
    "gradients_again": Program(gradients_again, "gradients", gradients),
    "incoming_after_backward": Program(incoming_after_backward, "writes"),
    "gradients_after_inputs_changed": Program(gradients_after_inputs_changed, "saved tensors", gradients),
    "second_derivatives": Program(second_derivatives, "second derivatives"),
    "tangents": Program(tangents, "forward mode"),
    "compiled": Program(compiled, "compile", values),
    "compiled_for_any_size": Program(compiled_for_any_size, "compile", values),
    "compiled_shapes": Program(compiled_shapes, "compile", shapes),
    "vmapped": Program(vmapped, "vmap", one_by_one),
    "under_autocast": Program(under_autocast, "autocast", values, under_autocast),
    "in_threads": Program(in_threads, "threads", one_after_another),
    "repeatedly": Program(repeatedly, "state"),
    "after_memory_changed": Program(after_memory_changed, "state"),
    "after_another_call": Program(after_another_call, "state"),
    "after_unseen_change": Program(after_unseen_change, "state"),
    "after_many_calls": Program(after_many_calls, "state", values),
    "in_new_memory": Program(in_new_memory, "memory", values),
    "among_nan": Program(among_nan, "memory", values),
    "among_large": Program(among_large, "memory", values),
    "gradients_among_nan": Program(gradients_among_nan, "memory", gradients),
    "counts_lower_bits": Program(counts_lower_bits, "dtypes"),
    "inputs_after": Program(inputs_after, "writes"),
    "state_after": Program(inputs_after, "module"),
    "inputs_after_backward": Program(inputs_after_backward, "writes"),
    "inputs_after_writing_results": Program(inputs_after_writing_results, "aliases"),
    "inputs_after_failure": Program(inputs_after_failure, "writes"),
}
