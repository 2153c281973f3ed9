"""The operators, a family a file: references, derivatives, samples, docstrings."""

from .activations import GEGLU, GEGLU_BACKWARD, SWIGLU, SWIGLU_BACKWARD
from .layer_norm import LAYER_NORM, LAYER_NORM_BACKWARD
from .rms_norm import (
    FUSED_ADD_RMS_NORM,
    FUSED_ADD_RMS_NORM_,
    FUSED_ADD_RMS_NORM_BACKWARD,
    RMS_NORM,
    RMS_NORM_BACKWARD,
)
from .softmax import SOFTMAX, SOFTMAX_BACKWARD

OPERATORS = (
    RMS_NORM,
    RMS_NORM_BACKWARD,
    FUSED_ADD_RMS_NORM,
    FUSED_ADD_RMS_NORM_,
    FUSED_ADD_RMS_NORM_BACKWARD,
    LAYER_NORM,
    LAYER_NORM_BACKWARD,
    SWIGLU,
    SWIGLU_BACKWARD,
    GEGLU,
    GEGLU_BACKWARD,
    SOFTMAX,
    SOFTMAX_BACKWARD,
)
