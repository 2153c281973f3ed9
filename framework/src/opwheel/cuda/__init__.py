"""Whether this machine can use a library with CUDA kernels: for the probes of such backends."""

from __future__ import annotations

from pathlib import Path

from ..registry import Probe


def probe(build: Path, wheel: str) -> Probe:
    """Whether this PyTorch, this driver and a device here can run the kernels of a wheel.

    Nothing is opened and no CUDA context is made.

    Args:
        build: the file that says what the library was built for, which ``opwheel_tools.build.CudaLibrary`` writes
            beside it.
        wheel: the name of its distribution, for the messages.
    """
    import torch

    if torch.version.cuda is None and torch.version.hip is None:  # nothing else need be imported to say so
        fix = f"install a torch with CUDA, or remove {wheel}"
        return Probe(False, f"torch {torch.__version__} is built without CUDA", fix)
    from .support import Build, detect, judge

    return judge(detect(), Build.read(build), wheel)
