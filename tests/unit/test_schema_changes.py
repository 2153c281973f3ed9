"""What a library's own test says of schemas that have changed since a release."""

import muladd
import pytest
from opwheel_tools import breaking_changes

BEFORE = "f(Tensor x, float k=2, *, bool flip=False, int? n=None) -> Tensor"


@pytest.mark.parametrize(
    "now",
    [
        BEFORE,
        BEFORE.replace("k=2", "k=2.0"),
        BEFORE.replace(", ", ",  "),
        BEFORE.replace("k=2", "k=2, float extra=0"),
        BEFORE.replace("n=None", "n=None, float extra=0"),
        BEFORE.replace("*, bool", "*, float extra=0, bool"),
        BEFORE.replace("bool flip=False, int? n=None", "int? n=None, bool flip=False"),
    ],
)
def test_right(now):
    assert breaking_changes([BEFORE], ["g(Tensor x) -> Tensor", now]) == []


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (BEFORE.replace("Tensor x", "Tensor input"), "'x' has become 'input'"),
        (BEFORE.replace("float k", "float factor"), "'k' has become 'factor'"),
        (BEFORE.replace("k=2", "k=5"), "'k' has another default"),
        (BEFORE.replace("k=2", "k"), "'k' has another default"),
        (BEFORE.replace("float k", "float? k"), "'k' has another type"),
        (BEFORE.replace("Tensor x", "Tensor(a!) x"), "'x' has another type"),
        (BEFORE.replace("float k", "float extra=0, float k"), "'k' has become 'extra'"),
        (BEFORE.replace("Tensor x", "Tensor x, Tensor y"), "'k' has become 'y'"),
        (BEFORE.replace("*, bool", "*, int m, bool"), "'m' is new, and has no default"),
        (BEFORE.replace(", float k=2", ""), "'k' is gone from its place"),
        (BEFORE.replace(", int? n=None", ""), "'n' is gone from its place"),
        (BEFORE.replace("float k=2, *,", "*, float k=2,"), "'k' is gone from its place"),
        (BEFORE.replace("-> Tensor", "-> (Tensor, Tensor)"), "the results are others"),
        ("g(Tensor x) -> Tensor", "f is gone"),
    ],
)
def test_wrong(now, words):
    [change] = breaking_changes([BEFORE], [now])
    assert words in change
    assert "gone: keep it" in change or f"leave {BEFORE!r} as it is" in change


def test_a_library_is_compatible_with_itself():
    assert breaking_changes(muladd.library.schemas, muladd.library.schemas) == []
