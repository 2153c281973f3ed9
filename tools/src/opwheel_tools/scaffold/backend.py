"""A new backend: a project that builds, installs and passes the conformance kit as it is written."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.version import Version

from .names import ScaffoldError, check_name, check_package
from .render import Project, check_free, render

if TYPE_CHECKING:
    from opwheel import Library

# For each language the folder of templates, and the device type it is for when none is given.
LANGUAGES = {
    "cpp": ("cpp", "cpu"),
    "cuda": ("cuda", "cuda"),
    "sycl": ("sycl", "xpu"),
    "triton": ("triton", "cuda"),
    "python": ("python", "cpu"),
}
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
    known = (*library.policy.backends, *library.policy.runtimes)
    check_name("a backend", name, {*known, "core", "schema", library.namespace})
    if language not in LANGUAGES:
        raise ScaffoldError(f"there is no template in {language!r}; choose one of {', '.join(LANGUAGES)}")
    template, usual_device = LANGUAGES[language]
    device = device_type or usual_device
    check_device(language, device)
    if language == "cpp" and device != "cpu":
        template = "device"
    operators = listed_operators(library)
    if language in COMPILED:
        check_lists(library, operators)
    distribution = f"{library.namespace}-{name}".replace("_", "-")
    package = distribution.replace("-", "_")
    check_package(package)
    folder = output or Path(distribution)
    check_free(folder)
    values = {
        **backend_values(library.namespace, library.distribution, library.version, operators),
        "name": name,
        "distribution": distribution,
        "package": package,
        "language": language,
        "operators": list(dict.fromkeys(overload.operator.name for overload in library.overloads.values())),
        "device_type": device,
        "dispatch_key": DISPATCH_KEYS.get(device, "PrivateUse1"),
    }
    common = ["shared", "repository", *(["compiled"] if language in COMPILED else [])]
    kernels = ["kernels"] if language in COMPILED and operators["kernels"] else []
    elementwise = [f"{template}_elementwise"] if language in COMPILED and operators["elementwise"] else []
    own = [f"backend/{part}" for part in ("repository", "common", *kernels, *elementwise, template)]
    return Project(folder, render([*common, *own], folder, values))


def listed_operators(library: Library) -> dict[str, list[tuple[str, str]]]:
    """Identifiers in C++ and schemas of the operators that functors compute, and of those that somebody writes."""
    from opwheel.dispatch import Elementwise  # takes torch

    lists: dict[str, list[tuple[str, str]]] = {"elementwise": [], "kernels": []}
    for name, overload in library.overloads.items():
        kind = "elementwise" if isinstance(overload.rule, Elementwise) else "kernels"
        lists[kind].append((name.replace(".", "_"), overload.schema_text))
    return lists


def oldest_torch(operators: Mapping[str, Sequence[tuple[str, str]]]) -> str:
    """The first release whose stable ABI passes all arguments of these operators to a kernel in C++."""
    has_generator = any("Generator" in schema for listed in operators.values() for _, schema in listed)
    return "2.13" if has_generator else "2.10"


def check_lists(library: Library, operators: Mapping[str, Sequence[tuple[str, str]]]) -> None:
    """Check that the library's header has the lists of its operators under the names that the templates use.

    Raises:
        ScaffoldError: it has not.
    """
    header = Path(library.get_include(), library.namespace, "operators.h")
    text = header.read_text() if header.is_file() else ""
    for kind, name in (("elementwise", "OPERATORS"), ("kernels", "KERNELS")):
        macro = f"{library.namespace.upper()}_{name}"
        if operators[kind] and macro not in text:
            raise ScaffoldError(
                f"{header} has no list {macro}, which kernels in C++ are built from (opwheel/operators.h); "
                "add it to the library, or use --language python"
            )


def backend_values(
    namespace: str, core: str, version: str, operators: Mapping[str, Sequence[tuple[str, str]]]
) -> dict[str, object]:
    """What the templates want to know of the operator library; ``operators`` as of :func:`listed_operators`."""
    return {
        **operators,
        "torch": oldest_torch(operators),
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
        ScaffoldError: there is none, or it is not the name of a device type.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", device):
        raise ScaffoldError(
            f"{device!r} is not a device type; write it as torch.device does: cpu, cuda, xpu, or the name under which "
            "a package registers its device with PyTorch (PrivateUse1), such as npu"
        )
    if device in _NOT_SUPPORTED:
        raise ScaffoldError(
            f"there is no template for {device!r}; there are some for cpu, cuda, xpu and devices that packages "
            "register with PyTorch (PrivateUse1)"
        )
    own_device = LANGUAGES[language][1] if language in ("cuda", "sycl") else device
    if language == "triton" and device not in ("cuda", "xpu"):
        raise ScaffoldError(
            f"Triton compiles for --device-type cuda or xpu, not {device!r}; its interpreter needs neither"
        )
    if device != own_device:
        raise ScaffoldError(f"--language {language} is for --device-type {own_device}, not {device!r}")
    if language == "cpp" and device in ("cuda", "xpu"):
        raise ScaffoldError(
            f"the reference kernels in C++ run on the host and cannot read memory of {device!r}; use "
            f"--language {'cuda' if device == 'cuda' else 'sycl'} or --language python"
        )
