"""Kernels of muladd's operators for the ExecuTorch runtime.

>>> import muladd_executorch
>>> muladd_executorch.load()
('muladd::muladd.out', 'muladd::fma.out', 'muladd::mul.out', 'muladd::add.out', 'muladd::scale.out')

Programs that were exported with muladd's operators then find their kernels, from Python and in the same process from
C++. A C++ program links ``library`` instead, or only the kernels it uses (``sdk_dir``).
"""

from ._files import custom_ops_yaml, library, sdk_dir
from ._loading import load

__version__ = "0.1.0"
__all__ = ["__version__", "custom_ops_yaml", "library", "load", "sdk_dir"]
