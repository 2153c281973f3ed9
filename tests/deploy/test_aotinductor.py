"""A .pt2 from a C++ program without Python: equal to eager, and every way in which it can be put together wrongly."""

import os
import re
import shutil
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import muladd
import pytest
import torch
from opwheel.aotinductor import c_shims
from opwheel.registry import BackendStatus, BackendUnavailableError, State

from .conftest import ROOT, compile_library, last_line, run


@pytest.fixture(scope="module")
def libraries():
    """Schema library and CPU backend, as `muladd config --libs` prints them."""
    return run(sys.executable, "-m", "muladd", "config", "--libs", check=True).stdout.split()


@pytest.fixture
def digits(aotinductor_programs, digits_pt2):
    """Run the example's program."""

    def start(*libraries, model="digits.pt2", program=aotinductor_programs / "example/run_digits", **environment):
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("MULADD_", "LD_"))}
        return run(program, digits_pt2 / model, digits_pt2, *libraries, env=clean | environment)

    return start


def assert_equal_to_eager(result):
    assert result.returncode == 0, result.stderr
    assert [line.split()[2] for line in result.stdout.splitlines()] == ["720", "7"]


@pytest.mark.parametrize("model", ["digits.pt2", "digits_c_shims.pt2"])
def test_equal_to_eager(digits, libraries, model):
    assert_equal_to_eager(digits(*libraries, model=model))


def test_no_libpython(aotinductor_programs, digits_pt2, libraries, tmp_path):
    with zipfile.ZipFile(digits_pt2 / "digits.pt2") as package:
        package.extractall(tmp_path)
    model = next(tmp_path.rglob("*.so"))
    for file in (aotinductor_programs / "example/run_digits", *libraries, model):
        assert "libpython" not in run("readelf", "-d", file, check=True).stdout
    assert "libpython" not in run("ldd", aotinductor_programs / "example/run_digits", check=True).stdout


def test_the_order_of_the_libraries_does_not_matter(digits, libraries):
    assert_equal_to_eager(digits(*reversed(libraries)))


def test_by_name_next_to_the_program(digits, libraries, aotinductor_programs, tmp_path):
    program = shutil.copy(aotinductor_programs / "example/run_digits", tmp_path)
    missing = digits("cpu", program=program)
    assert missing.returncode == 2
    assert f"there is no libmuladd_cpu.so in {tmp_path}" in last_line(missing)
    assert "muladd config --libs" in last_line(missing)
    for library in libraries:
        shutil.copy(library, tmp_path)
    assert_equal_to_eager(digits("cpu", program=program))


def test_by_name_in_a_folder_of_the_environment(digits, libraries, tmp_path):
    for library in libraries:
        shutil.copy(library, tmp_path)
    no_file = tmp_path / "no file"
    no_file.mkdir()
    os.mkfifo(no_file / "libmuladd_cpu.so")  # the dynamic loader would wait for who writes into it
    assert_equal_to_eager(digits("cpu", MULADD_LIBRARY_PATH=f"/nonexistent:{no_file}:{tmp_path}"))
    # Of a backend given by path, the schema library is found beside it.
    assert_equal_to_eager(digits(tmp_path / "libmuladd_cpu.so"))


def test_no_library(digits):
    result = digits()
    assert result.returncode == 2
    assert "there is no libmuladd_schema.so in" in last_line(result)


def test_schema_only(digits, libraries):
    result = digits(libraries[0])
    assert result.returncode == 2
    assert "muladd::muladd has no kernel for cpu tensors: load the library of a backend" in result.stderr
    assert "OPWHEEL-E001" in result.stderr


def test_schema_only_with_c_shims(digits, libraries):
    result = digits(libraries[0], model="digits_c_shims.pt2")
    assert result.returncode == 2
    assert re.search(r"undefined symbol: _ZN6muladd3cpu\d+aoti_torch_cpu_", last_line(result))


def test_nothing_loaded_in_python(digits_pt2):
    """Without muladd in the process the model says which operator it misses."""
    program = f"import torch; torch._inductor.aoti_load_package({str(digits_pt2 / 'digits.pt2')!r})"
    result = run(sys.executable, "-c", program)
    assert result.returncode == 1
    assert "Could not find schema for muladd::muladd" in result.stderr


def test_missing_operator(digits, libraries, tmp_path):
    """A schema library that is older than the model."""
    source = tmp_path / "schema.cpp"
    source.write_text(
        "#include <torch/csrc/stable/library.h>\n"
        'STABLE_TORCH_LIBRARY(muladd, m) { m.def("mul(Tensor a, Tensor b) -> Tensor"); }\n'
        'extern "C" __attribute__((visibility("default"))) const char* const* muladd_schemas() { return nullptr; }\n'
    )
    compile_library(source, tmp_path / "libmuladd_schema.so")
    result = digits(tmp_path / "libmuladd_schema.so")
    assert result.returncode == 2
    assert "Could not find schema for muladd::muladd" in result.stderr


@pytest.mark.parametrize("which", [0, 1], ids=["schema", "backend"])
def test_two_copies(digits, libraries, tmp_path, which):
    copy = shutil.copy(libraries[which], tmp_path)
    result = digits(*libraries, copy)
    assert result.returncode == 2
    assert f"{copy} cannot be opened, because {libraries[which]} is in this process already" in last_line(result)


def test_the_same_library_twice_is_one(digits, libraries):
    assert_equal_to_eager(digits(*libraries, libraries[1]))


def test_wrong_dtype(aotinductor_programs, digits_pt2, libraries):
    program = aotinductor_programs / "wrong_dtype"
    result = run(program, digits_pt2 / "digits.pt2", *libraries, env=os.environ | {"AOTI_RUNTIME_CHECK_INPUTS": "1"})
    assert result.returncode == 2
    assert "unmatched dtype" in result.stderr


def test_wrong_dtype_in_a_c_function(aotinductor_programs, libraries):
    """A C function refuses what the operator refuses: the reason on stderr, a code for the model."""
    [declaration] = c_shims(muladd.library, "cpu")[torch.ops.muladd.mul.default]
    result = run(aotinductor_programs / "c_function", symbol_of(declaration), *libraries)
    assert result.returncode == 0, result.stderr
    assert "mul: argument 'a' is torch.int64; supported dtypes are torch.float16" in last_line(result)


def symbol_of(declaration):
    return re.match(r"AOTITorchError \(\*const (\w+)\)\(", declaration)[1]


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "there is no file"), (b"not a library" * 100, "invalid ELF header"), (b"", "file too short")],
    ids=["missing", "no library", "empty"],
)
def test_damaged_library(digits, libraries, tmp_path, content, words):
    path = tmp_path / "libmuladd_cpu.so"
    if content is not None:
        path.write_bytes(content)
    result = digits(libraries[0], path)
    assert result.returncode == 2
    assert str(path) in last_line(result)
    assert words in last_line(result)


def test_another_library_of_that_name(digits, tmp_path):
    source = tmp_path / "empty.cpp"
    source.write_text("")
    run("g++", "-shared", source, "-o", tmp_path / "libmuladd_schema.so", check=True)
    result = digits(tmp_path / "libmuladd_schema.so")
    assert result.returncode == 2
    assert "is not the schema library of muladd; reinstall its core package" in last_line(result)


def test_a_program_that_is_not_linked_against_pytorch(aotinductor_programs, libraries):
    result = run(aotinductor_programs / "no_torch", *libraries)
    assert result.returncode == 2
    assert "libtorch_cpu.so" in last_line(result)
    assert "link the program against torch_cpu" in last_line(result)


def test_loading_from_several_threads(aotinductor_programs, libraries):
    torch_libraries = f"{torch.__path__[0]}/lib"
    environment = os.environ | {"LD_LIBRARY_PATH": torch_libraries}
    run(aotinductor_programs / "no_torch", *libraries, env=environment, check=True)


@pytest.fixture(scope="module")
def newer_build(tmp_path_factory):
    """The CPU backend's wheel with another version and from another compiler run, unpacked."""
    folder = tmp_path_factory.mktemp("newer")
    shutil.copytree(ROOT / "backends/cpu", folder / "cpu", ignore=shutil.ignore_patterns("build", "*.egg-info"))
    project = folder / "cpu/pyproject.toml"
    project.write_text(project.read_text().replace('version = "0.1.0"', 'version = "0.1.1"'))
    wheel = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps", "-w", folder]
    run(*wheel, folder / "cpu", env=os.environ | {"CXXFLAGS": "-O0"}, check=True)
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as archive:
        archive.extractall(folder / "unpacked")
    return folder / "unpacked"


@pytest.mark.parametrize("model", ["digits.pt2", "digits_c_shims.pt2"])
def test_a_newer_build_of_the_backend(digits, libraries, newer_build, model):
    library = newer_build / "muladd_cpu/libmuladd_cpu.so"
    assert library.read_bytes() != Path(libraries[1]).read_bytes()
    assert_equal_to_eager(digits(libraries[0], library, model=model))


def test_a_newer_build_of_the_backend_in_python(digits_pt2, newer_build):
    program = f"""
import muladd, numpy, torch
assert muladd.backends()["cpu"].version == "0.1.1"
def read(name, dtype, *shape):
    return torch.from_numpy(numpy.fromfile(f"{digits_pt2}/{{name}}.bin", dtype)).reshape(*shape)
model = torch._inductor.aoti_load_package("{digits_pt2}/digits.pt2")
scores = model(read("pixels", "f4", -1, 64), read("side", "i8", -1))
torch.testing.assert_close(scores, read("scores", "f4", -1, 10), rtol=1e-5, atol=1e-5)
"""
    run(sys.executable, "-c", program, env=os.environ | {"PYTHONPATH": str(newer_build)}, check=True)


def test_c_shims_are_the_functions_that_the_library_exports(libraries):
    declarations = [text for texts in c_shims(muladd.library, "cpu").values() for text in texts]
    exported = run("nm", "-D", "--defined-only", libraries[1], check=True).stdout.split()
    assert {symbol_of(text) for text in declarations} == {name for name in exported if "aoti_torch_cpu_" in name}
    symbol = "_ZN6muladd3cpu20aoti_torch_cpu_scaleILj3966861111EE8functionE"
    assert (
        f"AOTITorchError (*const {symbol})(AtenTensorHandle x, double factor, AtenTensorHandle* ret0); "
        f"constexpr auto& aoti_torch_cpu_scale = {symbol}"
    ) in declarations


def test_c_shims_of_a_device_without_a_backend():
    with pytest.raises(BackendUnavailableError, match="cuda"):
        c_shims(muladd.library, "cuda")


def test_c_shims_of_a_backend_that_exports_none(tmp_path):
    """A backend in Python has no C functions."""
    (tmp_path / "plain.py").write_text(
        "from opwheel import Backend, hookimpl\n"
        "@hookimpl\n"
        "def opwheel_backend():\n"
        "    register = lambda library: library.impl('mul', lambda a, b: a)\n"
        "    return Backend('plain', 'mps', 'MPS', register=register, operators=['mul'])\n"
    )
    metadata = tmp_path / "plain-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: plain\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[muladd.backends]\nplain = plain\n")
    program = "import muladd; from opwheel.aotinductor import c_shims; c_shims(muladd.library, 'mps')"
    result = run(sys.executable, "-c", program, env=os.environ | {"PYTHONPATH": str(tmp_path)})
    assert result.returncode == 1
    assert "the backend 'plain' exports no C functions of mul;" in last_line(result)


def test_c_shims_of_two_backends():
    """Each operator's is that of the backend that serves it; what one in Python serves has none."""
    cpu = muladd.backends()["cpu"]
    served = tuple(name for name in cpu.operators if name != "scale")
    first = cpu._replace(operators=served)
    second = BackendStatus("python", State.LOADED, device_type="cpu", operators=("scale",))
    shares = SimpleNamespace(backends=lambda: {"cpu": first, "python": second}, overloads=muladd.library.overloads)
    expected = c_shims(muladd.library, "cpu")
    del expected[torch.ops.muladd.scale.default]
    assert c_shims(shares, "cpu") == expected
