"""Two simulated XPUs for a torch that was built for the CPU alone: tensors lie in memory of the OpenCL CPU device, and
SYCL kernels run there for real. Importing this package puts them into the process; do so before ``import muladd``.

What it shows is labelled "OpenCL CPU device": it says nothing about an Intel GPU.
"""

import contextlib
import ctypes
import os
import sys
import types
from importlib import metadata
from pathlib import Path

import torch
from torch.utils import cpp_extension

FOLDER = Path(__file__).parent
BUILD = Path(sys.prefix) / "simulated_xpu"
DEVICES = 2
HOLD_AT_MOST_S = 20


def _file_of(distribution, path):
    return Path(next(f for f in metadata.files(distribution) if str(f).endswith(path)).locate()).resolve()


def _load():
    """Compile what changed and load it."""
    # A wheel cannot register its OpenCL driver with the system.
    os.environ["OCL_ICD_FILENAMES"] = str(_file_of("intel-opencl-rt", "/libintelocl.so"))
    os.environ["ONEAPI_DEVICE_SELECTOR"] = "*:cpu"
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # ninja
    include = _file_of("intel-sycl-rt", "/sycl/sycl.hpp").parents[1]
    lib = _file_of("intel-sycl-rt", "/libsycl.so").parent
    BUILD.mkdir(exist_ok=True)
    cpp_extension.load(
        "simulated_xpu",
        [str(FOLDER / f"{name}.cpp") for name in ("guard", "memory", "operators", "streams")],
        extra_cflags=["-O1", "-DSYCL_DISABLE_FSYCL_SYCLHPP_WARNING", f"-isystem{include}"],
        extra_ldflags=[f"-L{lib}", "-lsycl", f"-Wl,-rpath,{lib}"],
        build_directory=str(BUILD),
        is_python_module=False,
    )
    library = ctypes.CDLL(str(BUILD / "simulated_xpu.so"))
    library.simulated_xpu_hold.restype = ctypes.c_void_p
    library.simulated_xpu_hold.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_double]
    library.simulated_xpu_release.argtypes = [ctypes.c_void_p]
    library.simulated_xpu_default_queue_for_every_stream.argtypes = [ctypes.c_bool]
    library.simulated_xpu_no_queue.argtypes = [ctypes.c_bool]
    library.simulated_xpu_overwrite_freed.argtypes = [ctypes.c_bool]
    return library


def _pretend_in_python():
    """What torch.xpu finds out through parts of torch._C that a CPU build lacks."""
    torch.version.xpu = "simulated"
    torch.xpu._initialized = True
    torch.xpu.device_count = lambda: DEVICES
    torch._C._xpu_getDevice = torch._C._accelerator_getDeviceIndex
    torch._C._xpu_setDevice = torch._C._accelerator_setDeviceIndex
    torch.xpu._exchange_device = torch._C._accelerator_exchangeDevice
    torch.xpu._maybe_exchange_device = torch._C._accelerator_maybeExchangeDevice
    torch.xpu.default_generators = tuple(torch.Generator() for _ in range(DEVICES))
    properties = types.SimpleNamespace(name="OpenCL CPU device", has_fp64=True, has_fp16=True, total_memory=1 << 31)
    torch.xpu.get_device_properties = lambda device=None: properties


_library = _load()
_pretend_in_python()


@contextlib.contextmanager
def held(stream):
    """What is put on the stream in this context starts when it ends, or HOLD_AT_MOST_S later: nothing hangs."""
    gate = _library.simulated_xpu_hold(stream.device_index, stream.stream_id, HOLD_AT_MOST_S)
    try:
        yield
    finally:
        _library.simulated_xpu_release(gate)


@contextlib.contextmanager
def default_queue_for_every_stream():
    """Give kernels the wrong queue, as if they had not asked for the current stream's: a test of the tests."""
    _library.simulated_xpu_default_queue_for_every_stream(True)
    try:
        yield
    finally:
        _library.simulated_xpu_default_queue_for_every_stream(False)


@contextlib.contextmanager
def no_queue():
    """Nobody gets a queue to launch a kernel on."""
    _library.simulated_xpu_no_queue(True)
    try:
        yield
    finally:
        _library.simulated_xpu_no_queue(False)


def close_memory():
    """Until the next operation on a device, reading its memory from the host kills the process."""
    _library.simulated_xpu_close_memory()


def overwrite_freed_memory(on):
    """Whether memory becomes nan when it is freed, in the order of its stream."""
    _library.simulated_xpu_overwrite_freed(on)
