"""The result cache in a process of its own: forks, scarce memory, and what the environment and a file say."""

import os

import pytest
from opwheel.memory import result_cache

from tests.forked_python import server

pytestmark = pytest.mark.skipif(bool(result_cache.why_not()), reason=result_cache.why_not())

BEGIN = """
import os, resource, time, muladd, torch
from opwheel.memory import result_cache
x = torch.ones(2**21)
def kept():
    muladd.mul(x, x)
    return result_cache.kept_bytes() >> 20
"""


def run(code, **environment):
    found = server().run("-c", BEGIN + code, environment={**os.environ, **environment})
    assert found.returncode == 0, found.stderr
    return found.stdout.split()


def test_it_is_on():
    assert run("print(kept())") == ["8"]


@pytest.mark.slow
def test_variable_and_file(tmp_path):
    policy = tmp_path / "plugins.toml"
    policy.write_text('[policy]\nresult-cache = "never"\n')
    assert run("print(kept())", MULADD_RESULT_CACHE="never") == ["0"]
    assert run("print(kept())", MULADD_PLUGINS=str(policy)) == ["0"]
    assert run("print(kept())", MULADD_PLUGINS=str(policy), MULADD_RESULT_CACHE="keep") == ["8"]


@pytest.mark.slow
def test_with_derivatives_in_python():
    assert run("print(kept())", OPWHEEL_AUTOGRAD="python") == ["8"]


def test_a_child_has_a_copy():
    code = """
torch.set_num_threads(1)  # a child has no other threads, and OpenMP would wait for them
muladd.mul(x, x)
child = os.fork()
y = muladd.muladd(x, x, 1.0 if child else 2.0)
if not child:
    os._exit(0 if y.unique().item() == 3.0 and kept() == 8 else 1)
print(os.waitpid(child, 0)[1], y.unique().item())
"""
    assert run(code) == ["0", "2.0"]


def test_a_child_keeps_nothing_of_its_parents():
    """Its pages would stay even where the parent has given them back, and the child has no thread that does."""
    code = """
torch.set_num_threads(1)
muladd.mul(x, x)
child = os.fork()
if not child:
    inherited = result_cache.kept_bytes()
    own = kept()
    result_cache.set_lifetime(0.05)
    deadline = time.monotonic() + 20
    while result_cache.kept_bytes() and time.monotonic() < deadline:
        time.sleep(0.01)
    print(inherited, own, result_cache.kept_bytes(), flush=True)
    os._exit(0)
print(os.waitpid(child, 0)[1], result_cache.kept_bytes() >> 20)
"""
    assert run(code) == ["0", "8", "0", "0", "8"]


@pytest.mark.parametrize("kind", ["RLIMIT_AS", "RLIMIT_DATA"])
def test_a_limited_process_keeps_nothing(kind):
    """Somebody else's allocation would meet the limit, and cannot ask for what is kept."""
    code = f"""
torch.set_num_threads(1)
x = torch.ones(16 << 20)
def taken():  # address space, or data
    with open("/proc/self/statm") as file:
        return int(file.read().split()[{0 if kind == "RLIMIT_AS" else 5}]) * resource.getpagesize()
def limit(more):
    resource.setrlimit(resource.{kind}, (taken() + (more << 20) if more else -1, -1))
muladd.mul(x, x)
limit(1000)
print(result_cache.allowance(), result_cache.describe("keep"))
results = [muladd.mul(x, x) for _ in range(12)]
del results
print(result_cache.kept_bytes(), torch.empty(900 << 18).nbytes >> 20)
limit(0)
muladd.mul(x, x)
print(result_cache.kept_bytes() >> 20)
limit(1000)
deadline = time.monotonic() + 20
while result_cache.kept_bytes() and time.monotonic() < deadline:
    time.sleep(0.1)
print(result_cache.kept_bytes())
"""
    said = f"result cache: no memory of large results is kept ({kind} is set)"
    assert " ".join(run(code)) == f"0 {said} 0 900 64 0"


def test_kept_memory_is_freed_where_there_is_no_other():
    """In blocks that the C library never takes from its heap, of which it may not return addresses to the system.

    More is freed than is needed: where an allocation fails, the C library reserves up to 128 MiB for another heap.
    """
    code = """
torch.set_num_threads(1)
x = torch.ones(10 << 20)
results = [muladd.mul(x, x) for _ in range(8)]
del results
print(result_cache.kept_bytes() >> 20)
with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (100 << 20), resource.RLIM_INFINITY))
y = muladd.fma(x[:1].expand(200 << 18), x[:1].expand(200 << 18), x[:1])  # 200 MiB
print(y.nbytes >> 20, result_cache.kept_bytes())
"""
    assert run(code) == ["320", "200", "0"]


def test_so_it_is_for_a_small_result():
    """Of PyTorch's allocator, which gets no memory: in blocks that the C library takes from its heap."""
    code = """
torch.set_num_threads(1)
small = torch.ones(3 << 18)
large = torch.ones(10 << 20)
results = [muladd.mul(large, large) for _ in range(4)]
del results
def used():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used() + (1 << 20), -1))
alive = [muladd.mul(small, small) for _ in range(20)]  # 60 MiB
resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
print(len(alive), {result.unique().item() for result in alive}, result_cache.kept_bytes())
"""
    assert run(code) == ["20", "{1.0}", "0"]


FUZZ = """
import random, sys, threading

torch.set_num_threads(1)  # OpenMP would wait, in a child, for threads that it does not have
STEPS = ["make"] * 3 + ["release"] * 2 + ["limit", "empty", "fork", "rlimit", "threads"]
BASE = {mebibytes: torch.ones(mebibytes << 18) for mebibytes in (4, 5, 8, 11, 24)}


def check(alive, most):
    for result, value in alive:
        assert bool((result == value).all()), "a result has lost its values"
    kept = result_cache.kept_bytes()
    assert kept <= result_cache.limit(), f"{kept} bytes are kept, more than the limit"
    assert not (most == 0 and kept), f"{kept} bytes are kept in a limited process"


def make(random, alive):
    x, value = BASE[random.choice(list(BASE))], float(random.randrange(1000))
    alive.append((muladd.muladd(x, x, value), value + 1))


def limited(random):
    with open("/proc/self/statm") as file:
        taken = int(file.read().split()[0]) * resource.getpagesize()
    kind = random.choice([resource.RLIMIT_AS, resource.RLIMIT_DATA])
    resource.setrlimit(kind, (taken + (400 << 20), -1))


def unlimited():
    for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
        resource.setrlimit(kind, (-1, -1))


def play(random, steps, alone):
    alive = []
    for _ in range(steps):
        step = random.choice(STEPS)
        if step == "make" and len(alive) < 6:
            make(random, alive)
        elif step == "release" and alive:
            del alive[random.randrange(len(alive))]
            check(alive, result_cache.allowance() if alone else None)
        elif step == "limit" and alone:
            result_cache.set_limit(random.choice([0, 8, 40, 1024]) << 20)
        elif step == "empty":
            result_cache.empty()
        elif step == "fork" and alone:
            if not (child := os.fork()):
                try:
                    assert result_cache.kept_bytes() == 0, "a child has kept something of its parent's"
                    check(alive, None)
                    play(random, 6, False)
                    code = 0
                except BaseException as error:
                    print(error, file=sys.stderr, flush=True)
                    code = 1
                os._exit(code)
            assert os.waitpid(child, 0)[1] == 0, "in a child"
        elif step == "rlimit" and alone:
            limited(random)
            make(random, alive)
            del alive[-1]
            check(alive, result_cache.allowance())
            unlimited()
        elif step == "threads" and alone:
            number = random.randrange(10**6)
            failed = []
            threads = [threading.Thread(target=thread, args=(number + i, failed)) for i in range(3)]
            for one in threads:
                one.start()
            for one in threads:
                one.join()
            assert not failed, failed
        check(alive, None)


def thread(number, failed):
    try:
        play(random.Random(number), 6, False)
    except BaseException as error:
        failed.append(error)
"""


@pytest.mark.slow
def test_random_programs():
    """Results keep their values, and no more is kept than is documented, whatever the order."""
    seed, count = int(os.environ.get("TEST_FUZZ_SEED", "0")), int(os.environ.get("TEST_FUZZ_EXAMPLES", "2000")) // 100
    code = f"""
for number in range({seed}, {seed + count}):
    try:
        play(random.Random(number), 30, True)
    except BaseException as error:
        raise AssertionError(f"TEST_FUZZ_SEED={{number}}: {{error}}") from error
result_cache.set_lifetime(0)
deadline = time.monotonic() + 20
while result_cache.kept_bytes() and time.monotonic() < deadline:
    time.sleep(0.01)
print(result_cache.kept_bytes())
"""
    assert run(FUZZ + code) == ["0"]
