"""Which names a new project may have."""

from __future__ import annotations

import ctypes
import keyword
import re
import sys
from collections.abc import Collection
from importlib.util import find_spec

_CPP_KEYWORDS = (
    "alignas|alignof|and|and_eq|asm|auto|bitand|bitor|bool|break|case|catch|char|char8_t|char16_t|char32_t|class|"
    "co_await|co_return|co_yield|compl|concept|const|const_cast|consteval|constexpr|constinit|continue|decltype|"
    "default|delete|do|double|dynamic_cast|else|enum|explicit|export|extern|false|float|for|friend|goto|if|"
    "inline|int|long|mutable|namespace|new|noexcept|not|not_eq|nullptr|operator|or|or_eq|private|protected|"
    "public|register|reinterpret_cast|requires|return|short|signed|sizeof|static|static_assert|static_cast|"
    "struct|switch|template|this|thread_local|throw|true|try|typedef|typeid|typename|typeof|union|unsigned|using|"
    "virtual|void|volatile|wchar_t|while|xor|xor_eq"
)
# Namespaces and types in the headers of C++, PyTorch and the SDK, and a function of the template.
_CPP_NAMES = "at|c10|caffe2|cpu|cuda|detail|softmax|std|sycl|timespec|timeval|tm|xpu"
# Namespaces of operators that PyTorch and its packages define when they are first needed.
_LATER = (
    "ao|bucketing|c10d_functional|debug_mode_ops|device_mesh|fbgemm|fsdp|inductor|prepacked|quantized_decomposed|"
    "semi_structured|streams|symm_mem|torch_attn|torchaudio|torchvision|triton"
)
_OTHER = "choose another name"


class ScaffoldError(ValueError):
    """What was asked for cannot be written: what was given, what is possible, what to do."""

    code = "OPWHEEL-E082"


def check_name(kind: str, name: str, reserved: Collection[str]) -> None:
    """Check a name that becomes a distribution's and, with underscores, a Python package's.

    Raises:
        ScaffoldError: it is malformed, a word of Python, or reserved.
    """
    if not re.fullmatch(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*", name):
        raise ScaffoldError(
            f"{name!r} is not a valid name for {kind}: use lower-case letters and digits, in parts joined by '-', and "
            "begin with a letter, as in 'acme' or 'acme-x2'"
        )
    if keyword.iskeyword(name) or keyword.issoftkeyword(name):
        raise ScaffoldError(f"{name!r} is a keyword of Python; choose another name for {kind}")
    if name.replace("_", "-") in reserved:
        raise ScaffoldError(
            f"{name!r} is reserved, as are {', '.join(sorted(set(reserved) - {name}))}; choose another name for {kind}"
        )


def check_package(package: str) -> None:
    """Check that a package of this name would not hide a module of Python, nor one that is installed.

    Raises:
        ScaffoldError: it would.
    """
    if package in sys.stdlib_module_names:
        raise ScaffoldError(f"{package!r} is a module of Python's standard library; {_OTHER}")
    spec = find_spec(package)
    if spec is not None and spec.origin is not None:  # a folder that happens to be here has none
        raise ScaffoldError(f"{package!r} is an installed package ({spec.origin}); uninstall it, or {_OTHER}")


def check_namespace(namespace: str) -> None:
    """Check that C++ can have a namespace of this name, and that it is nobody else's in PyTorch's dispatcher.

    Raises:
        ScaffoldError: it cannot, or it is.
    """
    if re.fullmatch(_CPP_KEYWORDS, namespace):
        raise ScaffoldError(f"{namespace!r} is a keyword of C++; {_OTHER}")
    if re.fullmatch(_CPP_NAMES, namespace):
        raise ScaffoldError(f"{namespace!r} is a name with another meaning in the sources and their headers; {_OTHER}")
    if hasattr(ctypes.CDLL(None), namespace):
        raise ScaffoldError(
            f"{namespace!r} is a function of the C library, which C++ has no namespace beside; {_OTHER}"
        )
    # Not at the top: it imports torch, which other checks of names do without.
    from opwheel._torch.private import every_operator, is_namespace_defined

    is_in_use = any(operator.startswith(f"{namespace}::") for operator in every_operator())
    if re.fullmatch(_LATER, namespace) or is_in_use or is_namespace_defined(namespace):
        raise ScaffoldError(f"{namespace!r} is a namespace of PyTorch's operators; {_OTHER}")
