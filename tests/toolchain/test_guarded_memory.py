"""Guards around memory of the CPU: what is written there is noticed, wherever PyTorch allocated it."""

import ctypes

import muladd
import pytest
import torch
from opwheel.memory import result_cache
from opwheel_tools.compiled import CompileError
from opwheel_tools.testing import guarded_memory as guarding
from opwheel_tools.testing.guarded_memory import guarded_memory

pytestmark = pytest.mark.skipif(bool(guarding.why_not()), reason=guarding.why_not())


def write(tensor, offset):
    """Another byte than is there, counted from the tensor's first."""
    byte = ctypes.c_ubyte.from_address(tensor.data_ptr() + offset)
    byte.value ^= 1


@pytest.mark.parametrize("make", [lambda: torch.empty(3), lambda: torch.ones(3) * 2, lambda: torch.ones(2, 3).sum(1)])
def test_nothing_is_noticed_in_the_memory_itself(make):
    with guarded_memory() as guards:
        x = make()
        write(x, 0)
        write(x, x.nbytes - 1)
        assert guards.damage(x) == ""
    assert guards.anywhere == ""


@pytest.mark.parametrize("distance", [1, 256])
def test_both_sides(distance):
    with guarded_memory() as guards:
        first, second = torch.ones(3) * 2, torch.ones(3) * 2
        write(first, -distance)
        write(second, second.nbytes + distance - 1)
        assert (guards.damage(first), guards.damage(second)) == ("in front of", "behind")
        write(first, first.nbytes)
        assert guards.damage(first) == "in front of and behind"
    assert guards.anywhere == "in front of and behind"


def test_memory_that_is_gone():
    with guarded_memory() as guards:
        x = torch.empty(3)
        write(x, x.nbytes)
        del x
    assert guards.anywhere == "behind"
    with guarded_memory() as guards:
        torch.empty(3)
    assert guards.anywhere == ""


def test_damage_is_told_once():
    with guarded_memory() as guards:
        x = torch.empty(3)
        write(x, x.nbytes)
    assert guards.anywhere == "behind"
    with guarded_memory() as guards:
        torch.empty(3)
    assert guards.anywhere == ""


@pytest.mark.parametrize(("byte", "is_expected"), [(guarding.NAN, torch.isnan), (guarding.LARGE, lambda x: x > 1e36)])
def test_new_memory_is_filled(byte, is_expected):
    with guarded_memory(byte, is_filled=True):
        x = torch.empty(5)
    assert bool(is_expected(x).all())


def test_tensors_outlive_the_guards_and_grow():
    with guarded_memory():
        x = torch.ones(3)
    x.resize_(1000).fill_(2)
    assert x.sum() == 2000


def test_refused_inside_of_itself():
    with (
        guarded_memory(),
        pytest.raises(RuntimeError, match="memory cannot be guarded: it is already"),
        guarded_memory(),
    ):
        pass


def test_refused_without_a_compiler(monkeypatch):
    def refuse(*_, **__):
        raise CompileError("there is no compiler")

    monkeypatch.setattr(guarding, "open_compiled", refuse)
    guarding._library.cache_clear()
    try:
        with pytest.raises(RuntimeError, match="memory cannot be guarded: there is no compiler"), guarded_memory():
            pass
    finally:
        guarding._library.cache_clear()


def test_no_results_are_kept_where_somebody_watches_pytorchs_memory():
    result_cache.empty()
    x = torch.ones(2**21)
    with guarded_memory() as guards:
        y = muladd.mul(x, x)
        assert guards.damage(y) == ""
        del y
    assert guards.anywhere == ""
    assert result_cache.kept_bytes() == 0
