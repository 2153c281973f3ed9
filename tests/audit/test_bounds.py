"""The check of the memory around tensors: what it sees, and where it says that it cannot see everything."""

import ctypes

import pytest
import torch
from opwheel_tools.audit import worker
from opwheel_tools.audit.outcomes import Outcome
from opwheel_tools.judge import calls

from . import planted

X = torch.rand(3, 4, generator=torch.Generator().manual_seed(1)) + 0.5


def bounds(operator, *args, **kwargs):
    """The outcome, and the first line of the message; pytest adds others to what is asserted."""
    outcome, message = worker.judge(calls.Call(operator, args, kwargs), "bounds")
    return outcome, message.partition("\n")[0]


@pytest.fixture
def library():
    with torch.library._scoped_library("audit_bounds", "DEF") as library:
        yield library


@pytest.mark.parametrize(
    ("defect", "where"),
    [
        ("writes_out_of_bounds", "behind the argument 'x'"),
        ("writes_behind_its_result", "behind result 0"),
        ("writes_in_front_of_its_result", "in front of result 0"),
    ],
)
def test_where_a_kernel_writes_is_named(defect, where):
    (name,) = (name for name, one in planted.WRONG.items() if one.name == defect)
    assert bounds(name, X) == (Outcome.WRONG, f"writes {where}: bytes that are not its own are changed")
    assert bounds(f"planted::{planted.WRONG[name].operator}", X) == (Outcome.RIGHT, "")


def test_memory_that_is_no_result_is_watched(library):
    def kernel(x):
        ctypes.memset(torch.empty(4).data_ptr() + 16, 0, 4)
        return x.clone()

    library.define("scratch(Tensor x) -> Tensor")
    library.impl("scratch", kernel, "CPU")
    outcome, message = bounds("audit_bounds::scratch", X)
    assert (outcome, message.partition(": ")[0]) == (Outcome.WRONG, "writes behind memory that it allocates")


def test_the_kernel_has_the_arguments_as_they_were(library):
    """Values, strides, alignment; by position and by name."""
    seen = []
    library.define("see(Tensor x, Tensor? y, Tensor[] z, *, Tensor w) -> Tensor")
    library.impl("see", lambda x, y, z, *, w: seen.extend([x, *z, w]) or x.clone(), "CPU")
    given = [X.T, X[:, 1:].bfloat16(), X > 1, torch.ones(()), torch.ones(0)]
    assert bounds("audit_bounds::see", given[0], None, given[1:-1], w=given[-1]) == (Outcome.RIGHT, "")
    assert [(x.tolist(), x.dtype, x.stride(), x.data_ptr() % 64) for x in seen[: len(given)]] == [
        (x.tolist(), x.dtype, x.stride(), 0) for x in given
    ]


@pytest.mark.parametrize(
    ("operator", "arguments", "words"),
    [
        ("aten::mm", (X, X.T), "a result is not allocated through the dispatcher"),  # TensorIterator allocates it
        ("aten::resize_", (X, [5, 5]), "in memory that cannot grow: Trying to resize storage that is not resizable"),
    ],
)
def test_what_is_not_seen_is_said(operator, arguments, words):
    outcome, message = bounds(operator, *arguments)
    assert outcome is Outcome.NOT_TRIED
    assert words in message
