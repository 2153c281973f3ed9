"""Show every backend of the library: its state, the reason, the fix."""

from __future__ import annotations

import argparse
import json
import platform
from collections import Counter
from typing import TYPE_CHECKING, Any

from .._version import __version__
from ..formats import Format
from ..memory import huge_pages
from ..registry.absence import find_absence
from ..registry.errors import LockError
from ..registry.status import BackendStatus, Finding, State
from ..registry.values import ALL
from . import deep, environment
from .console import GREEN, RED, YELLOW, print_table, say
from .standard_output import diverted
from .suggest import suggest
from .target import Target

if TYPE_CHECKING:
    from .. import Library

FORMAT = Format("opwheel doctor", 1)
_COLORS = {
    State.LOADED: GREEN,
    State.INSTALLED: GREEN,
    State.UNSUPPORTED: YELLOW,
    State.DISABLED: YELLOW,
    State.SHADOWED: YELLOW,
    State.INCOMPATIBLE: RED,
    State.BROKEN: RED,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """How to look, and in what form to tell."""
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--deep", action="store_true", help="first open each backend's libraries in a separate process")
    parser.add_argument(
        "--suggest", action="store_true", help="print only the command that installs what fits this machine"
    )


def run(given: argparse.Namespace, target: Target) -> int:
    """Print the report; a finding is a status of 1."""
    if given.suggest:
        suggest(target.open(check_lock=False))
        return 0
    # With --deep, what ends a process must not end this one. A lock that does not fit is reported, not obeyed.
    library = target.open(load_backends=not given.deep, check_lock=False)
    from .requirements import contradictions  # imports torch, which nothing that fails early waits for

    with diverted():
        statuses = deep.statuses(library) if given.deep else library.backends()
        # Alone, a backend says nothing about the choice between several.
        runtimes = library.runtimes()
        concerned = {"opwheel", library.distribution}
        installed = (*statuses.values(), *runtimes.values())
        concerned |= {one.distribution for one in installed if one.state is not State.DISABLED}
        findings = [
            *library.findings,
            *_lock_findings(library, winners=not given.deep),
            *contradictions(concerned),
        ]
        report = {**_report(library, statuses, runtimes, findings), **({"digest": None} if given.deep else {})}
    if given.json:
        print(json.dumps(report, indent=2))
    else:
        _print(report, [*statuses.values(), *runtimes.values()])
    return 0 if report["ok"] else 1


def _lock_findings(library: Library, *, winners: bool) -> list[Finding]:
    """Why an import of the library fails with the lock file that the environment names; nothing if it does not."""
    file = environment.removed.get(f"{library.prefix}_LOCK")
    if file is None:
        return []
    try:
        return library.compare(file, winners=winners)
    except LockError as error:
        return [Finding(error.code, error.message, f"correct or unset {library.prefix}_LOCK")]


def _report(
    library: Library,
    statuses: dict[str, BackendStatus],
    runtimes: dict[str, BackendStatus],
    findings: list[Finding],
) -> dict[str, Any]:
    """The report; doctor.schema.json beside this file describes it, docs/commands.md explains it."""
    import torch

    from .._torch import lookup  # imports torch, too
    from ..memory import result_cache

    failed = [s for s in (*statuses.values(), *runtimes.values()) if s.is_failure]
    loaded = [s for s in statuses.values() if s.state is State.LOADED]
    return {
        "format": FORMAT.as_json(),
        "ok": bool(loaded) and not failed and not findings,
        "library": library.namespace,
        "distribution": library.distribution,
        "version": library.version,
        "opwheel": __version__,
        "abi": library.abi,
        "torch": torch.__version__,
        "autograd": _autograd(library),
        "calls": _calls(),
        "missing_names": [{"name": one.path, "message": lookup.in_words(one)} for one in lookup.missing()],
        "python": platform.python_version(),
        "platform": platform.platform(),
        "digest": library.digest(),
        "huge_pages": {"policy": library.policy.huge_pages, "system": huge_pages.system_setting()},
        "result_cache": {
            "policy": library.policy.result_cache,
            "limit": result_cache.limit(),
            "description": result_cache.describe(library.policy.result_cache),
        },
        "cpu_capability": library.policy.cpu_capability,
        "check": library.policy.check,
        "foreign": {
            "policy": library.policy.foreign,
            "kernels": [status._asdict() for status in library.foreign.status()],
        },
        "invariant": _invariant(library, loaded),
        "backends": {name: status.as_json() for name, status in statuses.items()},
        "runtimes": {name: status.as_json() for name, status in runtimes.items()},
        "not_installed": {
            known.name: find_absence(known.distribution, known.hint).fix
            for installed, installable in ((statuses, library.policy.backends), (runtimes, library.policy.runtimes))
            for known in installable.values()
            if known.name not in installed
        },
        "findings": [finding._asdict() for finding in findings],
    }


def _autograd(library: Library) -> dict[str, Any]:
    """Where derivatives run: ``kind`` is native or python, with the reason, and so is each operator that differs."""
    from ..dispatch.native_autograd import why_not
    from ..dispatch.registration import native_autograd_of

    reason = why_not()
    return {
        "kind": "python" if reason else "native",
        "reason": reason,
        "in_python": {} if reason else native_autograd_of(library).refused,
    }


def _calls() -> dict[str, str]:
    """What calls operators: ``kind`` is native or python, with the reason."""
    from ..dispatch.calls import why_not

    reason = why_not()
    return {"kind": "python" if reason else "native", "reason": reason}


def _invariant(library: Library, loaded: list[BackendStatus]) -> dict[str, dict[str, list[str]]]:
    """By backend, and by those of its operators that claim any: the claims that hold (``Operator(invariant=...)``)."""
    from ..dispatch.invariance import held

    found: dict[str, dict[str, list[str]]] = {}
    for status in loaded:
        claims = {name: list(held(library.overloads[name], status)) for name in status.operators}
        found[status.name] = {name: names for name, names in claims.items() if names}
    return found


def _print(report: dict[str, Any], statuses: list[BackendStatus]) -> None:
    say(
        f"{report['distribution']} {report['version']} (ABI {report['abi']}), opwheel {report['opwheel']}, "
        f"torch {report['torch']}, Python {report['python']}, {report['platform']}"
    )
    say(huge_pages.describe(report["huge_pages"]["policy"]))
    say(report["result_cache"]["description"])
    if report["cpu_capability"] is not None:
        say(f"instruction set of CPU kernels: {report['cpu_capability']} at most")
    if report["check"] is not None:
        say(f"results of kernels in Python: {'every' if report['check'] else 'no'} call is checked")
    if (reason := report["calls"]["reason"]) and reason != report["autograd"]["reason"]:
        say(f"calls: through PyTorch's own functions, right and with more time for each: {reason}")
    autograd = report["autograd"]
    say(f"autograd: {autograd['kind']}")
    if autograd["reason"]:
        say(f"  derivatives are computed in Python, right and with more time for each call: {autograd['reason']}")
    _print_foreign(report["foreign"])
    for one in report["missing_names"]:
        say(one["message"])
    if statuses:
        rows = [("backend", "state", "key", "distribution", "operators", "load"), *map(_row, statuses)]
        print_table(rows, [None, *(_COLORS[status.state] for status in statuses)], column=1)
    else:
        say("no backend is installed")
    for status in statuses:
        if status.by_reference:
            names = ", ".join(status.by_reference)
            say(f"\n{status.name}: computed by the reference, for lack of a kernel: {names}")
        _print_invariant(status, report["invariant"].get(status.name, {}))
        if status.reason:
            code = f" [{status.code}]" if status.code else ""
            say(f"\n{status.name}: {status.reason}{code}")
        if status.fix:
            say(f"  fix: {status.fix}")
    for name, hint in report["not_installed"].items():
        say(f"\n{name}: not installed\n  to install: {hint}")
    for finding in report["findings"]:
        say(f"\n{finding['message']} [{finding['code']}]")
        say(f"  fix: {finding['fix']}")


def _print_foreign(foreign: dict[str, Any]) -> None:
    """How many operators of others have kernels of this library, and which of these are on."""
    kernels = foreign["kernels"]
    names = {one["name"]: one["state"] for one in kernels if one["state"] != "off"}
    if kernels:
        told = ", ".join(f"{name} {state}" for name, state in names.items()) or "all off"
        say(f"kernels for {len(kernels)} operators of others: {told}")


def _print_invariant(status: BackendStatus, held: dict[str, list[str]]) -> None:
    """How many operators keep which claim, and which claims the backend does not keep."""
    if held:
        counts = Counter(name for names in held.values() for name in names)
        shown = ", ".join(f"{name} ({count})" for name, count in counts.items())
        say(f"\n{status.name}: operators whose bits are the same whatever: {shown}")
    for operator, claims in status.not_invariant:
        does = "no operator keeps" if operator == ALL else f"{operator} does not keep"
        say(f"\n{status.name}: {does} what the library claims: {', '.join(claims)}")


def _row(status: BackendStatus) -> tuple[str, ...]:
    return (
        status.name,
        str(status.state),
        status.dispatch_key,
        f"{status.distribution} {status.version}",
        str(len(status.operators)) if status.state in (State.LOADED, State.INSTALLED) else "",
        f"{status.load_ms:.1f} ms" if status.state is State.LOADED else "",
    )
