"""Build a backend, or an operator library's schema, into a ``py3-none-<platform>`` wheel with setuptools and ninja.

A backend's whole ``setup.py``::

    from opwheel_tools.build import CppLibrary, commands
    from setuptools import setup

    setup(
        ext_modules=[CppLibrary("waves_cpu.libwaves_cpu", ["csrc/register.cpp"], library="waves")],
        cmdclass=commands(),
    )

The libraries use the LibTorch stable ABI only, so one wheel serves every CPython >= 3.10 and every torch from the
targeted release on. This package imports neither torch nor the rest of opwheel but ``opwheel._build``.
"""

from .commands import commands
from .cuda import CudaLibrary
from .extensions import CppLibrary
from .instruction_sets import instruction_sets
from .sycl import SyclLibrary

__all__ = ["CppLibrary", "CudaLibrary", "SyclLibrary", "commands", "instruction_sets"]
