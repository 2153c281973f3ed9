"""Every wheel that can be built here, built again elsewhere: the same bytes. Takes as long as `make wheels`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from release import cross

from .conftest import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.wheels]


@pytest.mark.parametrize("machine", ["", *cross.TARGETS])
def test_a_second_build_from_another_checkout(machine: str, tmp_path: Path) -> None:
    if machine and shutil.which(cross.TARGETS[machine].compiler) is None:
        pytest.skip(f"there is no cross compiler: apt-get install {cross.TARGETS[machine].package}")
    checkout = tmp_path / "another checkout"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(checkout)], check=True)
    command = [sys.executable, "-m", "release.build", "--python", str(ROOT / ".venv-sycl/bin/python")]
    command += ["--platform", machine] if machine else []
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "1790000000"}
    outs = [tmp_path / "one", tmp_path / "two"]
    for folder, out in zip((ROOT, checkout), outs, strict=True):
        result = subprocess.run([*command, "--out", str(out)], cwd=folder, env=environment, check=False)
        assert result.returncode == 0
    one, two = ({path.name: path.read_bytes() for path in out.rglob("*") if path.is_file()} for out in outs)
    assert {"muladd", "muladd_core", "muladd_cpu"} <= {name.partition("-")[0] for name in one}
    assert one.keys() == two.keys()
    assert [name for name in one if one[name] != two[name]] == []
