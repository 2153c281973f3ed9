"""The CUDA backend: says what it is and whether this machine can use it; muladd opens its library."""

from pathlib import Path

from opwheel import Backend, Probe, hookimpl

LIBRARY = Path(__file__).parent / "libmuladd_cuda.so"


def probe() -> Probe:
    """Whether this PyTorch, this driver and this device can run the library, which stays closed."""
    import torch

    if torch.version.cuda is None and torch.version.hip is None:  # nothing else need be imported to say so
        return Probe(
            False,
            f"torch {torch.__version__} is built without CUDA",
            "install a torch with CUDA 13, or remove muladd-cuda",
        )
    from .support import Build, judge, look

    return judge(look(), Build.read(LIBRARY.with_suffix(".json")))


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
