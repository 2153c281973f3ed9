"""Derivatives under threads, and over many calls."""

import threading

import muladd
import pytest
import torch
from opwheel.dispatch import Operator, register_python
from opwheel.memory.usage import allocated


def in_threads(count, work):
    """Run ``work(index)`` in threads that start together; the first exception is raised here."""
    start, errors = threading.Barrier(count), []

    def run(index):
        start.wait()
        try:
            work(index)
        except Exception as error:  # every thread's is of interest
            errors.append(error)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def doubling(space):
    """A new library with y = x * by, whose gradient of ``x`` is a formula."""
    return register_python(
        space,
        {"times(Tensor x, float by) -> Tensor": lambda x, by: x * by},
        [Operator("times", reference=lambda x, by: x * by, derivatives={"x": "times(grad, by)"}, doc="``x * by``.")],
        module=__name__,
    )["times"]


def gradient(function, *others):
    x = torch.ones(3, requires_grad=True)
    (found,) = torch.autograd.grad(function(x, *others).sum(), x)
    return found.tolist()


def test_first_calls_in_several_threads():
    for repeat in range(5):
        times = doubling(f"stress_first_{repeat}")

        def work(index, times=times):
            assert gradient(times, float(index)) == [index] * 3

        in_threads(8, work)


def test_operators_are_registered_while_others_are_used():
    def work(index):
        if index % 2:
            assert gradient(doubling(f"stress_registered_{index}"), 3.0) == [3.0] * 3
        for _ in range(200):
            assert gradient(muladd.mul, torch.full((3,), 2.0)) == [2.0] * 3

    in_threads(6, work)


def test_one_graph_in_several_threads():
    """Its nodes are shared: none may change while a thread computes."""
    x = torch.ones(3, requires_grad=True)
    factor = torch.full((3,), 2.0)
    result = muladd.fma(x, factor, muladd.mul(x, factor)).sum()

    def work(_):
        for _ in range(100):
            (found,) = torch.autograd.grad(result, x, retain_graph=True)
            assert found.tolist() == [4.0] * 3

    in_threads(6, work)


@pytest.mark.slow
def test_memory_stays_as_it_is():
    """If each of 100,000 calls lost 50 bytes, it would be 5 MB; a node has more."""
    a, b = (torch.randn(4, requires_grad=True) for _ in range(2))
    target, ones = torch.ones(4), torch.ones(4)

    def calls(count):
        for _ in range(count):
            muladd.fma(a, b, muladd.muladd_(muladd.mul(a, b), b, 1.0)).backward(ones)
            muladd.muladd(ones, ones, 1.0, out=target)
            a.grad = b.grad = None

    calls(5_000)
    before = allocated()
    calls(100_000)
    assert allocated() - before < 4_000_000
