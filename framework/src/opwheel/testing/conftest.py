"""Which backend is tested, on which device, and with which operators; the matrix at the end."""

from __future__ import annotations

import importlib
import json
import os
import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from opwheel import Library
from opwheel.dispatch.overload import Overload
from opwheel.registry import BackendStatus, State
from opwheel.testing.samples import DTYPES

_KINDS: dict[str, Callable[[Overload], bool]] = {
    "functional": lambda overload: not overload.mutates,
    "out_variant": lambda overload: overload.is_out,
    "in_place": lambda overload: overload.is_in_place,
    "mutating": lambda overload: overload.mutates,
    "overload": lambda _: True,
}
_MARKERS = (
    "subsystem(name): what of PyTorch the test is about; a column of the matrix",
    "compiles: runs torch.compile, which needs a C++ compiler",
    "huge: needs more than 20 GB of memory on the device",
    "device_independent: about what the library registers for every device, not about the backend's kernels",
)
_outcomes = pytest.StashKey[dict[tuple[str, str, str], str]]()
_files = pytest.StashKey[dict[str, str]]()  # the test file of each subsystem
_left_out = pytest.StashKey[str]()  # which tests were deselected, and why


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
    config.stash[_outcomes] = {}
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
            metafunc.parametrize(kind, chosen, ids=[overload.name for overload in chosen])
    if "dtype" in metafunc.fixturenames:
        metafunc.parametrize("dtype", DTYPES, ids=[str(dtype).removeprefix("torch.") for dtype in DTYPES])


@pytest.hookimpl(trylast=True)  # of what -k and -m have chosen
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what depends on no device where the library's CPU backend can run it: once is enough."""
    beside = {} if config.getoption("--whole-kit") else _cpu_backends_beside(config)
    left_out = {item: by for item in items if (by := _backend_that_can_run(item, beside)) is not None}
    if not left_out:
        return
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=list(left_out))
    config.stash[_left_out] = (
        f"{len(left_out)} tests depend on no device and were left out: run them with "
        f"--backend {' or '.join(sorted(set(left_out.values())))}, or here with --whole-kit"
    )


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
    """The backend under test; skips, or fails where it was promised, when it is not loaded."""
    name = request.config.getoption("--backend")
    if name is None:
        pytest.skip("no backend given: --backend NAME")
    status = _status(request.config, name)
    if status is not None and status.state is State.LOADED:
        return status
    reason = f"backend {name!r} is " + (f"{status.state}: {status.reason}" if status else "not installed")
    promise = f"{_library(request.config).prefix}_REQUIRE"
    if name in os.environ.get(promise, "").split(","):
        pytest.fail(f"{promise} promises it, but {reason}")
    pytest.skip(reason)


@pytest.fixture(scope="session")
def device(backend: BackendStatus, request: pytest.FixtureRequest) -> torch.device:
    """Where the tensors of the tests are."""
    return torch.device(request.config.getoption("--device") or backend.device_type)


@pytest.fixture(autouse=True)
def _applies(request: pytest.FixtureRequest, backend: BackendStatus) -> None:
    """Operators that the backend does not claim are not its business; huge tests are asked for."""
    if request.node.get_closest_marker("huge") and not request.config.getoption("--huge"):
        pytest.skip("needs over 20 GB: --huge")
    overload = _overload_of(request.node)
    if overload is not None and overload.name not in backend.operators:
        pytest.skip(f"not claimed by {backend.name}")


def _overload_of(item: Any) -> Overload | None:
    callspec = getattr(item, "callspec", None)
    if callspec is None:
        return None
    return next((callspec.params[kind] for kind in _KINDS if kind in callspec.params), None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    """Note the outcome for the matrix."""
    report = yield
    marker = item.get_closest_marker("subsystem")
    overload = _overload_of(item)
    if marker is None or overload is None or (report.when != "call" and report.passed):
        return report
    dtype = item.callspec.params.get("dtype")  # type: ignore[attr-defined]
    key = (overload.name, marker.args[0], "" if dtype is None else str(dtype).removeprefix("torch."))
    outcomes = item.config.stash[_outcomes]
    worst = ["", "skipped", "passed", "failed"]
    outcomes[key] = max(outcomes.get(key, ""), report.outcome, key=worst.index)
    item.config.stash[_files][marker.args[0]] = f"{item.path.name}"
    return report


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print operators against subsystems, and write the JSON where it is asked for."""
    if _left_out in config.stash:
        terminalreporter.write_line(config.stash[_left_out])
    outcomes = config.stash[_outcomes]
    if not outcomes:
        return
    cells: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for (operator, subsystem, _), outcome in outcomes.items():
        cells[operator][subsystem].append(outcome)
    subsystems = sorted({subsystem for row in cells.values() for subsystem in row})
    terminalreporter.section(f"coverage of {config.getoption('--library')}'s backend {config.getoption('--backend')}")
    width = max(map(len, cells))
    for index, subsystem in enumerate(subsystems, 1):
        terminalreporter.write_line(f"{index:>{width}} {subsystem}")
    terminalreporter.write_line(" " * width + "".join(f"{index:>4}" for index in range(1, len(subsystems) + 1)))
    for operator, row in cells.items():
        marks = "".join(f"{_mark(row.get(subsystem, [])):>4}" for subsystem in subsystems)
        terminalreporter.write_line(f"{operator:>{width}}{marks}")
    terminalreporter.write_line("ok: passed, FAIL: failed, --: skipped or not claimed")
    unclaimed = _unclaimed(config)
    if unclaimed:
        terminalreporter.write_line(f"not claimed by the backend, and not tested: {', '.join(unclaimed)}")
    path = config.getoption("--matrix")
    if path:
        rows = [{"operator": o, "subsystem": s, "dtype": d, "outcome": r} for (o, s, d), r in sorted(outcomes.items())]
        document = {
            "library": config.getoption("--library"),
            "backend": config.getoption("--backend"),
            "torch": torch.__version__,
            "not_claimed": unclaimed,
            "left_out": config.stash.get(_left_out, ""),
            "subsystems": dict(sorted(config.stash[_files].items())),
            "results": rows,
        }
        Path(path).write_text(json.dumps(document, indent=1) + "\n")


def _unclaimed(config: pytest.Config) -> list[str]:
    status = _status(config, str(config.getoption("--backend")))
    return sorted(set(_library(config).overloads) - set(status.operators if status else ()))


def _mark(outcomes: list[str]) -> str:
    if "failed" in outcomes:
        return "FAIL"
    return "ok" if "passed" in outcomes else "--"
