"""Kernels for operators that others define: PyTorch's own, or those of another library.

A library declares them in its module ``foreign``, as ``FOREIGN``, a tuple of :class:`ForeignKernel`. Nothing is
replaced until the user says so: :class:`ForeignKernels`, which is ``library.foreign``, switches them on and off.

============================  ==================================================================================
module                        what is there
============================  ==================================================================================
:mod:`.declaration`           :class:`ForeignKernel`: which operator, for which calls, computed by what
:mod:`.condition`             for which calls: expressions over the arguments, for Python and for C++
:mod:`.kernel`                the kernel in Python: ours, or the one that was there before
:mod:`.override`              one operator at one dispatch key: registered in C++ or Python, and removed again
:mod:`.owners`                who has a kernel at an operator and key of this process
:mod:`.switch`                on and off, for a library
============================  ==================================================================================
"""

from .declaration import ForeignKernel
from .kernel import Decision
from .switch import ForeignKernels, ForeignStatus, Switched

__all__ = ["Decision", "ForeignKernel", "ForeignKernels", "ForeignStatus", "Switched"]
