"""Kernels that fail after they have written: the call says so by a code, and nobody makes it again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from opwheel.dispatch.kernel_errors import LAUNCH, OUT_OF_MEMORY

from .builder import Compiler, Site
from .conftest import Python

# What a vendor's library may say; nobody reads it but for the code. The last is memory that the kernel itself wanted.
WORDS = [
    "could not allocate the result: 4 elements of torch.float32 on cpu",
    "[OPWHEEL] of another kind",
    "",
    f"{OUT_OF_MEMORY} no scratch memory (bytes=16 device=cpu)",
]
OPERATORS = "['muladd', 'muladd.out', 'muladd_']"
IN_PYTHON = """
import os

launches = 0

def register(target):
    from opwheel.dispatch import implement, overloads_of

    overloads = overloads_of(target)

    implement(target, [overloads[name] for name in {operators}], "cpu", launch)

def launch(name, outputs, args):
    global launches
    launches += 1
    outputs[0].view(-1)[0] += 1
    raise {error}(os.environ["WORDS"])

def launched():
    return launches
"""
IN_CPP = """
def launched():
    import ctypes

    return ctypes.c_int.in_dll(ctypes.CDLL(str(HERE / "libkernels.so")), "launches").value
"""
# Each call is made with x, which it may overwrite.
CALLS = """
import json, os, sys
import muladd, muladd_half, torch

ops, b = torch.ops.muladd, torch.ones(4)
shifted = lambda x: torch.as_strided(x, (2, 2), (1, 1))
calls = {
    "muladd": lambda x: muladd.muladd(x, b, 2.0),
    "muladd out": lambda x: muladd.muladd(b, b, 2.0, out=x),
    "muladd resized": lambda x: muladd.muladd(b, b, 2.0, out=torch.empty(0)),
    "muladd staged": lambda x: muladd.muladd(shifted(x), b.view(2, 2), 2.0, out=x.view(2, 2)),
    "muladd_": lambda x: muladd.muladd_(x, b, 2.0),
    "operator": lambda x: ops.muladd(x, b, 2.0),
    "operator out": lambda x: ops.muladd.out(b, b, 2.0, out=x),
    "operator in place": lambda x: ops.muladd_(x, b, 2.0),
    "with a gradient": lambda x: ops.muladd(x, b.clone().requires_grad_(), 2.0),
}
results = []
for words in json.loads(sys.argv[1]):
    os.environ["WORDS"] = words
    for name, call in calls.items():
        x, before = torch.zeros(4), muladd_half.launched()
        try:
            call(x)
        except Exception as error:
            results.append(
                {"call": name, "words": words, "type": type(error).__name__, "text": str(error),
                 "launches": muladd_half.launched() - before, "x": x.tolist()})
print(json.dumps(results))
"""


@pytest.fixture
def outcomes(site: Site, python: Python) -> Callable[..., list[dict[str, Any]]]:
    """Installs the backend and makes every call with all words."""

    def run(**installed: Any) -> list[dict[str, Any]]:
        site.install("half", device_type="'cpu'", dispatch_key="'CPU'", operators=OPERATORS, **installed)
        result = python("-c", CALLS, json.dumps(WORDS), path=(site.root,), MULADD_BACKENDS="half")
        assert result.returncode == 0, result.stderr
        found: list[dict[str, Any]] = json.loads(result.stdout)
        assert len(found) == 9 * len(WORDS)
        return found

    return run


def writes_once(outcome: dict[str, Any]) -> bool:
    expected = [float(outcome["call"] not in ("muladd", "operator", "with a gradient", *ELSEWHERE)), 0.0, 0.0, 0.0]
    return bool(outcome["launches"] == 1 and outcome["x"] == expected)


ELSEWHERE = ("muladd resized", "muladd staged")  # what the kernel writes is no element of x


def check_coded(outcome: dict[str, Any]) -> None:
    assert writes_once(outcome), outcome
    assert outcome["type"] == "RuntimeError"
    words = outcome["words"]
    if words.startswith(OUT_OF_MEMORY):
        assert outcome["text"] == words
    else:
        assert outcome["text"].startswith(f"{LAUNCH} muladd")
        assert outcome["text"].endswith(f": {words}")


def test_a_library(outcomes: Callable[..., list[dict[str, Any]]], compiler: Compiler) -> None:
    """What is made of opwheel/elementwise_kernels.h, as all of the repository's backends and templates are."""
    library = compiler.library("half_done", source=Path(__file__).with_name("half_done.cpp"))
    for outcome in outcomes(library=library, extra=IN_CPP):
        check_coded(outcome)


def test_kernels_in_python(outcomes: Callable[..., list[dict[str, Any]]]) -> None:
    """What is made of opwheel.dispatch.implement."""
    extra = IN_PYTHON.format(operators=OPERATORS, error="RuntimeError")
    for outcome in outcomes(extra=extra, register="register"):
        check_coded(outcome)


@pytest.mark.parametrize("error", ["ValueError", "NotImplementedError"])
def test_other_errors_of_python_stay_what_they_are(error: str, outcomes: Callable[..., list[dict[str, Any]]]) -> None:
    extra = IN_PYTHON.format(operators=OPERATORS, error=error)
    for outcome in outcomes(extra=extra, register="register"):
        assert writes_once(outcome), outcome
        assert (outcome["type"], outcome["text"]) == (error, outcome["words"])
