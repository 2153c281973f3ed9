"""Calls of 60 of PyTorch's own operators, drawn by a fixed seed: on them an audit finds nothing."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import torch
from opwheel_tools.audit import calls
from opwheel_tools.audit.recording import Recorder

SEED = 21
COUNT = 60
NAMES = (
    "aten::rot90",
    "aten::zeros",
    "aten::pow.Tensor_Tensor",
    "aten::linalg_vector_norm",
    "aten::unsqueeze",
    "aten::empty.memory_format",
    "aten::tanh",
    "aten::transpose.int",
    "aten::logical_xor",
    "aten::cumprod",
    "aten::exp2",
    "aten::_batch_norm_with_update",
    "aten::_upsample_bilinear2d_aa",
    "aten::index_put",
    "aten::narrow_copy",
    "aten::linalg_householder_product",
    "aten::asinh",
    "aten::special_zeta",
    "aten::erfinv",
    "aten::exp",
    "aten::rsqrt",
    "aten::amax",
    "aten::linalg_ldl_factor_ex",
    "aten::special_i1",
    "aten::std_mean.correction",
    "aten::lgamma",
    "aten::normal.Tensor_Tensor",
    "aten::linalg_lu",
    "aten::addr",
    "aten::grid_sampler_3d",
    "aten::triangular_solve",
    "aten::randint",
    "aten::index_fill.int_Scalar",
    "aten::add.Tensor",
    "aten::special_i1e",
    "aten::baddbmm",
    "aten::cholesky_inverse",
    "aten::acosh",
    "aten::maximum",
    "aten::heaviside",
    "aten::le.Tensor",
    "aten::log",
    "aten::all",
    "aten::linalg_solve_triangular",
    "aten::unsafe_split.Tensor",
    "aten::atanh",
    "aten::diagonal_copy",
    "aten::dot",
    "aten::nansum",
    "aten::softshrink",
    "aten::atan",
    "aten::cholesky",
    "aten::mm",
    "aten::view",
    "aten::special_erfcx",
    "aten::isposinf",
    "aten::diagonal_scatter",
    "aten::hash_tensor",
    "aten::unbind.int",
    "aten::index_add",
)
# What an audit finds all the same, with the reason, as a baseline has it.
EXPLAINED = {
    # Its derivative in forward mode takes the whole tangent of A, of which the operator reads one triangle: with
    # tangents of that triangle it is right. PyTorch's documentation says to use linalg.solve_triangular instead.
    "aten::triangular_solve forward mode silently wrong",
    "aten::triangular_solve torch.func.jvp silently wrong",
    # Its fake kernel keeps the strides of a transposed input, and the kernel does not. Models call it by
    # torch.nn.functional.batch_norm, which torch.compile takes apart before.
    "aten::_batch_norm_with_update fake silently wrong",
    # It returns views, which its schema hides on purpose: the caller must not write to them.
    "aten::unsafe_split.Tensor aliases silently wrong",
}


def drawn() -> list[Any]:
    """Every OpInfo that ATen has an operator of the same name for and that takes float32, in an order drawn once."""
    from torch.testing._internal.common_methods_invocations import op_db

    known = {info.aten_name: info for info in op_db if torch.float32 in info.dtypes and not info.variant_test_name}
    names = sorted(name for name in known if hasattr(torch.ops.aten, name))
    return [known[name] for name in random.Random(SEED).sample(names, len(names))]


def record(path: Path) -> list[str]:
    """Write a call of each of the first 60 operators to a file: what ATen is called with by a first sample.

    Those that are nothing but calls of other operators, which a dispatch mode does not see, are passed over.

    Returns:
        The operators, ``"aten::name.overload"``.
    """
    found: list[calls.Call] = []
    torch.manual_seed(SEED)
    for info in drawn():
        sample = next(iter(info.sample_inputs("cpu", torch.float32)))
        with Recorder({"aten"}) as recorder:
            info.op(sample.input, *sample.args, **sample.kwargs)
        own = f"aten::{info.aten_name}"
        found += [one for one in recorder.calls if one.operator.partition(".")[0] == own][:1]
        if len(found) == COUNT:
            break
    calls.save(found, path)
    return [one.operator for one in found]
