"""The SDK's headers for SYCL backends stand alone."""

import shlex
import subprocess
import sys
from pathlib import Path

import opwheel_tools
import pytest
from opwheel_tools.build import sycl

from tests.portions import first_of

SDK = Path(opwheel_tools.get_include())
HEADERS = sorted(path.relative_to(SDK) for path in SDK.rglob("*.h") if "xpu" in path.parts)


@pytest.mark.parametrize("header", first_of(HEADERS, 3), ids=str)
def test_header_stands_alone(tmp_path, header):
    flags = subprocess.run(
        [sys.executable, "-m", "muladd", "config", "--cflags"], capture_output=True, text=True, check=True
    ).stdout
    include = sycl.find_sycl("libsycl.so.9").include
    (tmp_path / "source.cpp").write_text(f'#include "{header}"\n#include "{header}"\n')
    options = [
        "-UTORCH_TARGET_VERSION",
        "-DTORCH_TARGET_VERSION=0x020d000000000000",
        *sycl.HOST_FLAGS,
        f"-isystem{include}",
        "-fsyntax-only",
    ]
    command = ["g++", *shlex.split(flags), *options, str(tmp_path / "source.cpp")]
    assert subprocess.run(command, capture_output=True, text=True, check=False).stderr == ""
