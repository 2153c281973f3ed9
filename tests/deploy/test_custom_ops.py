"""examples/executorch_custom_ops with its one command."""

import sys

import pytest

from .conftest import ROOT, run

pytest.importorskip("executorch", reason="make test-deploy installs ExecuTorch")


def test_one_command(folder):
    result = run(sys.executable, ROOT / "examples/executorch_custom_ops/run.py", folder / "custom-ops", check=True)
    assert result.stdout.splitlines()[:-1] == [
        "mul3 from Python: [0.0, 3.0, 6.0, 9.0, 12.0, 15.0]",
        "mul4 from Python: [0.0, 4.0, 8.0, 12.0, 16.0, 20.0]",
        "mul4 from C++, built for mul4 only: 0 4 8 12 16 20",
    ]
    assert result.stdout.splitlines()[-1].endswith("mul3.pte: Error::OperatorMissing")
    assert (
        "Missing operator: [0] my_ops::mul3.out"
        in run(folder / "custom-ops/run", folder / "custom-ops/mul3.pte").stderr
    )
    linked = run("ldd", folder / "custom-ops/run", check=True).stdout
    assert "libtorch" not in linked
    assert "libpython" not in linked
