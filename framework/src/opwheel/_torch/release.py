"""Which native libraries a PyTorch needs: libtorch's C++ interface changes with every minor release."""


def native_library(name: str, version: str) -> str:
    """The file's name for exactly that version of PyTorch: ``libopwheel_autograd_2_13.so``.

    Args:
        name: what the library is for: ``autograd``, ``calls``, ``memory`` or ``foreign``.
        version: ``torch.__version__``, or that of the distribution.

    Raises:
        ValueError: the version is a prerelease, or not of PyTorch's own builds for CPUs and for CUDA.
    """
    # A prerelease may have the interface of another minor; a build of somebody else may differ in anything.
    release, plus, build = version.partition("+")
    numbers = release.split(".")
    if len(numbers) != 3 or not all(map(_is_number, numbers)):
        raise ValueError(f"torch {version} is not a release, so its C++ interface may not match that of any release")
    if plus and build != "cpu" and not (build.startswith("cu") and _is_number(build[2:])):
        raise ValueError(f"torch {version} is not PyTorch's own build for CPUs or CUDA")
    return f"libopwheel_{name}_{numbers[0]}_{numbers[1]}.so"


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()
