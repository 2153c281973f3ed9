"""What the wheel ships."""

from pathlib import Path

_HERE = Path(__file__).parent

library = _HERE / "libmuladd_executorch.so"
"""Every kernel in one library, registered when it is opened."""

custom_ops_yaml = _HERE / "custom_ops.yaml"
"""The operators and their kernels, as ExecuTorch's code generation reads them."""

sdk_dir = _HERE / "sdk"
"""Sources, templates and the CMake package for building only the kernels that a program uses."""
