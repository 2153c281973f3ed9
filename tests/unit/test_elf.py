"""What is read from a shared library before the dynamic loader opens it."""

import contextlib
import struct
from pathlib import Path

import muladd
import muladd_cpu
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opwheel.registry.abi import read_notes
from opwheel.registry.elf import check_complete, may_define_operators

SCHEMAS = Path(muladd.library.schema_library)
KERNELS = Path(muladd_cpu.__file__).with_name("libmuladd_cpu.so")


def test_a_library_of_schemas_defines_operators_and_one_of_kernels_does_not():
    assert may_define_operators(SCHEMAS)
    assert not may_define_operators(KERNELS)


@pytest.mark.parametrize("content", [b"", b"no library", b"\x7fELF\x01\x01" + bytes(100), b"\x7fELF\x02\x01"])
def test_what_is_no_library_for_this_processor_may_define_anything(content, tmp_path):
    file = tmp_path / "lib.so"
    file.write_bytes(content)
    assert may_define_operators(file)
    assert may_define_operators(tmp_path / "missing.so")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300)
@given(st.data())
def test_a_damaged_library_is_no_exception_but_oserror(tmp_path, data):
    content = bytearray(SCHEMAS.read_bytes())
    header = st.integers(0, 63 + 56 * 12)  # and the table of segments
    for place in data.draw(st.lists(st.one_of(header, st.integers(0, len(content) - 1)), max_size=8)):
        content[place] = data.draw(st.integers(0, 255))
    file = tmp_path / "lib.so"
    file.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    assert may_define_operators(file) in (True, False)
    read_notes(file)
    with contextlib.suppress(OSError):
        check_complete(file)


def test_names_that_no_segment_has_may_be_anything(tmp_path):
    content = bytearray(KERNELS.read_bytes())
    (table,) = struct.unpack_from("<Q", content, 32)
    (count,) = struct.unpack_from("<H", content, 56)
    for segment in range(count):
        (kind,) = struct.unpack_from("<I", content, table + segment * 56)
        if kind == 1:  # PT_LOAD: into memory, but to no address
            struct.pack_into("<Q", content, table + segment * 56 + 32, 0)
    file = tmp_path / "lib.so"
    file.write_bytes(content)
    assert may_define_operators(file)


# Where the table of segments is, and how large each of its entries.
@pytest.mark.parametrize(("place", "field"), [(32, b"\xff" * 8), (54, bytes(2)), (54, b"\xff\xff")])
def test_a_damaged_header_is_no_exception_but_oserror(place, field, tmp_path):
    content = bytearray(KERNELS.read_bytes())
    content[place : place + len(field)] = field
    file = tmp_path / "lib.so"
    file.write_bytes(content)
    assert may_define_operators(file)
    read_notes(file)
    with contextlib.suppress(OSError):
        check_complete(file)
