"""Writes build.ninja for one library and runs it. Ninja rebuilds only what changed, also across headers."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from . import cuda
from .library import CppLibrary, CudaLibrary
from .toolchain import SDK_INCLUDE, ToolchainError, find_cxx, find_torch, target_version_macro

CXX_FLAGS = [
    "-std=c++20",
    "-O3",
    "-fPIC",
    "-fvisibility=hidden",
    "-fvisibility-inlines-hidden",
    "-Wall",
    "-Wextra",
    "-DTORCH_STABLE_ONLY",  # a header outside of the stable ABI is a compile error
]
# --as-needed keeps libraries out that are only named; --no-undefined finds a missing symbol now rather than on a user's
# machine; -s leaves the symbol table out of the wheel.
_SYMBOLS = "symbols.map"
_STUB = "stub.c"
# libstdc++ stands before PyTorch, which exports a few symbols of its own copy: linked to those, a library would depend
# on how that PyTorch was built.
LINK_FLAGS = ["-shared", "-Wl,--as-needed", "-Wl,--no-undefined", "-Wl,-s"]


def build(library: CppLibrary, output: Path, build_dir: Path, *, jobs: int | None, verbose: bool) -> None:
    """Compile ``library`` into ``output``; objects and ninja's log stay in ``build_dir`` for the next time.

    Raises:
        ToolchainError: a compiler, torch or a source is missing, or a command failed.
    """
    build_dir.mkdir(parents=True, exist_ok=True)
    (build_dir / "build.ninja").write_text(_build_file(library, output))
    (build_dir / _SYMBOLS).write_text(_version_script(library.exports))
    if isinstance(library, CudaLibrary):
        (build_dir / _STUB).write_text(cuda.STUB_SOURCE)
        output.with_suffix(".json").write_text(cuda.describe(library))
    command = [sys.executable, "-m", "ninja", "-C", str(build_dir)]
    command += ["-v"] if verbose else ["--quiet"]
    command += ["-j", str(jobs)] if jobs else []
    if subprocess.run(command, check=False).returncode != 0:
        raise ToolchainError(f"compiling {library.name} failed; the compiler's messages stand above.")


def _version_script(exports: tuple[str, ...]) -> str:
    visible = f"global: {'; '.join(exports)};" if exports else ""
    return f"{{ {visible} local: *; }};\n"


def _build_file(library: CppLibrary, output: Path) -> str:
    torch = find_torch()
    cxx = shlex.join(find_cxx())
    root = Path.cwd()
    compile_flags = [
        *CXX_FLAGS,
        target_version_macro(library.torch_target),
        f"-I{SDK_INCLUDE}",
        f"-isystem{torch.include}",
        f"-ffile-prefix-map={root}=.",  # the same bytes from any checkout
        *library.extra_compile_args,
        *shlex.split(os.environ.get("CXXFLAGS", "")),
    ]
    libraries = ["-lstdc++"]
    lines = ["ninja_required_version = 1.5"]
    needed = ""
    if isinstance(library, CudaLibrary):
        toolkit = cuda.find_toolkit(library.cuda)
        libraries += [cuda.STUB_NAME, f"-L{toolkit.lib}", "-lcudart_static", "-ldl", "-lrt", "-lpthread"]
        lines += _cuda_rules(library, toolkit, torch.include)
        needed = f" | {cuda.STUB_NAME}"
    link_flags = [
        *LINK_FLAGS,
        f"-Wl,--version-script={_SYMBOLS}",
        f"-L{torch.lib}",
        *library.extra_link_args,
        *shlex.split(os.environ.get("LDFLAGS", "")),
    ]
    libraries += ["-ltorch_cpu", "-lc10"]
    lines += [
        "rule cxx",
        f"  command = {cxx} -MMD -MF $out.d {_join(compile_flags)} $arguments -c $in -o $out",
        "  depfile = $out.d",
        "  deps = gcc",
        "  description = compile $in",
        "rule link",
        f"  command = {cxx} $in -o $out {_join(link_flags)} {_join(libraries)}",
        "  description = link $out",
    ]
    objects = []
    for source in library.sources:
        path = root / source
        if not path.is_file():
            raise ToolchainError(f"{library.name}: there is no source file {path}.")
        objects.append(_escape(f"{source}.o"))
        rule = "nvcc" if path.suffix == ".cu" else "cxx"
        lines.append(f"build {objects[-1]}: {rule} {_escape(path)}")
        lines.append(f"  arguments = {_join(library.source_args.get(source, ()))}")
    lines.append(f"build {_escape(output.resolve())}: link {' '.join(objects)}{needed}")
    return "\n".join(lines) + "\n"


def _cuda_rules(library: CudaLibrary, toolkit: cuda.Toolkit, torch_include: Path) -> list[str]:
    cxx = find_cxx()
    compiler = next(word for word in reversed(cxx) if not word.startswith("-"))  # not a launcher such as ccache
    flags = [
        *cuda.NVCC_FLAGS,
        *cuda.code_flags(*cuda.architectures(library)),
        f"-ccbin={compiler}",
        target_version_macro(library.torch_target),
        f"-I{SDK_INCLUDE}",
        f"-isystem={torch_include}",
    ]
    return [
        "rule nvcc",
        f"  command = {_join([str(toolkit.nvcc)])} -MMD -MF $out.d {_join(flags)} -c $in -o $out",
        "  depfile = $out.d",
        "  deps = gcc",
        "  description = compile $in",
        "rule stub",
        f"  command = {_join(cxx)} -x c -shared -fPIC -Wl,-soname,$out $in -o $out",
        "  description = make $out",
        f"build {cuda.STUB_NAME}: stub {_STUB}",
    ]


def _join(arguments: Sequence[str]) -> str:
    return shlex.join(arguments).replace("$", "$$")


def _escape(path: object) -> str:
    return str(path).replace("$", "$$").replace(":", "$:").replace(" ", "$ ")
