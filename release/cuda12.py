"""A CUDA 12 toolkit in a folder, for CUDA_HOME: `python -m release.cuda12 .cuda-12`.

The compiler is that of Debian's archive (12.4, which takes g++ up to 13); headers, the static runtime and a newer
assembler are NVIDIA's packages of PyPI. 12.4 knows no device after 9.0: two scripts in the place of its commands
let the assembler of 12.9 make their machine code out of the very PTX that it has for 9.0. A toolkit of 12.8 or 12.9 by
NVIDIA, where there is one, needs nothing of this.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path

from .debian import Packages
from .torches import download

_RELEASE, _SECTION, _COMPILER = "trixie", "non-free", "nvidia-cuda-toolkit"
# Requirements, what is taken of their wheels, and where it goes.
_PACKAGES = (
    ("nvidia-cuda-runtime-cu12==12.4.127", "nvidia/cuda_runtime/include/", "include"),
    ("nvidia-cuda-nvcc-cu12==12.4.131", "nvidia/cuda_nvcc/include/", "include"),
    ("nvidia-cuda-cccl-cu12==12.4.127.post1", "nvidia/cuda_cccl/include/", "include"),
    # The only one of CUDA 12 that has it.
    ("nvidia-cuda-runtime-cu12==12.9.79", "nvidia/cuda_runtime/lib/libcudart_static.a", "lib64/libcudart_static.a"),
    ("nvidia-cuda-nvcc-cu12==12.9.86", "nvidia/cuda_nvcc/bin/ptxas", "bin/ptxas.newer"),
)
_COMMANDS = ("ptxas", "cudafe++", "fatbinary", "nvlink", "bin2c", "cuobjdump", "nvdisasm")
_PROFILE = """\
TOP = $(_HERE_)/..
NVVMIR_LIBRARY_DIR = $(TOP)/nvvm/libdevice
PATH += $(TOP)/nvvm/bin:$(_HERE_):
INCLUDES += "-I$(TOP)/include" $(_SPACE_)
LIBRARIES =+ $(_SPACE_) "-L$(TOP)/lib64"
"""
# Code for 10.0 and later is asked of this nvcc as of any other. It asks the compiler for the PTX of 9.0 instead, and
# tells the second script for which devices that is, and whether the PTX itself was asked for.
_NVCC = """\
#!/bin/bash
here=$(dirname "$(readlink -f "$0")")
arguments=() newer=() kept=
for one in "$@"; do
  case $one in
    --list-gpu-code) "$here/nvcc.real" "$one" && printf 'sm_%s\\n' 100 103 120; exit ;;
    -gencode=arch=compute_1[0-9][0-9],code=sm_1[0-9][0-9]) newer+=("${one##*_}") ;;
    -gencode=arch=compute_90,code=compute_90) kept=1 ;;
    *) arguments+=("$one") ;;
  esac
done
[[ $kept || ${newer[*]} ]] && arguments+=(-gencode=arch=compute_90,code=compute_90)
CUDA12_NEWER="${newer[*]}" CUDA12_KEPT=$kept exec "$here/nvcc.real" "${arguments[@]}"
"""
_FATBINARY = """\
#!/bin/bash
here=$(dirname "$(readlink -f "$0")")
arguments=() made=()
trap 'rm -f "${made[@]}"' EXIT
for one in "$@"; do
  if [[ $CUDA12_NEWER && $one =~ ^--image3=kind=ptx,sm=90,file=(.*)$ ]]; then
    for sm in $CUDA12_NEWER; do
      made+=("$(mktemp --suffix=.cubin)")
      "$here/ptxas.newer" -arch=sm_$sm -m64 "${BASH_REMATCH[1]}" -o "${made[-1]}" || exit 1
      arguments+=("--image3=kind=elf,sm=$sm,file=${made[-1]}")
    done
    [[ $CUDA12_KEPT ]] || continue
  fi
  arguments+=("$one")
done
"$here/fatbinary.real" "${arguments[@]}"
"""


def toolkit(folder: Path) -> None:
    """Download what has not been downloaded (300 MB), and put it together.

    Raises:
        SystemExit: this is no Debian.
        subprocess.CalledProcessError: something cannot be downloaded.
    """
    if folder.exists():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        new = Path(temporary) / "new"
        _take_compiler(Path(temporary) / "debian", new)
        for requirement, source, target in _PACKAGES:
            _take(requirement, source, new / target)
        new.rename(folder)  # all of it, or nothing


def _take_compiler(scratch: Path, new: Path) -> None:
    Packages(scratch, release=_RELEASE, section=_SECTION).unpacked(_COMPILER, scratch / "root")
    usr = scratch / "root/usr"
    for folder in ("bin", "lib64", "nvvm/bin", "include"):
        (new / folder).mkdir(parents=True)
    for name in _COMMANDS:
        shutil.copy(usr / "bin" / name, new / "bin")
    inside = usr / "lib/nvidia-cuda-toolkit"
    shutil.copytree(inside / "bin/crt", new / "bin/crt")
    shutil.copytree(inside / "libdevice", new / "nvvm/libdevice")
    shutil.copy(inside / "bin/cicc", new / "nvvm/bin")
    shutil.copy(inside / "bin/nvcc", new / "bin/nvcc.real")
    (new / "bin/fatbinary").rename(new / "bin/fatbinary.real")
    (new / "bin/nvcc.profile").write_text(_PROFILE)
    for name, script in (("nvcc", _NVCC), ("fatbinary", _FATBINARY)):
        (new / "bin" / name).write_text(script)
        (new / "bin" / name).chmod(0o755)


def _take(requirement: str, source: str, target: Path) -> None:
    """A file of a package's wheel, or a folder, whose name ends with a slash."""
    with tempfile.TemporaryDirectory() as temporary:
        with zipfile.ZipFile(download(requirement, Path(temporary))) as wheel:
            wheel.extractall(temporary, [name for name in wheel.namelist() if name.startswith(source)])
        found = Path(temporary) / source
        if source.endswith("/"):
            shutil.copytree(found, target, dirs_exist_ok=True)
        else:
            shutil.copy(found, target)
            target.chmod(0o755)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m release.cuda12", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    toolkit(options.folder.absolute())
    return 0


if __name__ == "__main__":
    sys.exit(main())
