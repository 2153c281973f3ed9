from opwheel_tools.build import CudaLibrary, commands
from setuptools import setup

setup(
    ext_modules=[
        CudaLibrary(
            "muladd_cuda.libmuladd_cuda",
            ["csrc/register.cpp", "csrc/float16.cu", "csrc/bfloat16.cu", "csrc/float32.cu", "csrc/float64.cu"],
            library="muladd",
            cuda="13.0",
            architectures=["7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "10.3", "12.0"],
            ptx=["8.0"],  # for every device in between and after them
        )
    ],
    cmdclass=commands(),
)
