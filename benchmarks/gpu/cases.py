"""The table of cases: operators, the statements that compute them, and their inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812  # as PyTorch's documentation calls it

Statement = Callable[..., Any]
Load = Callable[[], Statement]
"""Imports what a statement needs, in the process that measures it."""


class Sizes(NamedTuple):
    """Of a model of 7 billion parameters; rows are tokens."""

    rows: int = 16_384
    width: int = 4096
    inner: int = 11_008
    heads: int = 32
    key_heads: int = 8
    length: int = 128
    batch: int = 4
    positions: int = 4096
    scores: int = 2048
    losses: tuple[tuple[int, int], ...] = ((8192, 32_000), (4096, 128_256))
    decoded: tuple[int, ...] = (1, 8, 64)
    elements: int = 2**28
    classes: int = 128_256
    wide: int = 16_384  # the width of a model of 405 billion
    sampled: tuple[int, ...] = (1, 64)


QUICK = Sizes(64, 128, 192, 4, 2, 16, 2, 16, 16, ((32, 500),), (1, 2), 2**10, 500, 256, (1,))
BLOCK = 16  # tokens in a block of the cache


@dataclass(frozen=True)
class Make:
    """Makes inputs."""

    device: str
    dtype: torch.dtype
    requires_grad: bool = False

    def __call__(self, *shape: int, scale: float = 1.0) -> Tensor:
        """Normal numbers, which may require a gradient."""
        return self.constant(*shape, scale=scale).requires_grad_(self.requires_grad)

    def constant(self, *shape: int, scale: float = 1.0) -> Tensor:
        """Normal numbers without a gradient."""
        return torch.randn(shape, device=self.device, dtype=self.dtype) * scale

    def heads(self, batch: int, heads: int, positions: int, length: int) -> Tensor:
        """``(batch, heads, positions, length)``, in memory as a projection leaves it: positions before heads."""
        rows = self.constant(batch, positions, heads, length).transpose(1, 2)
        return rows.requires_grad_(self.requires_grad)

    def integers(self, below: int, count: int) -> Tensor:
        """Classes."""
        return torch.randint(below, (count,), device=self.device)


Inputs = Callable[[Make], tuple[Tensor, ...]]


@dataclass(frozen=True)
class Operator:
    """What computes it: ours, the best eager statement, which is also compiled, and others."""

    ours: Load
    eager: Statement
    others: dict[str, Load] = field(default_factory=dict)
    is_differentiable: bool = True
    is_memory_bound: bool = True
    moved: Callable[..., int] | None = None
    """Bytes that have to be read or written with given inputs; None: the inputs and results."""


@dataclass(frozen=True)
class Case:
    """An operator with inputs of a size."""

    operator: str
    size: str
    inputs: Inputs
    group: str
    dtype: torch.dtype = torch.bfloat16
    is_small: bool = False
    """The time of the host counts, too."""
    forms: tuple[str, ...] = ("forward", "forward+backward")

    def named_forms(self) -> Iterator[tuple[str, str]]:
        """The name of each row of the results, and its form."""
        for form in self.forms if OPERATORS[self.operator].is_differentiable else self.forms[:1]:
            yield f"{self.group}/{self.operator}/{self.size}/{self.dtype}/{form}", form


def ours(name: str, library: str = "transformer_ops", **rest: Any) -> Load:
    """A function of a library of this repository."""

    def load() -> Statement:
        function: Statement = getattr(import_module(library), name)
        return partial(function, **rest) if rest else function

    return load


def liger(name: str, *rest: Any) -> dict[str, Load]:
    """One of Liger-Kernel's functions, with its last arguments."""

    def load() -> Statement:
        apply: Statement = getattr(import_module("liger_kernel.ops"), f"Liger{name}Function").apply
        return lambda *inputs: apply(*inputs, *rest)

    return {"liger": load}


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """The residual's sum, and its norm."""
    total = x + residual
    return F.rms_norm(total, weight.shape, weight, 1e-6), total


def rope(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """As models write it."""
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)

    def turned(x: Tensor) -> Tensor:
        u, v = x.chunk(2, -1)
        return x * cos + torch.cat((-v, u), -1) * sin

    return turned(q), turned(k)


def quantize_rowwise(x: Tensor) -> tuple[Tensor, Tensor]:
    """To int8 by the largest element of a row."""
    scale = x.abs().amax(-1, keepdim=True).float() / 127
    return (x / scale).round().to(torch.int8), scale.squeeze(-1)


def reshape_and_cache(key: Tensor, value: Tensor, keys: Tensor, values: Tensor, slots: Tensor) -> None:
    """Into a paged cache."""
    keys.flatten(0, 1).index_copy_(0, slots, key)
    values.flatten(0, 1).index_copy_(0, slots, value)


def muladd() -> Statement:
    """With the number that others find in a tensor."""
    function = ours("muladd", "muladd")()
    return lambda a, b, _: function(a, b, 2.0)


def muladd_out() -> Statement:
    """Into a given output."""
    function = ours("muladd", "muladd")()
    return lambda a, b, _, out: function(a, b, 2.0, out=out)


OPERATORS = {
    "rms_norm": Operator(
        ours("rms_norm"), lambda x, w: F.rms_norm(x, w.shape, w, 1e-6), liger("RMSNorm", 1e-6)
    ),
    "swiglu": Operator(ours("swiglu"), lambda a, b: F.silu(a) * b, liger("SiLUMul")),
    "softmax": Operator(ours("softmax"), lambda x: torch.softmax(x, -1), liger("Softmax")),
    "log_softmax": Operator(ours("log_softmax"), lambda x: torch.log_softmax(x, -1)),
    "layer_norm": Operator(
        ours("layer_norm"), lambda x, w, b: F.layer_norm(x, w.shape, w, b, 1e-5), liger("LayerNorm", 1e-5)
    ),
    "rope": Operator(ours("rope"), rope, liger("Rope")),
    "cross_entropy": Operator(ours("cross_entropy"), F.cross_entropy, liger("CrossEntropy", None)),
    "fused_add_rms_norm": Operator(ours("fused_add_rms_norm"), add_rms_norm, liger("FusedAddRMSNorm", 1e-6)),
    "geglu": Operator(ours("geglu"), lambda a, b: F.gelu(a, approximate="tanh") * b, liger("GELUMul")),
    "fused_linear_cross_entropy": Operator(
        ours("fused_linear_cross_entropy"), lambda x, w, t: F.cross_entropy(x @ w.t(), t),
        liger("FusedLinearCrossEntropy"), is_memory_bound=False,
    ),
    "quantize_rowwise": Operator(ours("quantize_rowwise"), quantize_rowwise, is_differentiable=False),
    "dequantize_rowwise": Operator(
        ours("dequantize_rowwise", dtype=torch.bfloat16), lambda q, scale: (q * scale.unsqueeze(-1)).bfloat16(),
        is_differentiable=False,
    ),
    "reshape_and_cache": Operator(
        ours("reshape_and_cache"), reshape_and_cache, is_differentiable=False,
        moved=lambda key, value, _keys, _values, slots: 2 * (key.nbytes + value.nbytes) + slots.nbytes,
    ),
    "muladd": Operator(
        muladd, lambda a, b, _: a * b + 2.0,
        {"addcmul": lambda: lambda a, b, c: torch.addcmul(c, a, b)}, is_differentiable=False,
    ),
    "muladd, out=": Operator(
        muladd_out, lambda a, b, _, out: torch.add(a * b, 2.0, out=out),
        {"addcmul": lambda: lambda a, b, c, out: torch.addcmul(c, a, b, out=out)}, is_differentiable=False,
    ),
}  # fmt: skip


Sized = tuple[str, Inputs]
"""What a size is called, and the inputs."""


def cases(sizes: Sizes) -> Iterator[Case]:
    """Each of them, those first that matter most."""
    s = sizes
    large = by_rows(s, s.rows) | {
        "rope": rotations(s, s.batch, s.positions),
        "cross_entropy": losses(*s.losses[0]),
        "fused_linear_cross_entropy": linear_losses(s.rows // 4, s.width, s.losses[0][1]),
        "reshape_and_cache": cached(s, s.rows // 4),
    }
    for operator in OPERATORS:
        if operator in large:
            yield Case(operator, *large[operator], "7B")
    yield Case("cross_entropy", *losses(*s.losses[-1]), "7B")
    yield Case("softmax", *scores(s.heads, s.scores), "7B")
    for operator, sized in long_rows(s, s.rows // 4).items():
        yield Case(operator, *sized, "7B")
    for dtype in (torch.float32, torch.bfloat16):
        yield Case("muladd", *products(s.elements), "muladd", dtype)
        yield Case("muladd, out=", *products(s.elements, has_out=True), "muladd", dtype)
    yield Case("muladd, out=", *products(4, has_out=True), "muladd", torch.float32, is_small=True)
    for rows in s.decoded:
        small = by_rows(s, rows) | {"rope": rotations(s, rows, 1), "reshape_and_cache": cached(s, rows)}
        forms = Case.forms if rows == 1 else ("forward",)
        for operator, sized in small.items():
            yield Case(operator, *sized, "decode", is_small=True, forms=forms)
    for rows in s.sampled:
        of_vocabulary = {
            "cross_entropy": losses(rows, s.classes),
            "fused_linear_cross_entropy": linear_losses(rows, s.width, s.classes),
        }
        for operator, sized in (long_rows(s, rows) | of_vocabulary).items():
            yield Case(operator, *sized, "decode", is_small=True, forms=("forward",))
    for operator in ("rms_norm", "swiglu", "softmax", "layer_norm"):
        yield Case(operator, *large[operator], "7B", torch.float32)


def by_rows(s: Sizes, rows: int) -> dict[str, Sized]:
    """Operators over rows, of a token each."""
    features, inner = f"{rows} x {s.width}", f"{rows} x {s.inner}"

    def quantized(make: Make) -> tuple[Tensor, ...]:
        return quantize_rowwise(make.constant(rows, s.width))

    return {
        "rms_norm": (features, lambda make: (make(rows, s.width), make(s.width))),
        "swiglu": (inner, lambda make: (make(rows, s.inner), make(rows, s.inner))),
        "softmax": (features, lambda make: (make(rows, s.width),)),
        "layer_norm": (features, lambda make: (make(rows, s.width), make(s.width), make(s.width))),
        "fused_add_rms_norm": (
            features, lambda make: (make(rows, s.width), make(rows, s.width), make(s.width))
        ),
        "geglu": (inner, lambda make: (make(rows, s.inner), make(rows, s.inner))),
        "quantize_rowwise": (features, lambda make: (make.constant(rows, s.width),)),
        "dequantize_rowwise": (features, quantized),
    }  # fmt: skip


def long_rows(s: Sizes, rows: int) -> dict[str, Sized]:
    """Rows that one block of threads cannot hold: of logits of a vocabulary, and of a wide model."""
    logits = f"{rows} x {s.classes}", lambda make: (make(rows, s.classes),)
    return {
        "softmax": logits,
        "log_softmax": logits,
        "rms_norm": (f"{rows} x {s.wide}", lambda make: (make(rows, s.wide), make(s.wide))),
    }


def scores(heads: int, positions: int) -> Sized:
    """Of attention, for one sequence."""
    shape = (heads, positions, positions)
    return " x ".join(map(str, shape)), lambda make: (make(*shape),)


def rotations(s: Sizes, batch: int, positions: int) -> Sized:
    """Queries, keys and the tables, which have no gradient."""

    def inputs(make: Make) -> tuple[Tensor, ...]:
        angles = make.constant(1, positions, s.length // 2).float()
        tables = (torch.cat((half, half), -1).to(make.dtype) for half in (angles.cos(), angles.sin()))
        q, k = (make.heads(batch, heads, positions, s.length) for heads in (s.heads, s.key_heads))
        return q, k, *tables

    return f"{batch} x {positions}, {s.heads} and {s.key_heads} heads of {s.length}", inputs


def losses(rows: int, classes: int) -> Sized:
    """Logits and classes."""
    return f"{rows} x {classes}", lambda make: (make(rows, classes), make.integers(classes, rows))


def linear_losses(rows: int, width: int, classes: int) -> Sized:
    """What logits are the product of, and classes."""
    return f"{rows} x {width}, {classes} classes", lambda make: (
        make(rows, width), make(classes, width, scale=width**-0.5), make.integers(classes, rows)
    )  # fmt: skip


def cached(s: Sizes, tokens: int) -> Sized:
    """Keys, values, a cache with room for twice as many, and a slot for each token."""
    blocks = -(-2 * tokens // BLOCK)

    def inputs(make: Make) -> tuple[Tensor, ...]:
        tensors = [make.constant(tokens, s.key_heads, s.length) for _ in range(2)]
        caches = [make.constant(blocks, BLOCK, s.key_heads, s.length) for _ in range(2)]
        return *tensors, *caches, torch.randperm(blocks * BLOCK, device=make.device)[:tokens]

    return f"{tokens} tokens, {s.key_heads} heads of {s.length}", inputs


def products(elements: int, *, has_out: bool = False) -> Sized:
    """Two factors, what is added, and perhaps the output."""

    def inputs(make: Make) -> tuple[Tensor, ...]:
        added = torch.tensor(2.0, device=make.device, dtype=make.dtype)
        return make(elements), make(elements), added, *([make(elements)] if has_out else [])

    return f"{elements} elements", inputs
