"""What several threads make at a time: one of them makes it, and all get the same. What one changes the others keep.

Where threads have to meet in the middle of something, a stand-in for a part of it takes longer there.
"""

from __future__ import annotations

import ctypes
import importlib
import inspect
import itertools
import linecache
import sys
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import muladd
import opwheel
import pytest
import torch
from opwheel import foreign
from opwheel._import_hooks import after_import
from opwheel._once import once
from opwheel._torch import private
from opwheel.dispatch import (
    Operator,
    calls,
    defining,
    fallback,
    opening,
    python_operators,
    register_python,
    registration,
)
from opwheel.registry import callees, references

R = TypeVar("R")
COUNT = 8


def in_threads(function: Callable[[], R]) -> list[R]:
    """What each of several threads gets that call it at the same time."""
    together = threading.Barrier(COUNT)

    def call() -> R:
        together.wait(60)
        return function()

    with ThreadPoolExecutor(COUNT) as pool:
        return [one.result() for one in [pool.submit(call) for _ in range(COUNT)]]


class SlowDict(dict[Any, Any]):
    """Other threads come between what is asked or made there and what is done then."""

    def __contains__(self, key: object) -> bool:
        found = super().__contains__(key)
        time.sleep(0.005)
        return found

    def setdefault(self, key: Any, default: Any = None) -> Any:
        found = super().setdefault(key, default)
        time.sleep(0.005)
        return found


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


def test_kernels_for_operators_of_others_are_one_object(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two, one would not know what the other has switched on."""
    made = foreign.ForeignKernels

    def slow(*args: Any, **kwargs: Any) -> object:
        time.sleep(0.02)
        return made(*args, **kwargs)

    monkeypatch.setattr(foreign, "ForeignKernels", slow)
    library = opening.Library("muladd", [], "muladd-core", muladd.__version__)
    assert len(set(map(id, in_threads(lambda: library.foreign)))) == 1


@pytest.mark.skipif(bool(calls.why_not()), reason=calls.why_not())
def test_an_operator_has_one_function_in_cpp(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = private.schema

    def slow(op: Any) -> Any:
        time.sleep(0.02)
        return schema(op)

    monkeypatch.setattr(calls.private, "schema", slow)
    monkeypatch.setattr(calls, "_functions", {})
    assert len(set(map(id, in_threads(lambda: calls.function(torch.ops.aten.neg.default))))) == 1


def test_a_namespace_stays_as_long_as_it_has_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread removes a namespace's last operator while another adds one."""

    def made(name: str) -> python_operators.PythonOperators:
        operator = Operator(name, reference=torch.neg, doc="The negative.")
        kernels = {f"{name}(Tensor x) -> Tensor": {"cpu": torch.neg}}
        return python_operators.PythonOperators("threads", kernels, [operator], python_operators.policy_of("threads"))

    first, second = made("first"), made("second")
    first.install(__name__)
    removal = threading.Thread(target=first.remove)

    class Between(dict[Any, Any]):
        def setdefault(self, key: Any, default: Any = None) -> Any:
            found = super().setdefault(key, default)
            removal.start()
            removal.join(0.2)  # it has to wait for this thread, or is done by then
            return found

    monkeypatch.setattr(registration, "_overloads", Between(registration._overloads))
    second.install(__name__)
    removal.join()
    assert list(registration.overloads_of(SimpleNamespace(ns="threads"))) == ["second"]  # type: ignore[arg-type]
    second.remove()


def test_definitions_of_one_operator_follow_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each replaces the one before; callers of all get the last one."""
    monkeypatch.setattr(defining, "_defined", SlowDict())
    numbers = itertools.count()

    def define() -> Callable[..., Any]:
        number = next(numbers)

        @opwheel.define("threads::plus(Tensor x) -> Tensor")
        def plus(x: torch.Tensor) -> torch.Tensor:
            return x + number

        return plus

    functions = in_threads(define)
    assert len({function(torch.zeros(1)).item() for function in functions}) == 1


def test_every_function_has_its_own_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linecache, "cache", SlowDict(linecache.cache))
    numbers = itertools.count()

    def text_of_one() -> str:
        name = f"g{next(numbers)}"
        operator = Operator(name, reference=torch.neg, doc="The negative.")
        made = register_python("threads", {f"{name}(Tensor x) -> Tensor": torch.neg}, [operator])
        return inspect.getsource(made[name])

    assert {text.partition("(")[0] for text in in_threads(text_of_one)} == {f"def g{i}" for i in range(COUNT)}


def test_references_are_noted_while_others_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    class Name(str):
        """Another library's backend is loaded while somebody looks at this one."""

        __slots__ = ()

        def startswith(self, *args: Any) -> bool:
            references.note("other::f", "CPU")
            return super().startswith(*args)

    monkeypatch.setattr(references, "_registered", {(Name("threads::f"), "CPU")})
    references.forget("threads", "CPU")
    assert references._registered == {("other::f", "CPU")}


def test_parts_of_the_key_of_compile_caches_are_kept() -> None:
    """A thread changes it between another's reading and writing; both changes count in all threads."""
    before = torch.compiler.config.cache_key_tag
    other = threading.Thread(target=private.change_cache_key_tag, args=[lambda tag: f"{tag} other"])

    def change(tag: str) -> str:
        if other.ident is None:
            other.start()
            other.join(0.1)  # it has to wait for this thread, or is done by then
        return f"{tag} mine"

    try:
        private.change_cache_key_tag(change)
        other.join()
        assert all(in_threads(lambda: torch.compiler.config.cache_key_tag.endswith(" mine other")))
        assert torch.compiler.config.cache_key_tag == f"{before} mine other"
    finally:
        private.change_cache_key_tag(lambda tag: tag.replace(" mine other", ""))
    assert torch.compiler.config.cache_key_tag == before


def test_a_warning_is_given_by_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fallback, "_warned", SlowDict())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        in_threads(lambda: fallback._warn_once(SimpleNamespace(namespace="threads"), "cpu"))  # type: ignore[arg-type]
    assert len(caught) == 1


def test_an_import_by_another_thread_is_not_missed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The module is imported after one has looked whether it is there, and before anybody waits for it."""
    name = "opwheel_test_threads"
    (tmp_path / f"{name}.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)

    class Late(list[Any]):
        def insert(self, *args: Any) -> None:
            thread = threading.Thread(target=importlib.import_module, args=[name])
            thread.start()
            thread.join()
            super().insert(*args)

    monkeypatch.setattr(sys, "meta_path", Late(sys.meta_path))
    seen: list[str] = []
    try:
        after_import(name)(lambda: seen.append(name))
        assert seen == [name]
        importlib.reload(sys.modules[name])
        assert seen == [name]
    finally:
        sys.modules.pop(name, None)
