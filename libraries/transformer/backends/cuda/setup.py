from opwheel_tools.build import CudaLibrary, commands
from setuptools import setup

kernels = (
    "activations",
    "cache",
    "cross_entropy",
    "linear_cross_entropy",
    "log_softmax",
    "loss_sums",
    "norms",
    "quantize",
    "rope",
    "softmax",
)

setup(
    ext_modules=[
        CudaLibrary(
            "transformer_ops_cuda.libtransformer_ops_cuda",
            ["csrc/register.cpp", *(f"csrc/{name}.cu" for name in kernels)],
            library="transformer_ops",
            cuda="13.0",
            # Devices of 8.7, 8.9 and 10.3 run what is for 8.6 and 10.0.
            architectures=["7.5", "8.0", "8.6", "9.0", "10.0", "12.0"],
            ptx=["8.0"],  # for every device in between and after them
        )
    ],
    cmdclass=commands(),
)
