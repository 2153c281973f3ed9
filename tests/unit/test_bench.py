"""What a benchmark measures and how often, without running one; tests/toolchain/test_bench.py runs small ones."""

import io
import timeit
from types import SimpleNamespace

import pytest
import torch
from muladd.opinfos.benchmarks import SUITE
from opwheel.memory.usage import peak
from opwheel_tools.bench import comparison, machine, sampling
from opwheel_tools.bench.results import Measurement, Results, Row
from opwheel_tools.bench.selection import select_cases, select_implementations
from opwheel_tools.bench.suite import OVERHEAD, Form, Shown
from rich.console import Console

GIB = 2**30


def test_cases_fit_into_memory():
    """Up to a large fraction of it, and no further."""
    for memory in (GIB, 20 * GIB, 100 * GIB):
        cases = select_cases(SUITE, device="cpu", quick=False, groups=[], memory=memory)
        assert len(set(cases)) == len(cases)
        largest = max(map(SUITE.working_set, cases))
        assert 0.3 * memory < largest <= 0.6 * memory
        assert {case.group for case in cases} == set(SUITE.groups)
    assert select_cases(SUITE, device="cpu", quick=False, groups=[OVERHEAD], memory=GIB) == [
        case for case in cases if case.group == OVERHEAD
    ]


def test_cases_of_an_accelerator_do_not_fit_into_its_caches():
    cases = select_cases(SUITE, device="cuda", quick=False, groups=[], memory=100 * GIB)
    assert len(set(cases)) == len(cases)
    largest = {group: max(case.elements for case in cases if case.group == group) for group in SUITE.groups}
    assert all(elements >= 2**28 for group, elements in largest.items() if group != OVERHEAD)
    assert set(select_cases(SUITE, device="cpu", quick=False, groups=[], memory=100 * GIB)) < set(cases)


def test_limit_of_a_device():
    assert select_implementations(SUITE, "cpu")[-1].name == "triad"
    assert select_implementations(SUITE, "cuda")[-1].name == "copy"
    assert "eager" not in {one.name for one in select_implementations(SUITE, "cuda", ["eager"])}
    limits = [one for one in select_implementations(SUITE, "cuda") if one.name in SUITE.limits]
    assert all(Form.OUT in one.statements for one in limits)


def test_device_without_timing_events(monkeypatch):
    """The host's clock, with the device idle at both ends."""
    synchronized = []
    module = SimpleNamespace(synchronize=lambda: synchronized.append(True))
    monkeypatch.setattr(torch, "get_device_module", lambda device: module)
    clock = sampling.clock_for("xpu")  # this PyTorch has no events for it
    assert clock(timeit.Timer("time.sleep(0.01)", "import time"), 3) >= 0.03
    assert len(synchronized) == 2


def test_enough_samples():
    """A noisy statement is repeated until its time is up, a steady one until its median is known."""
    noise = iter([1.0, 3.0] * 10_000)
    precision = sampling.Precision(error=0.01, seconds=100, rounds=(7, 1000))
    noisy = sampling.sample({"noisy": timeit.Timer("pass")}, lambda timer, calls: next(noise), precision)["noisy"]
    assert 50 <= len(noisy.seconds) < 100
    steady = sampling.sample({"steady": timeit.Timer("pass")}, lambda timer, calls: 1.0, precision)["steady"]
    assert len(steady.seconds) == 7
    assert steady.quartiles() == (1.0, 1.0, 1.0)


def test_samples_repeat_a_statement_until_it_takes_long_enough():
    seconds = {timeit.Timer("pass"): one for one in (1e-5, 1e-4, 1e-3, 10.0)}
    timers = {str(one): timer for timer, one in seconds.items()}
    precision = sampling.Precision(error=0.01, seconds=1.0, sample_seconds=2e-4, rounds=(7, 1000))
    samples = sampling.sample(timers, lambda timer, calls: calls * seconds[timer], precision)
    assert [one.calls for one in samples.values()] == [20, 2, 1, 1]
    assert [one.seconds for one in samples.values()] == [pytest.approx([one] * 7) for one in seconds.values()]


@pytest.mark.parametrize("disturbed", [1, 3])
def test_a_statement_is_not_charged_for_what_the_one_before_has_left(disturbed):
    """So many calls that follow another statement take 1 ms more each; that may count where it is little."""
    seconds = {timeit.Timer("pass"): one for one in (1e-5, 2e-3, 1.0)}
    before, calls_since = None, 0

    def clock(timer, calls):
        nonlocal before, calls_since
        calls_since = calls_since if timer is before else 0
        slow = min(max(disturbed - calls_since, 0), calls)
        before, calls_since = timer, calls_since + calls
        return slow * 1e-3 + calls * seconds[timer]

    timers = {str(one): timer for timer, one in seconds.items()}
    for name, one in sampling.sample(timers, clock, sampling.FULL).items():
        assert one.quartiles()[1] == pytest.approx(seconds[timers[name]], rel=2e-3)


def test_peak_memory_counts_what_is_freed_and_what_is_used_again():
    def call():
        torch.ones(2**23).sum()
        return torch.ones(2**20)  # small enough for an allocator to have kept it of an earlier call

    call()  # what is made once, as threads, does not count
    slack = 2**21  # the system counts in batches
    for _ in range(3):
        # What is freed may still be there beside the result.
        assert 2**25 - slack <= peak(call) <= 2**25 + 2**22 + slack
        assert abs(peak(lambda: torch.ones(2**20)) - 2**22) <= slack
    assert abs(peak(lambda: None)) <= slack


def write_cache(cpus, cpu, index, level, size, shared):
    folder = cpus / f"cpu{cpu}" / "cache" / f"index{index}"
    folder.mkdir(parents=True)
    for name, text in {"level": level, "size": size, "shared_cpu_list": shared}.items():
        (folder / name).write_text(f"{text}\n")


def test_last_level_caches_are_all_of_them_once(tmp_path):
    """Four processors, two to a cache; a machine that has no third level; one whose system says nothing."""
    assert machine.last_level_caches(tmp_path) == 0
    for cpu in range(4):
        (tmp_path / f"cpu{cpu}").mkdir()
        write_cache(tmp_path, cpu, 0, 1, "32K", cpu)
        write_cache(tmp_path, cpu, 2, 2, "1024K", cpu)
    assert machine.last_level_caches(tmp_path) == 4 << 20
    for cpu in range(4):
        write_cache(tmp_path, cpu, 3, 3, "96M", "0-1" if cpu < 2 else "2-3")
    assert machine.last_level_caches(tmp_path) == 192 << 20


def test_a_case_that_has_another_size_is_not_compared():
    """What an operator declares to be measured may change, and may depend on the machine."""

    def results(elements, seconds):
        one = Measurement(seconds, seconds, seconds, 7, 1, 4 * elements, "f()")
        return Results(
            {}, {}, [Row("f/new/measured 0/float32", "f", "new", "measured 0", "float32", elements, {"f": one})]
        )

    console = Console(width=200, file=io.StringIO())
    shown = Shown("f")
    assert comparison.show(results(2**20, 1e-3), results(2**22, 4e-3), shown, 0.1, console)
    text = console.file.getvalue()
    assert "f/new/measured 0/float32 is not compared: it had 1,048,576 elements, and has 4,194,304" in text
    assert "0 of 0 cases are slower" in text
    assert not comparison.show(results(2**20, 1e-3), results(2**20, 4e-3), shown, 0.1, console)
