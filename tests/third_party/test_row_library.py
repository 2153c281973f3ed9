"""The operators of tests/non_elementwise as an installed library, and the backends that new-backend writes for it."""

import json
from pathlib import Path

import pytest
from opwheel_tools import scaffold

from tests.portions import first_of

from .environment import IS_WHOLE_KIT, Environment

pytestmark = [pytest.mark.wheels, pytest.mark.slow]
GENERAL = Path(__file__).parents[1] / "non_elementwise"
LIBRARY = "waves_cpp"
OPERATORS = 14
# The stable ABI has generators from 2.13 on, so tests of a library for 2.10 do without this one.
RANDOM = 'KERNEL(noisy, "noisy(Tensor x, float p, Generator? generator=None) -> (Tensor y, Tensor mask)")'
# A sample compiled takes seconds; make test-third-party runs all of them.
KIT = ("-k", "test_samples" if IS_WHOLE_KIT else "test_samples and not compiled and not opcheck")
# Where every kernel is the reference, what depends on kernels.
BY_REFERENCE = KIT if IS_WHOLE_KIT else ("-k", "test_samples and (values or layouts)")


def write_library(folder):
    """What new-library writes, with the operators and kernels of tests/non_elementwise in the place of its own."""
    core = scaffold.new_library("waves-cpp", kinds=["rows"], output=folder).folder / "core"
    package = core / f"src/{LIBRARY}"
    (package / "operators/softmax.py").unlink()
    listed = (GENERAL / "cpp/operators.h").read_text().replace("WAVES_KERNELS", "WAVES_CPP_KERNELS").rstrip()
    (package / f"include/{LIBRARY}/operators.h").write_text(f"{listed} \\\n  {RANDOM}\n")
    schema, kernels = ((GENERAL / f"cpp/{name}.cpp").read_text() for name in ("schema", "kernels"))
    kernels = kernels.replace('#include "shapes.h"\n', '#include "random.h"\n#include "shapes.h"\n')
    kernels = kernels.replace("  implement<op::window,", "  implement<op::noisy, dropout>(m);\n  implement<op::window,")
    renamed = {"WAVES_KERNELS": "WAVES_CPP_KERNELS", '"operators.h"': f'"{LIBRARY}/operators.h"'}
    for old, new in renamed.items():
        schema, kernels = schema.replace(old, new), kernels.replace(old, new)
    (core / "csrc/schema.cpp").write_text(schema)
    declarations, found, _ = (GENERAL / "operators.py").read_text().partition("\nfunctions = register_python(")
    assert found
    (package / "operators/__init__.py").write_text(declarations)
    (package / "opinfos.py").write_text((GENERAL / "opinfos.py").read_text())
    setup = (core / "setup.py").read_text()
    assert setup.count("exports=") == 1
    (core / "setup.py").write_text(setup.replace("exports=", 'torch_target="2.13",\n            exports='))
    backend = folder / "backends/cpu"
    for file in (backend / "csrc").iterdir():
        file.unlink()
    (backend / "csrc/kernels.cpp").write_text(kernels)
    for name in ("shapes.h", "random.h"):
        (backend / "csrc" / name).write_text((GENERAL / "cpp" / name).read_text())
    (backend / "setup.py").write_text(
        "from opwheel_tools.build import CppLibrary, commands\nfrom setuptools import setup\n"
        f'library = CppLibrary("{LIBRARY}_cpu.lib{LIBRARY}_cpu", ["csrc/kernels.cpp"], library="{LIBRARY}", '
        'torch_target="2.13")\n'
        "setup(ext_modules=[library], cmdclass=commands())\n"
    )
    return folder


@pytest.fixture(scope="module")
def waves(tmp_path_factory):
    """An environment with the library and its backend for the CPU, both built from their projects."""
    folder = tmp_path_factory.mktemp("rows")
    project = write_library(folder / "waves-cpp")
    environment = Environment(folder / "environment")
    environment.install(project / "core", project / "backends/cpu")
    return environment


def command(environment, *arguments, **variables):
    done = environment.run("-m", LIBRARY, *arguments, **variables)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_it_is_discovered(waves):
    report = json.loads(command(waves, "doctor", "--json"))
    assert report["ok"]
    assert report["backends"]["cpu"]["state"] == "loaded"
    assert len(report["backends"]["cpu"]["operators"]) == OPERATORS
    assert report["backends"]["cpu"]["by_reference"] == []


def test_it_is_explained(waves):
    answer = command(waves, "explain", "reshape_and_cache", "cpu")
    assert "cpu (waves-cpp-cpu 0.1.0) at CPU" in answer
    assert "reference" not in answer


def test_it_is_measured(waves, tmp_path):
    file = tmp_path / "results.json"
    command(waves, "bench", "--quick", "--skip", "reference, compiled", "--json", str(file))
    results = json.loads(file.read_text())
    assert results["findings"] == []
    measured = {row["group"] for row in results["rows"]}
    assert len(measured) == OPERATORS
    assert all({"operator", "reference"} <= set(row["measurements"]) for row in results["rows"])


def test_the_kit_passes(waves):
    waves.passes_the_kit("cpu", LIBRARY, KIT)


def written(environment, folder, language, *, install=True):
    """What new-backend writes, in an environment that sees the library's."""
    project = folder / f"waves-cpp-{language}"
    arguments = ("new-backend", f"{language}x", "--library", LIBRARY, "--language", language, "--output", str(project))
    done = environment.run("-m", "opwheel", *arguments)
    assert done.returncode == 0, done.stderr
    if install:
        environment.install(project)
    return project


@pytest.mark.parametrize(("language", "lacks"), [("cuda", "built without CUDA"), ("sycl", "without support for Intel")])
def test_a_backend_for_a_gpu_builds(waves, tmp_path, language, lacks):
    """No operator of this library is element-wise: the project has no device code before somebody writes some."""
    project = written(waves, tmp_path, language)
    assert not list(project.rglob("*.cu"))
    status = waves.status(f"{language}x", LIBRARY)
    assert status["state"] in ("loaded", "unsupported")
    assert status["state"] == "loaded" or lacks in status["reason"]


KERNEL = """
@triton.jit
def _softmax(x, y, length, step, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    start = tl.program_id(0).to(tl.int64) * length * step + tl.program_id(1)
    row = tl.load(x + start + at * step, mask=at < length, other=-float("inf"))
    row = row.to(tl.float64 if x.dtype.element_ty == tl.float64 else tl.float32)
    exps = tl.exp(row - tl.max(row, 0))
    tl.store(y + start + at * step, (exps / tl.sum(exps, 0)).to(y.dtype.element_ty), mask=at < length)


def softmax(x, dim):
    x, y = x.contiguous(), torch.empty_like(x, memory_format=torch.contiguous_format)
    length, step = x.shape[dim], x.stride(dim)
    with _interpreter:
        _softmax[(x.numel() // length // step, step)](x, y, length, step, triton.next_power_of_2(length))
    return y


FUNCTIONS: """


@pytest.mark.nightly
def test_a_kernel_in_triton_takes_the_reference_s_place(waves, tmp_path):
    """By Triton's interpreter, which truncates to bfloat16 where it should round, and keeps some bytes of each call."""
    pytest.importorskip("triton")
    project = written(waves, tmp_path, "triton", install=False)
    (kernels,) = project.rglob("kernels.py")
    text = kernels.read_text().replace("FUNCTIONS: ", KERNEL, 1)
    kernels.write_text(text.replace('# "softmax": ...', '"softmax": softmax'))
    waves.install(project)
    variables = {"WAVES_CPP_BACKENDS": "tritonx", "TRITON_INTERPRET": "1"}
    status = waves.status("tritonx", LIBRARY, **variables)
    assert (status["state"], "softmax" in status["by_reference"]) == ("loaded", False)
    left_out = ("bfloat16", "backward", "compiled", "opcheck", "growth")
    options = ("-k", " and not ".join(("test_samples and softmax", *left_out)))
    waves.passes_the_kit("tritonx", LIBRARY, options, **variables)


@pytest.mark.parametrize("language", first_of(["python", "cpp", "triton"]))
def test_a_backend_passes_the_kit_as_it_is_written(waves, tmp_path, language):
    written(waves, tmp_path, language)
    variables = {"WAVES_CPP_BACKENDS": f"{language}x"}
    if language == "triton":
        pytest.importorskip("triton")
        variables["TRITON_INTERPRET"] = "1"
    status = waves.status(f"{language}x", LIBRARY, **variables)
    assert (status["state"], len(status["by_reference"])) == ("loaded", OPERATORS), status
    doctor = command(waves, "doctor", **variables)
    assert f"{language}x: computed by the reference, for lack of a kernel: dequantize, mixture" in doctor
    assert "its kernel is the operator's reference" in command(waves, "explain", "solve", "cpu", **variables)
    waves.passes_the_kit(f"{language}x", LIBRARY, BY_REFERENCE, **variables)


@pytest.mark.nightly
def test_kernels_in_numpy_take_the_references_place(waves, tmp_path):
    """Discovered, explained, benched and through the kit, as the kernels in C++ are."""
    project = written(waves, tmp_path, "python", install=False)
    (kernels,) = project.rglob("kernels.py")
    begin, found, end = kernels.read_text().partition("FUNCTIONS: dict[str, Callable[..., Any]] = {")
    assert found
    named = 'FUNCTIONS = {schema.partition("(")[0]: kernel for schema, kernel in KERNELS.items()}\n'
    end = end.partition("}\n")[2]
    kernels.write_text(f"{begin}from {LIBRARY}.operators import KERNELS\n\n{named}{end}")
    waves.install(project)
    variables = {"WAVES_CPP_BACKENDS": "pythonx"}
    status = waves.status("pythonx", LIBRARY, **variables)
    assert (status["state"], status["by_reference"], len(status["operators"])) == ("loaded", [], OPERATORS)
    answer = command(waves, "explain", "rms_norm", "cpu", **variables)
    assert "pythonx (waves-cpp-pythonx 0.1.0) at CPU, from Python" in answer
    assert "reference" not in answer
    file = tmp_path / "results.json"
    command(waves, "bench", "--quick", "--skip", "reference, compiled", "--json", str(file), **variables)
    assert json.loads(file.read_text())["findings"] == []
    waves.passes_the_kit("pythonx", LIBRARY, KIT, **variables)
