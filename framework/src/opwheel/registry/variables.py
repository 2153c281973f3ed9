"""The environment variables of an operator library, and those that only look like one: WAVES_FALLBCK."""

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


def unknown_variables(environment: Mapping[str, str], namespace: str, backends: Iterable[str]) -> Iterator[Finding]:
    """What is set, starts with the library's prefix and is read by nobody.

    Left alone are the variables of backends (``WAVES_CPU_...``) and of libraries whose name starts with this one's
    (``WAVES_EXTRA_...``).
    """
    prefix = f"{namespace.upper()}_"
    owners = tuple(f"{backend.upper().replace('-', '_')}_" for backend in backends)
    for variable in sorted(environment):
        name = variable.removeprefix(prefix)
        if name == variable or name in KNOWN or name.startswith(owners) or _is_of_another_library(name, namespace):
            continue
        from difflib import get_close_matches  # not at the top: nearly nobody needs it

        close = get_close_matches(name.upper(), KNOWN, 1)
        suggestion = f"; did you mean {prefix}{close[0]}?" if close else ""
        fix = f"unset or rename it; the variables of {namespace} are {', '.join(prefix + known for known in KNOWN)}"
        yield Finding("OPWHEEL-E012", f"{variable} is set, but {namespace} has no such variable{suggestion}", fix)


def _is_of_another_library(name: str, namespace: str) -> bool:
    if any(name.endswith(f"_{known}") for known in KNOWN):
        return True
    parts = name.lower().split("_")
    packages = ("_".join((namespace, *parts[:count])) for count in range(1, len(parts)))
    return any(package.isidentifier() and PathFinder.find_spec(package) for package in packages)
