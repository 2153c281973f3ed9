"""muladd-executorch: values from Python and C++, loading, selection, and every way in which it can be wrong."""

import json
import os
import re
import shutil
import sys
import zipfile
from importlib import metadata

import muladd
import pytest
import torch
from torch.export import Dim, export

from .conftest import ROOT, last_line, run

pytest.importorskip("executorch", reason="make test-deploy installs ExecuTorch")

import muladd_executorch
from executorch.exir import to_edge
from executorch.runtime import Runtime
from muladd_executorch import _loading

OPERATORS = tuple(f"muladd::{name}" for name in muladd.library.operators if name.endswith(".out"))
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class Call(torch.nn.Module):
    """One of the public functions as a module."""

    def __init__(self, name):
        super().__init__()
        self.function = getattr(muladd, name)
        self.number = {"muladd": (0.5,), "scale": (-1.5,)}.get(name, ())

    def forward(self, *tensors):
        return self.function(*tensors, *self.number)


def channels_last(tensor):
    return tensor.to(memory_format=torch.channels_last)


def samples():
    """For each method its module and inputs: dtypes, mixed dtypes, broadcasting, layouts, sizes."""
    torch.manual_seed(0)
    arity = {"muladd": 2, "fma": 3, "mul": 2, "add": 2, "scale": 1}
    for name, count in arity.items():
        for dtype in DTYPES:
            yield (
                f"{name}_{str(dtype).removeprefix('torch.')}",
                name,
                [torch.randn(5, 3).to(dtype) for _ in range(count)],
            )
    mixed = [torch.randn(4, 3, dtype=dtype) for dtype in (torch.float16, torch.bfloat16, torch.float32)]
    yield "fma_mixed", "fma", mixed
    yield "fma_double", "fma", [mixed[0], torch.randn(3, dtype=torch.float64), torch.randn(4, 1)]
    yield "fma_scalar", "fma", [mixed[2], torch.tensor(2.0, dtype=torch.float64), torch.randn(3)]
    yield "fma_only_scalars", "fma", [torch.tensor(2.0), torch.tensor(3.0), torch.tensor(4.0, dtype=torch.float64)]
    yield "mul_outer", "mul", [torch.randn(4, 1, 3), torch.randn(2, 1)]
    yield "mul_rows", "mul", [torch.randn(2, 3, 4, 5), torch.randn(4, 1)]
    yield "add_channels_last", "add", [channels_last(torch.randn(2, 3, 4, 5)) for _ in range(2)]
    yield "add_channels", "add", [channels_last(torch.randn(2, 3, 4, 5)), torch.randn(3, 1, 1)]
    yield "add_sixteen", "add", [torch.randn([2] * 16), torch.randn([2, 1] * 8)]
    yield "scale_empty", "scale", [torch.empty(0, 3)]
    yield "scale_special", "scale", [torch.tensor([float("inf"), float("nan"), -0.0, 1e-45])]


@pytest.fixture(scope="module")
def cases():
    return {method: (Call(name), inputs) for method, name, inputs in samples()}


@pytest.fixture(scope="module")
def program(cases, tmp_path_factory):
    """All samples as methods of one program, with our kernels loaded."""
    methods = {method: export(module, tuple(inputs)) for method, (module, inputs) in cases.items()}
    path = tmp_path_factory.mktemp("program") / "all.pte"
    path.write_bytes(to_edge(methods).to_executorch().buffer)
    muladd_executorch.load()
    return Runtime.get().load_program(path)


@pytest.mark.parametrize("method", [sample[0] for sample in samples()])
def test_equal_to_eager(cases, program, method):
    module, inputs = cases[method]
    (result,) = program.load_method(method).execute(inputs)
    expected = module(*inputs)
    assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
    # One rounding in each; the CPU backend may fuse the multiplication with the addition.
    torch.testing.assert_close(result, expected, equal_nan=True)
    if method == "scale_special":
        assert torch.equal(result.signbit(), expected.signbit())


def test_dynamic_shapes():
    rows, columns = Dim("rows", min=1, max=64), Dim("columns", min=1, max=32)
    inputs = (torch.randn(4, 3), torch.randn(3), torch.randn(4, 1))
    shapes = ({"tensors": ({0: rows, 1: columns}, {0: columns}, {0: rows})},)
    exported = export(Call("fma"), inputs, dynamic_shapes=shapes[0])
    muladd_executorch.load()
    program = Runtime.get().load_program(to_edge(exported).to_executorch().buffer)
    method = program.load_method("forward")  # which does not keep the program alive
    for n, m in ((1, 1), (64, 32), (5, 7), (2, 1)):
        inputs = [torch.randn(n, m), torch.randn(m), torch.randn(n, 1)]
        torch.testing.assert_close(method.execute(inputs)[0], muladd.fma(*inputs))


def test_wrong_dtype_from_python(program):
    """The runtime compares with the dtype that was exported."""
    with pytest.raises(RuntimeError, match=r"0x12|InvalidArgument"):
        program.load_method("mul_float32").execute([torch.ones(5, 3, dtype=torch.float64)] * 2)


def test_equal_to_eager_in_cpp(executorch_programs, digits_pte):
    program = executorch_programs / "example/run_digits"
    result = run(program, digits_pte / "digits.pte", digits_pte, check=True)
    assert [line.split()[2] for line in result.stdout.splitlines()] == ["720", "7"]
    linked = run("ldd", program, check=True).stdout
    assert "libexecutorch.so" in linked
    assert not re.search("libpython|libtorch|libc10", linked)


def test_no_library_in_cpp(executorch_programs, digits_pte):
    result = run(executorch_programs / "example/run_without_kernels", digits_pte / "digits.pte", digits_pte)
    assert result.returncode == 2
    assert "Missing operator: [0] muladd::muladd.out" in result.stderr
    assert last_line(result) == "the program did not run: Error::OperatorMissing"


def test_kernels_refuse_what_does_not_fit(executorch_programs):
    result = run(executorch_programs / "refusals", check=True)
    for words in (
        "muladd.out: input 1 is Int; supported dtypes are Half, BFloat16, Float, Double",
        "fma.out: the shapes of its inputs cannot be broadcast together",
        "add.out: out is Float, but the result is Double",
        "scale.out: out is Double, but the result is Float",
        "scale.out: out has no room for the result's shape",
    ):
        assert words in result.stderr


# ---- loading ---------------------------------------------------------------------------------------------------------


def test_load_names_every_out_variant():
    assert muladd_executorch.load() == OPERATORS
    assert muladd_executorch.load() == OPERATORS
    assert set(OPERATORS) <= set(Runtime.get().operator_registry.operator_names)


CHILD = """
import json, pathlib, sys
from executorch.runtime import Runtime
from muladd_executorch import _loading

report = {}
def attempt(name, call):
    try:
        report[name] = call()
    except Exception as error:
        report[name] = f"{type(error).__name__}: {error}"

program = Runtime.get().load_program(sys.argv[1])
attempt("no kernels", lambda: program.load_method("forward"))
installed = _loading.library
for path in sys.argv[2:]:
    _loading.library = pathlib.Path(path)
    attempt(path, _loading.load)
_loading.library = installed
attempt("kernels", _loading.load)
attempt("again", _loading.load)
attempt("method", lambda: program.load_method("forward") is not None)
report["muladd"] = "muladd" in sys.modules
print("REPORT", json.dumps(report))
"""


@pytest.fixture(scope="module")
def child(digits_pte, tmp_path_factory):
    """What a process of its own reports: a program without kernels, faulty libraries, then the right one, twice."""
    folder = tmp_path_factory.mktemp("faulty")
    damaged, empty = folder / "damaged.so", folder / "empty.so"
    damaged.write_bytes(b"")
    (folder / "empty.c").write_text("int nothing;")
    run("gcc", "-shared", folder / "empty.c", "-o", empty, check=True)
    result = run(sys.executable, "-c", CHILD, digits_pte / "digits.pte", damaged, empty, check=True)
    line = next(line for line in result.stdout.splitlines() if line.startswith("REPORT "))
    report = json.loads(line.removeprefix("REPORT "))
    return report | {"damaged": report[str(damaged)], "empty": report[str(empty)], "log": result.stderr}


def test_no_library_in_python(child):
    assert child["no kernels"].startswith("RuntimeError")
    assert "Missing operator: [0] muladd::muladd.out" in child["log"]


def test_faulty_libraries(child):
    assert child["damaged"].startswith("ImportError: muladd-executorch cannot open its library")
    assert "file too short" in child["damaged"]
    assert "has no kernel for muladd::add.out" in child["empty"]


def test_loading_comes_after_all_that_and_needs_no_muladd(child):
    assert child["kernels"] == child["again"] == list(OPERATORS)
    assert child["method"] is True
    assert child["muladd"] is False


def test_the_library_finds_the_installed_runtime_by_itself():
    """Nothing of ExecuTorch is in the process yet."""
    program = f"import ctypes; ctypes.CDLL({str(muladd_executorch.library)!r}); print(open('/proc/self/maps').read())"
    maps = run(sys.executable, "-c", program, check=True).stdout
    assert "executorch/lib/libexecutorch.so" in maps
    assert "libtorch" not in maps


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("1.4.1", "executorch 1.4.1 is installed"),
        ("1.6.0", "executorch 1.6.0 is installed"),
        (None, "needs ExecuTorch"),
    ],
)
def test_another_executorch(monkeypatch, version, words):
    def answer(_name):
        if version is None:
            raise metadata.PackageNotFoundError("executorch")
        return version

    monkeypatch.setattr(metadata, "version", answer)
    with pytest.raises(ImportError, match=words) as error:
        muladd_executorch.load()
    assert "pip install 'executorch>=1.5,<1.6'" in str(error.value)


def test_supported_versions_are_those_of_the_wheel():
    requirements = [text.replace(" ", "") for text in metadata.requires("muladd-executorch")]
    name, first, after = re.fullmatch(r"(executorch)>=([\d.]+),<([\d.]+)", _loading.SUPPORTED).groups()
    assert any(text.startswith(name) and f">={first}" in text and f"<{after}" in text for text in requirements)


def test_doctor_lists_it():
    result = run(sys.executable, "-m", "muladd", "doctor", check=True)
    row = next(line for line in result.stdout.splitlines() if line.startswith("executorch"))
    assert row.split()[:3] == ["executorch", "installed", "muladd-executorch"]
    assert row.split()[-1] == str(len(OPERATORS))


# ---- selection -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def registered(executorch_programs):
    """The operators that are registered after opening libraries in this order, in a process of its own."""

    def start(*libraries):
        return run(executorch_programs / "operators", *libraries, check=True).stdout.split()

    return start


def test_one_kernel_is_smaller_than_every_kernel(executorch_programs, registered):
    every, one = (executorch_programs / f"lib{name}.so" for name in ("every", "one"))
    assert registered(every) == sorted(OPERATORS)
    assert registered(one) == ["muladd::muladd.out"]
    sizes = {path.name: path.stat().st_size for path in (muladd_executorch.library, every, one)}
    print(sizes)
    assert sizes["libone.so"] < 0.5 * sizes["libevery.so"]


def test_second_copies_register_nothing(executorch_programs, registered, tmp_path):
    """In the runtime a second registration ends the process."""
    every, one = (executorch_programs / f"lib{name}.so" for name in ("every", "one"))
    copy = shutil.copy(muladd_executorch.library, tmp_path)
    for order in ((one, every, muladd_executorch.library), (muladd_executorch.library, copy, one)):
        assert registered(*order) == sorted(OPERATORS)


def test_a_model_selects_what_it_calls(executorch_programs):
    selected = (executorch_programs / "example/digits_kernels/selected_operators.yaml").read_text()
    assert {name for name in OPERATORS if name in selected} == {
        f"muladd::{name}.out" for name in ("muladd", "fma", "add")
    }


def select(tmp_path, *options, yaml=muladd_executorch.custom_ops_yaml):
    command = [sys.executable, "-m", "muladd_executorch.select", "--yaml", yaml, "--output", tmp_path / "out"]
    return run(*command, *options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--root-ops", "muladd::muladd.out,muladd::div.out"], "has no muladd::div.out; it has muladd::muladd.out"),
        (["--root-ops", ""], "nothing is selected"),
        (["--model", "nothing.pte"], "there is no file nothing.pte"),
        (["--model", __file__], "is not an ExecuTorch program"),
        (["--yaml", "nothing.yaml"], "there is no file nothing.yaml"),
    ],
    ids=["unknown operator", "nothing", "no model", "no program", "no yaml"],
)
def test_a_wrong_selection(tmp_path, options, words):
    result = select(tmp_path, *options)
    assert result.returncode == 2
    assert words in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "out").exists()


def test_a_model_without_the_operators_selects_nothing(tmp_path):
    class Plain(torch.nn.Module):
        def forward(self, x):
            return x + 1

    model = tmp_path / "plain.pte"
    model.write_bytes(to_edge(export(Plain(), (torch.ones(3),))).to_executorch().buffer)
    result = select(tmp_path, "--model", model)
    assert result.returncode == 2
    assert "nothing is selected" in result.stderr


def test_cmake_says_what_is_wrong(tmp_path):
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.28)\nproject(wrong CXX)\nfind_package(muladd_executorch REQUIRED)\n"
        "muladd_executorch_kernels(kernels ROOT_OPS a MODEL b)\n"
    )
    prefix = run(sys.executable, "-m", "muladd_executorch", "--cmake-dir", check=True).stdout.strip()
    configure = [
        sys.executable,
        "-m",
        "cmake",
        "-S",
        tmp_path,
        "-B",
        tmp_path / "build",
        f"-DCMAKE_PREFIX_PATH={prefix}",
    ]
    result = run(*configure, f"-DPython_EXECUTABLE={sys.executable}")
    assert "expected YAML, SOURCES and at most one of ROOT_OPS" in " ".join(result.stderr.split())
    bare = tmp_path / "bare"
    run(sys.executable, "-m", "venv", "--without-pip", bare, check=True)
    result = run(*configure, f"-DPython_EXECUTABLE={bare}/bin/python", "--fresh")
    assert "does not have executorch, opwheel-tools, muladd-core and muladd-executorch" in " ".join(
        result.stderr.split()
    )


def test_paths_for_build_systems():
    command = [sys.executable, "-m", "muladd_executorch"]
    printed = run(*command, "--library", "--yaml", check=True).stdout.split()
    assert printed == [str(muladd_executorch.library), str(muladd_executorch.custom_ops_yaml)]
    assert run(*command).returncode == 2


# ---- the wheel -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps", "-w", folder]
    run(*command, ROOT / "backends/executorch", check=True)
    return next(folder.glob("*.whl"))


def test_the_wheel(wheel, tmp_path):
    assert re.search(r"-py3-none-(linux|manylinux)\w*\.whl$", wheel.name)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
        names = archive.namelist()
    assert "muladd_executorch/sdk/templates/RegisterCodegenUnboxedKernels.cpp" in names
    assert "muladd_executorch/py.typed" in names
    assert any(name.endswith("LICENSE") for name in names)
    library = tmp_path / "muladd_executorch/libmuladd_executorch.so"
    dynamic = run("readelf", "-d", library, check=True).stdout
    assert re.findall(r"RUNPATH.*\[(.+)\]", dynamic) == ["$ORIGIN/../executorch/lib"]
    needed = re.findall(r"\(NEEDED\).*\[(.+)\]", dynamic)
    assert "libexecutorch.so" in needed
    assert not [name for name in needed if re.search("torch_|torch.so|c10|python", name) and name != "libexecutorch.so"]
    assert run("nm", "-D", "--defined-only", library, check=True).stdout.strip() == ""
    assert os.fspath(ROOT).encode() not in library.read_bytes()


def test_the_yaml_has_every_out_variant():
    text = muladd_executorch.custom_ops_yaml.read_text()
    assert [line.removeprefix("- func: muladd::") for line in text.splitlines() if line.startswith("- func: ")] == [
        schema for schema in muladd.library.schemas if ".out(" in schema
    ]
