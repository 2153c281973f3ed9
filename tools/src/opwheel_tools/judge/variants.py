"""Calls around the given ones: other shapes, numbers, dtypes and memory, each written as Python that makes its tensors.

The text is what makes the tensors here and in a reproduction, so that both are the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from .cases import Case
from .saved import is_saved

_SMALL = 20_000  # elements of all tensors of a call that is varied as it is
_MOST = 400_000  # of a variant
_LITERAL = 12  # elements of a tensor of integers that is written out
_SHORT = (24, 20, 28, 18, 22, 26, 30, 14)  # what stands for sizes above these, where a call is larger than _SMALL
_SIZES = (1, 0, 129, 1500)
_NARROW = {torch.float16, torch.bfloat16}


class Spec(NamedTuple):
    """A tensor to make.

    Args:
        shape: of it.
        text: Python that makes it, for a shape that stands in it as ``{shape}``.
        dtype: of it.
    """

    shape: tuple[int, ...]
    text: str
    dtype: torch.dtype

    @property
    def expression(self) -> str:
        """Python that makes it."""
        if self.is_saved:  # its shape and dtype follow from those of others
            return self.text
        made = self.text.replace("{shape}", str(tuple(self.shape)))
        if self.dtype in (torch.float32, torch.int64, torch.bool):
            return made
        return f"{_in_brackets(made)}.to({self.dtype})"

    @property
    def is_float(self) -> bool:
        """Whether its elements are floating-point numbers."""
        return self.dtype.is_floating_point

    @property
    def is_saved(self) -> bool:
        """Whether others make it, so that it has no shape and no numbers of its own."""
        return is_saved(self.text)


class Variant(NamedTuple):
    """A call, made from a given one.

    Args:
        name: what is other about it.
        group: of the findings; empty for a call as it is given.
        expressions: Python for each tensor; ``t`` are the tensors so far, ``given`` those of the given call. Saved ones
            are made by the reference's process, of all others.
    """

    name: str
    group: str
    expressions: tuple[str, ...]

    @property
    def is_given(self) -> bool:
        """Whether it is the given call itself."""
        return not self.group

    @property
    def is_finite(self) -> bool:
        """Whether it has neither infinities nor nan, at which derivatives are a matter of taste."""
        return not ("nan" in self.name or "infini" in self.name)

    def make(self, given: Case) -> Case:
        """The call."""
        torch.manual_seed(0)
        t: list[Tensor] = []
        known = {"torch": torch, "nan": math.nan, "inf": math.inf, "given": given.tensors, "t": t}
        saved = {i: expression for i, expression in enumerate(self.expressions) if is_saved(expression)}
        for i, expression in enumerate(self.expressions):  # each may use those before it
            t.append(given.tensors[i] if i in saved else eval(expression, known))  # noqa: S307  # written below
        return given._replace(tensors=t, saved=saved)


def as_given(case: Case) -> Variant:
    """The call itself."""
    return Variant("as given", "", tuple(f"given[{i}]" for i in range(len(case.tensors))))


def bases(case: Case) -> list[list[Spec]]:
    """Tensors like those of a call, to be varied: the first of these that the reference takes."""
    specs = [
        Spec(tuple(x.shape), case.saved[i], x.dtype) if i in case.saved else _like(x)
        for i, x in enumerate(case.tensors)
    ]
    found = [[Spec(tuple(x.shape), f"given[{i}]", x.dtype) for i, x in enumerate(case.tensors)]]
    if sum(x.numel() for x in case.tensors) <= _SMALL:
        return [specs, *found]
    long = sorted({size for spec in specs for size in spec.shape if size > min(_SHORT)})
    other = dict(zip(long, _SHORT, strict=False))
    return [[_resized(spec, other) for spec in specs], specs, *found]


def _like(x: Tensor) -> Spec:
    shape = tuple(x.shape)
    if x.dtype is torch.bool:
        return Spec(shape, "torch.rand({shape}) < 0.5", x.dtype)
    if not x.dtype.is_floating_point and not x.dtype.is_complex:
        low, high = (int(x.min()), int(x.max()) + 1) if x.numel() else (0, 1)
        if x.numel() <= _LITERAL:
            return Spec(shape, f"torch.tensor({x.tolist()})", x.dtype)
        text = f"torch.randint({low}, {high}, {{shape}})"
        is_sorted = x.dim() == 1 and bool((x.diff() >= 0).all())
        return Spec(shape, f"{text}.sort().values" if is_sorted else text, x.dtype)
    known = x.detach().double()[x.detach().isfinite()] if x.dtype.is_floating_point else torch.ones(1)
    if not known.numel():
        return Spec(shape, "torch.randn({shape})", x.dtype)
    least, most = float(known.min()), float(known.max())
    if least >= 0 and known.numel() > 1:
        return Spec(shape, f"torch.rand({{shape}}) * {most - least:.3g} + {least:.3g}", x.dtype)
    mean, std = float(known.mean()), float(known.std()) if known.numel() > 1 else 1.0
    scale = "" if abs(std - 1) < 0.3 else f" * {std:.3g}"
    return Spec(shape, f"torch.randn({{shape}}){scale}{'' if abs(mean) < 0.3 * std else f' + {mean:.3g}'}", x.dtype)


def _resized(spec: Spec, sizes: dict[int, int]) -> Spec:
    """A tensor whose sizes are others; integers that are written out are drawn then."""
    shape = tuple(sizes.get(size, size) for size in spec.shape)
    if spec.is_saved:
        return spec
    if shape != spec.shape and spec.text.startswith("torch.tensor("):
        values: Tensor = eval(spec.text, {"torch": torch}).flatten()  # noqa: S307  # written above
        low, high = (int(values.min()), int(values.max()) + 1) if values.numel() else (0, 1)
        return Spec(shape, f"torch.randint({low}, {high}, {{shape}})", spec.dtype)
    return spec._replace(shape=shape)


def _variant(name: str, group: str, specs: list[Spec], expressions: list[str] | None = None) -> Variant:
    return Variant(name, group, tuple(expressions or [spec.expression for spec in specs]))


def base_variant(specs: list[Spec]) -> Variant:
    """The call that all others are made from."""
    return _variant("numbers of the given kind", "values", specs)


def variants(specs: list[Spec], inputs: int) -> Iterator[Variant]:
    """The calls around one.

    Args:
        specs: of its tensors.
        inputs: how many of them are arguments; the others, a module's state, change their shapes and dtypes alone.
    """
    yield from _shapes(specs, inputs)
    yield from _dtypes(specs)
    yield from _layouts(specs, inputs)
    yield from _numbers(specs, inputs)
    yield from _aliases(specs[:inputs], specs[inputs:])


def _shapes(specs: list[Spec], inputs: int) -> Iterator[Variant]:
    if any(spec.text.startswith("given[") for spec in specs):
        return
    sizes = sorted({size for spec in specs if not spec.is_saved for size in spec.shape if size > 1})
    for size in sizes:
        for other in (*_SIZES, size + 1, size - 1):
            if other == size:
                continue
            changed = [_resized(spec, {size: other}) for spec in specs]
            if sum(math.prod(spec.shape) for spec in changed) <= _MOST:
                yield _variant(f"size {size} is {other}", "shapes", changed)
    for i, spec in enumerate(specs[:inputs]):
        if spec.shape and not spec.is_saved:
            more = [one._replace(shape=(2, *one.shape)) if j == i else one for j, one in enumerate(specs)]
            yield _variant(f"input {i} has a dimension more", "shapes", more)


def _dtypes(specs: list[Spec]) -> Iterator[Variant]:
    given = next((spec.dtype for spec in specs if spec.is_float), None)
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64) if given else ():
        if dtype != given:
            changed = [spec._replace(dtype=dtype) if spec.dtype == given else spec for spec in specs]
            yield _variant(str(dtype), "dtypes", changed)


def _in_brackets(text: str) -> str:
    is_one = text.endswith((")", "]")) and not set("+*<") & set(text)
    return text if is_one else f"({text})"


def _layout_texts(spec: Spec) -> Iterator[tuple[str, str]]:
    made, size = _in_brackets(spec.expression), math.prod(spec.shape)
    around = ", value=nan" if spec.is_float else ""
    if not size or not spec.shape:
        return
    if len(spec.shape) > 1:
        yield "transposed in memory", f"{made}.mT.contiguous().mT"
        yield "columns of a wider one", f"torch.nn.functional.pad({made}, (1, 2){around})[..., 1:-2]"
    yield "every second element", f"{made}.repeat_interleave(2, -1)[..., ::2]"
    yield "rows of the same memory", f"{made}[:1].expand{spec.shape}"
    yield "not aligned", f"torch.nn.functional.pad({made}.flatten(), (3, 1){around})[3:-1].view{spec.shape}"


def _layouts(specs: list[Spec], inputs: int) -> Iterator[Variant]:
    for i, spec in enumerate(specs[:inputs]):
        if spec.dtype is torch.bool:
            continue
        for name, text in _layout_texts(spec):
            if (spec.is_float and not spec.is_saved) or "same memory" not in name:
                expressions = [text if j == i else one.expression for j, one in enumerate(specs)]
                yield _variant(f"input {i} is {name}", "layouts", specs, expressions)
    if sum(spec.is_float for spec in specs[:inputs]) > 1:
        for name in ("transposed in memory", "not aligned"):
            texts = [list(_layout_texts(spec)) if spec.is_float else [] for spec in specs[:inputs]]
            texts += [[] for _ in specs[inputs:]]
            chosen = [dict(one).get(name, spec.expression) for one, spec in zip(texts, specs, strict=True)]
            if chosen != [spec.expression for spec in specs]:
                yield _variant(f"all inputs are {name}", "layouts", specs, chosen)


def _numbers(specs: list[Spec], inputs: int) -> Iterator[Variant]:
    floats = [i for i, spec in enumerate(specs[:inputs]) if spec.is_float and not spec.is_saved and 0 not in spec.shape]
    for name, change in (
        ("a hundred times as large", "{x} * 100"),
        ("a thousandth", "{x} * 0.001"),
        ("small against 1e-3", "{x} * 1e-5"),
        ("far from zero", "{x} + 300"),
        ("whole, with ties", "{x}.round()"),
        ("zero", "{x} * 0"),
        ("subnormal", "{x} * 1e-39"),
        ("one large, the others zero", "torch.where(torch.arange({n}).view({shape}) % 5 == 1, 60.0, {x} * 0)"),
        ("nan once", "torch.where(torch.arange({n}).view({shape}) == {k}, nan, {x})"),
        ("infinite once", "torch.where(torch.arange({n}).view({shape}) == {k}, inf, {x})"),
        ("minus infinity once", "torch.where(torch.arange({n}).view({shape}) == {k}, -inf, {x})"),
    ):
        for chosen in filter(None, [floats] if len(floats) < 2 else [floats, *([i] for i in floats)]):
            expressions = [spec.expression for spec in specs]
            for i in chosen:
                expressions[i] = _changed(specs[i], change)
            whose = "all numbers" if chosen == floats else f"numbers of input {chosen[0]}"
            yield _variant(f"{whose}: {name}", "numbers", specs, expressions)
    if floats:  # of which 0, where a kernel has read nothing, is the largest
        negative = [_changed(spec, "-{x}.abs()") if i in floats else spec.expression for i, spec in enumerate(specs)]
        yield _variant("all numbers: none positive", "numbers", specs, negative)


def _changed(spec: Spec, change: str) -> str:
    n = math.prod(spec.shape)
    filled = change.replace("{n}", str(n)).replace("{k}", str(n // 3))
    filled = filled.replace("{shape}", ", ".join(map(str, spec.shape or (1,))))
    filled = filled.replace("{x}", _in_brackets(spec.expression))
    filled = f"({filled}).to({spec.dtype})" if spec.dtype in _NARROW else filled
    return filled if spec.shape else f"({filled}).reshape(())"


def _aliases(specs: list[Spec], state: list[Spec]) -> Iterator[Variant]:
    floats = [i for i, spec in enumerate(specs) if spec.is_float and not spec.is_saved]
    for i in floats:
        for j in floats[: floats.index(i)]:
            if (specs[i].shape, specs[i].dtype) == (specs[j].shape, specs[j].dtype):
                expressions = [f"t[{j}]" if k == i else one.expression for k, one in enumerate([*specs, *state])]
                yield _variant(f"input {i} is input {j}", "aliases", specs, expressions)
