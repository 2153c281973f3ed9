"""A variant of a kernel: the folder ``build/<variant>``, made of what is installed."""

from __future__ import annotations

import base64
import hashlib
import platform
import shutil
import subprocess
import sys
import tempfile
from importlib import import_module, metadata
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from opwheel import Backend, Library
from opwheel.registry import State
from opwheel.registry.discovery import FoundPlugin, find_plugins, read_plugin
from packaging.requirements import Requirement
from packaging.version import Version

from .errors import ExportError
from .metadata import write_metadata
from .shared_libraries import rename_namespace
from .sources import reachable, rewrite

# Where the devices' names are other than in PyTorch, or a variant's name says more than the device, there is no export.
_DEVICES = ("cpu",)
# Packages that go with opwheel, because it imports them.
_DEPENDENCIES = ("packaging", "pluggy")
# Parts of opwheel that build or inspect, and its native libraries, each of which is for one release of PyTorch.
_LEFT_OUT = {"commands", "_build", "csrc", "native", "cuda", "scripts.py", "aotinductor.py", "__main__.py"}
_SHORTEST = 5  # characters of a namespace, whose length the id has


class Kernel(NamedTuple):
    """What was written.

    Attributes:
        folder: of the variant, ``OUTPUT/build/<variant>``.
        id: the operators are ``torch.ops.<id>``.
        layers: names of the layers that models may use; empty if the library has no module ``layers``.
    """

    folder: Path
    id: str
    layers: tuple[str, ...]


def export_kernel(library: Library, backend: str, output: Path, *, version: int | None = None) -> Kernel:
    """Write a library with one of its backends as a kernel for the Hub, from what is installed.

    Args:
        library: an open library.
        backend: the name of a loaded backend for CPU tensors.
        output: the kernel's folder; others of its variants may be there.
        version: of the kernel, a number that grows when the public functions change; by default the library's major
            version.

    Raises:
        ExportError: the backend is not loaded, its device has no variants yet, the folder is there already, or
            something in the library cannot be in a kernel.
    """
    _check_exportable(library, backend)
    plugin = _plugin(library, backend)
    described = read_plugin(plugin, "opwheel_backend", Backend)
    variant = f"{_framework(described)}-{described.device_type}-{platform.machine()}-{platform.system().lower()}"
    folder = output / "build" / variant
    if folder.exists():
        raise ExportError(f"{folder} exists; remove it, or name another --output")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output) as temporary:
        made = Path(temporary) / variant
        kernel_id = _write(made, library, plugin, described, version)
        layers = _load_alone(made, backend)
        shutil.move(made, folder)
    return Kernel(folder, kernel_id, layers)


def _check_exportable(library: Library, backend: str) -> None:
    status = library.backends().get(backend)
    if status is None or status.state is not State.LOADED:
        raise ExportError(f"the backend {backend!r} is not loaded; `{library.package} doctor` says why")
    if status.device_type not in _DEVICES:
        raise ExportError(
            f"the backend {backend!r} is for {status.device_type} tensors: the names of such variants have the version "
            f"of a toolkit, which an installed wheel does not tell; exported are backends for {', '.join(_DEVICES)}"
        )
    if len(library.namespace) < _SHORTEST:
        raise ExportError(
            f"the namespace {library.namespace!r} is too short: the kernel's id has as many characters, of which "
            f"{_SHORTEST} are needed for it to be unique"
        )


def _plugin(library: Library, backend: str) -> FoundPlugin:
    found, _ = find_plugins(f"{library.package}.backends")
    plugin = next(one for one in found if one.name == backend)
    if "." in plugin.module:
        raise ExportError(f"the backend {backend!r} is the module {plugin.module}, expected a package of its own")
    return plugin


def _framework(backend: Backend) -> str:
    """``torch-stable-abi210``: the oldest release of PyTorch that the backend's library runs with."""
    given = [text for text in map(Requirement, backend.requires) if text.name == "torch"]
    lower = [Version(one.version) for text in given for one in text.specifier if one.operator == ">="]
    if not lower:
        raise ExportError(f"the backend {backend.name!r} does not say which PyTorch it needs: requires=['torch>=2.10']")
    oldest = max(lower)
    return f"torch-stable-abi{oldest.major}{oldest.minor}"


def _write(folder: Path, library: Library, plugin: FoundPlugin, backend: Backend, version: int | None) -> str:
    """Write a variant, and give its id."""
    sources = _sources(library, plugin.module)
    own = {PurePosixPath(plugin.module, Path(path).name): Path(path) for path in backend.libraries}
    kernel_id = _id(library.namespace, [*sources.values(), library.schema_library, *own.values()])
    bundled = frozenset({"opwheel", *_DEPENDENCIES, plugin.module})
    for place, source in sources.items():
        target = _target(folder, place)
        if source.suffix == ".py":
            target.write_text(rewrite(source.read_text(), place, bundled, library.namespace, kernel_id))
        else:
            shutil.copyfile(source, target)
    for place, source in {PurePosixPath(f"lib{kernel_id}_schema.so"): library.schema_library, **own}.items():
        rename_namespace(shutil.copyfile(source, _target(folder, place)), library.namespace, kernel_id)
    _write_distribution(folder, plugin, kernel_id)
    if (folder / "layers.py").is_file():
        with (folder / "__init__.py").open("a") as init:
            init.write('\nfrom . import layers  # noqa: E402\n\n__all__ += ["layers"]\n')
    (folder / "_ops.py").write_text(_OPS.format(kernel_id=kernel_id))
    _target(folder, PurePosixPath(library.package, "__init__.py")).write_text(
        _OLDER_LOADERS.format(kernel_id=kernel_id)
    )
    write_metadata(
        folder,
        kernel_id=kernel_id,
        name=library.namespace.replace("_", "-"),
        version=Version(library.version).major if version is None else version,
        license_name=str(metadata.metadata(library.distribution)["License-Expression"] or "other").lower(),
        device=backend.device_type,
    )
    return kernel_id


def _target(folder: Path, place: PurePosixPath) -> Path:
    target = folder / place
    target.parent.mkdir(parents=True, exist_ok=True)
    return target


def _sources(library: Library, plugin: str) -> dict[PurePosixPath, Path]:
    """The files that are copied, by their places in the kernel."""
    found: dict[PurePosixPath, Path] = {}
    for file in reachable(library.folder, ("__init__", "layers")):
        found[PurePosixPath(file.relative_to(library.folder))] = file
    for data in library.folder.glob("plugins.*"):
        found[PurePosixPath(data.name)] = data
    for package in ("opwheel", plugin, *_DEPENDENCIES):
        folder = Path(str(import_module(package).__file__)).parent
        for file in sorted(folder.rglob("*.py")):
            parts = file.relative_to(folder).parts
            if package != "opwheel" or not _LEFT_OUT & set(parts[:1]):
                found[PurePosixPath(package, *parts)] = file
    for distribution in (library.distribution, "opwheel", *_DEPENDENCIES):
        for text in metadata.files(distribution) or []:
            if "LICENSE" in text.name:
                found[PurePosixPath("licenses", distribution, text.name)] = Path(str(text.locate()))
    return dict(sorted(found.items()))


def _id(namespace: str, contents: list[Path]) -> str:
    """A name for the operators that no other content has, as long as the namespace."""
    digest = hashlib.sha256()
    for file in contents:
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    letters = base64.b32encode(digest.digest()).decode().lower()
    unique = min(len(namespace) - 1, 10)
    return f"_{namespace[: len(namespace) - unique - 1]}{letters[:unique]}"


def _write_distribution(folder: Path, plugin: FoundPlugin, kernel_id: str) -> None:
    """Write what the copy of opwheel discovers the backend by, as it would an installed one."""
    name = plugin.distribution.replace("-", "_")
    place = PurePosixPath(f"{name}-{plugin.version}.dist-info")
    fields = f"Name: {plugin.distribution}\nVersion: {plugin.version}\nSummary: the backend {plugin.name}\n"
    _target(folder, place / "METADATA").write_text(f"Metadata-Version: 2.1\n{fields}")
    points = f"[{kernel_id}.backends]\n{plugin.name} = {kernel_id}.{plugin.module}\n"
    _target(folder, place / "entry_points.txt").write_text(points)


def _load_alone(folder: Path, backend: str) -> tuple[str, ...]:
    """Load a variant in a process that imports nothing else, and give the names of its layers.

    Raises:
        ExportError: it does not load, its backend does not, or it imports what is installed.
    """
    command = [sys.executable, "-c", _LOAD, str(folder.resolve()), backend, "opwheel", *_DEPENDENCIES]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder.parent)
    if done.returncode:
        raise ExportError(f"what was written does not load: {done.stderr.strip()[-2000:]}")
    return tuple(done.stdout.split())


_LOAD = """
import importlib.util, json, pathlib, sys
sys.dont_write_bytecode = True
folder, backend, *bundled = sys.argv[1:]
import torch
known = set(sys.modules)
id = json.loads(pathlib.Path(folder, "metadata.json").read_text())["id"]
spec = importlib.util.spec_from_file_location(id, pathlib.Path(folder, "__init__.py"))
sys.modules[id] = kernel = importlib.util.module_from_spec(spec)
spec.loader.exec_module(kernel)
kernel.require(backend)
if installed := set(bundled) & (set(sys.modules) - known):
    sys.exit(f"it imports {', '.join(installed)} as installed")
print(*getattr(getattr(kernel, "layers", None), "__all__", ()))
"""

_OPS = '''"""The namespace of the operators."""

import torch

ops = torch.ops.{kernel_id}


def add_op_namespace_prefix(name: str) -> str:
    """The operator's name with its namespace."""
    return f"{kernel_id}::{{name}}"
'''

_OLDER_LOADERS = '''"""For versions of ``kernels`` that look for the kernel here: what the folder around it has."""

import importlib.util
import sys
from pathlib import Path

if "{kernel_id}" not in sys.modules:
    _spec = importlib.util.spec_from_file_location("{kernel_id}", Path(__file__).parents[1] / "__init__.py")
    sys.modules["{kernel_id}"] = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(sys.modules["{kernel_id}"])
globals().update({{key: value for key, value in vars(sys.modules["{kernel_id}"]).items() if not key.startswith("__")}})
__all__ = list(sys.modules["{kernel_id}"].__all__)
'''
