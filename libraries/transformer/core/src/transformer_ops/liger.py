"""These operators in the place of Liger-Kernel's, for everything that calls its ``autograd.Function`` classes.

``liger_kernel.ops`` has a class for each operator, which Liger-Kernel's modules and functions look up by name when they
are called. :func:`install` gives those names to classes whose ``apply`` calls an operator of ours, and
:func:`uninstall` gives them back. The classes themselves stay as they are: torch.compile would not see another
``apply`` of an ``autograd.Function``.
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable, Mapping
from importlib import import_module, metadata
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function
from torch.distributed.tensor import DTensor

from . import library
from .losses import cross_entropy, fused_linear_cross_entropy

_ops = torch.ops.transformer_ops

KNOWN_VERSIONS = ("0.8.5",)
"""Releases of liger-kernel whose classes and their arguments are known."""


class Installation:
    """What :func:`install` has replaced.

    Attributes:
        replaced: by the name of Liger-Kernel's class, the operator and the devices for which it is called. For tensors
            of other devices, for DTensor, and where the operator lacks what a call asks for, Liger-Kernel's own runs.
        not_replaced: by the name of the class, why it stays.
    """

    def __init__(self) -> None:
        self.replaced: dict[str, str] = {}
        self.not_replaced: dict[str, str] = {}
        self._classes: dict[type, type] = {}  # ours by Liger-Kernel's

    def __str__(self) -> str:
        rows = [f"{name}: {text}" for name, text in self.replaced.items()]
        rows += [f"{name}: not replaced: {text}" for name, text in self.not_replaced.items()]
        return "\n".join(rows)


def install() -> Installation:
    """Let Liger-Kernel compute by these operators, on the devices for which a backend is loaded.

    It reaches all of ``liger_kernel.transformers``, imported before or after, and models that it has patched; not a
    class that another module has imported by its name from ``liger_kernel.ops`` before. A second call does nothing.

    Returns:
        What was replaced, and what was not and why: ``print`` shows it.

    Raises:
        ImportError: liger-kernel is not installed.
        RuntimeError: it is of a release that is not in :data:`KNOWN_VERSIONS`, or not what is imported. Nothing has
            been replaced then.
    """
    global _installation
    with _lock:
        if _installation is None:
            _check_version()
            _installation = _replaced()
        return _installation


def _replaced() -> Installation:
    done = Installation()
    for name, original in _functions_of(import_module("liger_kernel.ops")).items():
        reason = _obstacle(name, original)
        if reason:
            done.not_replaced[name] = reason
            continue
        replaced = _REPLACED[name]
        devices = _devices(replaced)
        done.replaced[name] = f"{replaced.operators[0]} on {', '.join(sorted(devices))}"
        done._classes[original] = _replacement(original, replaced.compute, devices)
    _exchange(done._classes)
    return done


def uninstall() -> None:
    """Give Liger-Kernel its own classes back, in all of its modules. Without :func:`install` it does nothing."""
    global _installation
    with _lock:
        if _installation is not None:
            _exchange({ours: original for original, ours in _installation._classes.items()})
            _installation = None


_installation: Installation | None = None
_lock = threading.RLock()  # one thread at a time: it replaces what it finds


def _check_version() -> None:
    try:
        distribution = metadata.distribution("liger-kernel")
    except metadata.PackageNotFoundError as error:
        raise ImportError("liger-kernel is not installed: pip install liger-kernel") from error
    version = distribution.version
    if version not in KNOWN_VERSIONS:
        raise RuntimeError(
            f"liger-kernel {version} is installed; transformer_ops.liger knows {', '.join(KNOWN_VERSIONS)}: the "
            "arguments of its classes may be others. Install one of these, or a newer transformer-ops-core"
        )
    imported = Path(str(import_module("liger_kernel.ops").__file__))
    if not imported.samefile(str(distribution.locate_file("liger_kernel/ops/__init__.py"))):
        raise RuntimeError(
            f"liger_kernel is imported from {imported}, which is not the installed liger-kernel {version}: what its "
            "classes take is not known. Take the folder out of sys.path"
        )


def _functions_of(module: Any) -> dict[str, type]:
    """The ``autograd.Function`` classes of ``liger_kernel.ops``, by name."""
    found = {name: value for name, value in vars(module).items() if isinstance(value, type)}
    return {name: cls for name, cls in sorted(found.items()) if issubclass(cls, Function)}


def _obstacle(name: str, original: type) -> str:
    """Why a class stays; empty if it is replaced."""
    replaced = _REPLACED.get(name)
    if replaced is None:
        return "transformer_ops has no such operator"
    arguments = tuple(inspect.signature(vars(original)["forward"].__func__).parameters)[1:]
    if arguments != replaced.arguments:
        return f"{original.__module__} takes ({', '.join(arguments)}), known is ({', '.join(replaced.arguments)})"
    return "" if _devices(replaced) else f"no loaded backend has {' and '.join(replaced.operators)}"


def _devices(replaced: _Replaced) -> frozenset[str]:
    """The types of the devices for which a loaded backend has all that the class needs."""
    covered: dict[str, set[str]] = {}
    for status in library.backends().values():
        covered.setdefault(status.device_type, set()).update(status.operators)
    return frozenset(device for device, operators in covered.items() if operators.issuperset(replaced.operators))


def _replacement(original: Any, compute: Callable[..., Any], devices: frozenset[str]) -> type:
    """A class with the attributes of Liger-Kernel's, and an ``apply`` that calls our operator where it can."""

    def apply(*args: Any) -> Any:
        device = args[0].device.type
        if device not in devices or any(isinstance(argument, DTensor) for argument in args):
            return original.apply(*args)
        if torch.is_autocast_enabled(device):  # which does not change what Liger-Kernel's kernels compute in
            with torch.autocast(device, enabled=False):
                result = compute(*args)
        else:
            result = compute(*args)
        return original.apply(*args) if result is None else result

    own = {name: value for name, value in vars(original).items() if not name.startswith("_")}
    names = {"__module__": __name__, "__doc__": original.__doc__, "original": original}
    return type(original.__name__, (), {**own, **names, "apply": staticmethod(apply)})


def _exchange(classes: Mapping[type, type]) -> None:
    """Give every name in Liger-Kernel's modules that stands for a class to another one."""
    for module_name, module in list(sys.modules.items()):
        if module_name.partition(".")[0] == "liger_kernel":
            for name, value in list(vars(module).items()):
                if isinstance(value, type) and value in classes:
                    setattr(module, name, classes[value])


# What follows takes the arguments of Liger-Kernel's classes, and gives None for a call that is left to them.


def _rms_norm(
    x: Tensor,
    weight: Tensor | None,
    eps: float,
    offset: float = 0.0,
    casting_mode: Any = "llama",
    in_place: bool = True,
    row_mode: bool | None = None,
) -> Any:
    del in_place, row_mode  # how its kernels go about it
    if not isinstance(casting_mode, str) or not _have_dtype(x.dtype, weight):
        return None
    return _ops.rms_norm(x, weight, eps, offset, casting_mode)


def _fused_add_rms_norm(
    x: Tensor,
    residual: Tensor,
    weight: Tensor,
    eps: float,
    offset: float = 0.0,
    casting_mode: Any = "llama",
    in_place: bool = False,
) -> Any:
    del in_place
    if not isinstance(casting_mode, str) or not _have_dtype(x.dtype, residual, weight):
        return None
    return _ops.fused_add_rms_norm(x, residual, weight, eps, offset, casting_mode)


def _layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Any:
    return _ops.layer_norm(x, weight, bias, eps) if _have_dtype(x.dtype, weight, bias) else None


def _swiglu(a: Tensor, b: Tensor, gate_multiplier: float = 1.0, down_multiplier: float = 1.0) -> Any:
    if gate_multiplier != 1 or down_multiplier != 1 or not _have_dtype(a.dtype, b):
        return None
    return _ops.swiglu(a, b)


def _geglu(a: Tensor, b: Tensor) -> Any:
    return _ops.geglu(a, b) if _have_dtype(a.dtype, b) else None


def _softmax(x: Tensor) -> Any:
    return _ops.softmax(x)


def _rope(
    q: Tensor,
    k: Tensor,
    cos: Tensor,
    sin: Tensor,
    position_ids: Tensor | None = None,
    unsqueeze_dim: int = 1,
    rotary_dim: int | None = None,
) -> Any:
    del position_ids, unsqueeze_dim  # it looks at neither: cos and sin have been indexed, heads are the dimension 1
    if cos.dim() not in (2, 3) or not _have_dtype(q.dtype, k, cos, sin):
        return None
    length = q.shape[-1]
    width = rotary_dim or min(cos.shape[-1], length)
    half = width // 2
    cos, sin = (table if table.shape[-1] == width else table[..., :half] for table in (cos, sin))
    if width == length:
        return _ops.rope(q, k, cos, sin, rotary_dim=width)
    rotated = _ops.rope(q[..., :width], k[..., :width], cos, sin, rotary_dim=width)
    return tuple(torch.cat((part, whole[..., width:]), -1) for part, whole in zip(rotated, (q, k), strict=True))


def _cross_entropy(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    ignore_index: int = -100,
    lse_square_scale: float = 0.0,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
    softcap: float | None = None,
    return_z_loss: bool = False,
    return_token_accuracy: bool = False,
    return_predicted_tokens: bool = False,
) -> Any:
    if return_token_accuracy or return_predicted_tokens or not _have_dtype(logits.dtype, weight):
        return None
    loss, z_loss = cross_entropy(
        logits, target, weight, ignore_index, lse_square_scale, label_smoothing, reduction, softcap, return_z_loss=True
    )
    # Theirs have the logits' dtype.
    return loss.to(logits.dtype), z_loss.to(logits.dtype) if return_z_loss else None, None, None


def _fused_linear_cross_entropy(
    x: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None = None,
    ce_weight: Tensor | None = None,
    ignore_index: int = -100,
    lse_square_scale: float = 0.0,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
    softcap: float | None = None,
    return_z_loss: bool = False,
    accum_dtype: torch.dtype | None = None,
    use_token_scaling: bool = False,
    return_token_accuracy: bool = False,
    return_predicted_tokens: bool = False,
    ce_impl: str | None = None,
    ce_mode: str | None = None,
    chunk_mem_const: int = 1,
) -> Any:
    del chunk_mem_const
    is_more = return_z_loss or return_token_accuracy or return_predicted_tokens
    is_other = accum_dtype not in (None, torch.float32) or use_token_scaling or ce_impl or ce_mode
    if is_more or is_other or not _have_dtype(x.dtype, weight, bias, ce_weight):
        return None
    options = ignore_index, lse_square_scale, label_smoothing, reduction, softcap or 0.0
    loss = fused_linear_cross_entropy(x, weight, target, bias, *options, ce_weight)
    return loss, None, None, None


def _have_dtype(dtype: torch.dtype, *tensors: Tensor | None) -> bool:
    """Whether these tensors have one dtype, as our operators ask for; Liger-Kernel's convert."""
    return all(tensor is None or tensor.dtype == dtype for tensor in tensors)


class _Replaced(NamedTuple):
    """What takes the place of a class.

    Args:
        operators: that a backend must have, the one that is called first.
        arguments: names of what the class's ``forward`` takes behind ``ctx``.
        compute: takes them.
    """

    operators: tuple[str, ...]
    arguments: tuple[str, ...]
    compute: Callable[..., Any]


_LOSS = ("ignore_index", "lse_square_scale", "label_smoothing", "reduction", "softcap", "return_z_loss")
_RETURNS = ("return_token_accuracy", "return_predicted_tokens")

_REPLACED = {
    "LigerRMSNormFunction": _Replaced(
        ("rms_norm", "rms_norm_backward"),
        ("X", "W", "eps", "offset", "casting_mode", "in_place", "row_mode"),
        _rms_norm,
    ),
    "LigerFusedAddRMSNormFunction": _Replaced(
        ("fused_add_rms_norm", "fused_add_rms_norm_backward"),
        ("X", "R", "W", "eps", "offset", "casting_mode", "in_place"),
        _fused_add_rms_norm,
    ),
    "LigerLayerNormFunction": _Replaced(("layer_norm", "layer_norm_backward"), ("X", "W", "B", "eps"), _layer_norm),
    "LigerSiLUMulFunction": _Replaced(
        ("swiglu", "swiglu_backward"), ("a", "b", "gate_multiplier", "down_multiplier"), _swiglu
    ),
    "LigerGELUMulFunction": _Replaced(("geglu", "geglu_backward"), ("a", "b"), _geglu),
    "LigerSoftmaxFunction": _Replaced(("softmax", "softmax_backward"), ("input_",), _softmax),
    "LigerRopeFunction": _Replaced(
        ("rope",), ("q", "k", "cos", "sin", "position_ids", "unsqueeze_dim", "rotary_dim"), _rope
    ),
    "LigerCrossEntropyFunction": _Replaced(
        ("cross_entropy_rows", "cross_entropy_backward"),
        ("_input", "target", "weight", *_LOSS, *_RETURNS),
        _cross_entropy,
    ),
    "LigerFusedLinearCrossEntropyFunction": _Replaced(
        (
            *("fused_linear_cross_entropy", "fused_linear_cross_entropy_training", "scaled", "scaled_"),
            *("linear_cross_entropy_rows", "linear_cross_entropy_backward"),
        ),
        (
            *("_input", "weight", "target", "bias", "ce_weight", *_LOSS),
            *("accum_dtype", "use_token_scaling", *_RETURNS, "ce_impl", "ce_mode", "chunk_mem_const"),
        ),
        _fused_linear_cross_entropy,
    ),
}
