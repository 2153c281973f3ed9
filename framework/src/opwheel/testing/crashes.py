"""Calls every sampled kernel in another process first: one that ends the process must not end the tests.

Run as ``python -m opwheel.testing.crashes LIBRARY DEVICE CHECK,... OPERATOR=DTYPE,...`` it calls the operators'
kernels, one after another, and says on which it is.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Collection, Mapping
from contextlib import suppress

import torch

from opwheel.processes import how_it_ended
from opwheel.testing import checks, pages

_ON = "calling "
_BESIDE = "called with arguments beside pages that may not be read"


def crashing(
    library: str, device: str, operators: Mapping[str, Collection[torch.dtype]], called_by: Collection[str]
) -> dict[str, str]:
    """Of operators, called in some dtypes each, those whose kernels end the process, and how.

    Args:
        library: its package.
        device: of the tensors.
        operators: names of overloads, and the dtypes of their samples.
        called_by: the checks that will call them; some do so with the samples as they are, and for them alone
            arguments of unusual strides are not tried.
    """
    made = "values" if set(called_by) <= {"values", "errors"} else "values,layouts"
    made += ",errors" if "errors" in called_by else ""
    found: dict[str, str] = {}
    left = list(operators)
    while left:
        called = (f"{name}={','.join(sorted(map(_name, operators[name])))}" for name in left)
        command = [sys.executable, "-m", "opwheel.testing.crashes", library, device, made, *called]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = done.stdout.splitlines()
        begun = [line.removeprefix(_ON) for line in lines if line.startswith(_ON)]
        if done.returncode == 0 or not begun:
            return found
        beside = f", {_BESIDE}" if lines[-1] == _BESIDE else ""
        found[begun[-1]] = how_it_ended(done.returncode) + beside
        left = left[left.index(begun[-1]) + 1 :]
    return found


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def main(library: str, device: str, made: str, *operators: str) -> None:
    """Make checks of the operators, and on a CPU call them with arguments beside pages that may not be read."""
    overloads = importlib.import_module(library).library.overloads
    for one in operators:
        name, _, dtypes = one.partition("=")
        print(f"{_ON}{name}", flush=True)
        overload = overloads[name]
        sample_dtypes = [getattr(torch, dtype) for dtype in dtypes.split(",")]
        for dtype in sample_dtypes:
            with suppress(Exception):  # the tests will say what is wrong
                for index in range(len(checks.declared(overload, dtype, torch.device(device)))):
                    samples = checks.Samples(overload, index, dtype, torch.device(device))
                    for check in made.split(","):
                        with suppress(Exception):
                            checks.CHECKS[check](overload, samples)
        if torch.device(device).type == "cpu":
            print(_BESIDE, flush=True)
            for dtype in sample_dtypes:
                with suppress(Exception):
                    pages.call_beside_pages(overload, dtype)


if __name__ == "__main__":
    main(*sys.argv[1:])
