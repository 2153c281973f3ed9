"""Small operator libraries, installed into a folder for sys.path. Made in a moment: nothing with torch's headers."""

from __future__ import annotations

import base64
import hashlib
import subprocess
from pathlib import Path

SCHEMA = "blend(Tensor x, Tensor y, float t) -> Tensor"

# The dispatcher is told about the operators in Python: the schema library only says which they are.
_SCHEMA_LIBRARY = """
int {name}_abi_version(void) {{ return 1; }}
static const char* const schemas[] = {{"{schema}", 0}};
const char* const* {name}_schemas(void) {{ return schemas; }}
"""
_PACKAGE = """
import ctypes
from pathlib import Path

import opwheel
import torch

ctypes.CDLL(str(Path(__file__).with_name("lib{name}_schema.so")))
_definitions = torch.library.Library("{name}", "DEF")
_definitions.define("{schema}")
BLEND = opwheel.Operator(
    "blend", reference=lambda x, y, t: x * t + y, rule=opwheel.Elementwise(), derivatives={{"x": "grad * t"}}
)
library = opwheel.open_library(__name__, [BLEND], distribution="{name}-core", version="3.1.4")
library.load_backends()
"""
_MAIN = """
from opwheel.commands import hand_over

hand_over(__package__)
"""
_PLUGINS = """
[backends.cpu]
distribution = "{name}-cpu"
dispatch-key = "CPU"
device = "cpu"
hint = "pip install {name}-cpu"
"""
_BACKEND = """
from opwheel import Backend, hookimpl


def register(target):
    from opwheel.dispatch import implement, in_compute_dtype, overloads_of

    kernels = {{"blend": lambda x, y, t: x * t + y}}
    implement(target, overloads_of(target).values(), "cpu", in_compute_dtype(kernels))


@hookimpl
def opwheel_backend():
    return Backend(name="cpu", device_type="cpu", dispatch_key="CPU", register=register)
"""


def install(site: Path, name: str) -> None:
    """Install the library ``name`` and its backend for the CPU as wheels would be."""
    package = site / name
    package.mkdir(parents=True)
    source = _SCHEMA_LIBRARY.format(name=name, schema=SCHEMA)
    output = package / f"lib{name}_schema.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", output], input=source, text=True, check=True)
    (package / "__init__.py").write_text(_PACKAGE.format(name=name, schema=SCHEMA))
    (package / "__main__.py").write_text(_MAIN)
    (package / "plugins.toml").write_text(_PLUGINS.format(name=name))
    backend = site / f"{name}_cpu"
    backend.mkdir()
    (backend / "__init__.py").write_text(_BACKEND.format(name=name))
    _write_metadata(site, f"{name}-core", package)
    _write_metadata(site, f"{name}-cpu", backend, f"[{name}.backends]\ncpu = {name}_cpu\n")


def _write_metadata(site: Path, distribution: str, package: Path, entry_points: str = "") -> None:
    info = site / f"{distribution.replace('-', '_')}-3.1.4.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 3.1.4\n")
    (info / "entry_points.txt").write_text(entry_points)
    lines = []
    for path in sorted((*package.iterdir(), *info.iterdir())):
        content = path.read_bytes()
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.append(f"{path.relative_to(site)},sha256={digest},{len(content)}\n")
    (info / "RECORD").write_text("".join(lines))


def write_script(path: Path, python: str, name: str) -> Path:
    """The console script that installers write for ``opwheel.scripts:<name>``."""
    path.write_text(f"#!{python}\nimport sys\nfrom opwheel.scripts import {name}\nsys.exit({name}())\n")
    path.chmod(0o755)
    return path
