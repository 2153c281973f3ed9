"""The command line, as a user types it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


def muladd(*arguments, **environment):
    import os

    return subprocess.run(
        [sys.executable, "-m", "muladd", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
    )


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
    result = muladd("check", "cpu", "--", "-q", "-x", "-p", "no:cacheprovider", MULADD_BACKENDS="")
    assert result.returncode == 1
    assert "MULADD_REQUIRE promises it" in result.stdout
    assert muladd("check", "nothing").returncode == 2


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
    assert "OPWHEEL-E071" in muladd("doctor", MULADD_LOCK=str(file)).stderr


def test_lock_with_wrong_files(tmp_path):
    assert "cannot be written" in muladd("lock", str(tmp_path / "no/such")).stderr
    missing = muladd("lock", str(tmp_path / "gone"), "--check")
    assert missing.returncode == 1
    assert "OPWHEEL-E070" in missing.stdout
