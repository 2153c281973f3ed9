"""The C++ SDK: every header stands alone, and a kernel that does not fit its schema does not compile."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import muladd
import pytest
from opwheel.dispatch import kernel_errors

HEADERS = sorted(path.name for path in Path(muladd.get_include(), "muladd").glob("*.h"))


@pytest.fixture(scope="module")
def compile_source(tmp_path_factory):
    """Type-check a source; returns the compiler's messages, empty if there are none."""
    flags = subprocess.run(
        [sys.executable, "-m", "muladd", "config", "--cflags"], capture_output=True, text=True, check=True
    ).stdout
    folder = tmp_path_factory.mktemp("sdk")

    def run(text):
        source = folder / "source.cpp"
        source.write_text(text)
        command = ["g++", *shlex.split(flags), "-fsyntax-only", str(source)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (result.returncode == 0) == ("error" not in result.stderr)
        return result.stderr

    return run


@pytest.mark.parametrize("header", HEADERS)
def test_header_stands_alone(compile_source, header):
    assert compile_source(f'#include "muladd/{header}"\n#include "muladd/{header}"\n') == ""


WRONG_KERNEL = """
#include "opwheel/registration.h"
#include "muladd/operators.h"
using namespace muladd;
{kernel}
void check(torch::stable::detail::StableLibrary& m) {{ implement<op::{op}, &kernel>(m); }}
"""


@pytest.mark.parametrize(
    ("op", "kernel"),
    [
        ("muladd", "Tensor kernel(const Tensor& a, const Tensor&, int64_t) { return Tensor(a.handle()); }"),
        ("muladd", "Tensor kernel(const Tensor& a, const Tensor&, float) { return Tensor(a.handle()); }"),
        ("muladd", "void kernel(const Tensor&, const Tensor&, double) {}"),
        ("mul", "Tensor kernel(const Tensor& a, const Tensor&, const Tensor&) { return Tensor(a.handle()); }"),
        ("mul_out", "void kernel(const Tensor&, const Tensor&, const Tensor&) {}"),
        (
            "muladd_backward",
            "Tensor kernel(const Tensor& g, const Tensor&, const Tensor&) { return Tensor(g.handle()); }",
        ),
    ],
)
def test_wrong_signature_does_not_compile(compile_source, op, kernel):
    messages = compile_source(WRONG_KERNEL.format(op=op, kernel=kernel))
    assert "this kernel's C++ signature does not match the operator's schema in the catalogue" in messages


def test_unknown_type_in_a_schema_does_not_compile(compile_source):
    source = '#include "opwheel/schema.h"\nconstexpr auto s = muladd::parse_schema("f(Tensor x, int n) -> Tensor");\n'
    assert "opwheel/schema.h" in compile_source(source)


def test_the_codes_of_kernels_errors_are_python_s():
    """What the header says, read as what it is: a call to each way to fail, and the code in front of what comes out."""
    text = Path(muladd.get_include(), "muladd", "error.h").read_text()
    in_header = dict(re.findall(r'string_view (\w+) = "(\[OPWHEEL:\w+\])"', text))
    assert in_header == {"out_of_memory": kernel_errors.OUT_OF_MEMORY, "launch": kernel_errors.LAUNCH}
    assert all(kernel_errors.has_code(RuntimeError(f"{code} mul: anything")) for code in in_header.values())
    assert not kernel_errors.has_code(RuntimeError("mul: anything about [OPWHEEL:OOM]"))


def test_out_of_memory_says_in_python_s_form_how_much_was_wanted(tmp_path):
    source, program = tmp_path / "wanted.cpp", tmp_path / "wanted"
    source.write_text(
        '#include <cstdio>\n#include "opwheel/error.h"\nint main() {\n'
        '  try {\n    muladd::fail(muladd::code::out_of_memory, " any words ", muladd::memory_wanted(96, "npu:1"));\n'
        "  } catch (const std::exception& error) {\n    std::puts(error.what());\n  }\n}\n"
    )
    command = ["g++", "-std=c++20", f"-I{muladd.get_include()}", str(source), "-o", str(program)]
    subprocess.run(command, check=True)
    message = subprocess.run([program], capture_output=True, text=True, check=True).stdout.strip()
    assert kernel_errors.memory_wanted(RuntimeError(message)) == (96, "npu", ":1")
    assert kernel_errors.memory_wanted(RuntimeError(message.replace("OOM", "LAUNCH"))) is None


def test_python_sees_the_catalogue():
    text = Path(muladd.get_include(), "muladd", "operators.h").read_text()
    assert all(f'"{schema}"' in text for schema in muladd.library.schemas)
    assert len(muladd.library.schemas) == 12
