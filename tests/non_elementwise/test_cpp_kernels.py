"""The same operators with kernels in C++, from the SDK alone: every generic check, and what does not compile."""

import subprocess

import pytest
import torch
from opwheel_tools.testing import checks

from tests.non_elementwise import cpp_library
from tests.non_elementwise.operators import OPERATORS

NAMES = [operator.name for operator in OPERATORS if operator.name != "noisy"]
CPU = torch.device("cpu")


@pytest.fixture(scope="session")
def overloads(tmp_path_factory):
    return cpp_library.open_library(tmp_path_factory.mktemp("cpp"))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("check", [name for name in checks.CHECKS if name not in ("compiled", "opcheck")])
def test_check(overloads, name, check):
    for found, samples in checks.cases(overloads[name], CPU):
        if found == check:
            checks.CHECKS[check](overloads[name], samples)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.slow
def test_compiled(overloads, name):
    for found, samples in checks.cases(overloads[name], CPU):
        if found in ("compiled", "opcheck"):
            checks.CHECKS[found](overloads[name], samples)


class TestChecksReadLikeSentences:
    @pytest.fixture(autouse=True)
    def ops(self, overloads):
        self.ops = getattr(torch.ops, next(iter(overloads.values())).namespace)

    @pytest.mark.parametrize(
        ("call", "message"),
        [
            (
                lambda ops: ops.rms_norm(torch.ones(2, 3, dtype=torch.int64), torch.ones(3), 1e-6),
                "rms_norm: argument 'x' is torch.int64, expected one of torch.float16, torch.bfloat16, torch.float32",
            ),
            (
                lambda ops: ops.rms_norm(torch.ones(2, 3), torch.ones(4), 1e-6),
                "rms_norm: argument 'weight' has shape (4,), expected (3,); pass a tensor of that shape",
            ),
            (
                lambda ops: ops.solve(torch.ones(2), torch.ones(2, 1)),
                "solve: argument 'a' has 1 dimensions, expected 2; reshape it",
            ),
            (
                lambda ops: ops.solve(torch.ones(2, 2), torch.ones(2, 1, dtype=torch.float64)),
                "solve: argument 'b' is torch.float64, but 'a' is torch.float32; convert one of them with .to(...)",
            ),
            (lambda ops: ops.solve(torch.zeros(2, 2), torch.ones(2, 1)), "solve: argument 'a' is singular"),
            (
                lambda ops: ops.softmax(torch.ones(2), 3),
                "softmax: argument 'dim' is 3, but x has 1 dimensions",
            ),
            (
                lambda ops: ops.reshape_and_cache(torch.ones(1, 2), torch.ones(2, 2), torch.tensor([5])),
                "reshape_and_cache: slot 5 is not in 'cache'",
            ),
            (
                lambda ops: ops.window(3, torch.complex64),
                "window: there is no code for torch.complex64, only for",
            ),
        ],
    )
    def test_message(self, call, message):
        with pytest.raises(RuntimeError) as error:
            call(self.ops)
        assert message in str(error.value)


PRELUDE = """
#include "opwheel/kernels.h"
#define WAVES_KERNELS(KERNEL) KERNEL(f, "{schema}")
OPWHEEL_DECLARE_KERNELS(waves, WAVES_KERNELS)
using namespace opwheel;
{kernel}
OPWHEEL_KERNELS(waves, CPU, m) {{ implement<waves::op::f, f>(m); }}
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("schema", "kernel", "words"),
    [
        (
            "f(Tensor x, float eps) -> Tensor",
            "Tensor f(const Tensor& x, float eps);",
            "has another type than the schema",
        ),
        ("f(Tensor x, int n) -> Tensor", "Tensor f(const Tensor& x, int n);", "has another type than the schema"),
        ("f(Tensor x, int n) -> Tensor", "Tensor f(const Tensor& x);", "as many arguments as its schema"),
        ("f(Tensor x) -> (Tensor, Tensor)", "Tensor f(const Tensor& x);", "result does not match its schema"),
        ("f(Tensor x) -> ()", "Tensor f(const Tensor& x);", "result does not match its schema"),
        ("f(Tensor? x) -> Tensor", "Tensor f(const Tensor& x);", "has another type than the schema"),
        ("f(Scalar x) -> Tensor", "Tensor f(double x);", "declare it as float or int"),
        ("f(Scalar? x) -> Tensor", "Tensor f(double x);", "write schema and kernel in Python"),
        ("f(Scalar[] x) -> Tensor", "Tensor f(double x);", "declare it as float or int"),
        (
            "f(Generator? g) -> Tensor",
            "Tensor f(double x);",
            'set torch_target="2.13" in setup.py, pass a seed',
        ),
        ("f(Generator g) -> Tensor", "Tensor f(double x);", "which the stable ABI passes from torch 2.13 on"),
        ("f(Tensor(a!)[] x) -> ()", "void f(double x);", "has another type than the schema"),
        ("f(ScalarType[] x) -> Tensor", "Tensor f(double x);", "type that C++ kernels cannot take"),
        ("f(Tensor(a) x) -> Tensor", "Tensor f(const Tensor& x);", "type that C++ kernels cannot take"),
        ("f(Tensor(a!)[] x) -> Tensor(a!)", "void f(const std::vector<Tensor>& x);", "nor the argument Tensor(a!)"),
        ("f(Storage x) -> Tensor", "Tensor f(double x);", "type that C++ kernels cannot take"),
        ("f(Tensor x) -> Tensor[]", "Tensor f(const Tensor& x);", "return a fixed number of Tensors"),
        ("f(Tensor x) -> int", "Tensor f(const Tensor& x);", "a number as one of shape ()"),
        (f"f({', '.join(f'int x{i}' for i in range(33))}) -> Tensor", "Tensor f(int64_t x);", "more than 32 arguments"),
        ("f(Tensor x)", "Tensor f(const Tensor& x);", "is not of the form"),
    ],
    ids=str,
)
def test_what_does_not_compile(tmp_path, schema, kernel, words):
    source = tmp_path / "kernel.cpp"
    source.write_text(PRELUDE.format(schema=schema, kernel=kernel))
    command = cpp_library.compile_args("-fsyntax-only", source)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert words in done.stderr, done.stderr
