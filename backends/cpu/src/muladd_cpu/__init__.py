"""The CPU backend: says what it is; muladd opens its library."""

from pathlib import Path

from opwheel import Backend, hookimpl


@hookimpl
def opwheel_backend() -> Backend:
    """The hook that muladd calls."""
    return Backend(
        name="cpu",
        device_type="cpu",
        dispatch_key="CPU",
        libraries=[Path(__file__).parent / "libmuladd_cpu.so"],
        requires=["torch>=2.10"],
    )
