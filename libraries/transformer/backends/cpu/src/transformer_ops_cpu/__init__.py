"""The backend cpu: says what it is; transformer_ops opens its library."""

from pathlib import Path

from opwheel import Backend, hookimpl


@hookimpl
def opwheel_backend() -> Backend:
    """The hook that transformer_ops calls."""
    return Backend(
        name="cpu",
        device_type="cpu",
        dispatch_key="CPU",
        libraries=[Path(__file__).parent / "libtransformer_ops_cpu.so"],
        requires=["torch>=2.10"],
    )
