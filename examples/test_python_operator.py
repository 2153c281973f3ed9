"""Operators written in Python: the example, and what their registration refuses."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from opwheel.dispatch import Elementwise, Operator, register_python
from opwheel.registry import NoKernelError

EXAMPLE = Path(__file__).with_name("python_operator") / "run.py"


@pytest.mark.slow
def test_the_example():
    result = subprocess.run([sys.executable, EXAMPLE], capture_output=True, text=True, check=False, timeout=300)
    assert result.returncode == 0, result.stderr
    assert "values: 0.377213" in result.stdout
    assert "examples.soft_clip.default, examples.log_cosh.default" in result.stdout
    assert "opcheck: passed" in result.stdout


@pytest.fixture(scope="module")
def operators():
    """add_twice(x, y) and two kernels that break their promise."""
    kernels = {
        "add_twice(Tensor x, Tensor y) -> Tensor": lambda x, y: x + 2 * y,
        "wrong_shape(Tensor x, Tensor y) -> Tensor": lambda x, y: x.sum(),
        "wrong_type(Tensor x, Tensor y) -> Tensor": lambda x, y: 5,
        "wrong_count(Tensor x, Tensor y) -> Tensor": lambda x, y: (x, y),
        "same(Tensor x) -> Tensor": lambda x: x,
        "both(Tensor x, Tensor y) -> (Tensor, Tensor)": lambda x, y: (x + y, x - y),
    }
    references = {
        "same": lambda x: x.clone(),
        "both": lambda x, y: (x + y, x - y),
    }
    declarations = [
        Operator(name, reference=references.get(name, lambda x, y: x + 2 * y), rule=Elementwise())
        for name in (schema.partition("(")[0] for schema in kernels)
    ]
    register_python("muladd_test_python", kernels, declarations)
    return torch.ops.muladd_test_python


def test_broadcasting_dtypes_and_strides_are_the_operator_s_not_the_kernel_s(operators):
    x = torch.randn(4, 3, dtype=torch.bfloat16).t()
    y = torch.randn(4)
    result = operators.add_twice(x, y)
    torch.testing.assert_close(result, x + 2 * y)
    assert (result.dtype, result.stride()) == (torch.float32, (x + y).stride())
    half = operators.add_twice(x, x)
    assert half.dtype is torch.bfloat16
    assert torch.equal(half, (3 * x.float()).to(torch.bfloat16))


def test_a_kernel_may_hand_back_its_argument(operators):
    x = torch.randn(3)
    result = operators.same(x)
    assert torch.equal(result, x)
    assert result.data_ptr() != x.data_ptr()


def test_several_results(operators):
    x, y = torch.randn(2, 3), torch.randn(3)
    first, second = operators.both(x, y)
    torch.testing.assert_close((first, second), (x + y, x - y))
    torch.library.opcheck(operators.both.default, (x, y))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("wrong_shape", r"returned float32\[\] on cpu as result 0, expected float32\[3\] on cpu"),
        ("wrong_type", r"returned int as result 0, expected float32\[3\] on cpu"),
        ("wrong_count", "returned 2 values, the schema has 1"),
    ],
)
def test_a_kernel_that_breaks_its_promise(operators, name, words):
    with pytest.raises(RuntimeError, match=words):
        getattr(operators, name)(torch.ones(3), torch.ones(3))


def test_tensors_without_a_kernel(operators):
    elsewhere = {"elsewhere(Tensor x) -> Tensor": lambda x: x}
    register_python(
        "muladd_test_python", elsewhere, [Operator("elsewhere", reference=lambda x: x.clone())], device_type="cuda"
    )
    with pytest.raises(NoKernelError, match="no kernel for cpu tensors: it computes on cuda"):
        operators.elsewhere(torch.ones(3))
    with pytest.raises(NoKernelError, match=r"to_dense\(\)"):
        operators.same(torch.ones(3).to_sparse())
    with pytest.raises(RuntimeError, match="supported dtypes"):
        operators.add_twice(torch.ones(3, dtype=torch.int64), torch.ones(3))


def test_variants_that_overwrite_are_refused():
    kernels = {"f(Tensor x) -> Tensor": None, "f.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)": None}
    with pytest.raises(ValueError, match="cannot overwrite"):
        register_python("muladd_test_variants", kernels, [Operator("f", reference=torch.exp, rule=Elementwise())])
