"""Runs in a child: imports the library, calls each operator as before, and writes down what became of it as JSON."""

from __future__ import annotations

import contextlib
import json
import sys
import warnings
from typing import Any

import torch

CALLS: dict[str, Any] = {
    "twice": lambda ops, x: ops.twice(x).tolist(),
    "times": lambda ops, x: ops.times(x, k=3.0).tolist(),
    "both": lambda ops, x: [y.tolist() for y in ops.both(x, x)],
    "pick": lambda ops, x: ops.pick(x, negate=True).tolist(),
    "fill": lambda ops, x: (ops.fill(x, values=[4.0, 5.0]), x.tolist())[1],
}


def main() -> None:
    """Print what doctor would say, and what each call returns or raises."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        import waves_grown  # type: ignore[import-not-found]
    ops, library = torch.ops.waves_grown, waves_grown.library
    results = {}
    for name in CALLS:
        try:
            results[name] = CALLS[name](ops, torch.tensor([1.0, 2.0]))
        except Exception as error:
            results[name] = f"{type(error).__name__}: {error}"
    errors = {}
    for name in library.operators:
        with contextlib.suppress(KeyError):
            errors[name] = str(library.no_kernel_error(name, "cpu"))
    report = {
        "results": results,
        "errors": errors,
        "statuses": {name: status.as_json() for name, status in library.backends().items()},
        "winners": {
            name: winner.name if (winner := library.explain(name, "cpu").winner) else None for name in library.operators
        },
        "warnings": [str(one.message) for one in caught],
    }
    print(json.dumps(report), file=sys.stdout)


main()
