"""What PyTorch would end the process for is refused by the build, which names the schema."""

import pytest
from opwheel.build import schemas
from opwheel.build.toolchain import ToolchainError

from tests.faults.test_abi import library, schema


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("f(Tensor x, float eps=abc) -> Tensor", "PyTorch does not understand the schema"),
        ("f(Tensor x=None, float eps) -> Tensor", "an argument without a default follows one with a default"),
        ("waves::f(Tensor x) -> Tensor", "names a namespace; leave it out"),
    ],
)
def test_refused(tmp_path, text, reason):
    path = tmp_path / "libwaves_schema.so"
    path.write_bytes(library(schema("g(Tensor x) -> Tensor") + schema(text)))
    with pytest.raises(ToolchainError, match=reason) as refusal:
        schemas.check(path)
    assert repr(text) in str(refusal.value)


def test_understood(tmp_path):
    path = tmp_path / "libwaves_schema.so"
    path.write_bytes(library(schema("g(Tensor x, float eps=1e-6) -> Tensor")))
    schemas.check(path)
