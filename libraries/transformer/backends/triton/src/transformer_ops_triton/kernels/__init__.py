"""The kernels, a family of operators a file."""

from collections.abc import Callable
from typing import Any

import torch
from opwheel.dispatch import implement_functions, overloads_of

from .activations import geglu, geglu_backward, swiglu, swiglu_backward, swiglu_out
from .attention import attention, attention_backward, attention_training
from .attention_qkvpacked import attention_qkvpacked, attention_qkvpacked_backward, attention_qkvpacked_training
from .cache import reshape_and_cache
from .cross_entropy import cross_entropy_backward, cross_entropy_rows
from .layer_norm import layer_norm, layer_norm_backward
from .linear_cross_entropy import (
    fused_linear_cross_entropy,
    fused_linear_cross_entropy_training,
    linear_cross_entropy_backward,
    linear_cross_entropy_rows,
    scaled,
    scaled_,
)
from .quantize import dequantize_rowwise, quantize_rowwise
from .rms_norm import (
    fused_add_rms_norm,
    fused_add_rms_norm_,
    fused_add_rms_norm_backward,
    rms_norm,
    rms_norm_backward,
    rms_norm_out,
)
from .rope import rope
from .softmax import log_softmax, log_softmax_backward, softmax, softmax_backward

FUNCTIONS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        rms_norm,
        rms_norm_backward,
        fused_add_rms_norm,
        fused_add_rms_norm_,
        fused_add_rms_norm_backward,
        layer_norm,
        layer_norm_backward,
        swiglu,
        swiglu_backward,
        geglu,
        geglu_backward,
        softmax,
        softmax_backward,
        log_softmax,
        log_softmax_backward,
        attention,
        attention_training,
        attention_backward,
        attention_qkvpacked,
        attention_qkvpacked_training,
        attention_qkvpacked_backward,
        rope,
        cross_entropy_rows,
        cross_entropy_backward,
        fused_linear_cross_entropy,
        fused_linear_cross_entropy_training,
        linear_cross_entropy_rows,
        linear_cross_entropy_backward,
        scaled,
        scaled_,
        quantize_rowwise,
        dequantize_rowwise,
        reshape_and_cache,
    )
}
FUNCTIONS |= {"rms_norm.out": rms_norm_out, "swiglu.out": swiglu_out}


def register(target: torch.library.Library, device_type: str) -> None:
    """Register them; an operator that is not among them is computed by its reference, which doctor says."""
    implement_functions(target, overloads_of(target).values(), device_type, FUNCTIONS)
