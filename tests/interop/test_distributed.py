"""DTensor over real process groups."""

from pathlib import Path

import pytest

from tests.portions import first_of
from tests.torchrun import in_processes

HERE = Path(__file__).parent


@pytest.mark.slow
@pytest.mark.parametrize("mesh", first_of(["2", "4", "2x2"]))
def test_sharding_rules(mesh):
    output = in_processes(2 if mesh == "2" else 4, str(HERE / "distributed_checks.py"), mesh)
    assert "all placements right" in output


@pytest.mark.slow
def test_operators_of_every_class():
    assert "all operators right" in in_processes(2, str(HERE / "distributed_rows.py"))
