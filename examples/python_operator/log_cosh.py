"""A Python binding to a C library as an operator."""

from __future__ import annotations

import ctypes
import math
import os
import subprocess
import tempfile
from pathlib import Path

import torch
from opwheel.dispatch import Elementwise, Operator, register_python
from torch import Tensor


def _open_library() -> ctypes.CDLL:
    """Build log_cosh.c; a real binding opens a library that is installed."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "liblog_cosh.so"
        compiler = os.environ.get("CC", "gcc")
        source = Path(__file__).with_suffix(".c")
        subprocess.run([compiler, "-O2", "-shared", "-fPIC", source, "-o", output, "-lm"], check=True)
        library = ctypes.CDLL(str(output))
    for function in (library.log_cosh_float, library.log_cosh_double):
        function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
        function.restype = None
    return library


_library = _open_library()


def _with_library(x: Tensor) -> Tensor:
    # x is contiguous and float32 or float64: that is what register_python promises.
    function = _library.log_cosh_double if x.dtype is torch.float64 else _library.log_cosh_float
    out = torch.empty_like(x)
    function(x.data_ptr(), out.data_ptr(), x.numel())
    return out


log_cosh = register_python(
    "examples",
    {"log_cosh(Tensor x) -> Tensor": _with_library},
    [
        Operator(
            "log_cosh",
            reference=lambda x: torch.logaddexp(x, -x) - math.log(2),
            rule=Elementwise(),
            derivatives={"x": lambda grad, x: grad * torch.tanh(x)},
            autocast="float32",
            doc="""Return ``log(cosh(x))``: a loss that is quadratic near 0 and linear far away.""",
        )
    ],
    module=__name__,
)["log_cosh"]
