from opwheel_tools.build import SyclLibrary, commands
from setuptools import setup

DTYPES = ("float16", "bfloat16", "float32", "float64")

setup(
    name="waves-xpu",
    ext_modules=[
        SyclLibrary(
            "libwaves_xpu",
            ["kernels.cpp"],
            include_dirs=["../cpp"],
            device_source="device/kernels.cpp",
            images={dtype: [f"-DDTYPE={dtype}"] for dtype in DTYPES},
            libsycl="libsycl.so.9",
            torch_target="2.13",
        )
    ],
    cmdclass=commands(),
)
