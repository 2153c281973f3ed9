from opwheel_tools.build import SyclLibrary, commands
from setuptools import setup

DTYPES = ("float16", "bfloat16", "float32", "float64")

setup(
    ext_modules=[
        SyclLibrary(
            "muladd_sycl.libmuladd_sycl",
            ["csrc/register.cpp"],
            library="muladd",
            device_source="csrc/device/kernels.cpp",
            # a * b + c rounds twice, as in PyTorch's operators: rounded once, it overflows elsewhere.
            images={dtype: ["-ffp-contract=off", f"-DDTYPE={dtype}"] for dtype in DTYPES},
            libsycl="libsycl.so.9",
            torch_target="2.13",
        )
    ],
    cmdclass=commands(),
)
