"""Right operators that look odd: an audit finds nothing in them, but for what is declared to be so on purpose."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

library = torch.library.Library("odd", "DEF")

# What is declared, by operator and check; everything else is to be quiet.
ALLOWED = {
    ("round_through", "gradients"): "the gradient is a straight-through estimator's",
    ("round_through", "second derivatives"): "the gradient is a straight-through estimator's",
    ("with_scratch", "repeatable"): "the second result is scratch memory",
    ("with_scratch", "uninitialized"): "the second result is scratch memory",
    ("with_scratch", "threads"): "the second result is scratch memory",
    ("half", "autocast"): "results are float16 under every autocast",
}


def define(schema: str, kernel: Any, fake: Any = None) -> None:
    """Define an operator whose kernel autograd does not look into; the fake kernel is it, unless another is given."""
    name = schema.partition("(")[0]
    library.define(schema)

    def below_autograd(*args: Any) -> Any:
        with torch._C._AutoDispatchBelowAutograd():
            return kernel(*args)

    library.impl(name, below_autograd, "CPU")
    torch.library.register_fake(f"odd::{name}", fake or kernel, lib=library)


class Round(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        with torch._C._AutoDispatchBelowAutograd():
            return torch.ops.odd.round_through(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad


def with_scratch(x: Tensor) -> tuple[Tensor, Tensor]:
    result, scratch = x.exp().contiguous(), torch.empty(4)
    return result, scratch.copy_(torch.rand(4))


def half(x: Tensor) -> Tensor:
    return x * 2


def half_under_autocast(x: Tensor) -> Tensor:
    with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)):
        return torch.ops.odd.half(x.half())


def accumulate(total: Tensor, x: Tensor) -> None:
    total.add_(x.sum())


def rows_above_one(x: Tensor) -> Tensor:
    return x[x[:, 0] > 1].contiguous()


def unknown_rows(x: Tensor) -> Tensor:
    return x.new_empty(torch.library.get_ctx().new_dynamic_size(), x.shape[1])


def only_float32(x: Tensor) -> Tensor:
    if x.dtype is not torch.float32 or not x.is_contiguous():
        raise TypeError(f"{x.dtype} with strides {x.stride()} is not supported")
    return x.tanh()


def sums_in_another_order(x: Tensor) -> Tensor:
    return x.sum(-1) if x.is_contiguous() else x.flip(-1).cumsum(-1)[..., -1].contiguous()


define("round_through(Tensor x) -> Tensor", torch.round)
library.impl("round_through", Round.apply, "Autograd")
define("with_scratch(Tensor x) -> (Tensor, Tensor)", with_scratch, lambda x: (x.new_empty(x.shape), x.new_empty(4)))
define("half(Tensor x) -> Tensor", half)
library.impl("half", half_under_autocast, "AutocastCPU")
define(
    "dropout(Tensor x, float p, *, Generator? generator=None) -> Tensor",
    lambda x, p, generator=None: x * (torch.rand(x.shape, generator=generator) < p) / p,
)
define(
    "seeded_dropout(Tensor x, int seed) -> Tensor",
    lambda x, seed: x * (torch.rand(x.shape, generator=torch.Generator().manual_seed(seed)) < 0.5),
    lambda x, seed: torch.empty_like(x),
)
define("rows_above_one(Tensor x) -> Tensor", rows_above_one, unknown_rows)
define("only_float32(Tensor x) -> Tensor", only_float32, torch.empty_like)
define("sums(Tensor x) -> Tensor", sums_in_another_order, lambda x: x.new_empty(x.shape[:-1]))
define("narrow_inside(Tensor x) -> Tensor", lambda x: x.float().sigmoid().to(x.dtype))
define("largest(Tensor x) -> (Tensor, Tensor)", lambda x: tuple(x.max(-1)))
define("gather(Tensor x, Tensor index) -> Tensor", lambda x, index: x.gather(-1, index))
define("scale_(Tensor(a!) x, float by) -> Tensor(a!)", lambda x, by: x.mul_(by))
define("accumulate(Tensor(a!) total, Tensor x) -> ()", accumulate, lambda total, x: None)
define("of_a_list(Tensor[] parts, int dim=0) -> Tensor", torch.cat)
define(
    "quantize(Tensor x) -> (Tensor, Tensor)",
    lambda x: ((x / x.abs().amax() * 127).round().to(torch.int8), x.abs().amax()),
)
define("masked_mean(Tensor x, Tensor mask) -> Tensor", lambda x, mask: (x * mask).sum(-1) / mask.sum(-1).clamp(min=1))
define("complex_product(Tensor x, Tensor y) -> Tensor", lambda x, y: x * y)


def calls() -> dict[str, tuple[Any, ...]]:
    """The arguments of a call of each operator."""
    generator = torch.Generator().manual_seed(5)

    def numbers(*shape: int) -> Tensor:
        return torch.rand(shape, generator=generator) + 0.5

    return {
        "round_through": (numbers(3, 4) * 3,),
        "with_scratch": (numbers(3, 4),),
        "half": (numbers(3, 4),),
        "dropout": (numbers(3, 4), 0.5),
        "seeded_dropout": (numbers(3, 4), 7),
        "rows_above_one": (numbers(6, 2),),
        "only_float32": (numbers(3, 4),),
        "sums": (numbers(4, 500) - 1,),
        "narrow_inside": (numbers(3, 4),),
        "largest": (numbers(3, 4),),
        "gather": (numbers(3, 4), torch.tensor([[0, 3], [1, 1], [2, 0]])),
        "scale_": (numbers(3, 4), 2.0),
        "accumulate": (numbers(1), numbers(3, 4)),
        "of_a_list": ([numbers(2, 3), numbers(4, 3)],),
        "quantize": (numbers(3, 4) - 1,),
        "masked_mean": (numbers(4, 9), numbers(4, 9) > 1),
        "complex_product": (torch.complex(numbers(3, 4), numbers(3, 4)), torch.complex(numbers(3, 4), numbers(3, 4))),
    }


def samples(operator: str) -> list[Any]:
    """The SampleInput of an operator."""
    from torch.testing._internal.opinfo.core import SampleInput  # slow to import

    first, *rest = calls()[operator.partition("::")[2]]
    return [SampleInput(first, args=tuple(rest))]
