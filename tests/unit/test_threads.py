"""What several threads make at a time: one of them makes it, and all get the same."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest
import torch
from opwheel._once import once
from opwheel.registry import callees

R = TypeVar("R")
COUNT = 8


def in_threads(function: Callable[[], R]) -> list[R]:
    """What each of several threads gets that call it at the same time."""
    together = threading.Barrier(COUNT)

    def call() -> R:
        together.wait(10)
        return function()

    with ThreadPoolExecutor(COUNT) as pool:
        return [one.result() for one in [pool.submit(call) for _ in range(COUNT)]]


def test_once_is_called_by_one_thread_and_all_get_its_result() -> None:
    calls = []

    @once
    def made() -> object:
        calls.append(threading.get_ident())
        time.sleep(0.05)  # the others ask meanwhile
        return object()

    assert len(set(map(id, in_threads(made)))) == 1
    assert len(calls) == 1


def test_once_is_called_again_where_it_raised() -> None:
    attempts = []

    @once
    def made() -> int:
        attempts.append(1)
        if len(attempts) == 1:
            raise OSError("not yet")
        return len(attempts)

    with pytest.raises(OSError, match="not yet"):
        made()
    assert [made(), made()] == [2, 2]


def test_once_may_ask_for_another_that_asks_again() -> None:
    @once
    def inner() -> str:
        return "inner"

    @once
    def outer() -> str:
        return inner() + " and outer"

    assert set(in_threads(outer)) == {"inner and outer"}


def test_c_code_gets_the_address_of_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each thread's answer is the text that stays in memory, not one that another thread's has replaced."""
    made = ctypes.create_string_buffer

    def slow(content: bytes) -> ctypes.Array[ctypes.c_char]:
        time.sleep(0.02)
        return made(content)

    monkeypatch.setattr(callees.ctypes, "create_string_buffer", slow)
    monkeypatch.setattr(callees, "_texts", {})
    schema_of, *_ = callees.functions_in_python()
    addresses = in_threads(lambda: schema_of(b"aten::relu"))
    assert len(set(addresses)) == 1
    assert ctypes.string_at(addresses[0]).decode() == str(torch.ops.aten.relu.default._schema)


def test_several_threads_get_the_same_functions_for_c_code() -> None:
    assert len({tuple(map(id, one[:2])) for one in in_threads(callees.functions_in_python)}) == 1
