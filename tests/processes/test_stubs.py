"""The stub that the build writes says what is there when the library is imported."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import muladd
import pytest
from opwheel._build.toolchain import ToolchainError
from opwheel_tools.build.declarations import run_with
from opwheel_tools.build.stubs import stub_of

PACKAGE = Path(muladd.__file__).parent
# What is no part of the package's stub: a program, the library of the schemas, and functions with decorators' types.
ALLOWED = r"muladd\.(__main__|libmuladd_schema|benchmarks\..*)"


@pytest.mark.nightly
@pytest.mark.slow
def test_mypy_reads_what_python_has(tmp_path):
    shutil.copytree(PACKAGE, tmp_path / "muladd", ignore=shutil.ignore_patterns("*.pyi", "__pycache__"))
    run_with("muladd", tmp_path, "stubs")
    assert (
        'c: float | torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:\n    """Multiply and add'
        in (tmp_path / "muladd/__init__.pyi").read_text()
    )
    (tmp_path / "allowed").write_text(ALLOWED)
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    result = subprocess.run(
        [sys.executable, "-m", "mypy.stubtest", "muladd", "--allowlist", tmp_path / "allowed"],
        env={**os.environ, "PYTHONPATH": path, "MYPYPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_what_a_package_only_does_is_left_out():
    def muladd(a: int, *, b: str = "x"):
        r'''A \ and """quotes"""'''

    source = '"""Doc."""\nimport os\nprint(os)\nx = 1\n__all__ = ["x"]\n__all__ += y\n'
    stub = stub_of(source, ["x", "muladd"], {"muladd": muladd})
    names = {}
    exec(stub, names)
    assert "print" not in stub
    assert (names["x"], names["__doc__"], names["__all__"]) == (1, "Doc.", ["x", "muladd"])
    assert names["muladd"].__doc__ == 'A \\ and """quotes"""'


def test_a_library_that_cannot_be_imported(tmp_path):
    (tmp_path / "broken.py").write_text("raise RuntimeError('too early')")
    with pytest.raises(ToolchainError, match="too early"):
        run_with("broken", tmp_path, "stubs")
