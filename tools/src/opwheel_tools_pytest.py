"""The pytest plugin: the fixture ``judge``, and options of the conformance kit.

Light: every pytest run imports it where opwheel is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from opwheel_tools.judge import Verdict


@pytest.fixture
def judge() -> Callable[..., Verdict]:
    """:func:`opwheel_tools.judge.judge`, under which the test fails where a kernel is wrong.

    It takes the same arguments, functions and classes among them, and fails with the report; that a kernel cannot be
    judged is an error, ``UsageError``.
    """

    def judged(candidate: Any, **arguments: Any) -> Verdict:
        __tracebackhide__ = True
        from opwheel_tools.judge import judge as run

        verdict = run(candidate, **arguments)
        if not verdict.is_complete:
            pytest.exit(verdict.report, returncode=pytest.ExitCode.INTERRUPTED)
        if not verdict.is_right:
            pytest.fail(verdict.report, pytrace=False)
        return verdict

    return judged


def pytest_load_initial_conftests(parser: pytest.Parser, args: list[str]) -> None:
    """Add the kit's options where the kit is run: other projects may have options of the same names.

    The kit's own conftest.py cannot do it: with ``--pyargs`` pytest finds it after it has read the command line.
    """
    if not any("opwheel_tools.testing" in argument or "opwheel/testing" in argument for argument in args):
        return
    group = parser.getgroup("opwheel", "conformance of an operator library's backend")
    group.addoption("--library", metavar="MODULE", help="the operator library")
    group.addoption("--backend", metavar="NAME", help="the backend to test, as in its entry point")
    group.addoption("--operators", metavar="NAMES", help="test these alone, with their overloads: mul,add")
    group.addoption(
        "--fast", action="store_true", help="leave out torch.compile, torch.export, opcheck and what else takes long"
    )
    group.addoption("--device", metavar="DEVICE", help="a torch device, if not the backend's device type")
    group.addoption("--huge", action="store_true", help="also run tests that need over 20 GB on the device")
    group.addoption(
        "--whole-kit", action="store_true", help="also tests that depend on no device: another may run them"
    )
    group.addoption(
        "--every-claim", action="store_true", help="also claims of invariance that the backend says it does not keep"
    )
    group.addoption("--matrix", metavar="FILE", help="write the coverage matrix as JSON")
    group.addoption("--current-test", metavar="FILE", help="write the name of each test there before it begins")
