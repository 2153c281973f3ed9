"""What a candidate does besides computing: functions that it calls or replaces, threads and processes it leaves."""

from __future__ import annotations

import builtins
import sys
import sysconfig
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from . import subjects

_OWNERS: dict[str, Any] = {
    "builtins": builtins,
    "time": time,
    "torch": torch,
    "torch.Tensor": torch.Tensor,
    "torch._C._TensorBase": torch._C.TensorBase,
    "torch._C._VariableFunctions": type(torch._C._VariableFunctions),
    "torch._C._nn": torch._C._nn,
    "torch.nn.functional": torch.nn.functional,
    "torch.linalg": torch.linalg,
    "torch.autograd": torch.autograd,
    "torch.testing": torch.testing,
    "torch.cuda": torch.cuda,
    "torch.cuda.Event": torch.cuda.Event,
    "torch.cuda.Stream": torch.cuda.Stream,
    "torch.Event": torch.Event,
}
_NO_WORK = {"alias", "clone", "copy_", "detach", "empty", "empty_like", "empty_strided", "lift_fresh", "view"}
_GRACE = 0.3  # seconds in which a thread or process that has done its work ends


class Functions(NamedTuple):
    """The functions of PyTorch and the clocks, in Python and C, and kernels that Python has registered.

    Args:
        by_owner: by name, of each key of ``_OWNERS``.
        kernels: ``"namespace/name/dispatch key"`` of each.
    """

    by_owner: dict[str, dict[str, Any]]
    kernels: frozenset[str]


def functions() -> Functions:
    """Those of now."""
    return Functions({owner: dict(vars(place)) for owner, place in _OWNERS.items()}, frozenset(torch.library._impls))


def replaced(before: Functions) -> list[str]:
    """Names of functions that are others than before, but for what PyTorch itself has put there."""
    now = functions()
    changed = [
        f"{owner}.{name}"
        for owner, known in before.by_owner.items()
        for name, value in now.by_owner[owner].items()
        if known.get(name, value) is not value and _is_public(name) and callable(value) and not _is_own(value)
    ]
    return changed + [f"the kernel {one}" for one in sorted(now.kernels - before.kernels) if _is_kernel(one)]


def _is_public(name: str) -> bool:
    return not name.startswith("_") or name.endswith("__")


def _is_kernel(key: str) -> bool:
    """Whether it is that of a kernel of PyTorch's operators."""
    return key.startswith("aten/") and key.endswith(("/CPU", "/CUDA", "/XPU"))


def _is_own(value: Any) -> bool:
    code = getattr(value, "__code__", None)
    return code is not None and Path(torch.__file__).parent in Path(code.co_filename).parents


@contextmanager
def calls_of(code: set[tuple[Any, ...]]) -> Iterator[list[str]]:
    """Places of Python code that is called, of those given: the first."""
    called: list[str] = []
    lines = {line for _, line in code}  # to resolve the file of every call would take most of a call's time

    def watch(frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or called or frame.f_code.co_firstlineno not in lines:
            return
        if (place := subjects.place_of(frame.f_code)) in code:
            called.append(f"{place[0]}:{place[1]}")

    if not code:
        yield called
        return
    sys.setprofile(watch)
    try:
        yield called
    finally:
        sys.setprofile(None)


class Operators(TorchDispatchMode):
    """Records the operators of PyTorch that are called, but for those that only make, view or copy memory."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.made: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call it."""
        del types
        if func.overloadpacket.__name__ not in _NO_WORK:
            self.made.append(str(func))
        return func(*args, **(kwargs or {}))


def running() -> set[str]:
    """Threads that run code of neither Python nor installed packages, and processes that this one has started."""
    threads = {f"the thread {one.name}" for one in threading.enumerate() if _is_of_candidate(one)}
    return threads | {f"the process {one}" for one in _children()}


def left_running(before: set[str]) -> list[str]:
    """What runs, did not before, and goes on for a while."""
    end = time.monotonic() + _GRACE
    while (found := running() - before) and time.monotonic() < end:
        time.sleep(_GRACE / 10)
    return sorted(found)


def _is_of_candidate(thread: threading.Thread) -> bool:
    code: CodeType | None = getattr(getattr(thread, "_target", None), "__code__", None)
    code = code or getattr(type(thread).run, "__code__", None)
    return thread is not threading.main_thread() and code is not None and not _is_of_library(code.co_filename)


def _is_of_library(file: str) -> bool:
    folders = {Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "purelib", "platlib")}
    return not folders.isdisjoint(Path(file).resolve().parents)


def _children() -> list[str]:
    """Command lines of child processes that run, without those that Python and PyTorch start for themselves."""
    found = []
    for listed in Path("/proc/self/task").glob("*/children"):
        for pid in _read(listed).split():
            command = _read(Path("/proc") / pid / "cmdline").replace("\0", " ").strip()
            if command and "multiprocessing" not in command and "torch/_inductor" not in command:
                found.append(f"{pid}: {command[:80]}")
    return found


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:  # it has ended
        return ""
