"""Placement rules are found from references, and the kit, PyTorch's validator and a sweep find out wrong ones."""

import json
from pathlib import Path

import muladd
import pytest
import torch
from opwheel.dispatch import Operator, Rows, ShardedReduction, overloads_of, register_python
from opwheel.dispatch.placements import FILE, parse
from opwheel.dispatch.registration import library_of
from opwheel_tools import OpInfo, Sample
from opwheel_tools.opinfo.lookup import register_op_infos
from opwheel_tools.testing import checks
from opwheel_tools.testing.checks.cases import declared
from opwheel_tools.testing.placements import reductions
from opwheel_tools.testing.placements.generalising import find_rules
from opwheel_tools.testing.placements.keeping import found_rules, write_rules
from opwheel_tools.testing.placements.parts import is_joined_to, parts_of
from opwheel_tools.testing.placements.reductions import wrong_results_of_shards
from opwheel_tools.testing.placements.sweep import sweep
from opwheel_tools.testing.placements.validator import validate

NAMESPACE = "waves_placed"
CPU = torch.device("cpu")


def product(x, w):
    return x @ w


def shifted(x, w, by, mean):
    return (x - x.mean(-1, keepdim=True) if mean else x) * w + by


def shared_heads(q, k):
    """Each head of k is for several of q, which are next to one another."""
    return q * k.repeat_interleave(q.shape[1] // k.shape[1], 1)


def scores(x, y):
    """y is x.sin(), which a kernel may take in the place of that."""
    return x.sin() * 2, x.detach().clone()


def scores_kernel(x, y):
    return y * 2, x.clone()


def put(x, target):
    target.add_(x)


def both(xs):
    return torch.stack([x.sum(-1) for x in xs]).sum(0)


def masked(x, mask):
    """Every sample has no mask, or one for all rows."""
    return x.clone() if mask is None else x * mask


def moments(x):
    return x.mean(0), x.pow(2).sum()


# Schema, reference, kernel, the rule, samples.
OPERATORS = {
    "product(Tensor x, Tensor w) -> Tensor": (product, product, None, [((4, 6), (6, 8)), ((2, 4), (4, 5))]),
    "shifted(Tensor x, Tensor w, float by, bool mean) -> Tensor": (
        shifted,
        shifted,
        Rows(x=1),
        [((4, 6), (6,), 0.0, True), ((2, 3, 5), (5,), 0.5, False)],
    ),
    "shared_heads(Tensor q, Tensor k) -> Tensor": (
        shared_heads,
        shared_heads,
        None,
        [((3, 4, 5), (3, 2, 5)), ((4, 5, 3), (4, 5, 3))],
    ),
    "scores(Tensor x, Tensor y) -> (Tensor, Tensor)": (scores, scores_kernel, None, [((4, 6), "sin")]),
    "put(Tensor x, Tensor(a!) target) -> ()": (
        put,
        put,
        None,
        [((4, 6),) * 2, ((3,),) * 2, ((2, 3, 4),) * 2],
    ),
    "both(Tensor[] xs) -> Tensor": (both, both, None, [([(4, 6), (4, 5)],)]),
    "masked(Tensor x, Tensor? mask) -> Tensor": (masked, masked, None, [((4, 6), None), ((4, 6), (1, 6))]),
    "moments(Tensor x) -> (Tensor, Tensor)": (moments, moments, None, [((6, 4),)]),
}
FOUND = {
    "product": [
        "w=P(avg) -> P(avg) if x.dim=2",
        "w=P(sum) -> P(sum) if x.dim=2",
        "w=S(1) -> S(1) if x.dim=2, w.dim=2",
        "x=P(avg) -> P(avg) if w.dim=2",
        "x=P(sum) -> P(sum) if w.dim=2",
        "x=S(0) -> S(0) if x.dim=2, w.dim=2",
        "x=S(1), w=S(0) -> P(sum) if x.dim=2, w.dim=2",
    ],
    "shifted": [  # along leading dimensions by the claim
        "w=P(avg) -> P(avg)",
        "w=P(sum) -> P(sum) if x.dim=2, by=0.0",
        "x=P(avg) -> P(avg) if w.dim=1",
        "x=P(sum) -> P(sum) if w.dim=1, by=0.0",
        "x=S(2), w=S(0) -> S(2) if x.dim=3, w.dim=1, mean=False",
    ],
    "shared_heads": [  # evenly: of 5 heads the last of 4 processes has none, which the reference refuses
        "k=P(avg) -> P(avg) if q.dim=3",
        "k=P(sum) -> P(sum) if q.dim=3",
        "q=P(avg) -> P(avg) if k.dim=3",
        "q=P(sum) -> P(sum) if k.dim=3",
        "q=S(0), k=S(0) -> S(0) if q.dim=3, k.dim=3",
        "q=S(1), k=S(1) -> S(1) evenly if q.dim=3, k.dim=3",
        "q=S(2), k=S(2) -> S(2) if q.dim=3, k.dim=3",
    ],
    # y goes with x, and no sum over processes does: the kernel takes it in the place of a function that is not linear.
    "scores": ["x=S(0), y=S(0) -> S(0), S(0) if x.dim=2, y.dim=2", "x=S(1), y=S(1) -> S(1), S(1) if x.dim=2, y.dim=2"],
    "put": ["x=S(:), target=S(:) ->"],
    "masked": [
        "mask=P(avg) -> P(avg) if x.dim=2",
        "mask=P(sum) -> P(sum) if x.dim=2",
        "x=P(avg) -> P(avg)",
        "x=P(sum) -> P(sum)",
        "x=S(0) -> S(0) if x.dim=2, mask.dim=2, mask.size(0)=1",
        "x=S(0) -> S(0) if x.dim=2, mask.dim=None",
        "x=S(1) -> S(1) if x.dim=2, mask.dim=None",
        "x=S(1), mask=S(1) -> S(1) if x.dim=2, mask.dim=2",
    ],
    "moments": ["x=P(avg) -> P(avg), R", "x=S(1) -> S(0), P(sum) if x.dim=2"],
}


def samples_of(shapes):
    def samples(device, dtype, requires_grad):
        def made(one):
            if isinstance(one, list):
                return [made(shape) for shape in one]
            return torch.randn(one, dtype=dtype, device=device) if isinstance(one, tuple) else one

        for given in shapes:
            values = [made(one) for one in given]
            yield Sample(*(values[0].sin() if isinstance(one, str) else one for one in values))

    return OpInfo(samples=samples, dtypes=(torch.float64,))


def defined(namespace, operators, **fields):
    """The overloads of made-up operators, by name."""
    declarations, kernels, infos = [], {}, {}
    for schema, (reference, kernel, rule, shapes) in operators.items():
        name = schema.partition("(")[0]
        claim = {"rule": rule} if rule else {}
        declarations.append(Operator(name, reference=reference, derivatives=None, **claim, **fields))
        kernels[schema], infos[name] = kernel, samples_of(shapes)
    register_python(namespace, kernels, declarations)
    register_op_infos(namespace, infos)
    return overloads_of(torch.library.Library(namespace, "FRAGMENT"))


@pytest.fixture(scope="module")
def overloads():
    return defined(NAMESPACE, OPERATORS)


@pytest.mark.parametrize("name", [name for name in FOUND if name != "moments"])
def test_rules_are_found_from_the_reference(overloads, name):
    assert sorted(map(str, find_rules(overloads[name]))) == sorted(FOUND[name])


def test_tensors_of_lists_stay_whole(overloads):
    assert find_rules(overloads["both"]) == []


def test_each_result_has_its_own_placement(overloads):
    """The mean of rows is a mean of equal parts, or shared out as columns; the sum of squares is neither."""
    assert "x=S(1) -> S(0), P(sum) if x.dim=2" in map(str, find_rules(overloads["moments"]))
    assert not any(str(rule).startswith("x=P") for rule in find_rules(overloads["moments"]))


WRONG = {
    "a sum that is none": "x=P(sum) -> P(sum)",
    "a mean that is none": "x=P(avg) -> P(avg)",
    "a shifted shard": "x=S(0) -> S(1)",
    "a sum over what is shared out": "x=S(0) -> P(sum)",
    "parts that depend on one another": "x=S(1) -> S(1)",
    "taken to be whole": "x=S(0) -> R",
}


def softmax_of_rows(x):
    return x.softmax(1)


@pytest.mark.parametrize("defect", WRONG)
def test_wrong_rules_are_found_out(defect):
    """By three judges that do not know one another; the reference's own rule passes all of them."""
    namespace = f"waves_wrong_{list(WRONG).index(defect)}"
    operators = {"rows(Tensor x) -> Tensor": (softmax_of_rows, softmax_of_rows, None, [((4, 4),)])}
    overload = defined(namespace, operators, placements=("x=S(0) -> S(0)", WRONG[defect]))["rows"]
    with pytest.raises(AssertionError, match=r"sharded x=[SP]\(\w+\) -> "):
        checks.CHECKS["shardings"](overload, checks.Samples(overload, 0, torch.float64, CPU))
    validated = validate(overload, 2)
    given, _, result = WRONG[defect].removeprefix("x=").partition(" -> ")
    assert validated.incorrect == (f"{given} -> {result}",)
    assert validated.correct == 1
    swept = sweep(overload, values_of(overload), 2)
    assert (swept.incorrect, swept.missing, swept.correct) == ((f"{given} -> {result}",), (), 1)


def centred(x):
    return x - x.mean(-1, keepdim=True)


def sum_of(shard, x):
    return shard.all_reduce(x.sum(-1, keepdim=True))


WRONG_REDUCTIONS = {
    "divided by the size of a part": lambda shard, x: x - sum_of(shard, x) / x.shape[-1],
    "the largest sum": lambda shard, x: x - shard.all_reduce(x.sum(-1, keepdim=True), "max") / shard.size,
    "nothing is exchanged": lambda shard, x: centred(x),
    "added once for each process": lambda shard, x: x - sum_of(shard, x) * shard.count / shard.size,
    "what begins there": lambda shard, x: x - sum_of(shard, x) / shard.size + shard.offset,
}


def reduced(local, namespace):
    sharded = ShardedReduction("x=S(-1) -> S(-1)", local)
    operators = {"centred(Tensor x) -> Tensor": (centred, centred, Rows(x=1), [((4, 7),), ((2, 3, 5),)])}
    overload = defined(namespace, operators, sharded=sharded)["centred"]
    return overload, [checks.Samples(overload, index, torch.float64, CPU) for index in (0, 1)]


@pytest.mark.parametrize("defect", WRONG_REDUCTIONS)
def test_wrong_sharded_reductions_are_found_out(defect):
    namespace = f"waves_reduced_{list(WRONG_REDUCTIONS).index(defect)}"
    overload, samples = reduced(WRONG_REDUCTIONS[defect], namespace)
    with pytest.raises(AssertionError, match=r"sharded reduction x=S\(-1\) -> S\(-1\) over 2 processes: results \[0\]"):
        checks.CHECKS["shardings"](overload, samples[0])


def test_a_right_sharded_reduction():
    """Of parts of different sizes and of empty ones."""
    overload, samples = reduced(lambda shard, x: x - sum_of(shard, x) / shard.size, "waves_reduced")
    for one in samples:
        checks.CHECKS["shardings"](overload, one)
        values = one.values()
        assert wrong_results_of_shards(overload, values, (centred(*values),), 4) == []


def test_what_a_sharded_reduction_raises(monkeypatch):
    def refuses(shard, x):
        if shard.offset:
            raise NotImplementedError("such a part")
        return x - sum_of(shard, x)

    overload, samples = reduced(refuses, "waves_refusing")
    with pytest.raises(NotImplementedError, match="such a part"):
        checks.CHECKS["shardings"](overload, samples[0])
    monkeypatch.setattr(reductions, "_SECONDS", 0.1)
    overload, samples = reduced(lambda shard, x: x if shard.offset else x - sum_of(shard, x), "waves_alone")
    with pytest.raises(RuntimeError, match="calls all_reduce more often on one process than on others"):
        checks.CHECKS["shardings"](overload, samples[0])


def values_of(overload, index=0):
    sample = declared(overload, torch.float64, CPU)[index]
    return overload.bind(sample.args, sample.kwargs)


def test_a_sweep_finds_what_is_missing(overloads):
    """An operator without rules lacks all that are right, each result judged alone."""
    swept = sweep(overloads["product"], values_of(overloads["product"]), 2)
    assert (swept.correct, swept.incorrect, swept.left_out) == (0, (), 0)
    assert set(swept.missing) == {
        *("R, P(sum) -> P(sum)", "R, P(avg) -> P(avg)", "P(sum), R -> P(sum)", "P(avg), R -> P(avg)"),
        *("R, S(1) -> S(1)", "S(0), R -> S(0)", "S(1), S(0) -> P(sum)"),
    }
    uneven = sweep(overloads["moments"], values_of(overloads["moments"]), 4)
    assert uneven.missing == ("S(1) -> S(0), P(sum)",)
    assert sweep(overloads["product"], values_of(overloads["product"]), 2, most=3).left_out == 21


def test_validator_says_that_dtensor_does_not_know_an_operator(overloads):
    with pytest.raises(ValueError, match="waves_placed::both: DTensor does not know it, or it has no sample"):
        validate(overloads["both"], 2)


@pytest.mark.parametrize("size", [0, 1, 2, 5, 8])
@pytest.mark.parametrize("placement", ["R", "S(0)", "S(1)", "P(sum)", "P(avg)"])
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_parts_are_the_whole_again(size, placement, count):
    """Also where some are smaller or empty; and they are not, if something is taken for something else."""
    whole = torch.randn(3, size, dtype=torch.float64) + 2
    parts = parts_of(whole, placement, count, torch.Generator().manual_seed(0))
    assert len(parts) == count
    assert is_joined_to(parts, placement, whole)
    if size > 3 and count > 1:
        others = {"R", "S(0)", "S(1)", "P(sum)", "P(avg)"} - {placement, "P(avg)" if placement == "R" else ""}
        assert not any(is_joined_to(parts, other, whole) for other in others)


def test_muladd_has_the_rules_that_are_found():
    assert found_rules(muladd.library) == json.loads((muladd.library.folder / FILE).read_text())


def test_the_file_is_written(tmp_path):
    file = write_rules(muladd.library, tmp_path)
    assert file.name == FILE
    assert file.read_bytes() == (muladd.library.folder / FILE).read_bytes()


AT_NIGHT = ("fma", "mul", "scale", "muladd_backward")
WORLDS = [2, pytest.param(4, marks=pytest.mark.nightly)]


@pytest.mark.parametrize("world_size", WORLDS)
@pytest.mark.parametrize(
    "name",
    [
        "add",
        "muladd",
        *(pytest.param(one, marks=pytest.mark.nightly) for one in ("fma", "mul", "scale", "muladd_backward")),
    ],
)
def test_dtensor_knows_all_that_is_right_of_muladd_and_nothing_else(name, world_size):
    overload = muladd.library.overloads[name]
    validated = validate(overload, world_size)
    assert validated.correct
    assert validated.incorrect == ()
    for index in range(3):
        swept = sweep(overload, values_of(overload, index), world_size)
        assert (swept.incorrect, swept.missing, swept.left_out) == ((), (), 0)


def test_rules_name_what_the_operators_have():
    """Every rule in the file is understood, and one of its operator's."""
    library = library_of(muladd.library.overloads["add"])
    kept = json.loads(Path(library.folder, FILE).read_text())
    assert all(name in library.overloads for name in kept)
    assert all(str(parse(text)) == text for texts in kept.values() for text in texts)
