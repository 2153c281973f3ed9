"""Getting one backend into the process: is it compatible, can the machine use it, open it."""

from __future__ import annotations

import ctypes
import os
import re
import threading
from importlib import metadata

import torch

from .._torch_private import close_shared_library, destroy_library
from .abi import read_abi
from .backend import Backend, Probe
from .elf import check_complete
from .status import describe_value


class LoadError(Exception):
    """A step failed; ``code`` says which, ``__cause__`` is the original exception if there is one."""

    def __init__(self, code: str, reason: str, fix: str = "") -> None:
        super().__init__(reason)
        self.code = code
        self.fix = fix


def check_compatible(backend: Backend, abi: int) -> None:
    """Compare the ABI number and the requirements with this process.

    Raises:
        LoadError: naming both sides.
    """
    for path in backend.libraries:
        built_with = read_abi(path)
        if built_with is not None and built_with != abi:
            raise LoadError(
                "OPWHEEL-E030",
                f"{path.name} was built for ABI {built_with}, this core has ABI {abi}",
                "upgrade the core" if built_with > abi else "upgrade the backend",
            )
    for text in backend.requires:
        check_requirement(text)


# What nearly every backend requires, and nothing else. PyTorch compares its version itself, which saves
# importing packaging.
_TORCH_AT_LEAST = re.compile(r"torch\s*>=\s*(\d+(?:\.\d+)*)\s*")


def check_requirement(text: str) -> None:
    """Compare a requirement specifier with what is installed.

    Raises:
        LoadError: it is not met, or not valid.
    """
    at_least = _TORCH_AT_LEAST.fullmatch(text)
    if at_least and torch.__version__ >= at_least[1]:
        return
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.version import InvalidVersion, Version

    try:
        requirement = Requirement(text)
    except InvalidRequirement as error:
        raise LoadError("OPWHEEL-E022", f"its requirement {describe_value(text)} is not valid") from error
    if requirement.marker is not None and not requirement.marker.evaluate():
        return
    installed = _installed_version(requirement.name)
    try:
        met = installed is not None and requirement.specifier.contains(Version(installed), prereleases=True)
    except InvalidVersion:
        met = False
    if not met:
        found = f"{requirement.name} {installed} is installed" if installed else "that is not installed"
        raise LoadError("OPWHEEL-E031", f"it requires {text}, but {found}", f"pip install '{text}'")


def _installed_version(name: str) -> str | None:
    if name == "torch":  # the one in this process, which may come without metadata
        return torch.__version__
    try:
        return metadata.version(name)
    except Exception:  # not there, or with metadata that cannot be read
        return None


def run_probe(backend: Backend, timeout_s: float) -> Probe:
    """Ask the backend's probe, in a thread of its own so that one that hangs does not hang the import.

    Raises:
        LoadError: it raised, returned something else or did not finish.
    """
    if backend.probe is None:
        return Probe(True)
    probe = backend.probe
    outcome: list[object] = []

    def ask() -> None:
        try:
            outcome.append(probe())
        except BaseException as error:  # whatever a plugin raises stays with the plugin
            outcome.append(error)

    thread = threading.Thread(target=ask, name=f"probe of {backend.name}", daemon=True)
    thread.start()
    thread.join(timeout_s)
    if not outcome:
        raise LoadError(
            "OPWHEEL-E041",
            f"its probe did not finish within {timeout_s:g} s; does it wait for hardware, or import the operator "
            "library that is waiting for it?",
        )
    answer = outcome[0]
    if isinstance(answer, BaseException):
        raise LoadError("OPWHEEL-E041", "its probe failed") from answer
    if not isinstance(answer, Probe):
        raise LoadError("OPWHEEL-E041", f"its probe returned {describe_value(answer)}, expected a Probe")
    return answer


class Loaded:
    """What keeps a backend's kernels registered. Lives as long as the process, or until :meth:`undo`."""

    def __init__(self) -> None:
        self._handles: list[ctypes.CDLL] = []
        self._library: torch.library.Library | None = None

    def open(self, backend: Backend, namespace: str) -> None:
        """Open the libraries or call the register function.

        Raises:
            LoadError: with the loader's or the plugin's own exception as its cause.
        """
        for path in backend.libraries:
            try:
                check_complete(path)
                # RTLD_LOCAL: two backends may well have symbols of the same name.
                self._handles.append(ctypes.CDLL(str(path), mode=os.RTLD_NOW | os.RTLD_LOCAL))
            except (OSError, ValueError) as error:
                raise LoadError("OPWHEEL-E050", f"its library {describe_value(str(path))} cannot be opened") from error
        if backend.register is not None:
            self._library = torch.library.Library(namespace, "IMPL", backend.dispatch_key)
            try:
                backend.register(self._library)
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                raise LoadError("OPWHEEL-E052", "its register function failed") from error

    def undo(self) -> None:
        """Take the kernels out of the dispatcher again. Some libraries cannot be unloaded: check afterwards."""
        if self._library is not None:
            destroy_library(self._library)
            self._library = None
        while self._handles:
            # The library's static destructors remove its registrations.
            close_shared_library(self._handles.pop())
