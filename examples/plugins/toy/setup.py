"""A device needs PyTorch's C++ interface, which is not stable: the wheel is for the torch it was built with."""

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

setup(
    ext_modules=[CppExtension("torch_toy._device", ["csrc/device.cpp"], extra_compile_args=["-O0", "-std=c++20"])],
    cmdclass={"build_ext": BuildExtension},
)
