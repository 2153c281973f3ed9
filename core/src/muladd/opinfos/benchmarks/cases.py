"""What is measured: groups of cases, each a form of call on a layout, in a dtype, at a size."""

from __future__ import annotations

import torch
from opwheel_tools.bench.suite import OVERHEAD, Case, Form, Plan

OUT, NEW, IN_PLACE, SCALE_SHIFT, STRIDED, BACKWARD = "out", "new", "in-place", "scale-shift", "strided", "backward"

_FLAT = ("contiguous",)
_FLAT_FMA = ("three tensors",)
_BROADCAST = ("[B,T,D]*[B,1,D]", "[N,D]*[D], D odd", "[N,C,H,W]*[C,1,1]", "channels-last")
_VIEWS = ("transposed", "sliced", "stepped", "not aligned")
_F32 = (torch.float32,)
_NARROW = (torch.bfloat16, torch.float16)
_OTHERS = (*_NARROW, torch.float64)
_CURVE = (2, 6, 10, 12, 14, 16, 18, 20, 22, 24, 26)
_BEYOND = (28, 30, 32)  # where the memory allows it
_CALLS = (Form.NO_GRAD, Form.NEW, Form.FORWARD, Form.BACKWARD, Form.OUT, Form.IN_PLACE)
_OVERHEAD = Plan(OVERHEAD, _CALLS, _FLAT, _F32, (2,))

FULL = (
    Plan(OUT, (Form.OUT,), _FLAT, _F32, (*_CURVE, *_BEYOND)),
    Plan(OUT, (Form.OUT,), _FLAT, _OTHERS, (14, 20, 24, 26)),
    Plan(OUT, (Form.OUT,), _FLAT_FMA, _F32, (14, 20, 24)),
    Plan(NEW, (Form.NEW,), _FLAT, _F32, (*_CURVE, 17, 23)),
    Plan(NEW, (Form.NEW,), _FLAT, _OTHERS, (14, 20, 24)),
    Plan(IN_PLACE, (Form.IN_PLACE,), _FLAT, _F32, (10, 16, 20, 24, 26)),
    Plan(IN_PLACE, (Form.IN_PLACE,), _FLAT, _OTHERS, (24,)),
    Plan(SCALE_SHIFT, (Form.NEW, Form.OUT), _BROADCAST, (torch.float32, torch.bfloat16), (18, 24)),
    Plan(SCALE_SHIFT, (Form.OUT,), _BROADCAST[:1], _F32, (21,)),
    Plan(STRIDED, (Form.OUT,), ("both transposed",), _F32, (21,)),
    Plan(STRIDED, (Form.NEW, Form.OUT), _VIEWS, (torch.float32, torch.bfloat16), (18, 24)),
    Plan(BACKWARD, (Form.BACKWARD,), _FLAT, _F32, (12, 18, 22, 24)),
    Plan(BACKWARD, (Form.BACKWARD,), _FLAT, _NARROW, (22,)),
    _OVERHEAD,
)
QUICK = (
    Plan(OUT, (Form.OUT,), _FLAT, _F32, (2, 10, 16)),
    Plan(OUT, (Form.OUT,), _FLAT, _OTHERS, (16,)),
    Plan(OUT, (Form.OUT,), _FLAT_FMA, _F32, (16,)),
    Plan(NEW, (Form.NEW,), _FLAT, _F32, (16,)),
    Plan(IN_PLACE, (Form.IN_PLACE,), _FLAT, _F32, (16,)),
    Plan(SCALE_SHIFT, (Form.NEW,), _BROADCAST, _F32, (16,)),
    Plan(STRIDED, (Form.OUT,), _VIEWS, _F32, (16,)),
    Plan(BACKWARD, (Form.BACKWARD,), _FLAT, _F32, (16,)),
    _OVERHEAD,
)
# Accelerators have caches that hold 2^24 elements.
ON_ACCELERATORS = (
    Plan(OUT, (Form.OUT,), _FLAT, _OTHERS, (28,)),
    Plan(OUT, (Form.OUT,), _FLAT_FMA, _F32, (28,)),
    Plan(NEW, (Form.NEW,), _FLAT, _F32, (28,)),
    Plan(IN_PLACE, (Form.IN_PLACE,), _FLAT, _F32, (28,)),
    Plan(SCALE_SHIFT, (Form.NEW, Form.OUT), _BROADCAST, (torch.float32, torch.bfloat16), (28,)),
    Plan(STRIDED, (Form.OUT,), _VIEWS, (torch.float32, torch.bfloat16), (28,)),
    Plan(BACKWARD, (Form.BACKWARD,), _FLAT, _F32, (28,)),
)
LARGEST = Case(OUT, Form.OUT, "contiguous", torch.float32, 1)


def working_set(case: Case) -> int:
    """The most memory that any implementation needs: three operands, and a temporary and a result of an expression."""
    tensors = 8 if case.form is Form.BACKWARD else 5
    return tensors * case.elements * case.dtype.itemsize
