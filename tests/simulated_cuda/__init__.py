"""A CUDA toolkit whose devices are simulated on the CPU: with it a CUDA backend is built like with any other, and runs
under PyTorch's CUDA build on a machine without a GPU.

    toolkit = Toolkit(folder, torch)         # torch: the folder of a PyTorch that was built for CUDA 13
    CUDA_HOME=... pip wheel ./backends/cuda  # as toolkit.to_build says
    python -m pytest ...                     # as toolkit.to_run says

PyTorch's allocator, streams, events, graphs and device guards are its own, on top of a simulated runtime: two devices,
a thread for each stream. A backend's kernels are compiled by the C++ compiler and run thread by thread; operators of
PyTorch compute on the CPU. It says nothing about speed, nor about what nvcc makes of the kernels.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from opwheel_tools.build import cuda

FOLDER = Path(__file__).parent
DRIVER, MANAGEMENT, RUNTIME = "libcuda.so.1", "libnvidia-ml.so.1", "libcudart.so.13"
CXX = ["g++", "-std=c++20", "-O1", "-g1", "-fPIC", "-shared", "-Wall"]
NOT_SUPPORTED = 801  # cudaErrorNotSupported


class Toolkit:
    """Builds itself into a folder."""

    def __init__(self, folder: Path, torch: Path) -> None:
        self.folder = folder
        self._torch = torch
        self._operators = folder / "lib/operators.so"
        (folder / "lib").mkdir(parents=True)
        shutil.copytree(FOLDER / "include", folder / "include")
        (folder / "bin").mkdir()
        nvcc = folder / "bin/nvcc"
        nvcc.write_text(f"#!{sys.executable}\n" + (FOLDER / "nvcc.py").read_text())
        nvcc.chmod(0o755)
        # The types are CUDA's own.
        (folder / "nvidia").symlink_to(cuda.find_toolkit("13.0").lib.parent / "include")
        self._driver = self._make(DRIVER, FOLDER / "driver/cuda.cpp")
        self._management = self._make(MANAGEMENT, FOLDER / "driver/nvml.cpp")
        symbols = f"-Wl,--version-script={FOLDER / 'runtime/symbols.map'}"
        self._runtime = self._make(RUNTIME, *(FOLDER / "runtime").glob("*.cpp"), flags=[symbols, "-pthread"])
        # By this name a backend links it.
        (folder / "lib/libcudart_static.a").write_text(f"INPUT({self._runtime})\n")
        self._make_operators()

    @property
    def to_build(self) -> dict[str, str]:
        """The environment in which a CUDA backend is built with this toolkit."""
        return {"CUDA_HOME": str(self.folder)}

    @property
    def to_run(self) -> dict[str, str]:
        """The environment in which PyTorch finds the devices."""
        return {
            "LD_PRELOAD": f"{self._driver}:{self._management}:{self._runtime}",
            "SIMULATED_CUDA_OPERATORS": str(self._operators),
            # Its worker processes cannot work without a driver, and may not end.
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
        }

    def _make(self, library: str, *sources: Path, flags: Sequence[str] = ()) -> Path:
        """Compile a library and add what PyTorch names and nothing here calls."""
        output, missing = self.folder / "lib" / library, self.folder / f"{library}.cpp"
        missing.write_text("")
        command = [*CXX, f"-isystem{self.folder / 'nvidia'}", *sources, missing, "-o", output]
        command += [f"-Wl,-soname,{library}", *flags]
        _run(*command)
        missing.write_text(
            "#include <cstdio>\n" + "".join(map(_stub, sorted(self._wanted(library) - _names(output, "T"))))
        )
        _run(*command)
        return output

    def _wanted(self, library: str) -> set[str]:
        """What PyTorch takes from the library."""
        if library == DRIVER:  # which gives its symbols no version
            return {name for name in _names(self._torch / "lib/libcaffe2_nvrtc.so", "U") if re.match("cu[A-Z]", name)}
        if library == MANAGEMENT:  # which is opened by hand
            text = (self._torch / "lib/libc10_cuda.so").read_bytes()
            return {name.decode() for name in re.findall(rb"\0(nvml[A-Z]\w+)\0", text)}
        return {name for path in self._torch.glob("lib/*.so") for name in _names(path, "U", f"@{library}")}

    def _make_operators(self) -> None:
        headers = [self._torch / "include", self._torch / "include/torch/csrc/api/include", self.folder / "nvidia"]
        libraries = [f"-L{self._torch / 'lib'}", "-ltorch_cpu", "-lc10", "-lc10_cuda", self._runtime]
        flags = [f"-isystem{folder}" for folder in headers]
        _run(*CXX, *flags, FOLDER / "operators.cpp", "-o", self._operators, *libraries)


def _names(library: Path, kind: str, version: str = "") -> set[str]:
    table = subprocess.run(["nm", "-D", str(library)], capture_output=True, text=True, check=True).stdout
    return set(re.findall(rf" {kind} (\w+)[@\w.]*{re.escape(version)}$", table, re.MULTILINE))


def _stub(name: str) -> str:
    return (
        f'extern "C" int {name}() {{\n  std::fputs("simulated CUDA has no {name}\\n", stderr);\n'
        f"  return {NOT_SUPPORTED};\n}}\n"
    )


def _run(*command: object) -> None:
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
