"""The backend cuda: every operator but attention and linear; says what it is, and transformer_ops opens its library."""

from pathlib import Path

from opwheel import Backend, Probe, hookimpl

LIBRARY = Path(__file__).parent / "libtransformer_ops_cuda.so"
OPERATORS = (
    "rms_norm", "rms_norm.out", "rms_norm_backward",
    "fused_add_rms_norm", "fused_add_rms_norm_", "fused_add_rms_norm_backward",
    "layer_norm", "layer_norm_backward",
    "swiglu", "swiglu.out", "swiglu_backward", "geglu", "geglu_backward",
    "softmax", "softmax_backward", "log_softmax", "log_softmax_backward",
    "rope",
    "cross_entropy_rows", "cross_entropy_backward",
    "fused_linear_cross_entropy", "fused_linear_cross_entropy_training",
    "linear_cross_entropy_rows", "linear_cross_entropy_backward", "scaled", "scaled_",
    "quantize_rowwise", "dequantize_rowwise",
    "reshape_and_cache",
)  # fmt: skip

# Rows that begin at no multiple of 16 bytes are read element by element, and added up in another order.
REDUCTIONS = (
    "rms_norm", "rms_norm_backward",
    "fused_add_rms_norm", "fused_add_rms_norm_", "fused_add_rms_norm_backward",
    "layer_norm", "layer_norm_backward",
    "softmax", "softmax_backward", "log_softmax", "log_softmax_backward",
    "cross_entropy_rows",
)  # fmt: skip
# What torch.compile makes of a call needs a GPU to be compared; threads are a CPU's.
NOT_INVARIANT = {"*": ("compiled", "threads"), **dict.fromkeys(REDUCTIONS, ("layout",))}


def probe() -> Probe:
    """Whether this PyTorch, this driver and this device can run the library, which stays closed."""
    from opwheel import cuda

    return cuda.probe(LIBRARY.with_suffix(".json"), "transformer-ops-cuda")


@hookimpl
def opwheel_backend() -> Backend:
    """The hook that transformer_ops calls."""
    return Backend(
        name="cuda",
        device_type="cuda",
        dispatch_key="CUDA",
        libraries=[LIBRARY],
        operators=OPERATORS,
        probe=probe,
        not_invariant=NOT_INVARIANT,
        requires=["torch>=2.10"],
    )
