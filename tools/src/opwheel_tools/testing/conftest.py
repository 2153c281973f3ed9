"""Which backend is tested, on which device, and with which operators; the matrix at the end."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import tempfile
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from opwheel import Elementwise, Library
from opwheel._torch import private
from opwheel.dispatch.invariance import held
from opwheel.dispatch.overload import Overload
from opwheel.registry import BackendStatus, State
from opwheel.text import printable

from ..opinfo.lookup import op_info_of
from . import checks, crashes, matrix
from .alone import admitted
from .report import LEFT_OUT, Outcome, left_out_lines
from .report import lines as report_lines
from .samples import DTYPES

# What tests are about: the overloads of element-wise operators, whose arguments follow from their schemas, and those of
# operators that have samples.
_KINDS: dict[str, Callable[[Overload], bool]] = {
    "functional": lambda overload: _is_elementwise(overload) and not overload.mutates,
    "out_variant": lambda overload: _is_elementwise(overload) and overload.is_out,
    "in_place": lambda overload: _is_elementwise(overload) and overload.is_in_place,
    "mutating": lambda overload: _is_elementwise(overload) and overload.mutates,
    "overload": lambda overload: _is_elementwise(overload),
    "sampled": lambda overload: _has_samples(overload) and overload.name == overload.operator.name,
}
_MARKERS = (
    "subsystem(name): what of PyTorch the test is about; a column of the matrix",
    "compiles: runs torch.compile, which needs a C++ compiler",
    "takes_long: --fast leaves it out, as it does what compiles",
    "huge: needs more than 20 GB of memory on the device",
    "device_independent: about what the library registers for every device, not about the backend's kernels",
)
_outcomes = pytest.StashKey[list[Outcome]]()
_files = pytest.StashKey[dict[str, str]]()  # the test file of each subsystem
_left_out = pytest.StashKey[list[str]]()  # which tests were deselected, and why


def _is_elementwise(overload: Overload) -> bool:
    return isinstance(overload.rule, Elementwise)


def _has_samples(overload: Overload) -> bool:
    return op_info_of(overload).samples is not None


def _library(config: pytest.Config) -> Library:
    module = config.getoption("--library")
    if module is None:
        raise pytest.UsageError("which operator library? --library MODULE")
    library: Library = importlib.import_module(module).library
    return library


def _status(config: pytest.Config, name: str) -> BackendStatus | None:
    return _library(config).backends().get(name)


def pytest_configure(config: pytest.Config) -> None:
    """Declare the markers; start with an empty matrix and with empty caches."""
    for marker in _MARKERS:
        config.addinivalue_line("markers", marker)
    config.stash[_outcomes] = []
    config.stash[_left_out] = []
    if config.option.tbstyle == "auto":
        config.option.tbstyle = "no"  # the summary says what is wrong; --tb=short shows where
    config.stash[_files] = {}
    # Beside its code inductor keeps the conditions that an earlier version of a fake kernel put on sizes.
    folder = tempfile.TemporaryDirectory(prefix="opwheel-inductor-")
    config.add_cleanup(folder.cleanup)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder.name


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every kind of overload and every dtype becomes parameters."""
    overloads = _library(metafunc.config).overloads
    names = metafunc.config.getoption("--operators")
    if names is not None:
        unknown = set(names.split(",")) - {overload.operator.name for overload in overloads.values()}
        if unknown:
            raise pytest.UsageError(f"--operators: the library has no {', '.join(sorted(unknown))}")
        overloads = {name: one for name, one in overloads.items() if one.operator.name in names.split(",")}
    for kind, belongs in _KINDS.items():
        if kind in metafunc.fixturenames:
            chosen = list(filter(belongs, overloads.values()))
            if kind == "sampled":
                _parametrize_checks(metafunc, chosen)
            else:
                metafunc.parametrize(kind, chosen, ids=[overload.name for overload in chosen])
    if "dtype" in metafunc.fixturenames:
        metafunc.parametrize("dtype", DTYPES, ids=[str(dtype).removeprefix("torch.") for dtype in DTYPES])


def _parametrize_checks(metafunc: pytest.Metafunc, overloads: list[Overload]) -> None:
    """Every check of every sampled operator, in each dtype of its samples that the check is made in.

    Claims of invariance are checked as far as the backend keeps them, or all that the library makes (--every-claim).
    """
    cases = []
    status = _status(metafunc.config, str(metafunc.config.getoption("--backend")))
    if status is not None and metafunc.config.getoption("--every-claim"):
        status = status._replace(not_invariant=())
    for overload in overloads:
        kept = held(overload, status)
        for check in checks.CHECKS:
            claim = checks.claim_of(check)
            if claim is not None and claim not in kept:
                continue
            for dtype in checks.dtypes_for(overload, check):
                name = str(dtype).removeprefix("torch.")
                marks = [pytest.mark.subsystem(check)]
                marks += [pytest.mark.compiles] if check in checks.COMPILE else []
                marks += [pytest.mark.takes_long] if check == "opcheck" else []
                cases.append(pytest.param(overload, check, dtype, id=f"{overload.name}-{check}-{name}", marks=marks))
    metafunc.parametrize(("sampled", "check", "sample_dtype"), cases)


@pytest.hookimpl(trylast=True)  # of what -k and -m have chosen
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests without an operator, those that --fast does not run, and those that another backend can run."""
    _deselect(config, items, [item for item in items if _has_no_operator(item)])
    if config.getoption("--fast"):
        _leave_out(config, items, [item for item in items if _takes_long(item)], "left out by --fast")
    beside = {} if config.getoption("--whole-kit") else _cpu_backends_beside(config)
    left_out = {item: by for item in items if (by := _backend_that_can_run(item, beside)) is not None}
    if not left_out:
        return
    others = " or ".join(sorted(set(left_out.values())))
    why = f"depend on no device and were left out: run them with --backend {others}, or here with --whole-kit"
    _leave_out(config, items, list(left_out), why)


def _takes_long(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(name) for name in ("compiles", "takes_long"))


def _leave_out(config: pytest.Config, items: list[pytest.Item], left_out: list[pytest.Item], why: str) -> None:
    _deselect(config, items, left_out)
    config.stash[_left_out].append(f"{len(left_out)} tests {why}")


def _deselect(config: pytest.Config, items: list[pytest.Item], left_out: list[pytest.Item]) -> None:
    chosen = set(left_out)
    items[:] = [item for item in items if item not in chosen]
    config.hook.pytest_deselected(items=left_out)


def _has_no_operator(item: pytest.Item) -> bool:
    """Whether it is the test that pytest makes where a parameter has no values."""
    params = _params(item)
    return any(kind in params and not isinstance(params[kind], Overload) for kind in _KINDS)


def _cpu_backends_beside(config: pytest.Config) -> dict[str, BackendStatus]:
    """The loaded CPU backends, where the one under test is for another device."""
    tested = _status(config, str(config.getoption("--backend")))
    if tested is None or tested.device_type == "cpu":
        return {}
    statuses = _library(config).backends()
    return {name: one for name, one in statuses.items() if one.state is State.LOADED and one.device_type == "cpu"}


def _backend_that_can_run(item: pytest.Item, backends: dict[str, BackendStatus]) -> str | None:
    overload = _overload_of(item)
    if overload is None or item.get_closest_marker("device_independent") is None:
        return None
    return next((name for name, one in backends.items() if overload.name in one.operators), None)


@pytest.fixture(scope="session")
def overloads(request: pytest.FixtureRequest) -> dict[str, Overload]:
    """All overloads of the library by name."""
    return dict(_library(request.config).overloads)


@pytest.fixture(scope="session")
def backend(request: pytest.FixtureRequest) -> BackendStatus:
    """The backend under test; skips, or fails where it was promised, when it is not loaded.

    It fails there, too, where another backend has operators that this one claims.
    """
    name = request.config.getoption("--backend")
    if name is None:
        pytest.skip("no backend given: --backend NAME")
    status = _status(request.config, name)
    promise = f"{_library(request.config).prefix}_REQUIRE"
    is_promised = name in os.environ.get(promise, "").split(",")
    if status is not None and status.state is State.LOADED:
        if status.served_by_others and is_promised:
            pytest.fail(f"{promise} promises it, but {_not_its_own(request.config, status)}")
        return status
    reason = printable(f"backend {name!r} is " + (f"{status.state}: {status.reason}" if status else "not installed"))
    if is_promised:
        pytest.fail(f"{promise} promises it, but {reason}")
    pytest.skip(reason)


@pytest.fixture(scope="session")
def device(backend: BackendStatus, request: pytest.FixtureRequest) -> torch.device:
    """Where the tensors of the tests are."""
    return _device(request.config, backend)


@pytest.fixture(scope="session")
def crashing(
    request: pytest.FixtureRequest, backend: BackendStatus, device: torch.device
) -> Iterator[dict[str, crashes.Crash]]:
    """Of the operators with tests that were chosen, and of those that these call, those that would end this process.

    While the tests run, a call that reaches such a kernel raises instead: also as a derivative of another operator.
    With --fast no process is started to find them; a kernel that ends its process then ends the run.
    """
    if request.config.getoption("--fast"):
        yield {}
        return
    library = _library(request.config)
    chosen, called_by = _first_calls(request.session.items)
    claimed = {name: dtypes for name, dtypes in chosen.items() if name in backend.operators}
    found = crashes.crashing(library.package, str(device), claimed, called_by)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch tells that a kernel is replaced
        blocked = [
            private.register_kernel(library.overloads[name].qualified_name, backend.dispatch_key, _raise(name, crash))
            for name, crash in found.items()
            if not crash.is_out_of_bounds
        ]
    yield found
    del blocked


def _first_calls(items: Iterable[Any]) -> tuple[dict[str, set[torch.dtype]], set[str]]:
    """The overloads that the tests may call, with the dtypes, and the checks that they make of samples."""
    chosen: dict[str, set[torch.dtype]] = defaultdict(set)
    called_by: set[str] = set()
    for item in items:
        params, overload = _params(item), _overload_of(item)
        if overload is None:
            continue
        if "sampled" in params:
            called_by.add(params["check"])
            dtypes = checks.dtypes_called(overload, params["check"], params["sample_dtype"])
            called = [] if params["check"] in checks.OF_THE_KERNEL_ALONE else crashes.called_by(overload)
        else:
            dtypes = (params["dtype"],) if "dtype" in params else DTYPES
            called = crashes.called_by(overload)
        for one in (overload, *called):
            chosen[one.name].update(dtypes)
    return chosen, called_by


def _raise(name: str, crash: crashes.Crash) -> Callable[..., Any]:
    def kernel(*_: Any, **__: Any) -> Any:
        raise AssertionError(f"a call of the kernel of {name} ends the process: {crash.how}")

    return kernel


@pytest.fixture(autouse=True)
def _applies(request: pytest.FixtureRequest, backend: BackendStatus) -> None:
    """Operators that the backend does not claim are not its business; huge tests are asked for."""
    if request.node.get_closest_marker("huge") and not request.config.getoption("--huge"):
        pytest.skip("needs over 20 GB: --huge")
    overload = _overload_of(request.node)
    if overload is not None and overload.name not in backend.operators:
        other = dict(backend.served_by_others).get(overload.name)
        pytest.skip(f"{other} serves it, not {backend.name}" if other else f"not claimed by {backend.name}")
    crash = request.getfixturevalue("crashing").get(overload.name) if overload is not None else None
    # Of reads out of the bounds of arguments the element-wise operators have a test of its own.
    if crash is not None and ("sampled" in request.fixturenames or not crash.is_out_of_bounds):
        pytest.fail(f"{overload}: a call of its kernel ends the process: {crash.how}", pytrace=False)


def _params(item: Any) -> dict[str, Any]:
    """What a test is parametrized with; nothing if it is not."""
    return item.callspec.params if hasattr(item, "callspec") else {}


def _overload_of(item: Any) -> Overload | None:
    """What a test is about; None where pytest has no operator for its parameter, or it has no such parameter."""
    params = _params(item)
    return next((params[kind] for kind in _KINDS if isinstance(params.get(kind), Overload)), None)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Note which test runs: whoever has started this process can say in which it has ended."""
    file = item.config.getoption("--current-test")
    if file:
        Path(file).write_text(f"{item.path.name}::{item.name}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Note the outcome for the matrix."""
    report = yield
    marker = item.get_closest_marker("subsystem")
    overload = _overload_of(item)
    if marker is None or overload is None or (report.when != "call" and report.passed):
        return report
    params = _params(item)
    dtype = str(params.get("dtype", params.get("sample_dtype", ""))).removeprefix("torch.")
    message = str(call.excinfo.value) if report.failed and call.excinfo is not None else ""
    item.config.stash[_outcomes].append(
        Outcome(
            overload.name,
            marker.args[0],
            dtype,
            str(params.get("layout", "")),
            report.outcome,
            message,
            tuple(str(words) for name, words in item.user_properties if name == LEFT_OUT),
        )
    )
    item.config.stash[_files][marker.args[0]] = f"{item.path.name}"
    return report


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print operators against subsystems, and write the JSON where it is asked for."""
    for line in config.stash[_left_out]:
        terminalreporter.write_line(line)
    outcomes = config.stash[_outcomes]
    if not outcomes:
        return
    cells: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for one in outcomes:
        cells[one.operator][one.subsystem].append(one.outcome)
    subsystems = sorted({subsystem for row in cells.values() for subsystem in row})
    terminalreporter.section(f"coverage of {config.getoption('--library')}'s backend {config.getoption('--backend')}")
    for line in matrix.lines(cells, shutil.get_terminal_size().columns):
        terminalreporter.write_line(line)
    status = _status(config, str(config.getoption("--backend")))
    by_reference = [name for name in status.by_reference if name in cells] if status else []
    if by_reference:
        terminalreporter.write_line(f"computed by the reference, for lack of a kernel: {', '.join(by_reference)}")
    not_tried = _not_tried(config, status, subsystems)
    for subsystem, reason in not_tried.items():
        terminalreporter.write_line(f"not tried: {subsystem}: {reason}")
    served_by_others = dict(status.served_by_others) if status else {}
    if status is not None and served_by_others:
        terminalreporter.write_line(_not_its_own(config, status))
    unclaimed, unsampled = _unclaimed(config), _unsampled(config)
    for why, names in {
        "not claimed by the backend": unclaimed,
        "without samples": unsampled,
        "without a declaration": _undeclared(config),
    }.items():
        if names:
            terminalreporter.write_line(f"{why}, and not tested: {', '.join(names)}")
    left_out = list(left_out_lines(outcomes))
    if left_out:
        terminalreporter.section("left out, which is no failure")
        for line in left_out:
            terminalreporter.write_line(line)
    found = list(report_lines(outcomes))
    if found:
        terminalreporter.section("what is wrong")
        for line in found:
            terminalreporter.write_line(line)
    path = config.getoption("--matrix")
    if path:
        rows = [
            {"operator": o, "subsystem": s, "dtype": d, "outcome": r}
            for (o, s, d), r in sorted(_worst(outcomes).items())
        ]
        document = {
            "library": config.getoption("--library"),
            "backend": config.getoption("--backend"),
            "torch": torch.__version__,
            "not_claimed": unclaimed,
            "served_by_others": served_by_others,
            "by_reference": by_reference,
            "left_out": config.stash[_left_out],
            "not_tried": not_tried,
            "left_out_inputs": [
                {"operator": one.operator, "subsystem": one.subsystem, "dtype": one.dtype, "why": words}
                for one in outcomes
                for words in one.left_out
            ],
            "subsystems": dict(sorted(config.stash[_files].items())),
            "results": rows,
        }
        Path(path).write_text(json.dumps(document, indent=1) + "\n")


def _worst(outcomes: list[Outcome]) -> dict[tuple[str, str, str], str]:
    """The worst outcome for each operator, subsystem and dtype."""
    order = ["", "skipped", "passed", "failed"]
    worst: dict[tuple[str, str, str], str] = {}
    for one in outcomes:
        key = (one.operator, one.subsystem, one.dtype)
        worst[key] = max(worst.get(key, ""), one.outcome, key=order.index)
    return worst


def _device(config: pytest.Config, status: BackendStatus) -> torch.device:
    return torch.device(config.getoption("--device") or status.device_type)


def _not_tried(config: pytest.Config, status: BackendStatus | None, subsystems: list[str]) -> dict[str, str]:
    """Checks that cannot be made on the device, and why."""
    if status is None:
        return {}
    reasons = {name: checks.not_tried(name, _device(config, status)) for name in subsystems}
    return {name: reason for name, reason in reasons.items() if reason}


def _unsampled(config: pytest.Config) -> list[str]:
    overloads = _library(config).overloads.items()
    return sorted(name for name, one in overloads if not _is_elementwise(one) and not _has_samples(one))


def _undeclared(config: pytest.Config) -> list[str]:
    """Operators that somebody has registered in the namespace without a declaration."""
    library = _library(config)
    present = {name.partition("::")[2] for name in private.operators_of(library.namespace)}
    return sorted(present - set(library.overloads))


def _unclaimed(config: pytest.Config) -> list[str]:
    status = _status(config, str(config.getoption("--backend")))
    known = {*status.operators, *dict(status.served_by_others)} if status else set()
    return sorted(set(_library(config).overloads) - known)


def _not_its_own(config: pytest.Config, status: BackendStatus) -> str:
    """What a backend under test claims and others serve, and with what it would be tested."""
    library = _library(config)
    found: dict[str, list[str]] = defaultdict(list)
    for operator, other in status.served_by_others:
        found[other].append(operator)
    served = "; ".join(f"{other} serves {', '.join(operators)}" for other, operators in found.items())
    only = f"{library.prefix}_BACKENDS={admitted(library.backends(), status.name)}"
    return printable(f"not tested, because they are not {status.name}'s here: {served}; {only} tests them")
