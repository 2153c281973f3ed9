"""What PyTorch would end the process for is refused when a library is imported, as its build does, by name."""

from pathlib import Path

import pytest
from opwheel.registry.schemas import open_schemas

from .test_abi import library, schema


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("f(Tensor x, float eps=abc) -> Tensor", "PyTorch does not understand the schema"),
        ("f(Tensor x=None, float eps) -> Tensor", "an argument without a default follows one with a default"),
        ("waves::f(Tensor x) -> Tensor", "names a namespace; leave it out"),
    ],
)
def test_refused(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "libwaves_schema.so"
    path.write_bytes(library(schema("g(Tensor x) -> Tensor") + schema(text)))
    with pytest.raises(ImportError, match=reason) as refusal:
        open_schemas("waves_not_understood", path, "waves-core", [])
    assert repr(text) in str(refusal.value)
