"""Wrong claims are caught from declared samples alone, by checks that know nothing of the operator."""

import ctypes
import itertools

import pytest
import torch
from opwheel.dispatch import Elementwise, Opaque, Operator, Rows, overloads_of, register_python
from opwheel_tools import ErrorSample, OpInfo, Sample, Tolerance
from opwheel_tools.opinfo.lookup import register_op_infos

from .failing_checks import failing_checks

_names = (f"waves_claims_{number}" for number in itertools.count())


def matrices(device, dtype, requires_grad):
    yield Sample(torch.randn(3, 4, device=device, dtype=dtype, requires_grad=requires_grad))
    yield Sample(torch.randn(2, 3, 4, device=device, dtype=dtype, requires_grad=requires_grad))


MATRICES = OpInfo(samples=matrices, dtypes=(torch.float32, torch.float64))
WITH_BFLOAT16 = MATRICES._replace(dtypes=(torch.float32, torch.float64, torch.bfloat16))


def failed(schema, kernel, also=(), info=MATRICES, **claims):
    """The checks that fail for an operator."""
    namespace, name = next(_names), schema.partition("(")[0]
    claims = {"reference": kernel} | claims
    operators = [Operator(name, **claims), *(operator for _, _, operator in also)]
    register_python(namespace, {schema: kernel} | {text: function for text, function, _ in also}, operators)
    register_op_infos(namespace, {name: info})
    overload = overloads_of(torch.library.Library(namespace, "FRAGMENT"))[name]
    return failing_checks(overload)


def softmax(x):
    return torch.softmax(x, 0)


def test_right_claims_pass():
    assert failed("softmax(Tensor x) -> Tensor", softmax) == set()
    assert failed("softmax(Tensor x) -> Tensor", lambda x: torch.softmax(x, -1), rule=Rows(x=1)) == set()
    assert failed("sin(Tensor x) -> Tensor", torch.sin, rule=Elementwise()) == set()


@pytest.mark.parametrize("dim", [0, -1])
def test_softmax_is_not_elementwise(dim):
    found = failed("softmax(Tensor x) -> Tensor", lambda x: torch.softmax(x, dim), rule=Elementwise())
    assert "shardings" in found
    assert ("vmap" in found) == (dim == 0)  # rows of the last dimension are what a batch in front of them gives


def pairs(device, dtype, requires_grad):
    for values in matrices(device, dtype, requires_grad):
        yield Sample(*values.args, torch.randn_like(values.args[0]).requires_grad_(requires_grad))


PAIRS = MATRICES._replace(samples=pairs)


@pytest.mark.parametrize(
    ("linear", "is_right"),
    [((), True), ((("x", "y"),), True), ((("x",),), False), ((("y",),), False), ((("x", "y"), ("y",)), False)],
)
def test_claims_of_linearity(linear, is_right):
    found = failed("mean(Tensor x, Tensor y) -> Tensor", lambda x, y: (x + y) / 2, info=PAIRS, rule=Elementwise(linear))
    assert found == (set() if is_right else {"shardings"})


@pytest.mark.parametrize("linear", [(("x", "z"),), ("x",), ((),), (("alpha",),)])
def test_linearity_in_what_is_no_tensor_of_the_operator(linear):
    with pytest.raises(
        ValueError, match=r"Elementwise\(linear=...\) has .*give tuples of the names of tensors, 'x', 'y'"
    ):
        failed(
            "f(Tensor x, Tensor y, float alpha) -> Tensor", lambda x, y, alpha: x + y * alpha, rule=Elementwise(linear)
        )


def test_rows_over_the_reduced_dimension():
    assert {"vmap", "shardings"} <= failed("softmax(Tensor x) -> Tensor", softmax, rule=Rows(x=1))


def test_rows_of_fewer_dimensions_than_the_operator_has():
    found = failed("center(Tensor x) -> Tensor", lambda x: x - x.mean((-2, -1), keepdim=True), rule=Rows(x=1))
    assert {"vmap", "shardings"} & found


def test_rows_that_reduce_over_rows():
    assert {"vmap", "shardings"} & failed("total(Tensor x) -> Tensor", lambda x: x.sum(0), rule=Rows(x=1))


def quantize(x):
    return x.round().to(torch.int8)


def test_a_fake_of_the_wrong_dtype():
    assert "fake" in failed("q(Tensor x) -> Tensor", quantize, derivatives=None, fake=torch.empty_like)


def test_a_fake_of_the_wrong_shape():
    assert "fake" in failed("t(Tensor x) -> Tensor", torch.sin, fake=lambda x: x.new_empty(x.shape[:-1]))


def test_a_wrong_derivative():
    assert "first derivatives" in failed("f(Tensor x) -> Tensor", torch.sin, derivatives={"x": "grad * aten::sin(x)"})


def test_a_wrong_second_derivative():
    """The formula is right once and does not depend on x for whoever differentiates again."""
    found = failed("f(Tensor x) -> Tensor", torch.sin, derivatives={"x": lambda grad, x: grad * x.detach().cos()})
    assert found == {"second derivatives"}


def test_a_kept_result_that_is_taken_for_a_constant():
    """The backward operator alone, without the rule about kept results: what gave silently wrong second derivatives."""
    found = failed(
        "f(Tensor x) -> (Tensor y, Tensor slope)",
        lambda x: (x.sin(), x.cos()),
        derivatives={"x": lambda grad, slope: grad * slope.detach()},
    )
    assert "second derivatives" in found or "first derivatives" in found


@pytest.mark.parametrize("row", [4_999, 9_998])
def test_a_kernel_that_leaves_out_late_rows(row):
    def late(x):
        y = torch.softmax(x, -1)
        y.flatten(0, -2)[row:] = 0
        return y

    found = failed("f(Tensor x) -> Tensor", late, reference=lambda x: torch.softmax(x, -1), rule=Rows(x=1))
    assert found == {"many rows"}


def test_a_kernel_that_overflows():
    def softmax_of_small_numbers(x):
        y = x.exp()
        return y / y.sum(-1, keepdim=True)

    def reference(x):
        return torch.softmax(x, -1)

    assert failed("f(Tensor x) -> Tensor", softmax_of_small_numbers, reference=reference) == {"large numbers"}
    # The reference itself overflows: nothing is said about such numbers.
    assert failed("f(Tensor x) -> Tensor", torch.sinh, reference=lambda x: (x.exp() - (-x).exp()) / 2) == set()


def test_an_approximation_that_something_is_subtracted_from():
    """Right to 2^-12, a sixteenth of bfloat16's last place, and no digit of p - 1 is left where p is nearly 1."""

    def gradient_of_a_loss(x, error=0.0):
        p = torch.softmax(x.to(torch.promote_types(x.dtype, torch.float32)), -1) * (1 + error)
        return torch.cat((p[..., :1], p[..., 1:2] - 1, p[..., 2:]), -1).to(x.dtype)

    def approximate(x):
        return gradient_of_a_loss(x, 2**-12 if x.dtype is torch.bfloat16 else 0.0)

    claims = {"reference": gradient_of_a_loss, "info": WITH_BFLOAT16}
    assert failed("f(Tensor x) -> Tensor", gradient_of_a_loss, **claims) == set()
    found = failed("f(Tensor x) -> Tensor", approximate, **claims)
    assert found == {"values in 16 bits"}


def test_sums_of_rows_that_are_off_by_less_than_an_element_is_rounded_by():
    def towards_zero(x):
        bits = torch.softmax(x.float(), -1).view(torch.int32)
        return (bits - (2 << 16)).view(torch.float32).bfloat16() if x.dtype is torch.bfloat16 else torch.softmax(x, -1)

    def reference(x):
        return torch.softmax(x, -1)

    found = failed("f(Tensor x) -> Tensor", towards_zero, reference=reference, info=WITH_BFLOAT16)
    assert found == {"values in 16 bits"}


def test_a_kernel_that_rounds_too_early():
    assert "values" in failed("f(Tensor x) -> Tensor", lambda x: x.bfloat16().sin().to(x.dtype), reference=torch.sin)


def test_a_kernel_that_reads_beyond_strides():
    def flat(x):
        return torch.as_strided(x, x.shape, torch.empty(x.shape).stride(), x.storage_offset()).sin()

    assert failed("f(Tensor x) -> Tensor", flat, reference=torch.sin) == {"layouts"}


def test_a_kernel_that_writes_to_its_input():
    assert "values" in failed("f(Tensor x) -> Tensor", lambda x: x.detach().mul_(2).clone(), reference=lambda x: x * 2)


def test_a_kernel_that_leaves_memory_unwritten():
    def half(x):
        out = torch.empty_like(x)
        out[:1] = x[:1]
        return out

    assert "values" in failed("f(Tensor x) -> Tensor", half, reference=torch.clone)


def test_a_kernel_that_keeps_its_arguments():
    kept = []

    def keeping(x):
        kept.append(x)
        return x.sin()

    assert failed("f(Tensor x) -> Tensor", keeping, reference=torch.sin) == {"freed"}


def test_a_kernel_that_keeps_what_it_works_with():
    kept = []

    def keeping(x):
        kept.append(torch.empty(1000))
        return x.sin()

    assert failed("f(Tensor x) -> Tensor", keeping, reference=torch.sin) == {"growth"}


def test_a_kernel_that_frees_no_string():
    libc = ctypes.CDLL(None)

    def keeping(x):
        libc.malloc(24)
        return x.sin()

    assert failed("f(Tensor x) -> Tensor", keeping, reference=torch.sin) == {"growth"}


@pytest.mark.parametrize("is_result", [True, False], ids=["result", "working memory"])
def test_a_kernel_that_writes_out_of_bounds(is_result):
    def out_of_bounds(x):
        result, scratch = x.sin(), torch.empty(3, 4)
        written = result if is_result else scratch
        if x.numel():
            ctypes.memset(written.data_ptr() + written.nbytes, 1, 1)  # a byte that the C library does not use
        return result

    assert failed("f(Tensor x) -> Tensor", out_of_bounds, reference=torch.sin) == {"bounds"}


def test_a_kernel_that_depends_on_when_it_is_called():
    calls = itertools.count()
    found = failed("f(Tensor x) -> Tensor", lambda x: x * next(calls), reference=lambda x: x * 0)
    assert "repeatable" in found


def test_an_autocast_policy_that_the_kernel_contradicts():
    found = failed("f(Tensor x) -> Tensor", torch.sin, autocast="lower_precision")
    assert "autocast" not in found  # the policy is the machinery's: it cannot be wrong


@pytest.mark.slow
def test_tolerances_are_declared():
    tolerance = dict.fromkeys((torch.float32, torch.float64), Tolerance(0, 1e-2))
    rough = {"reference": torch.sin, "info": MATRICES._replace(tolerance=tolerance)}
    assert "values" not in failed("f(Tensor x) -> Tensor", lambda x: x.sin() + 1e-3, **rough)
    assert "values" in failed("f(Tensor x) -> Tensor", lambda x: x.sin() + 1e-1, **rough)


@pytest.mark.parametrize(("off", "expected"), [(1e-12, set()), (1e-9, {"first derivatives", "second derivatives"})])
def test_a_tolerance_of_results_is_no_limit_of_derivatives(off, expected):
    """They add up more terms, and may be as far off as those of an operator that declares none."""
    info = MATRICES._replace(tolerance={torch.float64: Tolerance(1e-14, 1e-14)})
    derivatives = {"x": lambda grad, x: grad * x.cos() * (1 + off)}
    found = failed("f(Tensor x) -> Tensor", torch.sin, info=info, derivatives=derivatives)
    assert found & {"first derivatives", "second derivatives"} == expected


def test_what_is_declared_to_be_refused():
    def errors(device):
        yield ErrorSample(Sample(torch.ones(2, device=device)), RuntimeError, "two dimensions")

    assert "errors" in failed("f(Tensor x) -> Tensor", torch.sin, info=MATRICES._replace(errors=errors))


def test_writing_where_nothing_is_declared(monkeypatch):
    """As if somebody had written the registrations by hand, without counting versions."""
    monkeypatch.setattr("opwheel.dispatch.native_autograd._library", lambda: "the kernels are to be in Python")
    monkeypatch.setattr(torch.autograd.graph, "increment_version", lambda tensor: None)

    def samples(device, dtype, requires_grad):
        yield Sample(torch.zeros(3, device=device, dtype=dtype))

    def put(x):
        x.data.fill_(1)

    found = failed(
        "put(Tensor(a!) x) -> ()", put, reference=lambda x: x.fill_(1) and None, info=MATRICES._replace(samples=samples)
    )
    assert "versions" in found


def test_rules_can_be_written_and_are_tested():
    class Wrong(Opaque):
        def vmap(self, overload, size, in_dims, values):
            return overload.op(values[0]), in_dims[0]

    assert "vmap" in failed("softmax(Tensor x) -> Tensor", softmax, rule=Wrong())
