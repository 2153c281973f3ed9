"""A pytest plugin that puts these operators in the place of Liger-Kernel's, on a CPU: ``pytest -p liger_plugin``.

Liger-Kernel's own tests then judge them. The plugin replaces what calls the Triton kernels, the ``apply`` of each
``autograd.Function``, and of the tests only what says whether a device has bfloat16. A test in which no operator of
ours ran is a failure, unless it is one that asks for an error. What the operators do not have is skipped by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformer_ops
from torch import Tensor

_calls: list[str] = []


def _rms_norm(
    x: Tensor, weight: Tensor | None, eps: float, offset: float = 0.0, casting_mode: str = "llama", *_: Any
) -> Tensor:
    return transformer_ops.rms_norm(x, weight, eps, offset, casting_mode)


def _fused_add_rms_norm(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float, offset: float = 0.0, casting_mode: str = "llama", *_: Any
) -> tuple[Tensor, Tensor]:
    return transformer_ops.fused_add_rms_norm(x, residual, weight, eps, offset, casting_mode)


def _swiglu(a: Tensor, b: Tensor, gate_multiplier: float = 1.0, down_multiplier: float = 1.0) -> Tensor:
    if (gate_multiplier, down_multiplier) != (1.0, 1.0):
        pytest.skip("swiglu has no multipliers")
    return transformer_ops.swiglu(a, b)


def _rope(
    q: Tensor,
    k: Tensor,
    cos: Tensor,
    sin: Tensor,
    position_ids: Tensor | None = None,
    unsqueeze_dim: int = 1,
    rotary_dim: int | None = None,
) -> tuple[Tensor, Tensor]:
    del position_ids  # Liger-Kernel does not look at them: cos and sin have been indexed already
    width = rotary_dim or cos.shape[-1]  # the rest of each head stays
    turned = transformer_ops.rope(q[..., :width], k[..., :width], cos, sin, None, unsqueeze_dim, rotary_dim=width)
    if width == q.shape[-1]:
        return turned
    rotated_q, rotated_k = turned
    return torch.cat((rotated_q, q[..., width:]), -1), torch.cat((rotated_k, k[..., width:]), -1)


def _cross_entropy(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    ignore_index: int = -100,
    lse_square_scale: float = 0.0,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
    softcap: float | None = None,
    return_z_loss: bool = False,
    return_token_accuracy: bool = False,
    return_predicted_tokens: bool = False,
) -> tuple[Any, ...]:
    if return_token_accuracy or return_predicted_tokens:
        pytest.skip("cross_entropy returns neither the accuracy nor the predicted tokens")
    weight = None if weight is None else weight.to(logits.dtype)
    loss, z_loss = transformer_ops.cross_entropy(
        logits, target, weight, ignore_index, lse_square_scale, label_smoothing, reduction, softcap, return_z_loss=True
    )
    return loss, z_loss if return_z_loss else None, None, None


def _fused_linear_cross_entropy(
    x: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None = None,
    ce_weight: Tensor | None = None,
    ignore_index: int = -100,
    lse_square_scale: float = 0.0,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
    softcap: float | None = None,
    return_z_loss: bool = False,
    accum_dtype: torch.dtype | None = None,
    use_token_scaling: bool = False,
    return_token_accuracy: bool = False,
    return_predicted_tokens: bool = False,
    *_: Any,  # which of its kernels, and how large its chunks
) -> tuple[Any, ...]:
    if ce_weight is not None or use_token_scaling or accum_dtype is not None:
        pytest.skip("fused_linear_cross_entropy has no class weights, token scaling or other accumulation dtype")
    if return_z_loss or return_token_accuracy or return_predicted_tokens or reduction == "none":
        pytest.skip("fused_linear_cross_entropy returns one loss alone")
    loss = transformer_ops.fused_linear_cross_entropy(
        x, weight, target, bias, ignore_index, lse_square_scale, label_smoothing, reduction, softcap or 0.0
    )
    return loss, None, None, None


REPLACED: dict[str, Callable[..., Any]] = {
    "rms_norm.LigerRMSNormFunction": _rms_norm,
    "fused_add_rms_norm.LigerFusedAddRMSNormFunction": _fused_add_rms_norm,
    "layer_norm.LigerLayerNormFunction": transformer_ops.layer_norm,
    "swiglu.LigerSiLUMulFunction": _swiglu,
    "geglu.LigerGELUMulFunction": transformer_ops.geglu,
    "rope.LigerRopeFunction": _rope,
    "softmax.LigerSoftmaxFunction": transformer_ops.softmax,
    "cross_entropy.LigerCrossEntropyFunction": _cross_entropy,
    "fused_linear_cross_entropy.LigerFusedLinearCrossEntropyFunction": _fused_linear_cross_entropy,
}


def _noted(name: str, function: Callable[..., Any]) -> Any:
    def apply(*args: Any) -> Any:
        _calls.append(name)
        return function(*args)

    return staticmethod(apply)


def pytest_configure() -> None:
    """Replace them before the tests are imported, and say that this device has bfloat16."""
    import importlib

    for name, function in REPLACED.items():
        module, _, cls = name.partition(".")
        getattr(importlib.import_module(f"liger_kernel.ops.{module}"), cls).apply = _noted(cls, function)
    # Liger-Kernel knows GPUs that have bfloat16, and takes a CPU for one that has not.
    importlib.import_module("test.utils").supports_bfloat16 = lambda: True  # type: ignore[attr-defined]


def pytest_report_header() -> str:
    """Whose tests judge what."""
    from importlib.metadata import version

    project = Path("pyproject.toml").read_text()
    (liger,) = re.findall(r'^version = "(.+)"', project, re.MULTILINE)
    return f"Liger-Kernel {liger} judges transformer-ops-core {transformer_ops.__version__}, torch {version('torch')}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Any:
    """A test that passed without a call of ours would say nothing."""
    _calls.clear()
    result = yield
    if not _calls:
        pytest.fail(f"no operator of transformer_ops ran in {item.name}")
    return result
