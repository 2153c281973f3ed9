"""``check``: the conformance kit, for a backend that is installed here."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from opwheel.registry import BackendUnavailableError
from opwheel.text import how_it_ended, printable

from ..testing.alone import admitted

if TYPE_CHECKING:
    from opwheel import Library

_PATIENCE_S = 5.0  # with a kit that has been interrupted
_INTERRUPTED = 2
# By pytest's exit status.
_OUTCOMES = {
    0: "no test failed",
    1: "there are failures: see above",
    3: "pytest had an internal error: see above; not all tests were run",
    4: "pytest cannot be run like this: see above; no test was run",
    5: "no test was chosen",
}


def check(
    context: typer.Context,
    backend: Annotated[str, typer.Argument(help="The backend's name, as doctor shows it.")],
    operators: Annotated[str | None, typer.Option(help="These alone, with their overloads: mul,add.")] = None,
    fast: Annotated[
        bool, typer.Option("--fast", help="Seconds: without torch.compile, torch.export, opcheck and crash protection.")
    ] = False,
    pytest_options: Annotated[list[str] | None, typer.Argument(help="Passed on to pytest, after --.")] = None,
) -> None:
    """Run the conformance kit on a backend.

    Does it compute what the operators promise, in every part of PyTorch? The last line says how the run ended.
    """
    library: Library = context.obj.open()
    statuses = library.backends()
    known = sorted({*statuses, *library.policy.backends})
    if backend not in known:
        raise typer.BadParameter(printable(f"there is no backend {backend!r}; known are: {', '.join(known)}"))
    named = dict.fromkeys(overload.operator.name for overload in library.overloads.values())
    if unknown := [name for name in (operators or "").split(",") if name and name not in named]:
        raise typer.BadParameter(f"--operators: there is no operator {unknown[0]!r}; known are: {', '.join(named)}")
    others = sorted({other for _, other in statuses[backend].served_by_others}) if backend in statuses else []
    try:
        if not others:  # else it is loaded in the kit's process, which leaves these out
            library.require(backend)
    except BackendUnavailableError as error:
        print(f"{library.namespace}:", *str(error).split())  # on one line, whatever a plugin says
        raise typer.Exit(1) from None
    if not all(importlib.util.find_spec(name) for name in ("pytest", "hypothesis")):
        raise typer.BadParameter("the conformance kit needs more packages: pip install 'opwheel-tools[testing]'")
    _check_op_infos(library)
    # One that does not load in that process fails the check rather than being skipped.
    environment = {**os.environ, f"{library.prefix}_REQUIRE": backend}
    if others:
        environment[f"{library.prefix}_BACKENDS"] = only = admitted(statuses, backend)
        left_out = f"{', '.join(others)} left out, for {backend} to have all its operators"
        print(printable(f"{left_out}: {library.prefix}_BACKENDS={only}"), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        current = Path(folder, "test")
        # Which test has ended the process is said below; pytest would show its own frames.
        command = [sys.executable, "-m", "pytest", "-p", "no:faulthandler", "--pyargs", "opwheel_tools.testing"]
        command += ["--library", library.package, "--backend", backend, "--current-test", str(current)]
        command += ["--operators", operators] if operators else []
        command += ["--fast"] if fast else []
        code = _run([*command, *(pytest_options or [])], environment)
        test = current.read_text() if current.exists() else ""
    begin = "" if code in _OUTCOMES else "\n"  # else pytest may have left its line of dots open
    print(f"{begin}{library.namespace} check {backend}: {_outcome(code, test)}", flush=True)
    raise typer.Exit(0 if code == 0 else 1)


def _check_op_infos(library: Library) -> None:
    """Find what is wrong in the library's module ``opinfos`` here, where the whole message is shown."""
    from ..opinfo.lookup import OpInfosError, op_info_of

    try:
        for overload in library.overloads.values():
            op_info_of(overload)
    except OpInfosError as error:
        raise typer.BadParameter(str(error)) from error


def _run(command: list[str], environment: dict[str, str]) -> int:
    """The exit status of the kit, as subprocess gives it; 2, as pytest's, where the user has interrupted it."""
    with contextlib.suppress(ValueError):  # not in the main thread
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    with subprocess.Popen(command, env=environment) as kit:
        try:
            return kit.wait()
        except KeyboardInterrupt:  # from a terminal the kit has it, too, and ends with what it has found
            try:
                kit.wait(_PATIENCE_S)
            except (KeyboardInterrupt, subprocess.TimeoutExpired):
                kit.kill()
            return _INTERRUPTED


def _outcome(code: int, test: str) -> str:
    """What an exit status of pytest's means, or how the process ended in which test."""
    if code == _INTERRUPTED:
        return f"interrupted{f' in {test}' if test else ''}; what comes after it was not run"
    if code in _OUTCOMES:
        return _OUTCOMES[code]
    return f"{how_it_ended(code)} {f'in {test}' if test else 'before the first test'}; what comes after it was not run"
