"""A new backend: a project that builds, installs and passes the conformance kit as it is written."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.version import Version

from .names import ScaffoldError, check_name
from .render import Project, check_free, render

if TYPE_CHECKING:
    from .. import Library

# For each language the folder of templates, and the device type it is for when none is given.
LANGUAGES = {"cpp": ("cpp", "cpu"), "cuda": ("cuda", "cuda"), "sycl": ("sycl", "xpu"), "python": ("python", "cpu")}
COMPILED = frozenset(("cpp", "cuda", "sycl"))
DISPATCH_KEYS = {"cpu": "CPU", "cuda": "CUDA", "xpu": "XPU"}
# Device types of PyTorch's own with other dispatch keys.
_NOT_SUPPORTED = frozenset(
    ("fpga", "hip", "hpu", "ideep", "ipu", "lazy", "maia", "meta", "mps", "mtia", "ort", "ve", "vulkan", "xla")
)


def new_backend(
    library: Library,
    name: str,
    *,
    language: str = "cpp",
    device_type: str | None = None,
    output: Path | None = None,
) -> Project:
    """Write the project of a backend for ``library``.

    Args:
        library: whose operators it will compute.
        name: of the backend and of its entry point; the distribution is called ``<namespace>-<name>``, with hyphens.
        language: a key of :data:`LANGUAGES`.
        device_type: ``torch.device.type`` of the tensors it computes on; by default the language's.
        output: the folder to write, by default one with the distribution's name in the current folder.

    Raises:
        ScaffoldError: a name is malformed or reserved, language and device do not fit, or the folder is in use.
    """
    from ..dispatch import Elementwise  # takes torch

    known = (*library.policy.backends, *library.policy.runtimes)
    check_name("a backend", name, {*known, "core", "schema", library.namespace})
    if language not in LANGUAGES:
        raise ScaffoldError(f"there is no template in {language!r}; choose one of {', '.join(LANGUAGES)}")
    template, usual_device = LANGUAGES[language]
    device = device_type or usual_device
    check_device(language, device)
    if language == "cpp" and device != "cpu":
        template = "device"
    written = [n for n, overload in library.overloads.items() if not isinstance(overload.rule, Elementwise)]
    if written and language != "python":
        raise ScaffoldError(
            f"the template in {language} computes element-wise operators, but {written[0]!r} is none; use --language "
            "python, which computes by references what it has no kernel for, and see opwheel/kernels.h"
        )
    distribution = f"{library.namespace}-{name}".replace("_", "-")
    folder = output or Path(distribution)
    check_free(folder)
    values = {
        **backend_values(library.namespace, library.distribution, library.version),
        "name": name,
        "distribution": distribution,
        "package": distribution.replace("-", "_"),
        "language": language,
        "operators": list(dict.fromkeys(overload.operator.name for overload in library.overloads.values())),
        "device_type": device,
        "dispatch_key": DISPATCH_KEYS.get(device, "PrivateUse1"),
    }
    common = ["shared", "repository", *(["compiled"] if language in COMPILED else [])]
    own = [f"backend/{part}" for part in ("repository", "common", template)]
    return Project(folder, render([*common, *own], folder, values))


def backend_values(namespace: str, core: str, version: str) -> dict[str, str]:
    """What the templates want to know of the operator library."""
    return {
        "namespace": namespace,
        "core": core,
        "core_requirement": requirement(core, version),
        "core_version": version,
    }


def requirement(distribution: str, version: str) -> str:
    """The distribution in any release of the same minor version."""
    release = Version(version)
    return f"{distribution}>={release.major}.{release.minor},<{release.major}.{release.minor + 1}"


def check_device(language: str, device: str) -> None:
    """Check that there is a template for the device in that language.

    Raises:
        ScaffoldError: there is none, or it is no name of a device type.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", device):
        raise ScaffoldError(
            f"{device!r} is no device type; write it as torch.device does: cpu, cuda, xpu, or the name under which a "
            "package registers its device with PyTorch (PrivateUse1), such as npu"
        )
    if device in _NOT_SUPPORTED:
        raise ScaffoldError(
            f"there is no template for {device!r}; there are some for cpu, cuda, xpu and devices that packages "
            "register with PyTorch (PrivateUse1)"
        )
    own_device = LANGUAGES[language][1] if language in ("cuda", "sycl") else device
    if device != own_device:
        raise ScaffoldError(f"--language {language} is for --device-type {own_device}, not {device!r}")
    if language == "cpp" and device in ("cuda", "xpu"):
        raise ScaffoldError(
            f"the reference kernels in C++ run on the host and cannot read memory of {device!r}; use "
            f"--language {'cuda' if device == 'cuda' else 'sycl'} or --language python"
        )
