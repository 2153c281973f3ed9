"""Stands in for nvcc: the C++ compiler makes host code of the kernels, for the simulated runtime."""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# kernel<T><<<grid, block>>>( is no C++; it calls the kernel in include/cuda_runtime.h's launch.
LAUNCH = re.compile(r"(\w+(?:<[^<>;]*>)?)<<<(.*?)>>>\(", re.DOTALL)
CALL = r"simulated_cuda::launch([](auto... a) { \1(a...); }, \2)("


def main(arguments: list[str]) -> int:
    if "--version" in arguments:
        print("Cuda compilation tools, release 13.0, simulated")
        return 0
    if "--list-gpu-code" in arguments:
        print("sm_121")
        return 0
    if "--dryrun" in arguments:
        print(f"#$ TOP={ROOT}", file=sys.stderr)
        return 0
    compiler = next(word.removeprefix("-ccbin=") for word in arguments if word.startswith("-ccbin="))
    source = Path(arguments[arguments.index("-c") + 1])
    dropped = ("-gencode", "-ccbin", "--threads", "-Xcompiler", "-Xfatbin", "-frandom-seed")
    kept = [word.replace("-isystem=", "-isystem") for word in arguments if not word.startswith(dropped)]
    kept.remove(str(source))
    headers = [f"-I{source.parent}", f"-I{ROOT}/include", f"-isystem{ROOT}/nvidia", "-include", "cuda_runtime.h"]
    with tempfile.TemporaryDirectory() as folder:
        rewritten = Path(folder, f"{source.stem}.cpp")
        rewritten.write_text(LAUNCH.sub(CALL, source.read_text()))
        # A load or store of a vector from anywhere else than a multiple of its size ends the process, as on a device.
        alignment = ["-fsanitize=alignment", "-fsanitize-undefined-trap-on-error"]
        command = [compiler, "-fPIC", "-fvisibility=hidden", *alignment, *headers, *kept, str(rewritten)]
        return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
