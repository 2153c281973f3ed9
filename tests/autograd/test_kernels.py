"""How a kernel is called where a gradient is recorded."""

import torch
from opwheel.dispatch import Operator, register_python


def test_a_python_kernel_may_use_numpy():
    double = register_python(
        "kernels_in_numpy",
        {"double(Tensor x) -> Tensor": lambda x: torch.from_numpy(x.numpy() * 2)},
        [Operator("double", reference=lambda x: x * 2, derivatives={"x": "grad * 2"}, doc="Twice ``x``.")],
        module=__name__,
    )["double"]
    x = torch.ones(3, requires_grad=True)
    double(x).sum().backward()
    assert x.grad.tolist() == [2.0, 2.0, 2.0]
