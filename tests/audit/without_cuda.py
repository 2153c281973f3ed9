"""Lets a library that was built for CUDA load where PyTorch was not: with libraries that have nothing but its names.

PyPI's wheel of torchvision is built for CUDA, and its one shared library has the CPU kernels too. They do not call what
is defined here; a call of it would end the process.
"""

import os
import subprocess
from importlib import util
from pathlib import Path

import torch
from opwheel_tools.audit.elf import read_tables

_LIBRARIES = ("libc10_cuda.so", "libtorch_cuda.so")


def environment(library: Path, folder: Path) -> dict[str, str]:
    """The environment of processes that load the library.

    Args:
        library: a shared library that needs PyTorch's libraries for CUDA.
        folder: where the libraries with its names are made, unless PyTorch has them.
    """
    runtime = util.find_spec("nvidia.cu13")
    folders = [str(folder), *(f"{path}/lib" for path in (runtime and runtime.submodule_search_locations) or ())]
    if torch.version.cuda is None:
        own = Path(torch.__file__).parent / "lib"
        known = {one.name for file in own.glob("lib*.so") for one in read_tables(file).symbols if one.is_defined}
        needed = {one.name for one in read_tables(library).symbols if not one.is_defined} - known
        lacking = [name for name in needed if name.startswith(("_ZN3c104cuda", "_ZNK3c104cuda", "_ZN2at4cuda"))]
        source = folder / "names.cpp"
        functions = (f'extern "C" void {name}() {{ std::abort(); }}\n' for name in lacking)
        source.write_text("#include <cstdlib>\n" + "".join(functions))
        for name in _LIBRARIES:
            options = ["-shared", "-fPIC", f"-Wl,-soname,{name}", "-o", str(folder / name), str(source)]
            subprocess.run([os.environ.get("CXX", "g++"), *options], check=True)
    search = os.pathsep.join([*folders, *filter(None, [os.environ.get("LD_LIBRARY_PATH")])])
    return {**os.environ, "LD_LIBRARY_PATH": search}
