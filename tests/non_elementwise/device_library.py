"""The row operators of cpp_library with their kernels for a device, as the conformance kit wants an operator library.

The environment names the device's type and the two libraries, the schemas' and the kernels': they were built elsewhere,
and this runs under whatever PyTorch there is.
"""

import ctypes
import os
from types import SimpleNamespace

from opwheel.registry import BackendStatus, State

from . import cpp_library

DEVICE = os.environ["WAVES_DEVICE"]
KERNELS = ("rms_norm", "rms_norm_backward", "quantize_rowwise", "softmax", "softmax_backward")

for variable in ("WAVES_SCHEMAS", "WAVES_KERNELS"):
    ctypes.CDLL(os.environ[variable])
overloads = cpp_library.register_operators()
_status = BackendStatus(DEVICE, State.LOADED, device_type=DEVICE, dispatch_key=DEVICE.upper(), operators=KERNELS)
library = SimpleNamespace(
    package=__name__,
    namespace=cpp_library.NAMESPACE,
    prefix="WAVES",
    overloads=overloads,
    backends=lambda: {DEVICE: _status},
    is_reference=lambda operator, key: False,
)
