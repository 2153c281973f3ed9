"""Which native libraries a PyTorch needs: libtorch's C++ interface changes with every minor release."""

import re

# A prerelease may have the interface of another minor; a build of somebody else may differ in anything.
_VERSION = re.compile(r"(\d+)\.(\d+)\.\d+([^+]*)(?:\+(.*))?")
_OWN_BUILDS = re.compile(r"cpu|cu\d+")


def native_library(name: str, version: str) -> str:
    """The file's name for exactly that version of PyTorch: ``libopwheel_autograd_2_13.so``.

    Args:
        name: what the library is for: ``autograd`` or ``calls``.
        version: ``torch.__version__``, or that of the distribution.

    Raises:
        ValueError: the version is a prerelease, or not of PyTorch's own builds for CPUs and for CUDA.
    """
    parts = _VERSION.fullmatch(version)
    if parts is None or parts[3]:
        raise ValueError(f"torch {version} is not a release, so its C++ interface may not match that of any release")
    if parts[4] is not None and not _OWN_BUILDS.fullmatch(parts[4]):
        raise ValueError(f"torch {version} is not PyTorch's own build for CPUs or CUDA")
    return f"libopwheel_{name}_{parts[1]}_{parts[2]}.so"
