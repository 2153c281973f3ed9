"""opwheel_tools.define_cpp: an operator from C++ text, compiled when it is defined."""

import opwheel
import opwheel_tools
import pytest
import torch
from opwheel.dispatch import Elementwise
from opwheel_tools import OpInfo, Sample, compiled
from opwheel_tools.compiled import CompileError
from opwheel_tools.testing.checks import check_operators
from torch.nn import functional

SCHEMA = "defined_cpp::softplus(Tensor x, float beta=1.0) -> Tensor"
SOURCE = """\
Tensor softplus(const Tensor& given, double beta) {
  check(given, "x").on_cpu().dtype(floating);
  const Tensor x = contiguous(given);
  Tensor y = new_empty_like(x);
  dispatch(dtype_of(x), [&]<class T>() {
    for (int64_t i = 0; i < numel(sizes_of(x)); ++i) {
      data<T>(y)[i] = T(1 * std::log1p(std::exp(beta * double(data<T>(x)[i]))) / beta);
    }
  });
  return y;
}
"""


def reference(x, beta):
    return torch.log1p(torch.exp(beta * x)) / beta


def softplus(source=SOURCE, *, schema=SCHEMA, reference=reference, **fields):
    return opwheel_tools.define_cpp(schema, source, reference=reference, **fields)


def samples(device, dtype, requires_grad):
    yield Sample(torch.randn(3, 4, device=device, dtype=dtype, requires_grad=requires_grad), 2.0)


def test_everything_follows_from_the_declaration():
    made = softplus(derivatives={"x": lambda grad, x, beta: grad * torch.sigmoid(beta * x)})
    assert (made.__doc__, made.__module__) == (SCHEMA, __name__)
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(made(x, 2), functional.softplus(x, 2))
    torch.autograd.gradcheck(made, (x,), check_forward_ad=True)
    torch.testing.assert_close(torch.compile(made, fullgraph=True, backend="aot_eager")(x), made(x))
    check_operators("defined_cpp", {"softplus": OpInfo(samples=samples)})


def test_other_text_replaces_it():
    made = softplus()
    compiled_caller = torch.compile(lambda x: made(x) + 1, fullgraph=True, backend="aot_eager")
    x = torch.randn(3)
    torch.testing.assert_close(compiled_caller(x), functional.softplus(x) + 1)
    assert softplus(SOURCE.replace("T(1 *", "T(2 *"), reference=lambda x, beta: 2 * reference(x, beta)) is made
    torch.testing.assert_close(made(x), 2 * functional.softplus(x))
    torch.testing.assert_close(compiled_caller(x), 2 * functional.softplus(x) + 1)
    softplus()
    torch.testing.assert_close(made(x), functional.softplus(x))


def test_a_kernel_in_python_replaces_it_and_the_other_way_round():
    x = torch.randn(3)
    made = softplus()
    assert opwheel.define(SCHEMA)(lambda x, beta: 3 * reference(x, beta)) is made
    torch.testing.assert_close(made(x), 3 * functional.softplus(x))
    assert softplus() is made
    torch.testing.assert_close(made(x), functional.softplus(x))


def test_the_same_text_is_compiled_once(monkeypatch):
    softplus()
    monkeypatch.setattr(compiled.subprocess, "run", None)
    softplus()


MISTAKES = {
    "a name": (
        {"source": SOURCE.replace("double(data", "doubel(data")},
        "defined_cpp::softplus does not compile:\n  line 7: .*doubel.*\n    data<T>.y.*doubel",
    ),
    "a type": (
        {"source": SOURCE.replace("double beta", "int64_t beta")},
        "does not compile: opwheel: an argument of this kernel has another type than the schema says",
    ),
    "many": ({"source": SOURCE.replace("(int64_t i", "(int64_t j")}, "(?s)line \\d+: .*and \\d+ more$"),
    "no function": ({"source": SOURCE.replace("softplus(", "soft(")}, "its C\\+\\+ has no function 'softplus'; give"),
    "reference": ({"reference": lambda x: x}, "its reference .* is called as \\(x, beta\\)"),
    "rule": ({"rule": Elementwise()}, "Elementwise\\(\\), whose kernels in C\\+\\+ are functors"),
    "derivatives": ({"derivatives": {"y": "grad"}}, "derivatives of \\['y'\\]"),
    "namespace": ({"schema": "aten::softplus(Tensor x, float beta=1.0) -> Tensor"}, "is PyTorch's"),
    "schema": ({"schema": "defined_cpp::softplus(Tensor x float beta) -> Tensor"}, "not understood at position 31"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_changes_nothing(mistake):
    made = softplus()
    dump = torch._C._dispatch_dump("defined_cpp::softplus")
    fields, words = MISTAKES[mistake]
    with pytest.raises((ValueError, CompileError), match=words) as error:
        softplus(**fields)
    assert len(str(error.value).splitlines()) < 10
    assert torch._C._dispatch_dump("defined_cpp::softplus") == dump
    torch.testing.assert_close(made(torch.ones(3)), functional.softplus(torch.ones(3)))


def test_without_a_compiler(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(CompileError, match=r"^CXX is 'no-such-compiler', but there is no such command.$"):
        softplus()


def test_kernels_may_call_other_operators():
    source = """\
    #include "opwheel/call.h"
    OPWHEEL_CALLEE(exponential, "aten::exp(Tensor self) -> Tensor")
    Tensor twice_exp(const Tensor& x) { return call<exponential>(call<exponential>(x)); }
    """
    made = opwheel_tools.define_cpp(
        "defined_cpp::twice_exp(Tensor x) -> Tensor", source, reference=lambda x: x.exp().exp()
    )
    torch.testing.assert_close(made(torch.zeros(2)), torch.full((2,), torch.e))
