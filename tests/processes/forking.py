"""Forks after PyTorch, or muladd, has computed with several threads: ``forking.py torch|muladd CASE``.

Prints what the child computed, or "hangs" where it had not ended after some seconds.
"""

import multiprocessing
import os
import signal
import sys
import time

import torch

THREADS = 4
SIZE = 1_000_000  # elements; enough for several threads
PATIENCE_S = 5.0

if sys.argv[1] == "muladd":
    from muladd import fma as compute
else:

    def compute(a, b, c):
        return torch.addcmul(c, a, b)


def total(size=SIZE):
    """Compute with as many threads as are set."""
    x = torch.full((size,), 2.0)
    return compute(x, x, x).sum().item() / size


def gradient():
    """The same forwards and backwards."""
    x = torch.full((SIZE,), 2.0, requires_grad=True)
    compute(x, x, x).sum().backward()
    return x.grad.mean().item()


def forked(work=total):
    """What a forked child computes: 6.0, or "hangs"."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, str(work()).encode())
        os._exit(0)
    end = time.monotonic() + PATIENCE_S
    while not os.waitpid(child, os.WNOHANG)[0]:
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return "hangs"
        time.sleep(0.01)
    return os.read(reading, 100).decode()


def with_one_thread(work=total):
    """Compute in a child that has one thread from its first line on."""
    torch.set_num_threads(1)
    return work()


def in_pool(method, **options):
    """What the processes of a pool compute."""
    with multiprocessing.get_context(method).Pool(2, **options) as pool:
        return pool.map_async(total, [SIZE] * 2).get(120)


class Rows(torch.utils.data.Dataset):
    """Rows that the worker computes."""

    def __len__(self):
        return 2

    def __getitem__(self, _):
        return total()


CASES = {
    "not computed": forked,
    "small": lambda: (total(1), forked())[1],
    "computed": lambda: (total(), forked())[1],
    "gradient": lambda: (gradient(), forked(gradient))[1],
    "one thread before the fork": lambda: (total(), torch.set_num_threads(1), forked())[2],
    "one thread in the child": lambda: (total(), forked(with_one_thread))[1],
    "gradient, one thread in the child": lambda: (gradient(), forked(lambda: with_one_thread(gradient)))[1],
    "several threads again in the child": lambda: (
        total(),
        forked(lambda: (with_one_thread(), torch.set_num_threads(THREADS), total())),
    )[1],
    "spawn": lambda: (total(), in_pool("spawn"))[1],
    "forkserver": lambda: (total(), in_pool("forkserver"))[1],
    "a pool whose initializer sets one thread": lambda: (
        total(),
        in_pool("fork", initializer=torch.set_num_threads, initargs=(1,)),
    )[1],
    "DataLoader": lambda: (
        total(),
        [batch.item() for batch in torch.utils.data.DataLoader(Rows(), num_workers=2, multiprocessing_context="fork")],
    )[1],
}

if __name__ == "__main__":
    torch.set_num_threads(THREADS)
    print(CASES[sys.argv[2]]())
