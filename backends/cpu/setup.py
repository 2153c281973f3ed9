"""One library with loops for several instruction sets, of which the machine's best is chosen at run time."""

from opwheel_tools.build import CppLibrary, commands, instruction_sets
from setuptools import setup

loops = instruction_sets("csrc/kernels_{}.cpp", contract=True)

setup(
    ext_modules=[
        CppLibrary(
            "muladd_cpu.libmuladd_cpu",
            ["csrc/register.cpp", *loops],
            library="muladd",
            # -O2: other code evicts this from the instruction cache between calls; less code is refilled faster.
            source_args={"csrc/register.cpp": ["-O2"], **loops},
        )
    ],
    cmdclass=commands(),
)
