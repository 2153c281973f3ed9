"""What commands say of a lock that does not hold and of backends that are not loaded, each in a process of its own."""

import os

import pytest

from tests.forked_python import server

SCRIPT = ("-c", "from opwheel.scripts import muladd; muladd()")
WITH_OPTION = ("-m", "opwheel", "--library", "muladd")


def python(*arguments, cwd=None, **environment):
    return server().run(*arguments, cwd=cwd, environment=os.environ | environment)


def muladd(*arguments, **environment):
    return python(*SCRIPT, *arguments, **environment)


def test_check_fails_a_backend_that_is_not_loaded():
    """At once, in one line: the kit would fail with each of its tests."""
    result = muladd("check", "cpu", MULADD_BACKENDS="")
    assert (result.returncode, result.stderr) == (1, "")
    assert result.stdout == (
        "muladd: the backend 'cpu' (muladd-cpu 0.1.0) is disabled: MULADD_BACKENDS= does not name it [OPWHEEL-E060]; "
        "to fix it: add cpu to MULADD_BACKENDS, or unset the variable (OPWHEEL-E002)\n"
    )


def test_check_of_a_backend_that_is_not_installed(tmp_path):
    policy = tmp_path / "plugins.toml"
    policy.write_text("[backends.mine]\ndistribution = 'muladd-mine'\ndispatch-key = 'MTIA'\ndevice = 'mtia'\n")
    result = muladd("check", "mine", MULADD_PLUGINS=str(policy))
    assert result.returncode == 1
    assert result.stdout == "muladd: the backend 'mine' is not installed: pip install muladd-mine (OPWHEEL-E002)\n"


def test_check_of_no_backend():
    result = muladd("check", "nothing")
    assert (result.returncode, result.stdout) == (2, "")
    assert "there is no backend 'nothing'; known are: cpu, cuda, sycl" in " ".join(result.stderr.split())


@pytest.mark.slow
@pytest.mark.parametrize("program", [SCRIPT, WITH_OPTION], ids=["script", "option"])
def test_doctor_reports_a_lock_that_does_not_hold(program, tmp_path):
    file = tmp_path / "muladd.lock"
    assert muladd("lock", file).returncode == 0
    file.write_text(file.read_text().replace('"fallback": "error"', '"fallback": "reference"'))
    told = python(*program, "doctor", MULADD_LOCK=str(file))
    assert (told.returncode, told.stderr) == (1, "")
    assert "the fallback is 'error', locked is 'reference' [OPWHEEL-E071]" in told.stdout
    # With lock it may become what is locked.
    assert python(*program, "lock", file, MULADD_LOCK=str(file)).returncode == 0
    assert python(*program, "doctor", MULADD_LOCK=str(file)).returncode == 0


@pytest.mark.parametrize(
    ("program", "arguments"),
    [
        (SCRIPT, ("explain",)),
        (SCRIPT, ("check", "cpu")),
        (WITH_OPTION, ("config", "--libs")),
        (WITH_OPTION, ("bench", "--quick")),
        (WITH_OPTION, ("new-backend", "acme")),
    ],
    ids=["explain", "check", "config", "bench", "new-backend"],
)
def test_a_lock_that_fails_is_a_message(program, arguments, tmp_path):
    result = python(*program, *arguments, cwd=tmp_path, MULADD_LOCK="gone.lock")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == f"muladd: {tmp_path}/gone.lock: cannot be read: No such file or directory (OPWHEEL-E070)\n"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("program", [SCRIPT, WITH_OPTION], ids=["script", "option"])
def test_the_traceback_is_there_for_those_who_trace(program):
    result = python(*program, "explain", MULADD_LOCK="", MULADD_TRACE="1")
    assert result.returncode == 1
    assert "Traceback (most recent call last)" in result.stderr
    assert "MULADD_LOCK is empty" in result.stderr


def test_other_programs_see_the_error():
    """Only a command prints it: whoever imports muladd gets the exception."""
    result = python("-c", "import muladd", "doctor", MULADD_LOCK="")
    assert "Traceback (most recent call last)" in result.stderr
    assert "opwheel.registry.errors.LockError" in result.stderr
