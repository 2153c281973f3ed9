"""Python sources that import each other absolutely, made to do so relatively."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from .errors import ExportError

# What a kernel may import: the standard library and PyTorch. The tomli is for a policy file on Python 3.10.
_ALLOWED = {*sys.stdlib_module_names, "torch", "typing_extensions", "tomli"}


def reachable(package: Path, names: tuple[str, ...]) -> list[Path]:
    """The files of a package that these modules of it import, directly or not, by relative imports.

    Args:
        package: its folder.
        names: modules in that folder, such as ``"__init__"``.
    """
    found: dict[Path, None] = {}
    waiting = [package / f"{name}.py" for name in names]
    while waiting:
        file = waiting.pop()
        if file in found or not file.is_file():
            continue
        found[file] = None
        for node in ast.walk(ast.parse(file.read_text(), str(file))):
            if isinstance(node, ast.ImportFrom) and node.level:
                waiting += _candidates(file.parents[node.level - 1], node)
    return list(found)


def _candidates(folder: Path, node: ast.ImportFrom) -> Iterator[Path]:
    parts = node.module.split(".") if node.module else []
    for end in range(len(parts) + 1):
        yield folder.joinpath(*parts[:end], "__init__.py")
    module = folder.joinpath(*parts)
    yield module.with_suffix(".py")
    for alias in node.names:
        yield module / f"{alias.name}.py"
        yield module / alias.name / "__init__.py"


def rewrite(source: str, place: PurePosixPath, bundled: frozenset[str], namespace: str, kernel_id: str) -> str:
    """A module's source as a part of the kernel.

    Args:
        source: of the module.
        place: its path in the kernel.
        bundled: top-level packages that are in the kernel, at its top.
        namespace: the library's, ``torch.ops.<namespace>``.
        kernel_id: what becomes of it.

    Raises:
        ExportError: it imports what a kernel may not import, or in a way that cannot be written relatively.
    """
    dots = "." * len(place.parts)
    lines = source.splitlines(keepends=True)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [(alias.name, alias.asname) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [(str(node.module), None)]
        else:
            continue
        roots = {name.partition(".")[0] for name, _ in names}
        if foreign := roots - _ALLOWED - bundled:
            raise ExportError(
                f"{place} imports {min(foreign)}; a kernel may import the standard library, torch and itself alone"
            )
        if not roots & bundled:
            continue
        if isinstance(node, ast.Import) and (len(names) > 1 or "." in names[0][0]):
            raise ExportError(f"{place}: `import {names[0][0]}` cannot be written relatively; write `from ... import`")
        # An import begins its line, in these sources; what it imports is on the same line.
        line = lines[node.lineno - 1]
        pattern = r"\bimport\s+" if isinstance(node, ast.Import) else r"\bfrom\s+"
        by = f"from {dots} import " if isinstance(node, ast.Import) else f"from {dots}"
        lines[node.lineno - 1] = re.sub(pattern, by, line, count=1)
    text = "".join(lines)
    for before, after in (
        (rf"\b{namespace}::", f"{kernel_id}::"),
        (rf"\btorch\.ops\.{namespace}\b", f"torch.ops.{kernel_id}"),
        (rf"\bfunctions_of\(([\"']){namespace}\1\)", f'functions_of("{kernel_id}")'),
    ):
        text = re.sub(before, after, text)
    return text
