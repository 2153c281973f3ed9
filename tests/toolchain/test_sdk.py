"""The C++ SDK: every header stands alone, and a kernel that does not fit its schema does not compile."""

import re
import shlex
import subprocess
import sys
from itertools import product
from pathlib import Path

import muladd
import opwheel_tools
import pytest
import torch
import torch.utils.cpp_extension
from opwheel._build import toolchain
from opwheel.dispatch import kernel_errors

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
SDK = Path(opwheel_tools.get_include(), "opwheel")
# Code for devices needs their compilers.
HEADERS = sorted(
    str(path.relative_to(SDK.parent))
    for path in SDK.rglob("*.h")
    if "xpu" not in path.parts and not path.name.endswith(".inc.h")
)


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
    assert compile_source(f'#define OPWHEEL_ISA tested\n#include "{header}"\n#include "{header}"\n') == ""


@pytest.mark.parametrize("header", ["vectorized_loops.h", "vectorized_rows.h", "short_rows.h"])
def test_a_header_for_one_instruction_set_wants_its_name(compile_source, header):
    assert "define OPWHEEL_ISA, the name of the instruction set" in compile_source(f'#include "opwheel/cpu/{header}"\n')


WRONG_KERNEL = """
#include "muladd/operators.h"
#include "opwheel/operators.h"
#include "opwheel/kernels.h"
OPWHEEL_DECLARE_OPERATORS(muladd, MULADD_OPERATORS)
using opwheel::Tensor;
{kernel}
void check(opwheel::KernelRegistry& m) {{ opwheel::implement<muladd::op::{op}, &kernel>(m); }}
"""


@pytest.mark.parametrize(
    ("op", "kernel", "message"),
    [
        (
            "muladd",
            "Tensor kernel(const Tensor& a, const Tensor&, int64_t)",
            "an argument of this kernel has another type",
        ),
        (
            "muladd",
            "Tensor kernel(const Tensor& a, const Tensor&, float)",
            "an argument of this kernel has another type",
        ),
        ("muladd", "void kernel(const Tensor& a, const Tensor&, double)", "result does not match its schema"),
        ("mul", "Tensor kernel(const Tensor& a, const Tensor&, const Tensor&)", "not have as many arguments as its"),
        ("mul_out", "void kernel(const Tensor& a, const Tensor&, const Tensor&)", "an argument of this kernel has"),
        ("muladd_backward", "Tensor kernel(const Tensor& a, const Tensor&, const Tensor&)", "result does not match"),
    ],
)
def test_wrong_signature_does_not_compile(compile_source, op, kernel, message):
    body = "{ return Tensor(a.handle()); }" if kernel.startswith("Tensor") else "{ a.handle(); }"
    messages = compile_source(WRONG_KERNEL.format(op=op, kernel=f"{kernel} {body}"))
    assert message in messages
    # What the compiler says first is that, and no more: not where the wrong call would have been made.
    assert "static assertion failed" in messages.partition("error:")[2].partition("\n")[0]


def test_unknown_type_in_a_schema_does_not_compile(compile_source):
    source = (
        '#include "opwheel/operators.h"\nconstexpr auto s = opwheel::parse_schema("f(Tensor x, Stream s) -> Tensor");\n'
    )
    assert "has an argument of a type that C++ kernels cannot take" in compile_source(
        source + "OPWHEEL_CHECK_SCHEMA(f, s)\n"
    )


WRONG_FUNCTOR = """
#include "opwheel/cpu/backend.h"
template <class C>
struct Twice {{
  C operator()({inputs}) const;
}};
#define WAVES_OPERATORS(OPERATOR, OVERLOAD) OPERATOR(twice, Twice, "{schema}")
OPWHEEL_CPU_BACKEND(waves, WAVES_OPERATORS)
"""


@pytest.mark.parametrize(
    ("inputs", "schema", "message"),
    [
        ("C, C", "twice(Tensor x) -> Tensor", "another number of elements than the schema has tensors"),
        ("C", "twice(Tensor x) -> (Tensor, Tensor)", "another number of results than the schema"),
        (
            "C, C, C, C, C, C, C, C",
            "twice(Tensor a, Tensor b, Tensor c, Tensor d, Tensor e, Tensor f, Tensor g, Tensor h) -> Tensor",
            "8 inputs and results together at most",
        ),
    ],
)
def test_a_functor_that_does_not_fit_its_schema_does_not_compile(compile_source, inputs, schema, message):
    assert message in compile_source(WRONG_FUNCTOR.format(inputs=inputs, schema=schema))


def test_the_codes_of_kernels_errors_are_python_s():
    """What the header says, read as what it is: a call to each way to fail, and the code in front of what comes out."""
    text = Path(opwheel_tools.get_include(), "opwheel/detail/error.h").read_text()
    in_header = dict(re.findall(r'string_view (\w+) = "(\[OPWHEEL:\w+\])"', text))
    assert in_header == {"out_of_memory": kernel_errors.OUT_OF_MEMORY, "launch": kernel_errors.LAUNCH}
    assert all(kernel_errors.has_code(RuntimeError(f"{code} mul: anything")) for code in in_header.values())
    assert not kernel_errors.has_code(RuntimeError("mul: anything about [OPWHEEL:OOM]"))


def test_out_of_memory_says_in_python_s_form_how_much_was_wanted(tmp_path):
    source, program = tmp_path / "wanted.cpp", tmp_path / "wanted"
    source.write_text(
        '#include <cstdio>\n#include "opwheel/detail/error.h"\nint main() {\n'
        '  try {\n    opwheel::fail(opwheel::code::out_of_memory, " words ", opwheel::memory_wanted(96, "npu:1"));\n'
        "  } catch (const std::exception& error) {\n    std::puts(error.what());\n  }\n}\n"
    )
    command = ["g++", "-std=c++20", f"-I{opwheel_tools.get_include()}", str(source), "-o", str(program)]
    subprocess.run(command, check=True)
    message = subprocess.run([program], capture_output=True, text=True, check=True).stdout.strip()
    assert kernel_errors.memory_wanted(RuntimeError(message)) == (96, "npu", ":1")
    assert kernel_errors.memory_wanted(RuntimeError(message.replace("OOM", "LAUNCH"))) is None


THREADS = """
#include <cstdio>
#include "opwheel/cpu/rows.h"

static uint32_t threads = 1;

extern "C" {
AOTITorchError torch_get_num_threads(uint32_t* count) { return *count = threads, 0; }
AOTITorchError torch_parallel_for(int64_t begin, int64_t end, int64_t, ParallelFunc function, void* context) {
  const int64_t share = (end - begin + threads - 1) / threads;
  for (int64_t i = begin; i < end; i += share) function(i, std::min(i + share, end), context);
  return 0;
}
}
"""
SHARES = """
int main() {
  for (long rows, cost; std::scanf("%u %ld %ld", &threads, &rows, &cost) == 3; std::puts("")) {
    opwheel::cpu::for_row_ranges(rows, cost, [](int64_t begin, int64_t end) {
      std::printf("%ld ", static_cast<long>(begin)), std::printf("%ld ", static_cast<long>(end));
    });
  }
}
"""


def test_threads_get_equal_shares_of_rows(tmp_path):
    """Much work is in pieces of one size, none empty, as many for each thread, whatever the rows are and cost."""
    source, program = tmp_path / "shares.cpp", tmp_path / "shares"
    source.write_text(THREADS + SHARES)
    includes = [f"-I{path}" for path in (opwheel_tools.get_include(), *torch.utils.cpp_extension.include_paths())]
    subprocess.run(["g++", "-std=c++20", *includes, str(source), "-o", str(program)], check=True)
    calls = list(product((1, 2, 3, 64), (0, 1, 7, 64, 100, 4096), (1, 200, 35_000, 90_000, 1 << 21)))
    given = "\n".join(" ".join(map(str, call)) for call in calls)
    done = subprocess.run([program], input=given, capture_output=True, text=True, check=True)
    several = 0
    for (threads, rows, _), line in zip(calls, done.stdout.splitlines(), strict=True):
        bounds = list(map(int, line.split()))
        pieces = list(zip(bounds[::2], bounds[1::2], strict=True))
        assert [row for piece in pieces for row in range(*piece)] == list(range(rows))
        sizes = [end - begin for begin, end in pieces]
        if len(pieces) > threads:
            assert 0 < min(sizes) <= max(sizes) <= min(sizes) + 1
            assert len(pieces) in (rows, len(pieces) // threads * threads)
            several += 1
    assert several > 10


THROWS = """
#include <stdexcept>

int main() {
  long rows, cost;
  std::scanf("%u %ld %ld", &threads, &rows, &cost);
  int called = 0;
  try {
    opwheel::cpu::for_rows(rows, cost, [&](int64_t i) {
      ++called;
      if (i % 5 == 3) throw std::runtime_error(std::to_string(i));
    });
  } catch (const std::runtime_error& error) {
    std::printf("%s %d", error.what(), called);
  }
}
"""


@pytest.mark.parametrize(("threads", "cost"), [(1, 1), (2, 20_000), (2, 2_000_000)], ids=["here", "shares", "pieces"])
def test_what_a_row_throws_arrives_whatever_thread_it_was_on(tmp_path, threads, cost):
    source, program = tmp_path / "throws.cpp", tmp_path / "throws"
    source.write_text(THREADS + THROWS)
    includes = [f"-I{path}" for path in (opwheel_tools.get_include(), *torch.utils.cpp_extension.include_paths())]
    subprocess.run(["g++", "-std=c++20", *includes, str(source), "-o", str(program)], check=True)
    given = f"{threads} 64 {cost}"
    message, called = subprocess.run([program], input=given, capture_output=True, text=True, check=True).stdout.split()
    assert message == "3"  # the first one
    assert int(called) >= 4


TWICE = """
#include "opwheel/operators.h"
#define LIST(KERNEL) KERNEL(f, "f(Tensor x) -> Tensor") KERNEL(g, "f(Tensor y) -> Tensor")
OPWHEEL_DECLARE_KERNELS(waves, LIST)
"""


def test_a_name_that_is_listed_twice_does_not_compile(compile_source):
    assert "two rows of a list of operators have the same name" in compile_source(TWICE)


ELEMENTS = """
#include <cstdio>
#include "opwheel/elementwise_kernels.h"
using namespace opwheel;

int main() {
  const DType dtypes[] = {DType::float16, DType::bfloat16, DType::float32, DType::float64};
  for (DType dtype : dtypes) {
    alignas(8) char place[8] = {};
    store_element(dtype, place, 1.0 / 3);
    std::printf("%.17g ", load_element<double>(dtype, place));
    store_element(dtype, place, 1.0f / 3);
    std::printf("%.17g ", static_cast<double>(load_element<float>(dtype, place)));
  }
}
"""


def test_elements_of_every_dtype_are_stored_and_loaded(tmp_path):
    source, program = tmp_path / "elements.cpp", tmp_path / "elements"
    source.write_text(ELEMENTS)
    torch_include = f"-isystem{toolchain.find_torch().include}"
    command = ["g++", "-std=c++20", "-O1", f"-I{opwheel_tools.get_include()}", torch_include, str(source)]
    subprocess.run([*command, *toolchain.stable_abi_macros("2.10"), "-o", str(program)], check=True)
    found = [float(word) for word in subprocess.run([program], capture_output=True, check=True).stdout.split()]
    third = torch.tensor(1 / 3, dtype=torch.float64)
    expected = [(x.to(dtype).item(), x.float().to(dtype).item()) for x in [third] for dtype in DTYPES]
    assert found == [value for pair in expected for value in pair]


FILLS_CACHES = """
#include <cstdio>
#include "opwheel/detail/cpu/streaming.h"

int main() { std::printf("%d %d", opwheel::cpu::fills_caches(1 << 18), opwheel::cpu::fills_caches(64 << 20)); }
"""


def test_which_operands_fill_the_caches(tmp_path):
    """Those of 64 MiB do whatever the processor has: few cores have little use of a larger cache."""
    source, program = tmp_path / "caches.cpp", tmp_path / "caches"
    source.write_text(FILLS_CACHES)
    subprocess.run(
        ["g++", "-std=c++20", f"-I{opwheel_tools.get_include()}", str(source), "-o", str(program)], check=True
    )
    assert subprocess.run([program], capture_output=True, text=True, check=True).stdout == "0 1"


def test_python_sees_the_list():
    text = Path(muladd.get_include(), "muladd", "operators.h").read_text()
    schemas = re.findall(r'(?:OPERATOR|OVERLOAD)\([^"()]+"([^"]+)"\)', text)
    assert schemas == list(muladd.library.schemas)
