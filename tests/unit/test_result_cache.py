"""The memory of large results on a CPU is kept when they are gone, and given to the next ones."""

import copy
import io
import threading
import time

import muladd
import pytest
import torch
from opwheel.memory import result_cache

MIB = 2**20
pytestmark = pytest.mark.skipif(bool(result_cache.why_not()), reason=result_cache.why_not())


@pytest.fixture(autouse=True)
def _cache():
    """Empty before and after, with the limit and the policy as they were."""
    limit, lifetime = result_cache.limit(), result_cache.lifetime()
    result_cache.empty()
    yield
    muladd.library.set_result_cache("keep")
    result_cache.set_limit(limit)
    result_cache.set_lifetime(lifetime)
    result_cache.empty()


def of(mebibytes):
    return torch.ones(int(mebibytes * MIB) // 4)


def result(x):
    return muladd.mul(x, x)


def test_a_result_gets_the_memory_of_one_that_is_gone():
    x = of(8)
    first = result(x)
    place = first.data_ptr()
    assert result_cache.kept_bytes() == 0
    assert place % (2 * MIB) == 0
    del first
    assert result_cache.kept_bytes() == 8 * MIB
    second = result(x + 1)
    assert second.data_ptr() == place
    assert result_cache.kept_bytes() == 0
    torch.testing.assert_close(second, torch.full_like(x, 4.0))


@pytest.mark.parametrize(("mebibytes", "kept"), [(3.99, 0), (4, 4), (7, 8)])
def test_small_results_come_from_pytorch(mebibytes, kept):
    result(of(mebibytes))
    assert result_cache.kept_bytes() == kept * MIB


@pytest.mark.parametrize(
    ("kept", "wanted", "is_reused"), [(8, 8, True), (12, 11, True), (12, 10, True), (12, 8, False), (8, 9, False)]
)
def test_a_kept_block_may_be_a_quarter_larger(kept, wanted, is_reused):
    x = of(wanted)
    place = result(of(kept)).data_ptr()
    again = result(x)
    assert (again.data_ptr() == place) == is_reused
    assert (result_cache.kept_bytes() == 0) == is_reused


def test_of_several_the_smallest_that_fits_and_the_last_that_was_given_back():
    large, small = of(10), of(8)
    results = [result(large), result(small), result(small)]
    places = [each.data_ptr() for each in results]
    while results:
        del results[0]
    taken = [result(small) for _ in range(3)]
    assert [each.data_ptr() for each in taken] == [places[2], places[1], places[0]]


def test_both_results_of_one_call_have_memory_of_their_own():
    x = of(8)
    for _ in range(2):
        first, second = torch.ops.muladd.muladd_backward(x, x * 2, x * 3)
        assert first.data_ptr() != second.data_ptr()
        assert (first.unique().item(), second.unique().item()) == (3.0, 2.0)
        del first, second
        assert result_cache.kept_bytes() == 16 * MIB


def test_the_limit():
    result_cache.set_limit(30 * MIB)
    kept = [result(of(size)) for size in (8, 14, 10)]
    places = [each.data_ptr() for each in kept]
    while kept:
        del kept[0]  # the oldest goes, once there is too much
    assert result_cache.kept_bytes() == 24 * MIB
    assert result(of(10)).data_ptr() == places[2]
    result_cache.set_limit(10 * MIB)
    assert result_cache.kept_bytes() == 10 * MIB
    result(of(16))  # more than the limit
    assert result_cache.kept_bytes() == 10 * MIB
    result_cache.set_limit(0)
    result(of(8))
    assert result_cache.kept_bytes() == 0
    assert result_cache.limit() == 0
    assert result_cache.describe("keep") == (
        "result cache: no memory of large results is kept (policy: keep, limit: 0 MiB)"
    )


@pytest.mark.parametrize("size", [-1, 2**64, 1.5, "1 GiB", None])
def test_a_limit_that_is_none(size):
    before = result_cache.limit()
    with pytest.raises(ValueError, match="must be a whole number, 0 or more"):
        result_cache.set_limit(size)
    assert result_cache.limit() == before


def test_what_nobody_takes_goes_back_to_the_system():
    x = of(8)
    for _ in range(2):  # the second time by another thread: the first has ended
        result_cache.set_lifetime(0.05)
        result(x)
        assert result_cache.kept_bytes() == 8 * MIB
        result_cache.set_lifetime(100)
        result(of(12))
        deadline = time.monotonic() + 20
        while result_cache.kept_bytes() > 12 * MIB and time.monotonic() < deadline:
            time.sleep(0.01)
        assert result_cache.kept_bytes() == 12 * MIB
        result_cache.empty()
    assert result_cache.lifetime() == 100


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf")])
def test_a_lifetime_that_is_none(seconds):
    with pytest.raises(ValueError, match="it must be from 0 to"):
        result_cache.set_lifetime(seconds)
    assert result_cache.lifetime() == 10


def test_the_policy():
    muladd.library.set_result_cache("never")
    x = of(8)
    result(x)
    assert result_cache.kept_bytes() == 0
    muladd.library.set_result_cache("keep")
    result(x)
    assert result_cache.kept_bytes() == 8 * MIB
    with pytest.raises(ValueError, match="result cache: 'always' is neither 'keep' nor 'never'"):
        muladd.library.set_result_cache("always")


def test_views_and_arrays_keep_the_memory():
    x = of(8)
    array = result(x).numpy()
    place = array.ctypes.data
    assert result_cache.kept_bytes() == 0
    assert result(x + 1).data_ptr() != place
    assert array.max() == 1.0
    del array
    assert result_cache.kept_bytes() >= 8 * MIB


def test_results_are_ordinary_tensors():
    x = of(8)
    y = result(x)
    assert y.untyped_storage().nbytes() == 8 * MIB
    torch.testing.assert_close(copy.deepcopy(y), y)
    buffer = io.BytesIO()
    torch.save(y, buffer)
    buffer.seek(0)
    torch.testing.assert_close(torch.load(buffer), y)
    y.resize_(4 * x.numel())  # by the same allocator: it keeps what was there
    torch.testing.assert_close(y[: x.numel()], x)
    assert result_cache.kept_bytes() == 8 * MIB
    y.resize_(0)
    out = torch.add(x, 1, out=y)
    torch.testing.assert_close(out, x + 1)
    y.untyped_storage().resize_(0)
    assert y.untyped_storage().nbytes() == 0
    with torch.inference_mode():
        assert result(x).is_inference()
    shared = result(x).share_memory_()
    torch.testing.assert_close(shared, x)


def test_the_profiler_sees_the_memory():
    x = of(8)
    result(x)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        result(x)
    events = profile.events()
    assert [event.cpu_memory_usage for event in events if event.name == "muladd::mul"] == [8 * MIB]
    assert [event.cpu_memory_usage for event in events if event.name == "[memory]"] == [-8 * MIB]  # of no operator


def test_threads():
    """Nobody gets memory that somebody else still has."""
    sizes = [of(size) for size in (8, 8, 10)]
    wrong = []

    def work(number):
        alive = []
        for step in range(12):
            value = number * 100.0 + step
            x = torch.full_like(sizes[step % len(sizes)], value)
            alive.append((muladd.muladd(x, x * 0, value), value))
            if len(alive) == 3:
                y, expected = alive.pop(0)
                wrong.extend([number] if not bool((y == expected).all()) else [])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_where_there_is_no_native_library(monkeypatch):
    monkeypatch.setattr("opwheel.memory.result_cache.open_library", lambda _: "no library for this torch")
    result_cache._library.cache_clear()
    try:
        assert (result_cache.kept_bytes(), result_cache.limit(), result_cache.allocate_function()) == (0, 0, None)
        assert result_cache.lifetime() == 0
        result_cache.set_limit(1)
        result_cache.set_lifetime(1)
        result_cache.empty()
        assert result_cache.describe("keep") == (
            "result cache: no memory of large results is kept (no library for this torch)"
        )
    finally:
        result_cache._library.cache_clear()


def test_what_doctor_says():
    result_cache.set_limit(512 * MIB)
    assert result_cache.describe("keep") == (
        "result cache: up to 512 MiB of large results' memory is kept for the next ones (policy: keep)"
    )
    assert result_cache.describe("never") == (
        "result cache: no memory of large results is kept (policy: never, limit: 512 MiB)"
    )
