from muladd.cpp_extension import CppLibrary, commands
from setuptools import setup

setup(
    ext_modules=[CppLibrary("muladd_cpu.libmuladd_cpu", ["csrc/register.cpp"], exports=["aoti_torch_cpu_*"])],
    cmdclass=commands(),
)
