"""The environment variables of opwheel and of an operator library, and what only looks like one: WAVES_FALLBCK."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from importlib.machinery import PathFinder

from .status import Finding

# Without the library's prefix. Where each of them is read: policy.py; load.h of the C++ SDK; the conformance kit.
KNOWN = (
    *("AUTOLOAD", "BACKENDS", "CHECK", "COMPILE", "CPU_CAPABILITY", "FALLBACK", "FOREIGN", "HUGE_PAGES", "LOCK"),
    *("PLUGINS", "PROBE_TIMEOUT", "RESULT_CACHE", "STRICT", "TRACE"),
    "LIBRARY_PATH",
    "REQUIRE",
)
# Those of opwheel itself. Where each is read: native_autograd.py, calls.py; builds; the recorder of `opwheel audit`.
OF_OPWHEEL = ("AUDIT_RECORD", "AUTOGRAD", "CUDA", "TORCH", "TORCHES")


def unknown_variables(environment: Mapping[str, str], namespace: str, backends: Iterable[str]) -> Iterator[Finding]:
    """What is set, starts with the library's prefix or opwheel's, and is read by nobody.

    Left alone are the variables of backends (``WAVES_CPU_...``) and of libraries whose name starts with this one's
    (``WAVES_EXTRA_...``).
    """
    owners = tuple(f"{backend.upper().replace('-', '_')}_" for backend in backends)
    for name in _unread(environment, f"{namespace.upper()}_", KNOWN):
        if not name.startswith(owners) and not _is_of_another_library(name, namespace):
            yield _finding(name, namespace, KNOWN)
    for name in _unread(environment, "OPWHEEL_", OF_OPWHEEL):
        yield _finding(name, "opwheel", OF_OPWHEEL)


def _unread(environment: Mapping[str, str], prefix: str, known: tuple[str, ...]) -> list[str]:
    """The names, without the prefix."""
    names = (variable.removeprefix(prefix) for variable in sorted(environment) if variable.startswith(prefix))
    return [name for name in names if name not in known]


def _finding(name: str, owner: str, known: tuple[str, ...]) -> Finding:
    from difflib import get_close_matches  # not at the top: nearly nobody needs it

    prefix = f"{owner.upper()}_"
    close = get_close_matches(name.upper(), known, 1)
    suggestion = f"; did you mean {prefix}{close[0]}?" if close else ""
    fix = f"unset or rename it; the variables of {owner} are {', '.join(prefix + one for one in known)}"
    return Finding("OPWHEEL-E012", f"{prefix}{name} is set, but {owner} has no such variable{suggestion}", fix)


def _is_of_another_library(name: str, namespace: str) -> bool:
    if any(name.endswith(f"_{known}") for known in KNOWN):
        return True
    parts = name.lower().split("_")
    packages = ("_".join((namespace, *parts[:count])) for count in range(1, len(parts)))
    return any(package.isidentifier() and PathFinder.find_spec(package) for package in packages)
