"""The CUDA backend: says what it is and whether this machine can use it; muladd opens its library."""

from pathlib import Path

from opwheel import Backend, Probe, hookimpl

LIBRARY = Path(__file__).parent / "libmuladd_cuda.so"


def probe() -> Probe:
    """Whether this PyTorch, this driver and this device can run the library, which stays closed."""
    from opwheel import cuda

    return cuda.probe(LIBRARY.with_suffix(".json"), "muladd-cuda")


@hookimpl
def opwheel_backend() -> Backend:
    """The hook that muladd calls."""
    return Backend(
        name="cuda",
        device_type="cuda",
        dispatch_key="CUDA",
        libraries=[LIBRARY],
        probe=probe,
        requires=["torch>=2.10"],
    )
