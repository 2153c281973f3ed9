"""One library with the kernels for several instruction sets, of which the machine's best is chosen at run time."""

import platform

from opwheel.build import CppLibrary, commands
from setuptools import setup

# a * b + c is one instruction with one rounding where the machine has it.
X86_KERNELS = {
    "csrc/kernels_avx2.cpp": ["-mavx2", "-mfma", "-mf16c", "-ffp-contract=fast"],
    "csrc/kernels_avx512.cpp": [
        *("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mfma", "-mf16c"),
        *("-mprefer-vector-width=512", "-ffp-contract=fast"),
        "-Wno-maybe-uninitialized",  # GCC 12 says it of its own header
    ],
}
kernels = X86_KERNELS if platform.machine() in ("x86_64", "AMD64") else {}

setup(
    ext_modules=[
        CppLibrary(
            "muladd_cpu.libmuladd_cpu",
            ["csrc/register.cpp", "csrc/kernels_baseline.cpp", *kernels],
            library="muladd",
            source_args={"csrc/kernels_baseline.cpp": ["-ffp-contract=fast"], **kernels},
            exports=["aoti_torch_cpu_*"],
        )
    ],
    cmdclass=commands(),
)
