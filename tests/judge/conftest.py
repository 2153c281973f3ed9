"""Judgements in this process: those in processes of their own take seconds longer each."""

import itertools
import json
import sys
import time

import pytest
import torch
from opwheel_tools.judge import findings, processes, run, subjects, worker


class InThisProcess:
    """In the place of a worker's process."""

    folder = None  # for its files
    tasks = itertools.count()  # of all of them: each has files of its own

    def __init__(self, module):
        assert module == worker.__name__
        self._session = worker.Session()

    def start(self):
        pass

    def do(self, task, seconds=0.0):
        answers, task_file = self.folder / f"answers-{next(self.tasks)}", self.folder / "task"
        task_file.write_text(json.dumps({**task, "answers": str(answers)}))
        self._session.do(str(task_file))
        *rows, done = [json.loads(line) for line in answers.read_text().splitlines()]
        assert done == processes.DONE
        return rows, ""

    def close(self):
        subjects._files.clear()  # a worker knows nothing of an earlier one


@pytest.fixture
def in_this_process(monkeypatch, tmp_path):
    """Workers are called, and findings have no reproduction."""
    folder = tmp_path / "of the workers"
    folder.mkdir()
    for owner, name in (  # that planted defects replace
        (torch, "allclose"),
        (time, "perf_counter"),
        (time, "perf_counter_ns"),
        (torch.testing, "assert_close"),
        (torch._C._nn, "gelu"),
        (torch.cuda.Event, "elapsed_time"),
    ):
        monkeypatch.setattr(owner, name, getattr(owner, name))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(InThisProcess, "folder", folder)
    monkeypatch.setattr(run, "Worker", InThisProcess)
    monkeypatch.setattr(findings, "scripts", lambda *_: iter(()))
    yield
    torch.set_printoptions(profile="default")  # which the reference's process changes
