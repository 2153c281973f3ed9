"""Runs in the child: imports muladd, computes, and writes down all there is to know as JSON."""

from __future__ import annotations

import contextlib
import json
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any

_DEVICE: list[Any] = []  # what makes a device of PyTorch's spare one, as long as the child lives


def main(request: dict[str, Any]) -> None:
    """Do what the request says and write the report into the file it names."""
    report: dict[str, Any] = {"out": {}}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if request["registered"]:
            _register_device()
        try:
            scope = {"out": report["out"]}
            exec(request["before"], scope)
            import muladd
            import opwheel.registry

            _look(report, muladd, request)
            exec(request["then"], scope | {"muladd": muladd, "opwheel": opwheel, "invoke": invoke})
        except BaseException as error:
            report["error"] = {**_error(error), "traceback": traceback.format_exc()}
    report["warnings"] = [
        {"category": item.category.__name__, "message": str(item.message), "file": Path(item.filename).name}
        for item in caught
        if str(item.message).startswith("muladd")
    ]
    Path(request["report"]).write_text(json.dumps(report))


def _look(report: dict[str, Any], muladd: Any, request: dict[str, Any]) -> None:
    import torch
    from opwheel.registry import NoKernelError

    with contextlib.suppress(NoKernelError):
        a, b = torch.arange(6.0).reshape(2, 3), torch.full((3,), 2.0)
        report["numbers"] = muladd.muladd(a, b, 0.5).tolist()
    statuses = muladd.backends()
    report["statuses"] = {
        name: {**status.as_json(), "exception": _error(status.exception)} for name, status in statuses.items()
    }
    report["findings"] = [finding._asdict() for finding in muladd.library.findings]
    report["digest"] = muladd.library.digest()
    report["maps"] = sorted(
        {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/" in line}
    )
    if request["device"]:
        report["call"] = _call_on_device(muladd, torch)
    if request["doctor"]:
        report["doctor"], report["doctor_json"] = _doctor(), _doctor("--json")


def _register_device() -> None:
    """Call PyTorch's spare device npu, as the package that brings the device does."""
    from torch.utils import backend_registration

    backend_registration._setup_privateuseone_for_python_backend("npu")


def _call_on_device(muladd: Any, torch: Any) -> Any:
    """What a call with tensors of the device npu comes to."""
    _DEVICE.append(torch.library.Library("aten", "IMPL", "PrivateUse1"))
    _DEVICE[0].impl(
        "empty.memory_format",
        lambda size, dtype=None, **_: torch._C._acc.create_empty_tensor(size, dtype or torch.float32),
    )
    x = torch.empty(3, device="npu")
    try:
        return str(muladd.add(x, x))
    except Exception as error:
        return _error(error)


def invoke(library: str, *words: str) -> Any:
    """Run a command, as :func:`tests.command_line.invoke`: the repository is not on this process's path."""
    file = Path(__file__).parents[1] / "command_line.py"
    scope: dict[str, Any] = {"__name__": "command_line"}
    exec(compile(file.read_text(), str(file), "exec"), scope)
    return scope["invoke"](library, *words)


def _doctor(*options: str) -> dict[str, Any]:
    result = invoke("muladd", "doctor", *options)
    return {"exit": result.exit_code, "text": result.output}


def _error(error: BaseException | None) -> dict[str, Any] | None:
    if error is None:
        return None
    text, cause = "", None
    with contextlib.suppress(BaseException):  # its own __str__ may raise
        text, cause = str(error), _error(error.__cause__)
    classes = [kind.__name__ for kind in type(error).__mro__]
    return {"type": classes[0], "classes": classes, "text": text, "cause": cause}


if __name__ == "__main__":
    del sys.path[0]  # this file's folder
    main(json.loads(sys.argv[1]))
