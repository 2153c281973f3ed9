"""``doctor --deep`` tries several backends at a time."""

import threading
from types import SimpleNamespace

from opwheel.commands import deep


def test_one_that_waits_does_not_hold_up_the_next(monkeypatch):
    both_are_tried = threading.Barrier(2, timeout=10)

    def try_one(library, status):
        both_are_tried.wait()
        return status

    monkeypatch.setattr(deep, "_try", try_one)
    statuses = {"first": 1, "second": 2}
    assert deep.statuses(SimpleNamespace(backends=lambda: statuses)) == statuses
