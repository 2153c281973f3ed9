"""How placement rules are written, and what they say of a call; what DTensor makes of it is tested in processes."""

import json
from types import SimpleNamespace

import muladd
import pytest
import torch
import torch.distributed.tensor
from hypothesis import given
from hypothesis import strategies as st
from opwheel.dispatch import Operator, Rows, ShardedReduction, register_python
from opwheel.dispatch.overload import Overload
from opwheel.dispatch.placements import FILE, PlacementRule, parse, placed, placement_rules
from opwheel.dispatch.sharding import chooser, placement
from torch.distributed.tensor import Partial, Replicate, Shard

PLACEMENTS = ("R", "S(0)", "S(12)", "S(:)", "S(:-1)", "S(...)", "P(sum)", "P(avg)")
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-9, 9), st.floats(allow_nan=False), st.sampled_from(["a b", "", "it's, so"])
)
NAMES = st.from_regex(r"[a-z_]\w{0,5}", fullmatch=True)


WHOLE = (Replicate(),)


def spec(*shape, placements=WHOLE):
    return SimpleNamespace(shape=torch.Size(shape), ndim=len(shape), placements=tuple(placements))


def overload(schema, **declaration):
    name = schema.partition("(")[0]
    return Overload(Operator(name, reference=lambda *_: None, doc="", **declaration), "opwheel_alone", schema)


def ways(one, rules, *values):
    """The placements of the arguments that are not whole, and of the results."""
    return [
        ({one.names[i]: placed_as for i, placed_as in way.arguments.items() if placed_as != "R"}, way.results)
        for way in placed(one, map(parse, rules), values)
    ]


@given(
    st.dictionaries(NAMES, st.sampled_from(PLACEMENTS), max_size=3),
    st.lists(st.sampled_from(PLACEMENTS), max_size=3),
    st.booleans(),
    st.dictionaries(st.one_of(NAMES, NAMES.map("{}.dim".format), NAMES.map("{}.size(3)".format)), VALUES, max_size=3),
)
def test_a_rule_is_what_its_text_says(arguments, results, evenly, conditions):
    rule = PlacementRule(arguments, tuple(results), evenly, conditions)
    assert parse(str(rule)) == rule


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("x=S(0)", "has no '->'"),
        ("x=S -> S(0)", "is not understood at 'x=S'"),
        ("x=P(max) -> R", "is not understood at"),
        ("x=S(0) -> T", "is not understood at 'T'"),
        ("x=S(0) -> S(0) if n<3", "is not understood at 'n<3'"),
        ("x=S(0) -> S(0) if n=m", "'m' is no value"),
        (3, "has no '->'"),
    ],
)
def test_what_is_not_understood(text, problem):
    with pytest.raises(ValueError, match=r"write it as 'x=S\(0\), weight=R -> S\(0\)'") as error:
        parse(text)
    assert problem in str(error.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("y=S(0) -> S(0)", "names 'y'; name one of x"),
        ("n=S(0) -> S(0)", "names 'n'; name one of x"),
        ("x=S(0) -> S(0) if n.dim=1", "names 'n'; name one of"),
        ("x=S(0) -> S(0) if m=1", "names 'm'; name one of"),
        ("x=S(0) -> S(0), R", "has 2 results; write 1 of them"),
        ("x=S(-1) -> S(0)", "has S(-1); write the dimension"),
        ("x=S(0)", "its placements; the placement rule"),
    ],
)
def test_a_rule_by_hand_that_does_not_fit_is_refused_when_it_is_declared(text, problem):
    declaration = Operator("f", reference=lambda x, n: x, placements=(text,))
    with pytest.raises(ValueError, match=r"opwheel_placed::f\(Tensor x, int n\) -> Tensor") as error:
        register_python("opwheel_placed", {"f(Tensor x, int n) -> Tensor": lambda x, n: x}, [declaration])
    assert problem in str(error.value)


@pytest.mark.parametrize(
    ("schema", "text", "problem"),
    [
        ("f(Tensor x) -> Tensor", "x -> S(0)", "its placements; the placement rule"),
        ("f(Tensor x) -> Tensor", "y=S(-1) -> S(0)", "names 'y'; name one of x"),
        ("f(Tensor x) -> Tensor", "x=S(-1) -> R, R", "has 2 results; write 1 of them"),
        ("f(Tensor x) -> Tensor", "x=S(:-1) -> R", "has S(:-1); name the dimension, as in S(-1)"),
        ("f(Tensor x) -> Tensor", "x=S(-1) -> S(...)", "has S(...); name the dimension, as in S(-1)"),
        ("f(Tensor x) -> Tensor", "x=P(sum) -> R", "shards nothing; let the first argument be S(-1)"),
        ("f(Tensor x) -> Tensor", "-> R", "shards nothing; let the first argument be S(-1)"),
        ("f(Tensor x) -> Tensor", "x=S(-1) -> R evenly", "says 'evenly'; compute with parts of any size"),
        ("f(Tensor(a!) x) -> ()", "x=S(-1) ->", "it has a sharded reduction, and writes; let it return its results"),
    ],
)
def test_a_sharded_reduction_that_does_not_fit_is_refused_when_it_is_declared(schema, text, problem):
    sharded = ShardedReduction(text, lambda shard, x: x)
    declaration = Operator("f", reference=lambda x: x, derivatives=None, sharded=sharded)
    with pytest.raises(ValueError, match=r"opwheel_placed::f\(Tensor") as error:
        register_python("opwheel_placed", {schema: lambda x: x}, [declaration])
    assert problem in str(error.value)


def test_a_sharded_reduction_is_one():
    declaration = Operator("f", reference=lambda x: x, sharded="x=S(-1) -> R")
    with pytest.raises(ValueError, match=r"sharded is 'x=S.*expected a ShardedReduction, or None"):
        register_python("opwheel_placed", {"f(Tensor x) -> Tensor": lambda x: x}, [declaration])


def test_a_sharded_reduction_of_lists_is_refused_when_it_is_declared():
    schema = "f(Tensor x, Tensor[] xs) -> Tensor"
    sharded = ShardedReduction("x=S(-1) -> R", lambda shard, x, xs: x)
    declaration = Operator("f", reference=lambda x, xs: x, derivatives=None, sharded=sharded)
    with pytest.raises(ValueError, match="it has a sharded reduction, and a list of tensors"):
        register_python("opwheel_placed", {schema: lambda x, xs: x}, [declaration])


def test_any_dimension_but_the_last_ones():
    f = overload("f(Tensor x, Tensor y, Tensor? w) -> (Tensor, Tensor)")
    rule = "x=S(:-1), y=S(:) -> S(:), P(sum)"
    of_two = [({}, ("R", "R")), ({"x": "S(0)", "y": "S(0)"}, ("S(0)", "P(sum)"))]
    assert ways(f, [rule], spec(4, 3), spec(4), None) == of_two
    assert ways(f, [rule], spec(4, 3, 2), spec(4, 3), spec(2))[2] == ({"x": "S(1)", "y": "S(1)"}, ("S(1)", "P(sum)"))
    assert ways(f, [rule], spec(3), spec(), None) == of_two[:1]


@pytest.mark.parametrize("sizes", [(1, 1), (0, 0), (4, 2)])
def test_parts_have_the_same_size(sizes):
    """What is broadcast or empty is not shared out, and what differs only where the rule says so."""
    f = overload("f(Tensor x, Tensor y) -> Tensor")
    x, y = (spec(size, 3) for size in sizes)
    assert len(ways(f, ["x=S(0), y=S(0) -> S(0)"], x, y)) == 1
    assert len(ways(f, ["x=S(0), y=S(0) -> S(0) evenly"], x, y)) == (2 if sizes == (4, 2) else 1)
    assert len(ways(f, ["x=S(2) -> S(0)"], x, y)) == 1


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("n=1", True),
        ("n=True", False),
        ("n=2", False),
        ("w=None", True),
        ("w.dim=None", True),
        ("w.dim=1", False),
        ("w.size(0)=1", False),
        ("x.dim=2, x.size(1)=1", True),
        ("x.size(0)=1", False),
        ("x.size(7)=1", False),
        ("sizes=[1, 2]", True),
        ("mode='a'", True),
        ("mode='b'", False),
    ],
)
def test_conditions(condition, holds):
    f = overload("f(Tensor x, Tensor? w, int n, int[] sizes, str mode) -> Tensor")
    found = ways(f, [f"x=S(0) -> S(0) if {condition}"], spec(4, 1), None, 1, (1, 2), "a")
    assert len(found) == (2 if holds else 1)


def test_operands_broadcast():
    rules = [str(rule) for rule in placement_rules(muladd.library.overloads["fma"], muladd.library)]
    found = ways(muladd.library.overloads["fma"], rules, spec(3, 1, 4), spec(4), spec(3, 1, 1))
    assert found[0] == ({}, ("R",))
    assert ({"a": "S(0)", "c": "S(0)"}, ("S(0)",)) in found
    assert ({"a": "S(2)", "b": "S(0)"}, ("S(2)",)) in found
    assert not any(results == ("S(1)",) for _, results in found)
    assert ({"a": "P(sum)", "c": "P(sum)"}, ("P(sum)",)) in found
    assert ({"b": "P(avg)"}, ("P(avg)",)) in found  # which its tests have found: it is affine in b


def test_variants_have_the_placements_of_their_operator():
    in_place = [str(rule) for rule in placement_rules(muladd.library.overloads["muladd_"], muladd.library)]
    assert "a=S(...), b=S(...) -> S(...)" in in_place
    assert "a=P(avg) -> P(avg)" in in_place
    assert "b=P(avg) -> P(avg)" not in in_place  # a, which is written to, would be whole before and a mean after
    out = placement_rules(muladd.library.overloads["muladd.out"], muladd.library)
    assert all(rule.arguments["out"] == rule.results[0] for rule in out)


def test_rules_come_from_the_claim_by_hand_and_from_the_file(tmp_path):
    (tmp_path / FILE).write_text(json.dumps({"f": ["w=P(sum) -> P(sum)", "x=S(:-1) -> S(:)"]}))
    f = overload("f(Tensor x, Tensor w) -> Tensor", rule=Rows(x=1), placements=("x=P(avg) -> P(avg)",))
    rules = [str(rule) for rule in placement_rules(f, SimpleNamespace(folder=tmp_path))]
    assert rules == ["x=S(:-1) -> S(:)", "x=P(avg) -> P(avg)", "w=P(sum) -> P(sum)"]
    assert len(placement_rules(f, SimpleNamespace())) == 2
    assert len(placement_rules(f, SimpleNamespace(folder=tmp_path / "none"))) == 2


def chosen(one, rules, mesh, *values, **named):
    return chooser(one, [parse(text) for text in rules])(mesh, values, named)


def test_placements_of_what_has_no_rules():
    """Whole tensors only, those of lists as well; what is written to must be whole already."""
    f = overload("f(Tensor[] xs, Tensor? y, Tensor(a!) z, float t) -> ()")
    given = (spec(2), spec(3)), None
    assert chosen(f, [], (2,), *given, spec(2), 1.0)[0] == [[Replicate()] * 3]
    with pytest.raises(RuntimeError, match=r"'z' is written to and must be whole on every process .* 'z' is S"):
        chosen(f, [], (2,), *given, spec(2, placements=[Shard(0)]), 1.0)


def test_lists_have_one_placement():
    f = overload("f(Tensor[] xs, Tensor y) -> Tensor")
    lists, _ = chosen(f, ["xs=S(0) -> S(0)"], (2,), (spec(4), spec(4)), spec(3))
    assert lists == [[Replicate()] * 4, [Shard(0), Shard(0), Shard(0), Replicate()]]
    assert len(chosen(f, ["xs=S(0) -> S(0)"], (2,), (spec(4), spec(3)), spec(3))[0]) == 1
    assert len(chosen(f, ["xs=S(0) -> S(0)"], (2,), (), spec(3))[0]) == 1


def test_keyword_tensors_stay_where_they_are():
    """DTensor moves none. They are in the order of the call."""
    f = overload("f(Tensor x, *, Tensor y, Tensor z) -> Tensor")
    sharded = spec(4, placements=[Shard(0)])
    lists, is_right = chosen(f, ["y=S(0) -> S(0)"], (2,), spec(2), z=spec(3), y=sharded)
    assert lists[1] == [Shard(0), Replicate(), Replicate(), Shard(0)]
    assert is_right([spec(2), spec(3), sharded], [sharded])
    assert not is_right([spec(2), spec(3), spec(4)], [spec(4)])
    with pytest.raises(RuntimeError, match="'y', 'z' is keyword-only, which DTensor leaves where"):
        chosen(f, [], (2,), spec(2), y=sharded, z=spec(3))


def test_what_is_written_to_stays_where_it_is():
    f = overload("f(Tensor x, Tensor(a!) z) -> ()")
    sharded = spec(4, placements=[Shard(0), Replicate()])
    _, is_right = chosen(f, ["x=S(0), z=S(0) -> "], (2, 2), spec(4, placements=[Replicate()] * 2), sharded)
    parts = [spec(4, placements=[Shard(0), Replicate()])] * 2
    assert is_right(parts, ())
    assert not is_right([parts[0], spec(4, placements=[Replicate()] * 2)], ())
    with pytest.raises(RuntimeError, match=r"or placed as \(Shard\(dim=0\),\)"):
        chosen(f, ["x=S(0), z=S(0) -> "], (2,), spec(4), spec(4, placements=[Partial()]))


def test_parts_of_the_same_size_on_a_mesh_of_two_dimensions():
    f = overload("f(Tensor x, Tensor y) -> Tensor")
    rules, whole = ["x=S(0), y=S(0) -> S(0) evenly"], [Replicate()] * 2
    given = spec(8, placements=whole), spec(2, placements=whole)
    lists, is_right = chosen(f, rules, (2, 2), *given)
    assert len(lists) == 2
    once, twice = [Shard(0), Replicate()], [Shard(0), Shard(0)]
    assert is_right([spec(8, placements=once), spec(2, placements=once)], [spec(8, placements=once)])
    assert not is_right([spec(8, placements=twice), spec(2, placements=twice)], [spec(8, placements=twice)])
    assert len(chosen(f, rules, (3,), spec(8), spec(2))[0]) == 1


def test_sums_are_looked_at_on_a_mesh_of_two_dimensions_where_there_are_any():
    f = overload("f(Tensor x) -> Tensor")
    rules = ["x=P(sum) -> P(sum)"]
    assert len(chosen(f, rules, (2, 2), spec(4, placements=[Replicate(), Replicate()]))[0]) == 1
    assert len(chosen(f, rules, (2, 2), spec(4, placements=[Replicate(), Partial()]))[0]) == 2


def test_placements_of_pytorch():
    assert [placement(text) for text in ("R", "S(1)", "P(avg)")] == [Replicate(), Shard(1), Partial("avg")]
    assert placement("S(-1)", 3) == Shard(2)
