"""``Operator(memory_format=torch.preserve_format)``: results have the strides that all tensors have."""

import itertools

import opwheel
import pytest
import torch
from opwheel.dispatch import Elementwise, Operator, register_python
from torch._subclasses.fake_tensor import FakeTensorMode

_names = (f"waves_strides_{number}" for number in itertools.count())
ALL = {
    "transposed": lambda: torch.randn(4, 6).t(),
    "channels last": lambda: torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "in the opposite order": lambda: torch.randn(2, 3, 4).permute(2, 1, 0),
}
NONE = {
    "contiguous": lambda: torch.randn(4, 6),
    "with gaps": lambda: torch.randn(4, 12)[:, ::2],
    "expanded": lambda: torch.randn(6).expand(4, 6),
    "without elements": lambda: torch.randn(0, 6).t(),
    "overlapping": lambda: torch.randn(9).as_strided((4, 6), (1, 1)),
}


def defined(memory_format=torch.preserve_format, kernel=torch.atan2):
    """An operator of two tensors, without a kernel that has strides of its own accord."""
    name = next(_names)
    opwheel.define(f"{name}::f(Tensor a, Tensor b) -> Tensor", reference=torch.atan2, memory_format=memory_format)(
        lambda a, b: kernel(a, b)
    )
    return getattr(torch.ops, name).f


def of_fakes(operator, *tensors):
    with FakeTensorMode() as mode:
        return operator(*map(mode.from_tensor, tensors))


@pytest.mark.parametrize("kernel", [torch.atan2, lambda a, b: torch.atan2(a, b).contiguous()], ids=["same", "other"])
@pytest.mark.parametrize("layout", ALL)
def test_strides_that_all_have(layout, kernel):
    a, b = ALL[layout](), ALL[layout]()
    operator = defined(kernel=kernel)
    found = operator(a, b)
    assert found.stride() == a.stride() == of_fakes(operator, a, b).stride()
    assert torch.equal(found, torch.atan2(a, b))
    compiled = torch.compile(operator, backend="aot_eager", fullgraph=True)(a, b)
    assert compiled.stride() == a.stride()
    assert torch.equal(compiled, found)


@pytest.mark.parametrize("layout", NONE)
def test_layouts_that_are_not_kept(layout):
    a = NONE[layout]()
    operator = defined()
    assert operator(a, a).is_contiguous()
    assert of_fakes(operator, a, a).is_contiguous()


def test_other_strides_of_one_of_them():
    a, b = torch.randn(4, 6).t(), torch.randn(6, 4)
    operator = defined()
    for given in ((a, b), (b, a)):
        assert operator(*given).stride() == of_fakes(operator, *given).stride() == (4, 1)


def test_calls_without_tensors():
    name = next(_names)
    schema = f"{name}::f(Tensor? x, int n) -> Tensor"

    def filled(x, n):
        return torch.ones(n) if x is None else x * n

    opwheel.define(schema, reference=filled, memory_format=torch.preserve_format)(filled)
    assert getattr(torch.ops, name).f(torch.ones(2, 3).t(), 2).stride() == (1, 3)
    assert torch.equal(getattr(torch.ops, name).f(None, 3), torch.ones(3))


def test_contiguous_without_it():
    a = torch.randn(4, 6).t()
    assert defined(torch.contiguous_format)(a, a).stride() == (4, 1)


def test_gradients_of_the_reference():
    a, b = (torch.randn(4, 6, dtype=torch.float64).t().requires_grad_() for _ in range(2))
    assert torch.autograd.gradcheck(defined(), (a, b))


def test_examples_of_a_batch():
    a, b = torch.randn(3, 4, 6), torch.randn(3, 4, 6)
    transposed = torch.vmap(lambda a, b: defined()(a.t(), b.t()))(a, b)
    assert torch.equal(transposed, torch.atan2(a, b).transpose(1, 2))


def test_what_is_refused():
    with pytest.raises(ValueError, match=r"torch\.contiguous_format or torch\.preserve_format"):
        defined(torch.channels_last)
    name = next(_names)
    operator = Operator("f", reference=torch.sin, rule=Elementwise(), memory_format=torch.preserve_format)
    with pytest.raises(ValueError, match="leave memory_format out"):
        register_python(name, {"f(Tensor x) -> Tensor": torch.sin}, [operator])
