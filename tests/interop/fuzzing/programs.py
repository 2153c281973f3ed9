"""Programs of copies, views and operators that write, and a library of such operators that notices nothing.

What a kernel of :data:`writers` reads it reads after it has begun to write. PyTorch's own custom operators compute
something else in some of these programs when they are compiled (pytorch/pytorch#198031).
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

import muladd
import torch
from opwheel import Operator
from opwheel.dispatch import register_python
from torch import Tensor

SIZE = 4  # every operand is (SIZE, SIZE)


def _mix(x: Tensor, y: Tensor) -> Tensor:
    return x * 2.0 - y.flip(-1)


def _mix_out(x: Tensor, y: Tensor, *, out: Tensor) -> None:
    out.zero_()
    out.add_(x * 2.0).sub_(y.flip(-1))


def _assign(x: Tensor, y: Tensor) -> None:
    x.fill_(0.5)
    x.add_(y)


def _exchange(x: Tensor, y: Tensor, z: Tensor) -> None:
    x.mul_(0.5).add_(z)
    y.mul_(0.25).sub_(x).add_(z)


writers = register_python(
    "fuzzed_writers",
    {
        "mix(Tensor x, Tensor y) -> Tensor": _mix,
        "mix.out(Tensor x, Tensor y, *, Tensor(a!) out) -> ()": _mix_out,
        "assign_(Tensor(a!) x, Tensor y) -> ()": _assign,
        "exchange_(Tensor(a!) x, Tensor(b!) y, Tensor z) -> ()": _exchange,
    },
    [
        Operator("mix", reference=_mix, doc="x * 2 - y, from the last column on."),
        Operator("assign_", reference=_assign, derivatives=None, doc="y + 0.5, into x."),
        Operator("exchange_", reference=_exchange, derivatives=None, doc="Writes to two."),
    ],
)

# What makes a tensor from another one, in memory of its own or not.
MAKERS = {
    "clone": lambda x: x.clone(),
    "clone twice": lambda x: x.clone().clone(),
    "sin": lambda x: x.sin(),
    "plus 0": lambda x: x + 0.0,
    "matmul": lambda x: x @ x * 0.1,
    "zeros": torch.zeros_like,
    "transposed": lambda x: x.t(),
    "transposed copy": lambda x: x.t().clone(),
    "reshaped": lambda x: x.reshape(-1).view(SIZE, SIZE),
    "row as all": lambda x: x[:1].expand(SIZE, SIZE).clone(),
    "of two": lambda x: torch.stack([x, x.cos()])[1],
    "of three": lambda x: torch.stack([x.sin(), x, x])[2].clone(),
    "detached": lambda x: x.detach(),
}

# Operators that write: how many operands they have, and which of those they write to.
WRITERS = {
    "mix.out": (lambda x, y, z: writers["mix"](x, y, out=z), 3, (2,)),
    "assign_": (lambda x, y: writers["assign_"](x, y), 2, (0,)),
    "exchange_": (lambda x, y, z: writers["exchange_"](x, y, z), 3, (0, 1)),
    "muladd_": (lambda x, y: muladd.muladd_(x, y, 0.5), 2, (0,)),
    "muladd.out": (lambda x, y, z: muladd.muladd(x, y, 0.5, out=z), 3, (2,)),
    "add_": (lambda x, y: x.add_(y), 2, (0,)),
}


class Program(NamedTuple):
    """Steps, each a name and the operands' numbers; and what is returned of all that was made."""

    shares: bool  # the second argument is a part of the first
    steps: tuple[tuple[str, tuple[int, ...]], ...]
    returned: tuple[int, ...]

    def arguments(self) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(7)
        first = torch.rand((3, SIZE, SIZE), generator=generator, dtype=torch.float64)
        return first, first[2] if self.shares else torch.rand((SIZE, SIZE), generator=generator, dtype=torch.float64)

    def __call__(self, first: Tensor, second: Tensor) -> tuple[Tensor, ...]:
        values = [first[0], first[1], second]
        for name, operands in self.steps:
            run(name, values, operands)
        return tuple(values[i] for i in self.returned)


def run(name: str, values: list[Tensor], operands: tuple[int, ...]) -> None:
    """One step: a new value at the end, or a call that writes to one that is there."""
    chosen = [values[i] for i in operands]
    if name in MAKERS:
        values.append(MAKERS[name](*chosen))
    else:
        WRITERS[name][0](*chosen)


def drawn(random: Random) -> Program:
    """A program whose operators write to nothing that they read: what that gives, nobody promises."""
    shares = random.random() < 0.3
    start = Program(shares, (), ())
    first, second = start.arguments()
    values, steps = [first[0], first[1], second], []
    for _ in range(random.randrange(4, 12)):
        if random.random() < 0.6:
            name, operands = random.choice(list(MAKERS)), (random.randrange(len(values)),)
        else:
            name = random.choice(list(WRITERS))
            _, count, written = WRITERS[name]
            operands = tuple(random.choices(range(len(values)), k=count))
            memory = [values[i].untyped_storage().data_ptr() for i in operands]
            is_apart = all(memory[i] not in memory[:i] + memory[i + 1 :] for i in written)
            contiguous = not name.endswith(".out") or values[operands[-1]].is_contiguous()  # which Dynamo wants of out=
            if not (is_apart and contiguous):
                continue
        run(name, values, operands)
        steps.append((name, operands))
    returned = random.sample(range(3, len(values)), k=min(len(values) - 3, random.randrange(1, 4)))
    return Program(shares, tuple(steps), tuple(returned))
