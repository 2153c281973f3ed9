"""An audit says what it finds while it goes on."""

import pytest
from opwheel_tools.audit import run

WAITS = """
import pathlib
import time
import torch

told = pathlib.Path(__file__).with_name("told")

@torch.library.custom_op("waits_until_told::double", mutates_args=())
def double(x: torch.Tensor) -> torch.Tensor:
    while x.numel() == 0 and not told.exists():
        time.sleep(0.05)
    return x * 2

def samples(operator):
    from torch.testing._internal.opinfo.core import SampleInput

    return [SampleInput(torch.ones(2))]
"""


@pytest.mark.slow
def test_a_result_is_said_before_the_next_check_ends(tmp_path, monkeypatch):
    """The operator hangs in its second check until somebody has heard of the first one."""
    (tmp_path / "waits_until_told.py").write_text(WAITS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    said = []

    def hear(line):
        said.append(line)
        if line == "waits_until_told::double: call: right":
            (tmp_path / "told").touch()

    module = "waits_until_told"
    found = run.audit(module, samples=f"{module}:samples", checks=["empty"], seconds=20, progress=hear)
    assert said == [
        f"{module}: 1 operators, 1 calls, 2 checks",
        f"{module}::double: call: right",
        f"{module}::double: empty: right",
    ]
    assert [result.cell.check for result in found.results] == ["call", "empty"]
