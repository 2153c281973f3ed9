from opwheel_tools.build import CudaLibrary, commands
from setuptools import setup

setup(
    name="waves-cuda",
    ext_modules=[
        CudaLibrary(
            "libwaves_cuda", ["kernels.cu"], include_dirs=["../cpp"], cuda="13.0", architectures=["8.0", "9.0", "12.0"]
        )
    ],
    cmdclass=commands(),
)
