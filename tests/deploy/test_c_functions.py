"""Models with C functions (opwheel.aotinductor.c_shims) whose operator has got another schema since."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from opwheel.aotinductor import c_shims
from opwheel.dispatch.overload import Overload
from opwheel.registry import BackendStatus, State

from .conftest import compile_library, run

SOURCE = Path(__file__).parent / "aotinductor/c_functions.cpp"
BEFORE = "times(Tensor x, float k=2) -> Tensor"
# Does not import the library: the model calls the function itself.
RUN = """
import ctypes, os, sys, torch
ctypes.CDLL(sys.argv[1], mode=os.RTLD_NOW | os.RTLD_GLOBAL)
print(torch._inductor.aoti_load_package(sys.argv[2])(torch.ones(2)).tolist())
"""


def shims(library):
    """What c_shims returns for a library of one operator."""
    status = BackendStatus("cpu", State.LOADED, device_type="cpu", operators=("times",), library=library)
    overload = Overload(SimpleNamespace(name="times"), "waves_c", BEFORE)
    return c_shims(SimpleNamespace(backends=lambda: {"cpu": status}, overloads={"times": overload}), "cpu")


@pytest.fixture(scope="module")
def defined():
    library = torch.library.Library("waves_c", "DEF")
    library.define(BEFORE)
    torch.library.register_fake("waves_c::times", lambda x, k=2: torch.empty_like(x), lib=library)
    yield
    library._destroy()


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The library of an operator with some schema."""
    folder = tmp_path_factory.mktemp("built")

    def build(schema):
        output = folder / f"{hash(schema)}.so"
        if not output.exists():
            compile_library(SOURCE, output, f'-DTIMES="{schema}"')
        return output

    return build


@pytest.fixture(scope="module")
def model(defined, built, tmp_path_factory):
    """Compiled for the schema of before."""

    class Times(torch.nn.Module):
        def forward(self, x):
            return torch.ops.waves_c.times(x, 3.0)

    return torch._inductor.aoti_compile_and_package(
        torch.export.export(Times(), (torch.ones(2),)),
        package_path=str(tmp_path_factory.mktemp("model") / "model.pt2"),
        inductor_configs={"aot_inductor.custom_ops_to_c_shims": shims(built(BEFORE))},
    )


@pytest.mark.parametrize(
    "schema", [BEFORE, "times(Tensor x, *,  float k=5) -> (Tensor y)"], ids=["as before", "the same call"]
)
def test_loaded(model, built, schema):
    result = run(sys.executable, "-c", RUN, built(schema), model, check=True)
    assert result.stdout == "[3.0, 3.0]\n"


@pytest.mark.parametrize(
    "schema",
    ["times(Tensor x, float k=2, float extra=0) -> Tensor", "times(Tensor x, float factor=2) -> Tensor"],
    ids=["one more argument", "another name"],
)
def test_refused(model, built, schema):
    """Before it runs, by a message that names library and operator."""
    result = run(sys.executable, "-c", RUN, built(schema), model)
    assert result.returncode == 1
    assert "undefined symbol: _ZN7waves_c3cpu20aoti_torch_cpu_timesILj" in result.stderr
    assert result.stdout == ""


def test_one_name_in_two_libraries(defined, built):
    """Both would be called aoti_torch_cpu_times in one model: it does not compile."""
    [declaration] = shims(built(BEFORE))[torch.ops.waves_c.times.default]
    text = "using AOTITorchError = int; using AtenTensorHandle = struct Tensor*;\n"
    first, second = (f'extern "C" {{ extern {one}; }}\n' for one in (declaration, declaration.replace("_c3", "_d3")))
    compiler = ["g++", "-fsyntax-only", "-x", "c++", "-"]
    run(*compiler, input=text + first, check=True)
    clash = run(*compiler, input=text + first + second)
    assert clash.returncode == 1
    assert "aoti_torch_cpu_times" in clash.stderr


def test_nothing_to_compile_with(defined, built):
    """A backend that was built for another schema has no function for this one."""
    library = built("times(Tensor x, float k=2, float extra=0) -> Tensor")
    with pytest.raises(
        ValueError, match="the backend 'cpu' exports no C functions of times; compile the model without"
    ):
        shims(library)
