"""What :func:`.defining.define` may define: a schema that PyTorch understands, under a name that nobody else has."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

from .._namespace import NAMESPACE
from .._torch import private
from ..registry import OperatorLibrary
from .registration import library_of_namespace

EXAMPLE = "'mine::softplus(Tensor x, float beta=1.0) -> Tensor'"

# PyTorch's own, also those that it defines when a part of it is imported.
_OF_PYTORCH = frozenset(
    {
        *("_c10d_functional", "_c10d_functional_autograd", "_dtensor", "_export", "_native", "_quantized", "_test"),
        *("aten", "c10d", "c10d_functional", "cuda", "debugprims", "export", "fsdp", "higher_order", "inductor"),
        *("inductor_prims", "metal", "mkl", "mkldnn", "mkldnn_prepacked", "mps", "onednn", "onnx", "onnx_symbolic"),
        *("prepacked", "prim", "prims", "profiler", "quantization", "quantized", "quantized_decomposed", "rngprims"),
        *("sparse", "static_runtime", "streams", "symm_mem", "triton", "vulkan", "xnnpack"),
    }
)


def split_schema(text: str) -> tuple[str, str]:
    """Namespace and schema of what an author has written, which PyTorch understands.

    Raises:
        ValueError: with the position where PyTorch stops to understand it, or what is missing.
    """
    if not isinstance(text, str):
        raise ValueError(f"define takes the operator's schema, such as {EXAMPLE}, not {text!r}")
    namespace, colons, schema = text.strip().partition("::")
    if not colons or not namespace.isidentifier():
        raise ValueError(f"the schema {text!r} begins without a namespace; write it as {EXAMPLE}")
    name = schema.partition("(")[0]
    if "." in name:
        raise ValueError(
            f"{namespace}::{name}: define takes an operator without overloads; leave {name[name.index('.') :]!r} out, "
            "or register both with opwheel.dispatch.register_python"
        )
    try:
        if not hasattr(private.parse_schema(schema), "arguments"):
            raise RuntimeError("it ends after the name")
    except RuntimeError as error:
        raise ValueError(
            f"{_not_understood(text.strip(), len(namespace) + 2, str(error))}, such as {EXAMPLE}"
        ) from None
    return namespace, schema


def _not_understood(text: str, start: int, error: str) -> str:
    """What PyTorch says of a schema that it cannot parse, in one line that has the position."""
    if "follows default argument" in error:
        found = re.search(r"Parameter (\w+)", error)
        which = f" {found[1]!r}" if found else ""
        return f"the schema {text!r}: the argument{which} without a default follows one with a default; give it one"
    reason = error.partition(" here:\n")[0].partition("\n")[0]
    marks = next((line for line in error.splitlines() if "~" in line and "HERE" in line), "")
    if not marks:
        return f"the schema {text!r} is not complete: {reason}; write arguments and results"
    position = start + marks.index("~")
    return f"the schema {text!r} is not understood at position {position}, {text[position:]!r}: {reason}; correct it"


def check_name(namespace: str, name: str) -> None:
    """Refuse names that are PyTorch's, a library's, or defined by something else than :func:`.defining.define`.

    Raises:
        ValueError: saying whose name it is.
    """
    qualified = f"{namespace}::{name}"
    way_out = "choose a namespace of your own, such as 'mine'"
    if namespace in _OF_PYTORCH:
        raise ValueError(f"{qualified}: the namespace {namespace!r} is PyTorch's; {way_out}")
    if namespace == NAMESPACE or isinstance(library_of_namespace(namespace), OperatorLibrary):
        raise ValueError(f"{qualified}: the namespace {namespace!r} is that of a library of operators; {way_out}")
    if _is_installed(namespace):
        raise ValueError(
            f"{qualified}: the namespace {namespace!r} is that of an installed library of operators, which could not "
            f"be imported then; {way_out}"
        )
    if private.is_defined(qualified):
        raise ValueError(
            f"{qualified} is defined already, by torch.library, a library in C++ or register_python; choose another "
            "name: only what opwheel.define has defined is replaced"
        )


def _is_installed(namespace: str) -> bool:
    """Whether there is a package of that name with a schema library."""
    try:
        spec: Any = importlib.util.find_spec(namespace)
    except (ImportError, ValueError):
        return False
    folders = (spec.submodule_search_locations or ()) if spec is not None else ()
    return any(Path(folder, f"lib{namespace}_schema.so").is_file() for folder in folders)
