"""Models of transformers as they are, with PyTorch's operators computed by kernels of this library, and without.

Admitted are all calls for which results are claimed to be right: tiny models have none that the conditions on speed
admit.
"""

from __future__ import annotations

import importlib.util
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import transformer_ops
from opwheel import ForeignKernel
from opwheel.foreign import ForeignKernels

pytest.importorskip("transformers")
pytestmark = pytest.mark.skipif(
    "rms_norm" not in getattr(transformer_ops.backends().get("cpu"), "operators", ()),
    reason="they are for the CPU backend",
)
# What is computed by kernels of ours besides the loss. Most families write their norms out in parts, and attention with
# fewer heads of keys than of queries is not admitted.
FAMILIES = {
    **dict.fromkeys(("llama", "olmo2", "phi3", "cohere2", "glm4", "granite"), ()),
    **dict.fromkeys(("gemma2", "gpt_oss", "qwen3_moe"), ("softmax",)),
    "gpt2": ("layer_norm", "scaled_dot_product_attention"),
}


def load_models() -> ModuleType:
    """What makes a tiny model of a family, and its loss, logits and gradients."""
    spec = importlib.util.spec_from_file_location("families_compare", Path(__file__).parent / "families/compare.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def counted(declaration: ForeignKernel, calls: Counter[str]) -> ForeignKernel:
    """The same without conditions on speed, counting what it computes."""

    def function(*args: Any, **kwargs: Any) -> Any:
        calls[declaration.label] += 1
        return declaration.function(*args, **kwargs)

    return replace(declaration, function=function, fast=())


@pytest.fixture(scope="module")
def models() -> ModuleType:
    return load_models()


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_models_as_they_are(family: str, models: ModuleType) -> None:
    """Loss, logits and gradients are as far from float64's as PyTorch's own."""
    model = models.build(family, {})
    if model._supports_sdpa:
        model.set_attn_implementation("sdpa")
    exact = models.results(model)
    off = models.results(model.float())
    calls: Counter[str] = Counter()
    declarations = [counted(one, calls) for one in transformer_ops.library.foreign.declarations]
    with ForeignKernels(transformer_ops.library, declarations).on():
        on = models.results(model)
    assert [(one.dtype, one.shape, one.stride()) for one in on] == [(one.dtype, one.shape, one.stride()) for one in off]
    largest = max(float(one.abs().max()) for one in exact[2:])
    for reference, theirs, ours in zip(exact, off, on, strict=True):
        rounding = torch.finfo(torch.float32).eps * max(float(reference.abs().max()), 1e-3 * largest)
        bound = 4 * float((theirs - reference).abs().max()) + 64 * rounding
        assert float((ours - reference).abs().max()) <= bound
    assert calls["cross_entropy_loss"] == 1
    assert set(calls) == {"cross_entropy_loss", *FAMILIES[family]}
