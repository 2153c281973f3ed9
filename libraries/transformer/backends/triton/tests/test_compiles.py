"""The kernels as Triton compiles them for GPUs of NVIDIA and AMD, for which there need not be one."""

from typing import Any, NamedTuple

import pytest
import torch
import transformer_ops

pytest.importorskip("triton")

import triton  # where it is installed
from opwheel_tools.opinfo.lookup import op_info_of
from transformer_ops_triton._interpreted import IS_INTERPRETED
from transformer_ops_triton.kernels import FUNCTIONS
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction, mangle_type

pytestmark = pytest.mark.skipif(IS_INTERPRETED, reason="nothing is compiled with TRITON_INTERPRET=1")
TARGETS = {
    "ptx": GPUTarget("cuda", 80, 32),
    "amdgcn": GPUTarget("hip", "gfx942", 64),
}
OF_SHAPES = {"N", "BLOCK", "HALF", "HEADS", "LENGTH", "ROWS"}


class Launch(NamedTuple):
    """A kernel, the types of its arguments, the values it is compiled for by their places, and options."""

    kernel: Any
    types: dict[str, Any]
    constants: dict[tuple[int, ...], Any]
    options: dict[str, int]

    @classmethod
    def of(cls, kernel, args, options):
        compiled_with = {name: options.pop(name) for name in ("num_warps", "num_stages") if name in options}
        given = dict(zip(kernel.arg_names, args, strict=False)) | options
        types, constants = {}, {}
        for i, parameter in enumerate(kernel.params):
            value = given[parameter.name]
            is_constant = parameter.is_constexpr or value is None
            specialize = not parameter.do_not_specialize  # 1 is a constant then
            kinds = "constexpr" if is_constant else mangle_type(value, specialize=specialize)
            types[parameter.name] = kinds
            if kinds == "constexpr":
                constants[(i,)] = value
            elif isinstance(value, tuple):
                constants |= {(i, j): one for j, one in enumerate(value) if kinds[j] == "constexpr"}
        return cls(kernel, types, constants, compiled_with)

    @property
    def variant(self):
        names = self.kernel.arg_names
        constants = {place: value for place, value in self.constants.items() if names[place[0]] not in OF_SHAPES}
        return self.kernel.__name__, str(self.types), str(constants)

    def compiled(self, code):
        source = ASTSource(self.kernel, self.types, self.constants)
        return triton.compile(source, target=TARGETS[code], options=self.options)


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


@pytest.mark.parametrize(
    ("code", "dtype"),
    [
        ("ptx", torch.bfloat16),
        pytest.param("amdgcn", torch.float64, marks=pytest.mark.nightly),
        pytest.param("ptx", torch.float64, marks=pytest.mark.nightly),
        pytest.param("amdgcn", torch.bfloat16, marks=pytest.mark.nightly),
    ],
)
def test_every_variant_compiles(launches, code, dtype, tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    with_kernels = [one for one in transformer_ops.library.overloads.values() if one.operator.name in FUNCTIONS]
    for overload in with_kernels:
        for sample in op_info_of(overload).samples("cpu", dtype, False):
            overload.call(FUNCTIONS[overload.operator.name], overload.bind(sample.args, sample.kwargs))
    variants = {launch.variant: launch for launch in launches}
    assert len({name for name, _, _ in variants}) == 21
    for launch in variants.values():
        assert launch.kernel.__name__ in launch.compiled(code).asm[code]


@pytest.mark.parametrize("code", TARGETS)
def test_kernels_compile_for_sizes_of_one(launches, code, tmp_path, monkeypatch):
    """Each of which is a constant then, and so are strides."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    q, angles, x = torch.ones(1, 1, 1, 2), torch.ones(1, 1), torch.ones(1, 1)
    zero = torch.zeros(1, dtype=torch.int64)
    FUNCTIONS["rope"](q, q, angles, angles, None, 1, False, 2)
    FUNCTIONS["rope"](q, q, angles, angles, zero, 1, True, 2)
    y, lse = FUNCTIONS["attention_training"](q, q, q, True, None, None, None)
    FUNCTIONS["attention_backward"](q, q, q, q, y, lse, True, None, None, None)
    FUNCTIONS["reshape_and_cache"](q[0], q[0], q.clone(), q.clone(), zero)
    FUNCTIONS["layer_norm_backward"](x, x, None, 1e-5)
    FUNCTIONS["cross_entropy_rows"](x, zero, x[0], -100, 0.0, 0.0, 0.0)
    assert len({launch.kernel.__name__ for launch in launches}) == 8
    for launch in {launch.variant: launch for launch in launches}.values():
        assert launch.kernel.__name__ in launch.compiled(code).asm[code]


def attention_and_rope(q, k):
    y, lse = FUNCTIONS["attention_training"](q, k, k, True, None, None, None)
    FUNCTIONS["attention_backward"](q, q, k, k, y, lse, True, None, None, None)
    FUNCTIONS["rope"](q, k, *torch.ones(2, q.shape[1], q.shape[3], dtype=q.dtype), None, 2, False, None)


def test_kernels_are_compiled_once_for_all_sizes_of_batches_and_sequences(launches):
    for batches, positions in ((1, 1), (1, 7), (2, 16), (3, 100)):
        q, k = (torch.ones(batches, positions, heads, 64, dtype=torch.bfloat16) for heads in (8, 2))
        attention_and_rope(q, k)
        x = torch.ones(batches * positions, 64)
        FUNCTIONS["rms_norm_backward"](x, x, x[0], 1e-6, 0.0, "llama")
    variants = {(launch.kernel.__name__, str(launch.types), str(launch.constants)) for launch in launches}
    assert len(variants) == len({name for name, _, _ in variants}) == 6


def test_kernels_are_compiled_once_for_elements_that_are_apart(launches):
    q, k = (torch.ones(2, 48, heads, 64, dtype=torch.bfloat16) for heads in (8, 2))
    attention_and_rope(q, k)
    attention_and_rope(*(x.transpose(1, 3).contiguous().transpose(1, 3) for x in (q, k)))
    variants = {(launch.kernel.__name__, str(launch.types), str(launch.constants)) for launch in launches}
    assert len(variants) == len({name for name, _, _ in variants}) == 4


@pytest.mark.parametrize(
    ("code", "kibibytes", "dtype", "length"),
    [
        ("ptx", 99, torch.float64, 128),
        ("amdgcn", 64, torch.float32, 256),
    ],
)
def test_attention_fits_into_shared_memory(launches, code, kibibytes, dtype, length, tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    q = torch.randn(1, 100, 2, length, dtype=dtype)
    y, lse = FUNCTIONS["attention_training"](q, q, q, True, None, None, None)
    FUNCTIONS["attention_backward"](q, q, q, q, y, lse, True, None, None, None)
    assert len(launches) == 3
    for launch in launches:
        assert launch.compiled(code).metadata.shared <= kibibytes << 10, launch.kernel.__name__


def test_float32_factors_are_not_cut_to_tf32(launches, tmp_path, monkeypatch):
    """Which the interpreter would not show: it multiplies float32 numbers."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    q = torch.randn(1, 100, 2, 16)
    y, lse = FUNCTIONS["attention_training"](q, q, q, False, None, None, None)
    FUNCTIONS["attention_backward"](q, q, q, q, y, lse, False, None, None, None)
    assert len(launches) == 3
    assert not any("tf32" in launch.compiled("ptx").asm["ptx"] for launch in launches)
