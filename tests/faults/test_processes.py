"""Threads and processes: the backends are loaded once in each process, and the operators compute."""

from __future__ import annotations

from pathlib import Path

import pytest

from .builder import Compiler, Site
from .conftest import Python

PROGRAMS = {
    "several threads import first": """
import threading, torch
results, barrier = [], threading.Barrier(8)
def work():
    barrier.wait()
    import muladd
    results.append((muladd.add(torch.ones(2), torch.ones(2)).tolist(), muladd.backends()["acme"].state.value))
threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert results == [([2.0, 2.0], "loaded")] * 8, results
""",
    "several threads after a plugin was imported first": """
import threading, torch
import muladd_acme, muladd
results, barrier = [], threading.Barrier(8)
def work():
    barrier.wait()
    results.append(muladd.add(torch.ones(2), torch.ones(2)).tolist())
threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert results == [[2.0, 2.0]] * 8, results
""",
    "a thread imports a plugin while another imports muladd": """
import sys, threading, time, torch
results = []
def work(name):
    while name == "muladd_acme" and "muladd" not in sys.modules:
        time.sleep(0)
    __import__(name)
    import muladd
    results.append(muladd.add(torch.ones(2), torch.ones(2)).tolist())
threads = [threading.Thread(target=work, args=[name]) for name in ("muladd", "muladd_acme")]
for thread in threads: thread.start()
for thread in threads: thread.join(60)
assert results == [[2.0, 2.0]] * 2, results
""",
    "fork after import": """
import os, torch, muladd
assert muladd.add(torch.ones(2), torch.ones(2)).tolist() == [2.0, 2.0]
child = os.fork()
if child == 0:
    right = muladd.add(torch.ones(2), torch.ones(2)).tolist() == [2.0, 2.0]
    os._exit(0 if right and muladd.load("acme").state == "loaded" else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
""",
    "DataLoader workers": """
import torch, muladd
class Data(torch.utils.data.Dataset):
    def __len__(self): return 8
    def __getitem__(self, i): return muladd.muladd(torch.full((2,), float(i)), torch.ones(2), 1.0)
if __name__ == "__main__":
    for context in ("fork", "spawn"):
        loader = torch.utils.data.DataLoader(Data(), batch_size=4, num_workers=2, multiprocessing_context=context)
        assert torch.cat(list(loader))[:, 0].tolist() == [float(i) + 1 for i in range(8)]
""",
    "spawned processes": """
import multiprocessing, torch, muladd
def work(i):
    states = {name: status.state.value for name, status in muladd.backends().items()}
    return muladd.mul(torch.tensor(2.0), torch.tensor(float(i))).item(), states["acme"], muladd.library.digest()
if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        results = pool.map(work, range(2))
    assert results == [work(0), work(1)], results
""",
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_program(program: str, site: Site, compiler: Compiler, python: Python, tmp_path: Path) -> None:
    site.install("acme", library=compiler.library("good", {"KEY": "PrivateUse1"}))
    site.register_device()
    script = tmp_path / "program.py"
    script.write_text(PROGRAMS[program])
    done = python("-W", "error::RuntimeWarning", str(script), path=(site.root,), MULADD_TRACE="1")
    assert done.returncode == 0, done.stderr
    loads_of_acme = done.stderr.count("loaded: acme")
    processes = {"DataLoader workers": 5, "spawned processes": 3}  # those of two spawning loaders share nothing
    assert 1 <= loads_of_acme <= processes.get(program, 1)


def test_console_script_and_module(site: Site, compiler: Compiler, python: Python) -> None:
    """The real commands, in processes of their own."""
    site.install("acme", library=compiler.library("good", {"KEY": "PrivateUse1"}), abi=2)
    doctor = python("-m", "muladd", "doctor", path=(site.root,))
    assert doctor.returncode == 1
    assert "OPWHEEL-E030" in doctor.stdout
    assert "'acme'" in doctor.stderr
    explain = python("-m", "muladd", "explain", "add", "npu", path=(site.root,))
    assert explain.returncode == 1
    assert "libkernels.so was built for ABI 2, this core has ABI 1" in explain.stdout
