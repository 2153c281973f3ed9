"""A library for processes that import it: of its operators' peers one ends its process, and one says which it is."""

import os

import torch
from opwheel.dispatch import Elementwise, Operator, Rows, Sample

from tests.general import python_library
from tests.general.python_library import PEERS, blend, fill, rows, softmax


def ends(*_):
    os._exit(3)


def says(*_):
    raise RuntimeError(f"{os.getpid()} {torch.get_num_threads()}")


def blended(device, dtype, requires_grad):
    x, y = (torch.randn(3, device=device, dtype=dtype, requires_grad=requires_grad) for _ in range(2))
    yield Sample(x, y, 0.5)


def filled(device, dtype, requires_grad):
    yield Sample(torch.empty(3, device=device, dtype=dtype, requires_grad=requires_grad), 1.0)


OPERATORS = (
    Operator("softmax", reference=softmax, rule=Rows(x=1), samples=rows, peers=PEERS),
    Operator("blend", reference=blend, rule=Elementwise(), samples=blended, peers={"says": says}),
    Operator("fill", reference=fill, derivatives=None, samples=filled, peers={"ends": ends}),
)
library = python_library.library(OPERATORS)
