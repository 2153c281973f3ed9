"""Are claims about bits proved? Kernels that keep them, and wrong ones for each claim, which the kit must find."""

import itertools
from functools import partial

import pytest
import torch
from opwheel.dispatch import Elementwise, Operator, Rows, overloads_of, register_python
from opwheel_tools import OpInfo, Sample
from opwheel_tools.invariance.bits import DifferenceError, check_same, differing
from opwheel_tools.invariance.checks import CHECKS, Call
from opwheel_tools.invariance.subject import Subject
from opwheel_tools.opinfo.lookup import register_op_infos
from opwheel_tools.testing import checks

CPU = torch.device("cpu")
_names = (f"waves_bits_{number}" for number in itertools.count())
_calls = itertools.count()


# Sums, products, quotients and roots are rounded correctly: only the order of additions can change bits.
def norm(x, weight, order=reversed, wide=torch.float32):
    total = torch.zeros(x.shape[:-1], dtype=wide)
    for column in order(range(x.shape[-1])):
        total = total + x[..., column].to(wide) * x[..., column].to(wide)
    scale = (1 / (total / x.shape[-1] + 1e-6).sqrt()).float()
    return (x.float() * scale[..., None] * weight.float()).to(x.dtype)


def running_sums(x):
    sums = [torch.zeros_like(x[:, 0])]
    for position in range(x.shape[1]):
        sums.append(sums[-1] + x[:, position])
    return torch.stack(sums[1:], 1)


def sums(x):
    total = torch.zeros(x.shape[-1], dtype=x.dtype)
    for row in x.reshape(-1, x.shape[-1]):
        total = total + row
    return total


def product(a, b):
    return (a.double() * b.double()).to(a.dtype)


def by_rows(x, weight):
    return norm(x, weight, order=iter if x.numel() // x.shape[-1] > 16 else reversed)


def by_many_rows(x, weight):
    return norm(x, weight, order=iter if x.numel() // x.shape[-1] > 1000 else reversed)


def tail(x, weight):
    y = norm(x, weight)
    count = len(y) % 8 if x.dim() > 1 else 0
    return torch.cat((y[: len(y) - count], norm(x[len(y) - count :], weight, wide=torch.float64))) if count else y


def by_width(x, weight):
    return by_rows(x, weight) if x.shape[-1] % 2 and x.shape[-1] > 100 else norm(x, weight)


def by_threads(x, weight):
    return norm(x, weight, order=iter if torch.get_num_threads() == 3 else reversed)


def by_strides(x, weight):
    return norm(x, weight, order=reversed if x.is_contiguous() else iter)


def by_strides_of_the_weight(x, weight):
    return norm(x, weight if weight.is_contiguous() else weight * 1.0000001)


def by_offset(x, weight):
    return norm(x, weight, order=iter if x.storage_offset() else reversed)


def by_call(x, weight):
    return norm(x, weight, order=iter if next(_calls) % 3 == 1 else reversed)


def by_length(x):
    return running_sums(x) if x.shape[1] <= 64 else x.double().cumsum(1).to(x.dtype)


def by_leading_dimensions(x):
    return sums(torch.stack([sums(part) for part in x]) if x.dim() > 2 else x)


def sums_by_threads(x):
    rows = x.reshape(-1, x.shape[-1])
    parts = rows.tensor_split(torch.get_num_threads()) if len(rows) > 64 else (rows,)
    return sums(torch.stack([sums(part) for part in parts]))


def reference(x, weight):
    return (x * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + 1e-6) * weight).to(x.dtype)


NORM, TRAINING = "norm(Tensor x, Tensor weight) -> Tensor", "training(Tensor x, Tensor weight) -> Tensor"
RUNNING_SUMS, SUMS = "running_sums(Tensor x) -> Tensor", "sums(Tensor x) -> Tensor"
PRODUCT = "product(Tensor a, Tensor b) -> Tensor"
KERNELS = {NORM: norm, TRAINING: norm, RUNNING_SUMS: running_sums, SUMS: sums, PRODUCT: product}
# A claim and its check, the operator, and kernels or a reference that do not keep it.
MUTANTS = {
    "an order that depends on the number of rows": ("batch", NORM, by_rows),
    "another order for a thousand rows": ("batch", NORM, by_many_rows),
    "a tail that rounds otherwise": ("batch", NORM, tail),
    "rows of odd widths": ("batch", NORM, by_width),
    "another order for long sequences": ("prefix", RUNNING_SUMS, by_length),
    "an order that depends on threads": ("threads", NORM, by_threads),
    "an order that depends on strides": ("layout", NORM, by_strides),
    "an order that depends on an offset": ("layout", NORM, by_offset),
    "a weight with strides": ("layout", NORM, by_strides_of_the_weight),
    "another kernel for training": ("grad", TRAINING, partial(norm, order=iter)),
    "every third call": ("repeat", NORM, by_call),
    "leading dimensions summed first": ("order", SUMS, by_leading_dimensions),
    "threads that split rows by count": ("order", SUMS, sums_by_threads),
}


def declare(kernels, product_reference=product):
    batch_and_layout = {"batch": True, "layout": True}
    claims = batch_and_layout | dict.fromkeys(("threads", "grad", "repeat"), True)
    operators = [
        Operator("norm", reference=reference, rule=Rows(x=1), training="training", invariant=claims),
        Operator("training", reference=reference, rule=Rows(x=1)),
        Operator("running_sums", reference=lambda x: x.cumsum(1), invariant={"prefix": {"x": 1, "result": 1}}),
        Operator("sums", reference=lambda x: x.flatten(0, -2).sum(0), invariant={"order": {"x": -2}, "repeat": True}),
        Operator(
            "product", reference=product_reference, rule=Elementwise(), invariant=batch_and_layout | {"compiled": True}
        ),
    ]
    namespace = next(_names)
    register_python(namespace, KERNELS | kernels, operators)

    def rows(device, dtype, requires_grad, *, weight):
        options = {"device": device, "dtype": dtype, "requires_grad": requires_grad}
        for shape in ((2, 7), (2, 1, 8)):
            yield Sample(torch.randn(shape, **options), *([torch.randn(shape[-1], **options)] if weight else []))

    def two(device, dtype, requires_grad):
        shapes = ((3, 5), (5,))
        yield Sample(*(torch.randn(s, device=device, dtype=dtype, requires_grad=requires_grad) for s in shapes))

    norms, others = (OpInfo(samples=partial(rows, weight=weight), dtypes=(torch.float32,)) for weight in (True, False))
    known = {"norm": norms, "training": norms, "running_sums": others, "sums": others}
    register_op_infos(namespace, known | {"product": OpInfo(samples=two, dtypes=(torch.float32,))})
    return overloads_of(torch.library.Library(namespace, "FRAGMENT"))


def prove(overload, claim):
    """Check one claim with every sample; what was left out."""
    left_out = []
    for check, samples in checks.cases(overload, CPU):
        if checks.claim_of(check) == claim:
            checks.CHECKS[check](overload, samples)
            left_out += samples.left_out
    return left_out


@pytest.fixture(scope="module")
def right():
    return declare({})


@pytest.mark.parametrize(
    ("name", "claim"),
    [
        *(("norm", claim) for claim in ("batch", "threads", "layout", "grad", "repeat")),
        ("running_sums", "prefix"),
        ("sums", "order"),
        ("sums", "repeat"),
        ("product", "batch"),
        ("product", "layout"),
    ],
)
def test_claims_that_are_kept(right, name, claim):
    assert prove(right[name], claim) == []


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants(name):
    claim, schema, kernel = MUTANTS[name]
    caller = "norm" if schema is TRAINING else schema.partition("(")[0]
    with pytest.raises(DifferenceError, match="differ in their bits"):
        prove(declare({schema: kernel})[caller], claim)


@pytest.mark.slow
@pytest.mark.nightly  # inductor's C++ is compiled
@pytest.mark.parametrize("is_kept", [True, False])
def test_compiled(is_kept):
    factor = 1 if is_kept else 1 + 2**-20
    overload = declare({}, lambda a, b: a * b * factor)["product"]
    if is_kept:
        assert prove(overload, "compiled") == []
    else:
        with pytest.raises(DifferenceError, match="compiled: "):
            prove(overload, "compiled")


def test_only_what_is_claimed_is_checked(right):
    found = {checks.claim_of(check) for check, _ in checks.cases(right["sums"], CPU)} - {None}
    assert found == {"order", "repeat"}
    assert not {checks.claim_of(check) for check, _ in checks.cases(right["training"], CPU)} - {None}


def test_a_dimension_that_no_sample_has():
    namespace = next(_names)
    claim = {"batch": {"x": 5, "result": 5}}
    operator = Operator("f", reference=torch.abs, invariant=claim)
    register_python(namespace, {"f(Tensor x) -> Tensor": torch.abs}, [operator])
    info = OpInfo(samples=lambda device, dtype, _: [Sample(torch.randn(3, device=device, dtype=dtype))])
    with pytest.raises(AssertionError, match="no sample has the dimensions of invariant="):
        checks.check_operators(namespace, {"f": info})


def test_claims_about_threads_are_those_of_a_cpu():
    assert "that of cuda" in checks.not_tried("threads invariance", torch.device("cuda"))
    assert checks.not_tried("batch invariance", torch.device("cuda")) == ""


# --- the engine, without operators ----------------------------------------------------------------------------------


def test_what_differs():
    one = torch.tensor([0.0, torch.nan, 1.0, 2.0])
    assert differing(one, torch.tensor([-0.0, torch.nan, 1.0, 2.0000002])).tolist() == [True, False, False, True]
    assert differing(torch.tensor([1 + 1j, 2j]), torch.tensor([1 - 1j, 2j])).tolist() == [True, False]
    assert not differing(torch.tensor([True, False]), torch.tensor([True, False])).any()


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (
            torch.ones(2, dtype=torch.float64),
            "'y' is torch.float64 of shape (2,), expected torch.float32 of",
        ),
        (torch.ones(3), "of shape (3,)"),
        (
            torch.tensor([1.0, 2.0]),
            "1 of 2 elements of 'y' differ in their bits; the first at (1,): 2.0 instead",
        ),
    ],
)
def test_a_difference_is_told(found, words):
    with pytest.raises(DifferenceError) as caught:
        check_same("again", {"y": found}, {"y": torch.ones(2)})
    assert str(caught.value).startswith("again: ")
    assert words in str(caught.value)


def written(x, factor):
    x.mul_(factor)


def test_what_is_written_is_compared_and_the_arguments_stay():
    x = torch.randn(4, 6).T
    subject = Subject(written, results=(), written=("x",))
    before = x.clone()
    assert torch.equal(subject({"x": x, "factor": 2.0})["x"], 2 * before)
    assert torch.equal(x, before)
    for check in ("batch", "layout", "repeat", "threads"):
        CHECKS[check](Call(subject, {"x": x, "factor": 2.0}, {"x": 0}))
    by_count = Subject(lambda x: None if len(x.mul_(len(x))) else x, results=(), written=("x",))
    with pytest.raises(DifferenceError, match="'x' differ"):
        CHECKS["batch"](Call(by_count, {"x": x}, {"x": 0}))


def test_a_width_that_is_refused_is_left_out():
    def narrow(x):
        if x.shape[-1] > 33:
            raise ValueError("too wide")
        return x + 1

    call = Call(Subject(narrow), {"x": torch.randn(2, 4)}, {"x": 0, "result": 0})
    CHECKS["batch"](call)
    assert call.left_out == ["arguments, 131 wide: ValueError: too wide"]


def test_prefixes_of_different_sizes_are_left_out():
    call = Call(Subject(lambda q, k: q), {"q": torch.ones(2), "k": torch.ones(3)}, {"q": 0, "k": 0, "result": 0})
    CHECKS["prefix"](call)
    assert call.left_out == ["prefixes of dimensions with different sizes"]


def test_without_rows():
    empty = {"x": torch.ones(0, 4)}
    CHECKS["batch"](Call(Subject(torch.relu), empty, {"x": 0, "result": 0}))
    CHECKS["order"](Call(Subject(lambda x: x.sum(0)), empty, {"x": -2}))
    CHECKS["layout"](Call(Subject(lambda x, n: x + n), {"x": torch.tensor(2.0), "n": 2}, {}))
