"""The SYCL backend: says what it is; muladd opens its library."""

from pathlib import Path

from muladd.registry import Backend, hookimpl

@hookimpl
def muladd_backend() -> Backend:
    """The hook that muladd calls."""
    return Backend(
        name="sycl",
        device_type="xpu",
        dispatch_key="XPU",
        abi=1,
        libraries=[Path(__file__).parent / "libmuladd_sycl.so"],
        requires=["torch>=2.13"],
    )
