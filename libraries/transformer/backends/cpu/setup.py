"""One library with loops for several instruction sets, of which the machine's best is chosen at run time."""

from opwheel_tools.build import CppLibrary, commands, instruction_sets
from setuptools import setup

loops = instruction_sets("csrc/kernels_{}.cpp", contract=True)

setup(
    ext_modules=[
        CppLibrary(
            "transformer_ops_cpu.libtransformer_ops_cpu",
            ["csrc/register.cpp", *loops],
            library="transformer_ops",
            source_args=loops,
        )
    ],
    cmdclass=commands(),
)
