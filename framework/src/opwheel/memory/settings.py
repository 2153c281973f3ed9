"""What backends are told about the memory of large new results on a CPU, by the operator library's policy."""

from __future__ import annotations

import ctypes

HUGE_PAGES = ("advise", "never")
RESULT_CACHE = ("keep", "never")


def check_setting(name: str, setting: str, choices: tuple[str, ...]) -> str:
    """The setting, if it is one of them.

    Raises:
        ValueError: it is not; ``name`` says of what.
    """
    if setting not in choices:
        raise ValueError(f"{name}: {setting!r} is neither {' nor '.join(map(repr, choices))}")
    return setting


def set_memory(library: ctypes.CDLL, *, huge_pages: str, result_cache: str) -> None:
    """Tell a backend's open library; nothing happens if it has no kernels on the C++ SDK.

    Args:
        library: which.
        huge_pages: ``"advise"``: results ask the system for huge pages; ``"never"``: they do not.
        result_cache: ``"keep"``: memory is taken from the result cache; ``"never"``: from PyTorch's allocator.
    """
    if hasattr(library, "opwheel_set_huge_pages"):
        library.opwheel_set_huge_pages(ctypes.c_bool(huge_pages == "advise"))
    if hasattr(library, "opwheel_set_result_cache"):
        from .result_cache import allocate_function  # opens a native library

        library.opwheel_set_result_cache(allocate_function() if result_cache == "keep" else None)
