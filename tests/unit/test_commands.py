"""The command line, as a user types it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


def python(*arguments, cwd=None, **environment):
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env=os.environ | environment,
    )


def muladd(*arguments, **environment):
    return python("-m", "muladd", *arguments, **environment)


def test_doctor_shows_the_backends():
    result = muladd("doctor")
    assert result.returncode == 0
    assert "muladd-core" in result.stdout
    row = next(line for line in result.stdout.splitlines() if line.startswith("cpu"))
    assert row.split()[:4] == ["cpu", "loaded", "CPU", "muladd-cpu"]


def test_doctor_json():
    report = json.loads(muladd("doctor", "--json").stdout)
    assert report["ok"] is True
    assert report["backends"]["cpu"]["state"] == "loaded"
    assert set(report) >= {"muladd", "abi", "torch", "python", "platform", "digest", "not_installed", "findings"}


def test_doctor_without_a_backend_is_a_finding():
    result = muladd("doctor", MULADD_BACKENDS="")
    assert result.returncode == 1
    assert "disabled" in result.stdout
    assert "MULADD_BACKENDS" in result.stdout


def test_explain():
    result = muladd("explain", "muladd", "cpu")
    assert result.returncode == 0
    assert "libmuladd_cpu.so" in result.stdout
    assert "digest" in result.stdout
    everything = muladd("explain")
    assert "muladd_backward" in everything.stdout


def test_explain_a_device_without_kernels():
    result = muladd("explain", "muladd", "mps")
    assert result.returncode == 1
    assert "OPWHEEL-E001" in result.stdout


@pytest.mark.parametrize(
    "arguments", [("explain", "nothing"), ("config",), ("doctor", "--unknown"), ("unknown",)], ids=" ".join
)
def test_wrong_usage(arguments):
    result = muladd(*arguments)
    assert result.returncode == 2
    assert "Traceback" not in result.stderr


def test_check_runs_the_kit():
    result = muladd("check", "cpu", "--", "-q", "-k", "test_sizes and muladd-float32", "-p", "no:cacheprovider")
    assert result.returncode == 0, result.stdout
    assert "1 passed" in result.stdout


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


def test_config():
    includes, libs = muladd("config", "--includes").stdout, muladd("config", "--libs").stdout.splitlines()
    assert Path(includes.split()[0].removeprefix("-I"), "muladd/operators.h").is_file()
    assert [Path(path).name for path in libs] == ["libmuladd_schema.so", "libmuladd_cpu.so"]
    assert all(Path(path).is_file() for path in libs)
    assert "-DTORCH_TARGET_VERSION=0x020a" in muladd("config", "--cflags").stdout


def test_lock_writes_and_checks(tmp_path):
    file = tmp_path / "muladd.lock"
    written = muladd("lock", str(file))
    assert written.returncode == 0, written.stdout + written.stderr
    assert "winners: CPU: cpu" in written.stdout
    assert muladd("lock", str(file), "--check").stdout == f"{file}: no difference\n"
    file.write_text(file.read_text().replace('"fallback": "error"', '"fallback": "reference"'))
    changed = muladd("lock", str(file), "--check")
    assert changed.returncode == 1
    assert "the fallback is 'error', locked is 'reference'" in changed.stdout
    told = muladd("doctor", MULADD_LOCK=str(file))
    assert (told.returncode, told.stderr) == (1, "")
    assert "the fallback is 'error', locked is 'reference' [OPWHEEL-E071]" in told.stdout
    # With lock it may become what is locked.
    assert muladd("lock", str(file), MULADD_LOCK=str(file)).returncode == 0
    assert muladd("doctor", MULADD_LOCK=str(file)).returncode == 0


def test_lock_with_wrong_files(tmp_path):
    assert "cannot be written" in muladd("lock", str(tmp_path / "no/such")).stderr
    missing = muladd("lock", str(tmp_path / "gone"), "--check")
    assert missing.returncode == 1
    assert "OPWHEEL-E070" in missing.stdout


SCRIPT = ("-c", "import opwheel_cli; opwheel_cli.main()")
MODULE = ("-m", "muladd")


@pytest.mark.parametrize(
    ("program", "arguments"),
    [
        (SCRIPT, ("explain",)),
        (SCRIPT, ("check", "cpu")),
        (MODULE, ("config", "--libs")),
        (MODULE, ("bench", "--quick")),
        (MODULE, ("new-backend", "acme")),
    ],
    ids=["explain", "check", "config", "bench", "new-backend"],
)
def test_a_lock_that_fails_is_a_message(program, arguments, tmp_path):
    result = python(*program, *arguments, cwd=tmp_path, MULADD_LOCK="gone.lock")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == "muladd: gone.lock: cannot be read: No such file or directory (OPWHEEL-E070)\n"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("program", [SCRIPT, MODULE], ids=["script", "module"])
def test_the_traceback_is_there_for_those_who_trace(program):
    result = python(*program, "explain", MULADD_LOCK="", MULADD_TRACE="1")
    assert result.returncode == 1
    assert "Traceback (most recent call last)" in result.stderr
    assert "MULADD_LOCK is empty" in result.stderr


def test_other_errors_keep_their_traceback():
    broken = "import opwheel_cli; opwheel_cli.prepare(); 1 / 0"
    assert "Traceback (most recent call last)" in python("-c", broken).stderr


def test_other_programs_see_the_error():
    """Only a command prints it: whoever imports muladd gets the exception."""
    result = python("-c", "import muladd", "doctor", MULADD_LOCK="")
    assert "Traceback (most recent call last)" in result.stderr
    assert "opwheel.registry.errors.LockError" in result.stderr
