"""Writes build.ninja for one library and runs it. Ninja rebuilds only what changed, also across headers."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from .device_code import DeviceCode, escape, join, write_if_changed
from .extensions import NativeLibrary
from .toolchain import (
    ToolchainError,
    find_cxx,
    find_torch,
    include_folders,
    prefix_maps,
    require_linux,
    stable_abi_macros,
)

CXX_FLAGS = [
    "-std=c++20",
    "-O3",
    "-fPIC",
    "-fno-plt",
    "-fvisibility=hidden",
    "-fvisibility-inlines-hidden",
    "-Wall",
    "-Wextra",
]
# --as-needed keeps libraries out that are only named; --no-undefined finds a missing symbol now rather than on a user's
# machine.
LINK_FLAGS = ["-shared", "-Wl,--as-needed", "-Wl,--no-undefined"]
STRIP = "-Wl,-s"  # leaves the symbol table, and what a debugger needs, out of the wheel
# libstdc++ stands before PyTorch, which exports a few symbols of its own copy: linked to those, a library would depend
# on how that PyTorch was built.
LIBRARIES = ["-lstdc++", "-ltorch_cpu", "-lc10", "-ldl"]
_SYMBOLS = "symbols.map"


def build(
    library: NativeLibrary, output: Path, build_dir: Path, *, jobs: int | None, verbose: bool, debug: bool = False
) -> None:
    """Compile ``library`` into ``output``; objects and ninja's log stay in ``build_dir`` for the next time.

    What a debugger needs is left out, unless ``debug`` or a compiler's flag such as ``-g`` asks for it.

    Raises:
        ToolchainError: this is not Linux, a compiler, torch or a source is missing, or a command failed.
    """
    require_linux()
    build_dir.mkdir(parents=True, exist_ok=True)
    device = library.device_code(build_dir)
    write_if_changed(build_dir / "build.ninja", _build_file(library, device, output, debug=debug))
    write_if_changed(build_dir / _SYMBOLS, _version_script(library.exports))
    command = [sys.executable, "-m", "ninja", "-C", str(build_dir)]
    command += ["-v"] if verbose else ["--quiet"]
    command += ["-j", str(jobs)] if jobs else []
    if subprocess.run(command, check=False).returncode != 0:
        raise ToolchainError(f"compiling {library.name} failed; the compiler's messages are above.")
    if device.description:
        output.with_suffix(".json").write_text(device.description)


def _version_script(exports: tuple[str, ...]) -> str:
    visible = f"global: {'; '.join(exports)}; " if exports else ""
    return f"{{ {visible}local: *; }};\n"


def _is_for_debugger(flags: Iterable[str]) -> bool:
    """Whether the compiler's flags ask for debugging information, as ``-g`` and ``-ggdb3`` do, and not ``-g0`` last."""
    asked = [flag for flag in flags if flag.startswith("-g")]
    return bool(asked) and asked[-1] != "-g0"


def _build_file(library: NativeLibrary, device: DeviceCode, output: Path, *, debug: bool) -> str:
    torch = find_torch(library.torch_folder)
    cxx = join(find_cxx())
    root = Path.cwd()
    compile_flags = [
        *CXX_FLAGS,
        *stable_abi_macros(library.torch_target),
        *(f"-I{folder}" for folder in include_folders(library)),
        f"-isystem{torch.include}",
        *prefix_maps(root, torch, library),
        *device.compile_flags,
        *(["-g"] if debug else []),
        *library.extra_compile_args,
        *shlex.split(os.environ.get("CXXFLAGS", "")),
    ]
    keeps_symbols = any(_is_for_debugger([*compile_flags, *more]) for more in ((), *library.source_args.values()))
    link_flags = [
        *LINK_FLAGS,
        *([] if keeps_symbols else [STRIP]),
        f"-Wl,--version-script={_SYMBOLS}",
        f"-L{torch.lib}",
        *device.link_flags,
        *library.extra_link_args,
        *shlex.split(os.environ.get("LDFLAGS", "")),
        *LIBRARIES,
    ]
    lines = [
        "ninja_required_version = 1.5",
        "rule cxx",
        f"  command = {cxx} -MMD -MF $out.d {join(compile_flags)} $arguments -c $in -o $out",
        "  depfile = $out.d",
        "  deps = gcc",
        "  description = compile $in",
        "rule link",
        f"  command = {cxx} $in -o $out {join(link_flags)}",
        "  description = link $out",
        *device.lines,
    ]
    objects = []
    for source in library.sources:
        path = root / source
        if not path.is_file():
            raise ToolchainError(f"{library.name}: there is no source file {path}.")
        objects.append(escape(f"{source}.o"))
        rule = "nvcc" if path.suffix == ".cu" else "cxx"
        lines.append(f"build {objects[-1]}: {rule} {escape(path)}")
        # A seed instead of a hash of the path and the process: nvcc puts it into names.
        seed = [f"{device.seed_flag if rule == 'nvcc' else '-frandom-seed'}={source}"]
        lines.append(f"  arguments = {join([*seed, *library.source_args.get(source, ())])}")
    lines.append(f"build {escape(output.resolve())}: link {' '.join([*objects, *device.objects])} | symbols.map")
    return "\n".join(lines) + "\n"
