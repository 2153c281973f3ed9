"""Defects, each one line of the right library, and each of a kind that was reported in public.

Importing this module registers the right library as ``planted`` and each defect as a library of its own,
``planted_<name>``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from . import narrow_defects
from .defect import Defect

_TWIN = Path(__file__).with_name("twin.py")
_ISSUES = "https://github.com/pytorch/pytorch/issues"


DEFECTS = [
    Defect(
        "register_autograd",
        "square_scale",
        "https://github.com/pytorch/vision/pull/9572",
        'library.impl("square_scale", differentiate_square_scale, "Autograd")',
        'torch.library.register_autograd(f"{NAMESPACE}::square_scale", SquareScale.backward, lib=library, '
        "setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs))",
    ),
    Defect(
        "jvp_lacks_a_term",
        "square_scale",
        f"{_ISSUES}/192985",
        "return 2 * x * weight * dx + x * x * dweight",
        "return 2 * x * weight * dx",
    ),
    Defect(
        "jvp_is_zero",
        "square_scale",
        f"{_ISSUES}/192985",
        "return 2 * x * weight * dx + x * x * dweight",
        "return torch.zeros_like(x * weight)",
    ),
    Defect(
        "backward_lacks_a_factor",
        "square_scale",
        "https://github.com/pytorch/pytorch/issues/1712",
        "grad_x = 2 * x * weight * grad",
        "grad_x = x * weight * grad",
    ),
    Defect(
        "backward_of_broadcast",
        "square_scale",
        f"{_ISSUES}/1712",
        "grad_weight = x * x * grad",
        "grad_weight = x * x * grad[:1]",
    ),
    Defect(
        "backward_reads_flat_memory",
        "square_scale",
        "https://github.com/deepmodeling/deepmd-kit/issues/3910",
        "grad_x = 2 * x * weight * grad",
        "grad_x = 2 * x * weight * grad.as_strided(x.shape, x.stride() if grad.stride(-1) else grad.stride()[::-1])",
    ),
    Defect(
        "double_backward_of_constant",
        "square_scale",
        f"{_ISSUES}/76185",
        "grad_x = 2 * x * weight * grad",
        "grad_x = 2 * x.detach() * weight * grad",
    ),
    Defect(
        "torch_func_sees_no_graph",
        "square_scale",
        "https://github.com/pytorch/functorch/issues/207",
        "        return x * x * weight",
        "        return x.detach() * x * weight",
    ),
    Defect(
        "fake_dtype",
        "positive",
        "https://github.com/pytorch/pytorch/pull/139766",
        "x.shape[:-1], dtype=torch.int64)",
        "x.shape[:-1])",
    ),
    Defect(
        "fake_shape",
        "pad",
        "https://github.com/vllm-project/vllm/issues/29014",
        '"{NAMESPACE}::pad", lambda x: x.new_empty(*x.shape[:-1], x.shape[-1] + 1)',
        '"{NAMESPACE}::pad", lambda x: x.new_empty(*x.shape[:-1], x.shape[-1])',
    ),
    Defect(
        "fake_strides",
        "swap",
        "https://github.com/NVIDIA/cuEquivariance/issues/223",
        "lambda x: x.new_empty(x.shape).mT",
        "lambda x: x.new_empty(x.mT.shape)",
    ),
    Defect(
        "fake_drops_dimension",
        "double",
        "https://github.com/pytorch/pytorch/pull/177115",
        '"{NAMESPACE}::double", lambda x: x.new_empty(x.shape)',
        '"{NAMESPACE}::double", lambda x: x.new_empty(x.shape[0], x.numel() // max(x.shape[0], 1))',
    ),
    Defect(
        "schema_hides_write",
        "add_into",
        f"{_ISSUES}/52569",
        "add_into(Tensor(a!) out, Tensor x) -> ()",
        "add_into(Tensor out, Tensor x) -> ()",
    ),
    Defect(
        "writes_to_the_other_argument",
        "add_into",
        f"{_ISSUES}/52569",
        "    out.copy_(out + x)",
        "    out.copy_(x.add_(out))",
    ),
    Defect(
        "returns_its_argument",
        "clip",
        "https://github.com/vllm-project/vllm/pull/44130",
        "    return torch.clamp(x, min=low)",
        "    return x if bool((x >= low).all()) else torch.clamp(x, min=low)",
    ),
    Defect(
        "results_share_memory",
        "extremes",
        f"{_ISSUES}/134278",
        "return both[0].clone(), both[1].clone()",
        "return both[0], both[1]",
    ),
    Defect(
        "ignores_strides",
        "double",
        "https://github.com/rahul-goel/fused-ssim/pull/44",
        "flat = x.contiguous().view(-1)",
        "flat = x.as_strided((x.numel(),), (1,)) if 0 not in x.stride() else x.contiguous().view(-1)",
    ),
    Defect(
        "ignores_storage_offset",
        "double",
        "https://github.com/facebookresearch/SparseConvNet/issues/211",
        "flat = x.contiguous().view(-1)",
        "flat = x.contiguous().as_strided((x.numel(),), (1,), 0)",
    ),
    Defect(
        "writes_to_expanded_memory",
        "center",
        f"{_ISSUES}/77299",
        "result = x.clone(memory_format=torch.contiguous_format)",
        "result = torch.empty_strided(x.shape, x.stride()).to(x.dtype).copy_(x) if 0 in x.stride() else x.clone()",
    ),
    Defect(
        "crashes_on_empty",
        "double",
        f"{_ISSUES}/145072",
        "    result = torch.empty_like(flat)",
        "    result = torch.empty_like(flat) if flat.numel() else ctypes.string_at(0)",
    ),
    Defect(
        "not_all_is_written",
        "pad",
        f"{_ISSUES}/176254",
        "    result[..., -1] = 0",
        "    result[..., -1:-1] = 0",
    ),
    Defect(
        "keeps_state",
        "reverse",
        f"{_ISSUES}/82004",
        'scratch["x"] = x.flip(-1)',
        'scratch["x"] = x.flip(-1) + len(calls) * bool(calls.append(0) or 1)',
    ),
    Defect(
        "threads_share_memory",
        "reverse",
        f"{_ISSUES}/82004",
        "    scratch = {}",
        "    scratch = globals().setdefault('shared', {})",
    ),
    Defect(
        "vmap_ignores_in_dims",
        "dot",
        "https://github.com/pytorch/pytorch/pull/130589",
        "else y.movedim(in_dims[1], 0)",
        "else y.movedim(0, 0)",
    ),
    Defect(
        "vmap_of_a_constant",
        "dot",
        "https://github.com/pytorch/functorch/issues/9",
        "return ops.dot(x, y), 0",
        "return ops.dot(x, y if in_dims[1] is not None else y[:1].flip(-1)), 0",
    ),
    Defect(
        "autocast_of_one_argument",
        "mix",
        "https://github.com/pytorch/ao/issues/4616",
        "    y = y.to(lower)",
        "    y = y.to(torch.float64)",
    ),
    Defect(
        "ends_the_process",
        "negate",
        "https://github.com/microsoft/onnxruntime/issues/4559",
        "    x.neg_()",
        "    os._exit(3)",
    ),
    Defect(
        "hangs",
        "negate",
        f"{_ISSUES}/145072",
        "    x.neg_()",
        "    time.sleep(1000)",
    ),
    Defect(
        "writes_out_of_bounds",
        "negate",
        f"{_ISSUES}/145072",
        "    x.neg_()",
        "    ctypes.memset(x.neg_().data_ptr() + x.numel() * x.element_size(), 1, 8)",
    ),
    Defect(
        "writes_behind_its_result",
        "double",
        "https://github.com/pytorch/ao/issues/4825",
        "    result = torch.empty_like(flat)",
        "    result = torch.empty_like(flat); ctypes.memset(result.data_ptr() + result.nbytes, 1, 4)",
    ),
    Defect(
        "writes_in_front_of_its_result",
        "pad",
        "https://github.com/NVIDIA/TensorRT-LLM/pull/18673",
        "    result[..., -1] = 0",
        "    result[..., -1] = 0; ctypes.memset(result.data_ptr() - 4, 0, 4)",
    ),
    *narrow_defects.DEFECTS,
]


def _register(namespace: str, defect: Defect | None = None) -> None:
    """Run the library's file, for a defect the part before its first operator and the operator's own part alone."""
    parts = _TWIN.read_text().replace('NAMESPACE = "planted"', f'NAMESPACE = "{namespace}"').split("\n# --- ")
    if defect is not None:
        (own,) = [part for part in parts if part.startswith(f"{defect.operator}: ")]
        if own.count(defect.right) != 1:
            raise ValueError(f"{defect.name}: {defect.right!r} is {own.count(defect.right)} times in {defect.operator}")
        parts = [parts[0], own.replace(defect.right, defect.wrong)]
    exec(compile("\n# --- ".join(parts), f"{_TWIN.stem}:{namespace}", "exec"), {"__name__": namespace})


RIGHT = [f"planted::{name}" for name in dict.fromkeys(one.operator for one in DEFECTS)]
WRONG = {f"planted_{one.name}::{one.operator}": one for one in DEFECTS}

_register("planted")
for _one in DEFECTS:
    _register(f"planted_{_one.name}", _one)


def samples(operator: str) -> list[Any]:
    """The SampleInputs of an operator of any of the libraries."""
    from torch.testing._internal.opinfo.core import SampleInput  # slow to import

    name = operator.partition("::")[2].partition(".")[0]
    generator = torch.Generator().manual_seed(5)

    def numbers(*shape: int) -> torch.Tensor:
        return torch.rand(shape, generator=generator) + 0.5

    arguments = {
        "square_scale": (numbers(3, 4), (numbers(3, 4),)),
        "add_into": (numbers(3, 4), (numbers(3, 4),)),
        "clip": (numbers(3, 4), (0.25,)),
        "dot": (numbers(3, 3), (numbers(3, 3),)),
        "mix": (numbers(3, 4), (numbers(3, 4), 0.5)),
        "take": (numbers(3, 4), (torch.tensor([2, 0]),)),
        "soften": (numbers(3, 4).bfloat16(), ()),
        "positives": (numbers(3, 4) - 1, ()),
    }
    first, rest = arguments.get(name, (numbers(2, 3, 4), ()))
    return [SampleInput(first, args=rest)]
