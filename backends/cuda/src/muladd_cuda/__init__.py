"""The CUDA backend: says what it is and whether this machine can use it; muladd opens its library."""

from pathlib import Path

from muladd.registry import Backend, Probe, hookimpl

LIBRARY = Path(__file__).parent / "libmuladd_cuda.so"


def probe() -> Probe:
    """Whether this PyTorch, this driver and this device can run the library, which stays closed."""
    from .support import Build, judge, look

    return judge(look(), Build.read(LIBRARY.with_suffix(".json")))


@hookimpl
def muladd_backend() -> Backend:
    """The hook that muladd calls."""
    return Backend(
        name="cuda",
        device_type="cuda",
        dispatch_key="CUDA",
        abi=1,
        libraries=[LIBRARY],
        probe=probe,
        requires=["torch>=2.10"],
    )
