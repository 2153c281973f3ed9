"""Modules keep their parameters apart where several threads call them at once, each with its own."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Lock

import pytest
import torch
from opwheel_tools.judge.subjects import make


class Slow(torch.nn.Linear):
    """Meets the other thread while it is called."""

    meeting = Barrier(2)

    def forward(self, x):
        self.meeting.wait(5)
        result = super().forward(x)
        self.meeting.wait(5)
        return result


class NotCopied(torch.nn.Linear):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.lock = Lock()  # which copy.deepcopy refuses


@pytest.mark.parametrize("kind", [Slow, NotCopied])
def test_each_thread_has_its_parameters(kind):
    called = make(kind(3, 2)).function
    x, weights = torch.ones(3), [torch.full((2, 3), float(k)) for k in (1, 2)]
    bias = torch.zeros(2)
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda w: called.with_state({"weight": w, "bias": bias}, (x,), {}), weights))
    assert [one.tolist() for one in results] == [[3.0, 3.0], [6.0, 6.0]]
