"""Getting one backend into the process: is it compatible, can the machine use it, open it."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from .._torch.private import close_shared_library, destroy_library, parse_schema
from ..memory.settings import set_memory
from ..text import describe_value
from .abi import read_notes
from .backend import Backend, Probe
from .elf import check_complete
from .errors import CodedError, InvalidBackendError
from .policy import Policy
from .schemas import Core
from .values import fix_in
from .warning_filters import kept_filters

if TYPE_CHECKING:
    from packaging.requirements import Requirement


class LoadError(CodedError):
    """A step failed; ``code`` says which, ``__cause__`` is the original exception if there is one.

    ``fix`` is what the plugin's author changes; where versions do not belong together, what anybody does.
    """

    def __init__(self, code: str, reason: str, fix: str) -> None:
        super().__init__(reason)
        self.code = code
        self.fix = fix


def check_compatible(backend: Backend, core: Core) -> dict[str, str]:
    """Compare the ABI number, the schemas and the requirements with this process.

    Returns:
        The claimed operators that the backend's libraries were built for other schemas of, each with both schemas in
        words. Kernels on the SDK are not registered for these (``opwheel/detail/registration.h``).

    Raises:
        LoadError: naming both sides. Of the schemas, if all that are claimed are others.
    """
    claimed = frozenset(core.operators if backend.operators is None else backend.operators)
    changed: dict[str, str] = {}
    for path in backend.libraries:
        built_with = read_notes(path)
        if built_with.abi is not None and built_with.abi != core.abi:
            raise LoadError(
                "OPWHEEL-E030",
                f"{path.name} was built for ABI {built_with.abi}, this core has ABI {core.abi}",
                "upgrade the core"
                if built_with.abi > core.abi
                else "upgrade the backend; its author builds it again, with the opwheel of this core",
            )
        changed |= _changed_schemas(path, built_with.schemas, core.schemas, claimed)
        _check_callees(path, built_with.callees)
    for text in backend.requires:
        check_requirement(text)
    if changed and claimed == changed.keys():
        raise LoadError("OPWHEEL-E032", "; ".join(changed.values()), _REBUILD)
    return changed


def _changed_schemas(
    path: Path, built_for: Iterable[str], schemas: Sequence[str], claimed: Collection[str]
) -> dict[str, str]:
    """The claimed operators whose kernels were compiled for another schema than the one of this process, with both.

    Such a kernel would take what arrives for what it was compiled for, a float's bits for an integer's.
    """
    here = {_name(text): text for text in schemas}
    changed = {}
    for text in built_for:
        name = _name(text)
        if name in claimed and name in here and text != here[name] and _meaning(text) != _meaning(here[name]):
            changed[name] = f"{path.name} was built for {text!r}, this core has {here[name]!r}"
    return changed


def _check_callees(path: Path, callees: Iterable[str]) -> None:
    """Compare the operators that kernels were written to call with those of this process."""
    for text in callees:
        from .callees import misfit  # most kernels call nothing

        reason = misfit(text)
        if reason:
            raise LoadError("OPWHEEL-E032", f"{path.name} {reason}", _REBUILD)


_REBUILD = "install versions of the core and of the backend that belong together, or build the backend again"


def _name(schema: str) -> str:
    return schema.partition("(")[0].strip()


def _meaning(schema: str) -> object:
    """What a kernel depends on: not the default values, which PyTorch fills in, nor what is keyword-only."""
    from .callees import type_of  # most schemas are equal as they are

    parsed = parse_schema(schema)
    arguments = [(one.name, *type_of(one)) for one in parsed.arguments]
    return arguments, list(map(type_of, parsed.returns))


def check_requirement(text: str) -> None:
    """Compare a requirement specifier with what is installed.

    Raises:
        LoadError: it is not met, or not valid.
    """
    try:
        if _is_met_by_torch(text):
            return
        from packaging.requirements import Requirement

        requirement = Requirement(text)
        applies = requirement.marker is None or requirement.marker.evaluate()
    except Exception as error:  # a marker, a number of 5,000 digits and brackets within brackets fail each in its way
        reason = f"its requirement {describe_value(text)} is not valid"
        fix = 'write requirement specifiers in its field requires, such as requires=["torch>=2.10"]'
        raise LoadError("OPWHEEL-E022", reason, fix) from error
    if not applies:
        return
    installed = installed_version(requirement.name)
    if installed is None or not is_met_by(installed, requirement):
        import shlex

        fix = f"pip install {shlex.quote(text)}"
        if installed is None:
            from .absence import find_absence

            absence = find_absence(requirement.name, fix)
            raise LoadError("OPWHEEL-E031", f"it requires {text}, but that {absence.what}", absence.fix)
        found = f"{requirement.name} {installed} is installed"
        raise LoadError("OPWHEEL-E031", f"it requires {text}, but {found}", fix)


def _is_met_by_torch(text: str) -> bool:
    """Whether it is ``torch>=2.10`` or the like, as nearly every backend's, and met. That saves importing packaging."""
    name, _, version = text.partition(">=")
    is_number = all(part.isascii() and part.isdigit() for part in version.strip().split("."))
    return name.rstrip() == "torch" and is_number and bool(torch.__version__ >= version.strip())


def is_met_by(installed: str, requirement: Requirement) -> bool:
    """Whether that version meets the requirement; a version that is none meets none."""
    from packaging.version import InvalidVersion, Version

    try:
        return requirement.specifier.contains(Version(installed), prereleases=True)
    except InvalidVersion:
        return False


def installed_version(name: str) -> str | None:
    """The version of a distribution; None if it is not there."""
    if name == "torch":  # the one in this process, which may come without metadata
        return torch.__version__
    try:
        return metadata.version(name)
    except Exception:  # not there, or with metadata that cannot be read
        return None


def run_probe(name: str, probe: Callable[[], object], timeout_s: float) -> Probe:
    """Ask a backend's probe, in a thread of its own so that one that hangs does not hang the import.

    Raises:
        LoadError: it raised, returned something else or did not finish.
    """
    answers: list[Probe] = []
    failures: list[BaseException] = []

    def ask() -> None:
        try:
            answer = probe()
            if not isinstance(answer, Probe):
                raise InvalidBackendError("OPWHEEL-E041", f"it returned {describe_value(answer)}, expected a Probe")
            answers.append(answer)
        except BaseException as error:  # whatever a plugin raises stays with the plugin
            failures.append(error)

    thread = threading.Thread(target=ask, name=f"probe of {name}", daemon=True)
    with kept_filters():  # whose filters are not the plugin's
        thread.start()
        thread.join(timeout_s)
    if answers:
        return answers[0]
    if not failures:
        raise LoadError(
            "OPWHEEL-E041",
            f"its probe did not finish within {timeout_s:g} s; does it wait for hardware, or import the operator "
            "library that is waiting for it?",
            f"let the function that probe= names answer within {timeout_s:g} s, without importing the operator library",
        )
    failure = failures[0]
    if isinstance(failure, KeyboardInterrupt):
        raise failure
    right = 'let the function that probe= names return Probe(True), or Probe(False, "what is missing"), and not raise'
    raise LoadError("OPWHEEL-E041", "its probe failed", fix_in(failure) or right) from failure


def complete_library(field: str, path: Path) -> str:
    """What an author does about a library that cannot be opened; ``field`` has its path."""
    return (
        f"name in {field}= a file that is in the wheel, whole, built for this machine and linked with nothing that is "
        f"not there: `ldd {describe_value(str(path))}` shows that"
    )


class Loaded:
    """What keeps a backend's kernels registered. Lives as long as the process, or until :meth:`undo`."""

    def __init__(self) -> None:
        self._handles: list[ctypes.CDLL] = []
        self._library: torch.library.Library | None = None

    def open(self, backend: Backend, namespace: str, others: Collection[str]) -> None:
        """Open the libraries, and call the register function, which registers nothing of the operators of ``others``.

        Raises:
            LoadError: with the loader's or the plugin's own exception as its cause.
        """
        for path in backend.libraries:
            try:
                check_complete(path)
                # RTLD_LOCAL: two backends may well have symbols of the same name.
                self._handles.append(ctypes.CDLL(str(path), mode=os.RTLD_NOW | os.RTLD_LOCAL))
                if hasattr(self._handles[-1], "opwheel_set_dispatcher"):
                    from .callees import connect  # most kernels call no operators

                    connect(self._handles[-1])
            except (OSError, ValueError) as error:
                reason = f"its library {describe_value(str(path))} cannot be opened"
                raise LoadError("OPWHEEL-E050", reason, complete_library("libraries", path)) from error
        if backend.register is not None:
            from .share import Share  # most backends have libraries alone

            self._library = Share(namespace, backend.dispatch_key, others)
            try:
                with kept_filters():
                    backend.register(self._library)
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                fix = "correct the function that register= names: it takes a torch.library.Library and calls its impl()"
                raise LoadError("OPWHEEL-E052", "its register function failed", fix) from error

    def set_memory(self, policy: Policy) -> None:
        """Tell libraries on the C++ SDK where the memory of large new results comes from."""
        for handle in self._handles:
            set_memory(handle, huge_pages=policy.huge_pages, result_cache=policy.result_cache)

    def undo(self) -> None:
        """Take the kernels out of the dispatcher again. Some libraries cannot be unloaded: check afterwards."""
        if self._library is not None:
            destroy_library(self._library)
            self._library = None
        while self._handles:
            # The library's static destructors remove its registrations.
            close_shared_library(self._handles.pop())
