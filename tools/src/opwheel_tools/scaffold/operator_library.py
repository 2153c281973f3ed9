"""Another operator library: a core wheel with a namespace of its own, and a CPU backend from the backends' template."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from opwheel._version import __version__

from .backend import backend_values, requirement
from .names import check_name, check_namespace, check_package
from .render import Project, check_free, render

_RESERVED = {
    *("opwheel", "torch", "core", "test", "tests", "aten", "prim", "prims"),
    *("pluggy", "numpy", "pip", "setuptools", "ninja"),
}
_VERSION = "0.1.0"
# The operators of each kind that a library begins with: what computes them, and their schemas.
KINDS = {
    "elementwise": [("axpby", "axpby(Tensor x, Tensor y, float a, float b) -> Tensor")],
    "rows": [("softmax", "softmax(Tensor x) -> Tensor")],
}


def new_library(name: str, *, kinds: Collection[str] = tuple(KINDS), output: Path | None = None) -> Project:
    """Write the project.

    Args:
        name: of the library; with underscores its package and its namespace in the dispatcher.
        kinds: of operators that it begins with: ``"elementwise"``, which functors compute, ``"rows"``, with a kernel of
            its own; both by default.
        output: the folder to write, by default one of that name in the current folder.

    Raises:
        ScaffoldError: the name is malformed, reserved or somebody else's, or the folder is in use.
    """
    check_name("a library", name, _RESERVED)
    namespace, distribution = name.replace("-", "_"), name.replace("_", "-")
    check_package(namespace)
    check_namespace(namespace)
    folder = output or Path(name)
    check_free(folder)
    library: dict[str, object] = {
        "package": namespace,
        "namespace": namespace,
        "distribution": distribution,
        "version": _VERSION,
        "framework": requirement("opwheel", __version__),
    }
    operators = {
        "elementwise": KINDS["elementwise"] if "elementwise" in kinds else [],
        "kernels": KINDS["rows"] if "rows" in kinds else [],
    }
    library |= operators
    core = render(["shared", "compiled"], folder / "core", library)
    own = ["shared", "repository", "library", *(f"library_{kind}" for kind in KINDS if kind in kinds)]
    files = (*render(own, folder, library), *(Path("core") / file for file in core))
    cpu = {
        **backend_values(namespace, f"{distribution}-core", _VERSION, operators),
        "name": "cpu",
        "distribution": f"{distribution}-cpu",
        "package": f"{namespace}_cpu",
        "language": "cpp",
        "device_type": "cpu",
        "dispatch_key": "CPU",
    }
    backend = Path("backends/cpu")
    parts = [
        *("shared", "compiled", "backend/common", "backend/cpp"),
        *(["backend/cpp_elementwise"] if "elementwise" in kinds else []),
        *(["library_cpu"] if "rows" in kinds else []),
    ]
    return Project(folder, (*files, *(backend / file for file in render(parts, folder / backend, cpu))))
