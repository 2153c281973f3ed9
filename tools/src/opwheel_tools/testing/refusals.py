"""Calls that must be refused for values in their tensors: on an accelerator, each in a process of its own.

Such a device finds out while a kernel runs, and then does nothing more for the process that has started it. Run as
``python -m opwheel_tools.testing.refusals LIBRARY DEVICE OPERATOR NUMBER`` this makes one of the calls that the
operator declares, and says whether it was refused.
"""

from __future__ import annotations

import importlib
import itertools
import subprocess
import sys

from opwheel.dispatch.overload import Overload, as_tuple
from opwheel.text import how_it_ended

from ..opinfo.lookup import op_info_of

_REFUSED = "refused: "


def check(library: str, device: str, overload: Overload) -> None:
    """Make these calls of an operator.

    Args:
        library: its package.
        device: of the tensors.
        overload: the operator.

    Raises:
        AssertionError: naming a call that computed something, or ended the process without an exception.
    """
    declared = op_info_of(overload).errors
    for number, one in enumerate(declared(device) if declared is not None else ()):
        if not one.by_values:
            continue
        command = [sys.executable, "-m", "opwheel_tools.testing.refusals", library, device, overload.name, str(number)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if not any(line.startswith(_REFUSED) for line in done.stdout.splitlines()):
            what = "computes something" if done.returncode == 0 else how_it_ended(done.returncode)
            raise AssertionError(f"a call that must be refused {what}: {one.sample!r}")


def main(library: str, device: str, name: str, number: str) -> None:
    """Make the call, and wait for all that it has started."""
    overload: Overload = importlib.import_module(library).library.overloads[name]
    declared = op_info_of(overload).errors
    assert declared is not None
    one = next(itertools.islice(declared(device), int(number), None))
    values = overload.bind(one.sample.args, one.sample.kwargs)
    try:
        results = as_tuple(overload.call(overload.op, values))
        for tensor in (*results, *overload.all_tensors(values)):
            tensor.cpu()
    except Exception as error:  # the device's or the kernel's own
        print(f"{_REFUSED}{type(error).__name__}: {error}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
