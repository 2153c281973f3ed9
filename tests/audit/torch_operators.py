"""Calls of 100 of PyTorch's own operators, drawn by a fixed seed: on them an audit finds nothing."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import torch
from opwheel_tools.audit.recording import Recorder
from opwheel_tools.judge import calls

SEED = 21
COUNT = 100
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
    "aten::logaddexp2",
    "aten::isneginf",
    "aten::gelu",
    "aten::searchsorted.Tensor",
    "aten::addcdiv",
    "aten::bernoulli",
    "aten::unique_consecutive",
    "aten::log2",
    "aten::unbind_copy.int",
    "aten::max_unpool3d",
    "aten::new_empty",
    "aten::empty_strided",
    "aten::mv",
    "aten::nextafter",
    "aten::median",
    "aten::ormqr",
    "aten::cat",
    "aten::cummin",
    "aten::permute",
    "aten::gt.Tensor",
    "aten::histogram.bin_ct",
    "aten::neg",
    "aten::frac",
    "aten::cosh",
    "aten::as_strided_scatter",
    "aten::zero_",
    "aten::alias_copy",
    "aten::lt.Tensor",
    "aten::expand_copy",
    "aten::trace",
    "aten::copysign.Tensor",
    "aten::native_group_norm",
    "aten::randint_like",
    "aten::logical_and",
    "aten::eye",
    "aten::rad2deg",
    "aten::split_with_sizes",
    "aten::mode",
    "aten::linalg_ldl_solve",
    "aten::linspace",
)
_IS_WRONG = "silently wrong"
# What an audit finds all the same, with the reason, as a baseline has it.
EXPLAINED = {
    # Its derivative in forward mode takes the whole tangent of A, of which the operator reads one triangle: with
    # tangents of that triangle it is right. PyTorch's documentation says to use linalg.solve_triangular instead.
    f"aten::triangular_solve forward mode {_IS_WRONG}: tangent of result 0, by dual numbers",
    f"aten::triangular_solve torch.func.jvp {_IS_WRONG}: tangent of result 0, by torch.func.jvp",
    # Its fake kernel keeps the strides of a transposed input, and the kernel does not. Models call it by
    # torch.nn.functional.batch_norm, which torch.compile takes apart before.
    f"aten::_batch_norm_with_update fake {_IS_WRONG}: strides of result 0, of transposed arguments",
    # It returns views, which its schema hides on purpose: the caller must not write to them.
    *(f"aten::unsafe_split.Tensor aliases {_IS_WRONG}: memory of result {i}" for i in range(3)),
    # Wrong in PyTorch: the whole first argument is replaced, and its gradient is not zero.
    f"aten::as_strided_scatter gradients {_IS_WRONG}: gradient of tensor 0, where all require grad",
    f"aten::as_strided_scatter second derivatives {_IS_WRONG}: second derivatives, by torch.autograd.grad",
    f"aten::as_strided_scatter torch.func.grad {_IS_WRONG}: gradients, by torch.func.grad",
    # Several elements of the call go to one place. One of them stays there, and all of them get its gradient.
    f"aten::max_unpool3d gradients {_IS_WRONG}: gradient of tensor 0, where all require grad",
    f"aten::max_unpool3d second derivatives {_IS_WRONG}: second derivatives, by torch.autograd.grad",
    f"aten::max_unpool3d torch.func.grad {_IS_WRONG}: gradients, by torch.func.grad",
    # Wrong in PyTorch: the kernel reads weight and bias as if they were contiguous, out of their bounds where they are
    # expanded. torch.nn.functional.group_norm gives it contiguous ones.
    *(
        f"aten::native_group_norm strides {_IS_WRONG}: values of result 0, {name} {way}"
        for name in ("weight", "bias")
        for way in ("transposed", "as every second element")
    ),
    f"aten::native_group_norm expanded {_IS_WRONG}: values of result 0, input, weight, bias expanded along dimension 0",
    *(
        f"aten::native_group_norm expanded {_IS_WRONG}: values of result 0, {name} expanded along dimension -1"
        for name in ("weight", "bias")
    ),
}


def drawn() -> list[Any]:
    """Every OpInfo that ATen has an operator of the same name for and that takes float32, in an order drawn once."""
    from torch.testing._internal.common_methods_invocations import op_db

    known = {info.aten_name: info for info in op_db if torch.float32 in info.dtypes and not info.variant_test_name}
    names = sorted(name for name in known if hasattr(torch.ops.aten, name))
    return [known[name] for name in random.Random(SEED).sample(names, len(names))]


def record(path: Path) -> list[str]:
    """Write a call of each of the first 100 operators to a file: what ATen is called with by a first sample.

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
