"""Asks the driver without CUDA, which processes that are forked later could not use any more."""

from __future__ import annotations

import ctypes
from types import TracebackType

LIBRARY = "libnvidia-ml.so.1"
CUDA_LIBRARY = "libcuda.so.1"


def is_installed() -> bool:
    """Whether there is a driver that CUDA could work with; its library is opened and nothing called."""
    try:
        ctypes.CDLL(CUDA_LIBRARY)
    except OSError:
        return False
    return True


class Driver:
    """NVIDIA's management library (NVML) while it is open.

    Where it is missing, as in some containers, nothing is known and every answer says so.
    """

    def __init__(self, library: str = LIBRARY) -> None:
        self._nvml: ctypes.CDLL | None = None
        try:
            nvml = ctypes.CDLL(library)
        except OSError:
            return
        if nvml.nvmlInit_v2() == 0:
            self._nvml = nvml

    def __enter__(self) -> Driver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._nvml is not None:
            self._nvml.nvmlShutdown()

    def cuda_version(self) -> tuple[int, int] | None:
        """The latest CUDA release that the driver supports, or None."""
        version = ctypes.c_int()
        if self._nvml is None or self._nvml.nvmlSystemGetCudaDriverVersion_v2(ctypes.byref(version)) != 0:
            return None
        return version.value // 1000, version.value % 1000 // 10

    def capabilities(self) -> tuple[tuple[int, int], ...]:
        """The compute capability of every device of this machine, also of those that CUDA_VISIBLE_DEVICES hides."""
        count = ctypes.c_uint()
        if self._nvml is None or self._nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
            return ()
        return tuple(found for index in range(count.value) if (found := self._capability(index)) is not None)

    def _capability(self, index: int) -> tuple[int, int] | None:
        device, major, minor = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_int()
        nvml = self._nvml
        if nvml is None or nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(device)) != 0:
            return None
        if nvml.nvmlDeviceGetCudaComputeCapability(device, ctypes.byref(major), ctypes.byref(minor)) != 0:
            return None
        return major.value, minor.value
