"""A library for processes that import it: one of its operators' baselines ends its process, one says which it is."""

import os

import torch
from opwheel_tools import OpInfo, Sample

from tests.non_elementwise import python_library
from tests.non_elementwise.python_library import BASELINES, rows


def ends(*_):
    os._exit(3)


def says(*_):
    raise RuntimeError(f"{os.getpid()} {torch.get_num_threads()}")


def blended(device, dtype, requires_grad):
    x, y = (torch.randn(3, device=device, dtype=dtype, requires_grad=requires_grad) for _ in range(2))
    yield Sample(x, y, 0.5)


def filled(device, dtype, requires_grad):
    yield Sample(torch.empty(3, device=device, dtype=dtype, requires_grad=requires_grad), 1.0)


OP_INFOS = {
    "softmax": OpInfo(samples=rows, baselines=BASELINES),
    "blend": OpInfo(samples=blended, baselines={"says": says}),
    "fill": OpInfo(samples=filled, baselines={"ends": ends}),
}
library = python_library.library(OP_INFOS)
