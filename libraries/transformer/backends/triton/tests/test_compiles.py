"""The kernels as Triton compiles them for GPUs of NVIDIA and AMD, for which there need not be one."""

from typing import Any, NamedTuple

import pytest
import torch
import transformer_ops

pytest.importorskip("triton")

import triton  # where it is installed
from transformer_ops_triton._backend import IS_INTERPRETED
from transformer_ops_triton.kernels import FUNCTIONS
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction, mangle_type

pytestmark = pytest.mark.skipif(IS_INTERPRETED, reason="nothing is compiled with TRITON_INTERPRET=1")
TARGETS = {
    "ptx": GPUTarget("cuda", 80, 32),
    "amdgcn": GPUTarget("hip", "gfx942", 64),
}
OF_SHAPES = {"N", "BLOCK", "HALF", "HEADS", "LENGTH"}


class Launch(NamedTuple):
    """A kernel, the types of its arguments, the values it is compiled for by their places, and its warps."""

    kernel: Any
    types: dict[str, Any]
    constants: dict[tuple[int, ...], Any]
    warps: int

    @classmethod
    def of(cls, kernel, args, options):
        warps = options.pop("num_warps", 4)
        given = dict(zip(kernel.arg_names, args, strict=False)) | options
        types, constants = {}, {}
        for i, parameter in enumerate(kernel.params):
            value = given[parameter.name]
            is_constant = parameter.is_constexpr or value is None
            types[parameter.name] = "constexpr" if is_constant else mangle_type(value)
            if is_constant:
                constants[(i,)] = value
            elif isinstance(value, tuple):
                kinds = types[parameter.name]
                constants |= {(i, j): one for j, one in enumerate(value) if kinds[j] == "constexpr"}
        return cls(kernel, types, constants, warps)

    @property
    def variant(self):
        names = self.kernel.arg_names
        constants = {place: value for place, value in self.constants.items() if names[place[0]] not in OF_SHAPES}
        return self.kernel.__name__, str(self.types), str(constants)


@pytest.fixture
def launches(monkeypatch):
    """What would be started, instead of starting it."""
    found = []
    monkeypatch.setattr(
        JITFunction,
        "run",
        lambda kernel, *args, grid, warmup, **options: found.append(Launch.of(kernel, args, options)),
    )
    return found


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("code", TARGETS)
def test_every_variant_compiles(launches, code, dtype, tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    with_kernels = [one for one in transformer_ops.library.overloads.values() if one.operator.name in FUNCTIONS]
    for overload in with_kernels:
        for sample in overload.operator.samples("cpu", dtype, False):
            overload.call(FUNCTIONS[overload.operator.name], overload.bind(sample.args, sample.kwargs))
    variants = {launch.variant: launch for launch in launches}
    assert len({name for name, _, _ in variants}) == 16
    for kernel, types, constants, warps in variants.values():
        source = ASTSource(kernel, types, constants)
        compiled = triton.compile(source, target=TARGETS[code], options={"num_warps": warps})
        assert kernel.__name__ in compiled.asm[code]
