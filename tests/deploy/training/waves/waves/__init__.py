"""One operator for each way in which derivatives may be declared; derivatives.cpp has the kernels."""

import opwheel
from opwheel import Operator

OPERATORS = (
    Operator("cube", reference=lambda x: x**3, derivatives={"x": lambda grad, x: grad * 3 * x**2}),
    Operator(
        "square",
        reference=lambda x: (x * x, 2 * x),
        derivatives={"x": "grad_y * kept"},
        not_differentiable=("kept",),
    ),
    Operator(
        "both",
        reference=lambda x, y: x * y,
        derivatives={"x": "grad * y", "y": lambda grad, x: grad * x},
    ),
    Operator(
        "pooled",
        reference=lambda x, w: x.sum(0) * w,
        derivatives={"x": "(grad * w).sum(0).expand(x.sym_sizes())"},
        not_differentiable=("w",),
    ),
    Operator("reciprocal", reference=lambda x: 1 / x),
    Operator("sign", reference=lambda x: x.sign(), derivatives=None),
)

library = opwheel.open_library(__name__, OPERATORS, distribution="waves-core", version="1")
__all__ = ["library"]
library.load_backends()
