"""What is claimed about bits: which dimensions of a call a claim is about, and what holds on a backend."""

import itertools

import muladd
import pytest
import torch
from opwheel.dispatch import Elementwise, Operator, Rows, define, overloads_of, register_python
from opwheel.dispatch.invariance import check_required, dimensions, held
from opwheel.registry import BackendStatus, BackendUnavailableError, State

_names = (f"waves_claims_{number}" for number in itertools.count())


def declare(schema, **fields):
    """The overload of one operator."""
    namespace, name = next(_names), schema.partition("(")[0]
    register_python(namespace, {schema: torch.sin}, [Operator(name, reference=torch.sin, **fields)])
    return overloads_of(torch.library.Library(namespace, "FRAGMENT"))[name]


def test_dimensions_of_rows():
    overload = declare("f(Tensor x, Tensor w) -> (Tensor y, Tensor)", rule=Rows(x=1), invariant={"batch": True})
    assert dimensions(overload, "batch", (torch.ones(2, 3, 4), torch.ones(4))) == [
        {"x": 0, "y": 0, "result1": 0},
        {"x": 1, "y": 1, "result1": 1},
    ]
    assert dimensions(overload, "batch", (torch.ones(4), torch.ones(4))) == []


def test_dimensions_of_elements():
    schema = "f(Tensor a, Tensor b, float c) -> Tensor"
    overload = declare(schema, rule=Elementwise(), invariant={"batch": True})
    assert dimensions(overload, "batch", (torch.ones(2, 1, 4), torch.ones(1, 4), 2.0)) == [
        {"a": -1, "b": -1, "result": -1},
        {"a": -3, "result": -3},
    ]


def test_dimensions_that_are_declared():
    overload = declare(
        "attend(Tensor q, Tensor? bias, bool causal) -> Tensor",
        invariant={
            "prefix": {"q": 1, "bias": 0, "causal": True, "result": 1},
            "batch": ({"q": 0, "result": 0}, {"q": 1, "bias": None, "causal": False, "result": 1}),
        },
    )
    q, bias = torch.ones(2, 3), torch.ones(3)
    assert dimensions(overload, "prefix", (q, bias, True)) == [{"q": 1, "bias": 0, "result": 1}]
    assert dimensions(overload, "prefix", (q, None, True)) == [{"q": 1, "result": 1}]
    assert dimensions(overload, "prefix", (q, bias[:1], True)) == [{"q": 1, "result": 1}]  # which is shared by all
    assert dimensions(overload, "prefix", (q[:, :1], None, True)) == [{"q": 1, "result": 1}]
    assert dimensions(overload, "prefix", (q, bias, False)) == []
    assert dimensions(overload, "prefix", (q[0], bias, True)) == []
    assert dimensions(overload, "batch", (q, bias, True)) == [{"q": 0, "result": 0}]
    assert len(dimensions(overload, "batch", (q, None, False))) == 2
    assert len(dimensions(overload, "batch", (q, bias, False))) == 1


def test_dimensions_counted_from_the_end():
    overload = declare(
        "turn(Tensor x, Tensor? table) -> Tensor", invariant={"batch": {"x": 0, "table": -3, "result": 0}}
    )
    x = torch.ones(2, 3, 4)
    assert dimensions(overload, "batch", (x, torch.ones(2, 3, 4))) == [{"x": 0, "table": -3, "result": 0}]
    shared_by_all = {"x": 0, "result": 0}
    for table in (torch.ones(1, 3, 4), torch.ones(3, 4), torch.ones(()), None):
        assert dimensions(overload, "batch", (x, table)) == [shared_by_all]
    assert dimensions(overload, "batch", (torch.ones(()), torch.ones(2, 3, 4))) == []


def test_claims_that_are_no_dict():
    with pytest.raises(ValueError, match=r"f: invariant is \['batch'\], expected a dict from names of claims"):
        declare("f(Tensor x) -> Tensor", invariant=["batch"])


def test_one_that_is_defined():
    claims = {"threads": True}
    define(f"{(name := next(_names))}::f(Tensor x) -> Tensor", invariant=claims)(lambda x: x.sin())
    assert overloads_of(torch.library.Library(name, "FRAGMENT"))["f"].operator.invariant == claims


@pytest.fixture(scope="module")
def overloads():
    """Of two operators with claims, an out variant and one without."""
    claims = {"threads": True, "batch": {"x": 0, "result": 0}}
    namespace = next(_names)
    operators = [Operator(name, reference=torch.sin, invariant=claims) for name in ("f", "g")]
    schemas = ["f(Tensor x) -> Tensor", "g(Tensor x) -> Tensor", "g.out(Tensor x, *, Tensor(a!) out) -> ()"]
    register_python(
        namespace,
        dict.fromkeys([*schemas, "h(Tensor x) -> Tensor"], torch.sin),
        [*operators, Operator("h", reference=torch.sin)],
    )
    return overloads_of(torch.library.Library(namespace, "FRAGMENT"))


def status(*operators, **fields):
    return BackendStatus("acme", State.LOADED, distribution="waves-acme", version="1.0", operators=operators, **fields)


def test_what_holds(overloads):
    assert held(overloads["f"], status("f")) == ("batch", "threads")
    assert held(overloads["f"], status("f", not_invariant=(("f", ("batch",)), ("g", ("threads",))))) == ("threads",)
    assert held(overloads["f"], status("f", not_invariant=(("*", ("threads",)),))) == ("batch",)
    for other in (None, status("g"), status("f", by_reference=("f",))):
        assert held(overloads["f"], other) == ()
    assert held(overloads["g.out"], status("g.out")) == ()


LESS = {"not_invariant": (("f", ("batch",)),)}


@pytest.mark.parametrize(
    ("found", "required"),
    [
        (status("f", "g", "h"), "batch"),
        (status("f", "g", "h"), ("batch", "threads")),
        (status("f", "g", "g.out", **LESS), "threads"),
        (status("f", "g", **LESS), {"g": "batch", "f": ["threads"]}),
    ],
)
def test_what_is_required_and_holds(overloads, found, required):
    check_required([found], overloads, required)


@pytest.mark.parametrize(
    ("found", "required", "words"),
    [
        (status("f", "g", **LESS), "batch", "(waves-acme 1.0) does not keep 'batch': f: the backend says so"),
        (status("f", by_reference=("f",)), "threads", "f: computed by the reference; require less"),
        (status("g"), {"f": ["threads"]}, "f: it does not serve the operator"),
        (
            status("h", "g.out"),
            {"h": "batch", "g.out": "batch"},
            "h: the library does not claim it; g.out: the library",
        ),
        (status("f"), "grad", "no operator for which 'grad' is claimed"),
    ],
)
def test_what_is_required_and_does_not_hold(overloads, found, required, words):
    with pytest.raises(BackendUnavailableError) as caught:
        check_required([found], overloads, required)
    assert words in str(caught.value)
    assert caught.value.code == "OPWHEEL-E004"


def test_what_cannot_be_required(overloads):
    with pytest.raises(ValueError, match=r"the operator 'k'; there are (.*, )?f, g, g\.out, h"):
        check_required([status("f")], overloads, {"k": "batch"})
    for required in ("rows", {"f": "rows"}):
        with pytest.raises(ValueError, match="the claim 'rows'; there are batch, prefix"):
            check_required([status("f")], overloads, required)


def test_a_library_without_claims():
    assert muladd.library.invariant("mul", "cpu") == ()
    with pytest.raises(BackendUnavailableError, match="has no operator for which 'batch' is claimed"):
        muladd.require("cpu", invariant="batch")
    with pytest.raises(ValueError, match="names no backend"):
        muladd.require(invariant="batch")
