"""The result cache in a process of its own: forks, scarce memory, and what the environment and a file say."""

import os

import pytest
from opwheel import result_cache

from tests.forked_python import server

pytestmark = pytest.mark.skipif(bool(result_cache.why_not()), reason=result_cache.why_not())

BEGIN = """
import os, resource, muladd, torch
from opwheel import result_cache
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


def test_kept_memory_is_given_back_where_there_is_no_other():
    """In blocks that the C library never takes from its heap, of which it may not give addresses back.

    More is given back than is needed: where an allocation fails, the C library reserves up to 128 MiB for another heap.
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
