"""Two operators from their definition to the ExecuTorch runtime: mul3 written in Python, mul4 in C++.

Builds both operators, exports a program with each, and runs the programs with our kernels: from Python with both
kernels, and in a C++ program that was built with the kernel of mul4 only.

    pip install muladd-core muladd-executorch cmake ninja
    python examples/executorch_custom_ops/run.py [FOLDER]    # FOLDER keeps what is built; otherwise it is thrown away
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
import tempfile
from pathlib import Path

import muladd_executorch
import torch
from executorch.exir import to_edge
from executorch.runtime import Runtime
from torch import Tensor, nn
from torch.export import export

HERE = Path(__file__).parent
INPUT = torch.arange(6.0).reshape(2, 3)


def build(folder: Path) -> None:
    """Compile mul4 for PyTorch, both kernels for the runtime, and the program with mul4 only."""
    prefixes = f"{muladd_executorch.sdk_dir / 'cmake'};{torch.utils.cmake_prefix_path}"
    options = {"CMAKE_PREFIX_PATH": prefixes, "Python_EXECUTABLE": sys.executable, "CMAKE_BUILD_TYPE": "Release"}
    definitions = [f"-D{key}={value}" for key, value in options.items()]
    cmake = [sys.executable, "-m", "cmake"]
    generator = ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={Path(sys.executable).parent / 'ninja'}"]
    subprocess.run([*cmake, "-S", HERE, "-B", folder, *generator, *definitions], check=True, stdout=sys.stderr)
    subprocess.run([*cmake, "--build", folder], check=True, stdout=sys.stderr)


class Multiply(nn.Module):
    """One operator and one of PyTorch's own shape operators."""

    def __init__(self, name: str) -> None:
        """Take the operator of that name."""
        super().__init__()
        self.operator = getattr(torch.ops.my_ops, name)

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """Multiply by 3 or 4."""
        return self.operator(input)


def main() -> int:
    """Build, export and run; 0 if every result is right."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(sys.argv[1] if len(sys.argv) > 1 else temporary).resolve()
        build(folder)

        import mul3  # noqa: F401  # defines my_ops::mul3

        torch.ops.load_library(folder / "libmul4_torch.so")
        for name in ("mul3", "mul4"):
            program = to_edge(export(Multiply(name), (INPUT,))).to_executorch()
            (folder / f"{name}.pte").write_bytes(program.buffer)

        runtime = Runtime.get()
        ctypes.CDLL(str(folder / "libmy_ops_executorch.so"))
        right = True
        for name, factor in (("mul3", 3), ("mul4", 4)):
            loaded = runtime.load_program(folder / f"{name}.pte")  # stays: a method does not keep its program alive
            (result,) = loaded.load_method("forward").execute([INPUT])
            print(f"{name} from Python: {result.flatten().tolist()}")
            right &= torch.equal(result, INPUT * factor)

        for name in ("mul4", "mul3"):
            ran = subprocess.run([folder / "run", folder / f"{name}.pte"], capture_output=True, text=True, check=False)
            print(f"{name} from C++, built for mul4 only: {ran.stdout.strip() or ran.stderr.strip().splitlines()[-1]}")
            right &= ran.stdout.split() == ["0", "4", "8", "12", "16", "20"] if name == "mul4" else ran.returncode == 2
        return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
