"""Large new results on a CPU ask for huge pages, where the memory is new and nobody has said no."""

import os
import subprocess
import sys

import pytest
from opwheel.memory.huge_pages import describe, system_setting

# Prints for a result of 2^`exponent` float32 how much of its memory is in huge pages, in MiB, and whether it asked.
SHOW = """
import re, sys, muladd, torch
def show(result):
    for line in open("/proc/self/smaps"):
        area = re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line)
        if area:
            is_here = int(area[1], 16) <= result.data_ptr() + result.nbytes // 2 < int(area[2], 16)
        elif is_here and line.startswith("AnonHugePages"):
            huge = int(line.split()[1]) // 1024
        elif is_here and line.startswith("VmFlags"):
            print(huge, "hg" in line.split())
x = torch.ones(1 << int(sys.argv[1]))
"""
MADVISE = pytest.mark.skipif(system_setting() != "madvise", reason=f"the system's setting is {system_setting()}")


def shown(code, exponent, **environment):
    command = [sys.executable, "-c", SHOW + code, str(exponent)]
    environment = {**os.environ, "MULADD_RESULT_CACHE": "never", **environment}  # memory is new, or malloc's
    output = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert output.returncode == 0, output.stderr
    return [(int(mebibytes), asked == "True") for mebibytes, asked in map(str.split, output.stdout.splitlines())]


@MADVISE
@pytest.mark.parametrize(
    "call", ["muladd.mul(x, x)", "muladd.muladd(x.view(2, -1).t(), x.view(2, -1).t(), 1.0)", "muladd.mul(x.half(), x)"]
)
def test_a_large_new_result_is_in_huge_pages(call):
    [(mebibytes, asked)] = shown(f"show({call})", 24)
    assert asked
    assert mebibytes >= 60  # of 64; the ends do not fill a page


@MADVISE
def test_the_end_of_a_result_is_in_a_huge_page_where_the_block_ends_with_one():
    code = """
import resource
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(3):
    before = faults()
    y = muladd.mul(x, x)
    print(faults() - before, -(y.data_ptr() + y.nbytes) % (2 << 20) < 4096)
    del y
"""
    found = shown(code, 23)
    if not any(ends_with_one for _, ends_with_one in found):
        pytest.skip("this system puts blocks elsewhere")
    assert all(count < 100 for count, ends_with_one in found if ends_with_one)  # 512 for each 2 MiB in small pages


@MADVISE
def test_both_results_of_one_call():
    found = shown("[show(each) for each in torch.ops.muladd.muladd_backward(x, x, x)]", 24)
    assert len(found) == 2
    assert all(asked and mebibytes >= 60 for mebibytes, asked in found)


@MADVISE
@pytest.mark.slow
def test_not_where_the_policy_says_never(tmp_path):
    policy = tmp_path / "plugins.toml"
    policy.write_text('[policy]\nhuge-pages = "never"\n')
    assert shown("show(muladd.mul(x, x))", 24, MULADD_HUGE_PAGES="never") == [(0, False)]
    assert shown("show(muladd.mul(x, x))", 24, MULADD_PLUGINS=str(policy)) == [(0, False)]
    code = "muladd.library.set_huge_pages('never'); show(muladd.mul(x, x))"
    code += "; muladd.library.set_huge_pages('advise'); show(muladd.mul(x, x))"
    assert [asked for _, asked in shown(code, 24)] == [False, True]


@MADVISE
def test_small_results_do_not_ask():
    assert shown("show(muladd.mul(x, x))", 20) == [(0, False)]


@MADVISE
@pytest.mark.slow
def test_memory_that_was_written_before_is_left_alone():
    code = """
import ctypes
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
for limit in (M_TRIM_THRESHOLD, M_MMAP_THRESHOLD):  # glibc keeps what is freed
    assert ctypes.CDLL(None).mallopt(limit, 1 << 30)
old = [x * 2 for _ in range(4)]
begin, end = min(t.data_ptr() for t in old), max(t.data_ptr() + t.nbytes for t in old)
del old
results = [muladd.mul(x, x) for _ in range(8)]
for reused in [t for t in results if begin <= t.data_ptr() and t.data_ptr() + t.nbytes <= end]:
    show(reused)
"""
    found = []
    while not found:  # where programs lie is drawn at random; at some places glibc reuses nothing
        found = shown(code, 21)
    assert set(found) == {(0, False)}


def test_what_doctor_says(monkeypatch, tmp_path):
    setting = tmp_path / "enabled"
    monkeypatch.setattr("opwheel.memory.huge_pages._SETTING", setting)
    assert describe("advise") == "huge pages: there are none (policy: advise, system: unknown)"
    for text, policy, expected in [
        ("[always] madvise never\n", "never", "every program has them (policy: never, system: always)"),
        ("always [madvise] never\n", "advise", "large results ask for them (policy: advise, system: madvise)"),
        ("always [madvise] never\n", "never", "large results do not ask for them (policy: never, system: madvise)"),
        ("always madvise [never]\n", "advise", "there are none (policy: advise, system: never)"),
    ]:
        setting.write_text(text)
        assert describe(policy) == f"huge pages: {expected}"
