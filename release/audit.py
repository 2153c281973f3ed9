"""What is in a wheel, and what its library needs: `python -m release.audit WHEEL ...`, or folders of wheels.

The promise of a backend's wheel is that one file serves every CPython and every torch from the targeted release on:
only the stable ABI, no Python, nothing exported, old systems. opwheel's native libraries are the exception: they use
libtorch's C++ interface, and there is one of each kind for each minor release of torch; those that Python calls
operators with use the stable ABI of Python. The metapackage has metadata alone.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from opwheel_tools.audit.binaries import UNSTABLE
from opwheel_tools.audit.elf import Symbol, read_tables

# Sources that builds and benchmarks compile where they run, those of new projects, and those of a runtime that others
# select kernels from.
_SOURCES = re.compile(
    r"opwheel_tools/(build/sycl_front_end|bench/triad|testing/guarded_memory)\.cpp|opwheel_tools/scaffold/templates/.+|muladd_executorch/sdk/.+"
)
_CPP = re.compile(r"_Z(T[ISV])?(N[KR]*)?K?(2at|3c10|5torch|6caffe2|N2at|N3c10|N5torch)")  # of libtorch in C++
_C_FUNCTION = re.compile(r"_ZN6muladd3cpu\d+aoti_torch_cpu_\w+8functionE")  # for AOTInductor
# What other wheels have, which each library's own wheel requires, and the interpreter.
_RUNTIMES = {
    "opwheel_calls": re.compile(r"Py[A-Z]|_Py_|THPVariableClass$|ParameterClass$|_Z16THPVariable_Wrap"),
    "muladd_sycl": re.compile(r"_Z(TI)?N?K?N?K?4sycl3_V1"),
    "muladd_executorch": re.compile(r"_ZNK?10executorch"),
}

_METAPACKAGE_SIZE = 5_000


class Limits(NamedTuple):
    """What a wheel of this repository may have: bytes, and the newest glibc that it may need."""

    size: int = 300_000
    glibc: tuple[int, int] = (2, 17)  # manylinux2014's
    needs_torch: bool = True
    for_each_torch: bool = False  # libraries, which use what is not stable
    is_compiled: bool = True


# The CPU wheel has the same loops for three instruction sets, the CUDA wheel the same kernels for eight architectures,
# the SYCL wheel an image for each dtype; the runtimes inside the one and beside the other need a newer glibc.
# transformer_ops has more kernels than muladd, with loops of their own for each way in which rows lie in memory, and
# calls exp and log of double, which are of glibc 2.29 where that or a newer one is built on. Its long rows on CUDA have
# kernels for clusters of blocks, too; nvcc 12 makes a tenth more of all of its kernels than nvcc 13.
LIMITS = {
    "opwheel_tools": Limits(550_000, is_compiled=False),
    "opwheel": Limits(2_000_000, (2, 34), for_each_torch=True),
    "muladd_cpu": Limits(400_000),
    "muladd_cuda": Limits(3_000_000, (2, 34)),
    "muladd_sycl": Limits(400_000, (2, 34)),
    "transformer_ops_cpu": Limits(1_700_000, (2, 29)),
    "transformer_ops_cuda": Limits(11_000_000, (2, 34)),
    "transformer_ops_triton": Limits(100_000, is_compiled=False),
    "muladd_executorch": Limits(1_000_000, (2, 34), needs_torch=False),
}


def limits_of(name: str) -> Limits:
    """The limits for a wheel or a library, by the name of its package."""
    return next((limits for package, limits in LIMITS.items() if package in name), Limits())


def wheel_problems(wheel: Path) -> Iterator[str]:
    """What is wrong with name, size and content."""
    if wheel.name.startswith("muladd-"):
        yield from metapackage_problems(wheel)
        return
    limits = limits_of(wheel.name)
    platform = r"(linux|manylinux)[\w.]*" if limits.is_compiled else "any"
    if not re.search(rf"-py3-none-{platform}\.whl$", wheel.name):
        yield f"its tag is not py3-none-{'<platform>' if limits.is_compiled else platform}"
    size = wheel.stat().st_size
    if size >= limits.size:
        yield f"it has {size} bytes, at most {limits.size} are expected"
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    for suffix in ("LICENSE", "py.typed", *([".so"] if limits.is_compiled else [])):
        if not any(name.endswith(suffix) for name in names):
            yield f"it has no {suffix}"
    if sum(name.endswith(".so") for name in names) > 1 and not limits.for_each_torch:
        yield "it has more than one library"
    for name in names:
        is_kit = name.startswith(("opwheel_tools/testing/", "opwheel_tools_pytest", "opwheel_tools/scaffold/"))
        is_product = name.endswith((".o", ".ninja", ".pyc"))
        is_source = name.endswith((".cpp", ".cu")) and not _SOURCES.fullmatch(name)
        if is_product or is_source or ("test" in name.lower() and not is_kit):
            yield f"{name} does not belong into it"


def metapackage_problems(wheel: Path) -> Iterator[str]:
    """What is wrong with the metapackage's wheel or one of its variants."""
    name = re.search(r"-py3-none-any(?:-([0-9a-z_.]{1,16}))?\.whl$", wheel.name)
    if name is None:
        yield "its name does not end with py3-none-any and, of a variant, a label"
        return
    if wheel.stat().st_size >= _METAPACKAGE_SIZE:
        yield f"it has {wheel.stat().st_size} bytes, at most {_METAPACKAGE_SIZE} are expected"
    with zipfile.ZipFile(wheel) as archive:
        files = {file.partition("/")[2]: archive.read(file) for file in archive.namelist() if ".dist-info/" in file}
        yield from (f"{file} does not belong into it" for file in archive.namelist() if ".dist-info/" not in file)
    labels = list(json.loads(files["variant.json"])["variants"]) if "variant.json" in files else []
    if labels != ([name[1]] if name[1] else []):
        yield f"its name says variant {name[1]}, its variant.json {labels}"


def library_problems(library: Path) -> Iterator[str]:
    """What is wrong with the symbols and dependencies of a shared library."""
    tables, limits = read_tables(library), limits_of(library.name)
    bindings = {"libtorch_python.so"} if "opwheel_calls" in library.name else set()
    yield from (f"it needs {name}" for name in tables.needed if "python" in name and name not in bindings)
    if limits.needs_torch and "libtorch_cpu.so" not in tables.needed:
        yield "it does not name libtorch_cpu.so"
    if any(not folder.startswith("$ORIGIN") for folders in tables.search for folder in folders.split(":")):
        yield "it has an rpath that is a folder of this machine"
    for symbol in tables.symbols:
        if symbol.is_defined:
            is_ours = symbol.name.startswith(("muladd_", "opwheel_", "transformer_ops_"))
            if not is_ours and not _C_FUNCTION.fullmatch(symbol.name):
                yield f"it exports {symbol.name}"
        else:
            yield from _import_problems(library, symbol)
    if tables.glibc > limits.glibc:
        yield f"it needs glibc {'.'.join(map(str, tables.glibc))}"


def _import_problems(library: Path, symbol: Symbol) -> Iterator[str]:
    name = symbol.name
    is_runtime = any(package in library.name and names.match(name) for package, names in _RUNTIMES.items())
    is_runtime |= limits_of(library.name).for_each_torch and bool(_CPP.match(name))
    # What is not PyTorch's C interface has a version (the C and the C++ library) or is a runtime's.
    is_known = name.startswith(("aoti_torch_", "torch_")) or symbol.version or symbol.is_weak or is_runtime
    if name.startswith("Py") and not is_runtime:
        yield f"it needs Python: {name}"
    elif UNSTABLE.match(name) and not is_runtime:
        yield f"it uses an unstable symbol of PyTorch: {name}"
    elif not is_known:
        yield f"it needs {name} of an unknown library"


def audit(wheel: Path) -> list[str]:
    """All problems of one wheel."""
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
        libraries = sorted(Path(folder).rglob("*.so"))
        found = [f"{library.name}: {problem}" for library in libraries for problem in library_problems(library)]
        found += [
            f"{library.name}: it is for {machine}, which the wheel's tag does not name"
            for library in libraries
            if not wheel.stem.endswith(f"_{(machine := read_tables(library).machine)}")
        ]
    return [*wheel_problems(wheel), *found]


def main() -> int:
    """The command line."""
    named = [Path(name) for name in sys.argv[1:]]
    wheels = [wheel for one in named for wheel in (sorted(one.rglob("*.whl")) if one.is_dir() else [one])]
    if not wheels:
        print("release.audit: name the wheels to look into, or a folder that has some", file=sys.stderr)
        return 2
    found = [f"{wheel.name}: {problem}" for wheel in wheels for problem in audit(wheel)]
    print("\n".join(found) or f"audited {len(wheels)} wheels: as promised")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
