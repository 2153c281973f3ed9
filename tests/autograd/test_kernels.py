"""How a kernel is called where a gradient is recorded."""

from types import SimpleNamespace

import pytest
import torch
from opwheel.dispatch import Elementwise, Operator, register, register_python
from opwheel.registry.policy import Policy


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


_libraries = []  # operators last as long as these


def test_a_python_kernel_that_overwrites_may_use_numpy():
    def double_(x):
        x.numpy()[:] *= 2
        return x

    space, schemas = "numpy_in_place", ("double(Tensor x) -> Tensor", "double_(Tensor(a!) x) -> Tensor(a!)")
    library = torch.library.Library(space, "DEF")
    _libraries.append(library)
    for schema in schemas:
        library.define(schema)
    library.impl("double_", double_, "CPU")
    operator = Operator("double", rule=Elementwise(), reference=lambda x: x * 2, derivatives={"x": "grad * 2"})
    register(SimpleNamespace(namespace=space, schemas=schemas, policy=Policy()), [operator])
    x = torch.ones(3, requires_grad=True)
    y = x * 3
    torch.ops.numpy_in_place.double_(y).sum().backward()
    assert y.tolist() == [6.0, 6.0, 6.0]
    assert x.grad.tolist() == [6.0, 6.0, 6.0]


ALIASING = {
    "argument": (lambda x: (x, x * 2), "'y' in the memory of an argument"),
    "view": (lambda x: (x * 2, x[1:]), "'z' in the memory of an argument"),
    "result": (lambda x: (x * 2,) * 2, "'z' in the memory of another result"),
}


@pytest.mark.parametrize("kind", ALIASING)
def test_a_result_that_is_no_new_tensor_is_refused(kind):
    kernel, message = ALIASING[kind]
    space = f"aliasing_{kind}"
    library = torch.library.Library(space, "DEF")
    _libraries.append(library)
    schema = "f(Tensor x) -> (Tensor y, Tensor z)"
    library.define(schema)
    library.impl("f", kernel, "CPU")
    operator = Operator("f", reference=lambda x: (x * 1, x * 2), derivatives={"x": "grad_y + grad_z * 2"})
    register(SimpleNamespace(namespace=space, schemas=(schema,), policy=Policy()), [operator])
    with pytest.raises(RuntimeError, match=message):
        getattr(torch.ops, space).f(torch.ones(3, requires_grad=True))
