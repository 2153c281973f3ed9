"""PyTorch's own operators computed by kernels of this library, where these are right and mostly faster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opwheel import Library
from opwheel.dispatch.registration import library_of_namespace

if TYPE_CHECKING:
    from opwheel.foreign import ForeignKernels, Switched


def accelerate_torch(*names: str) -> Switched:
    """Let PyTorch's own operators be computed by kernels of this library, where these are right and mostly faster.

    A model stays as it is. Every call that does not meet the conditions of a kernel goes to PyTorch's own. It is on for
    the whole process, until :func:`restore_torch`; as a context manager, ``with accelerate_torch():``, for the block,
    and for other threads meanwhile, too. What is on already stays on, and a block does not switch it off.

    Args:
        names: ``"rms_norm"``, ``"layer_norm"``, ``"softmax"``, ``"cross_entropy_loss"`` or
            ``"scaled_dot_product_attention"``; all if none is given.

    Returns:
        What this call has switched on, with ``operators`` and ``off()``.

    Raises:
        ForeignOperatorError: the CPU backend is not loaded, another library has one of the operators, or a dispatch
            mode or a transform is active. Nothing is changed then.
        LockError: the lock file says that they are off.
        ValueError: a name is none of these.
    """
    return _kernels().on(*names)


def restore_torch() -> None:
    """Undo :func:`accelerate_torch`, and what the environment has switched on: PyTorch is as it was before.

    Raises:
        ForeignOperatorError: a dispatch mode or a transform is active, or somebody has registered a kernel over one of
            these.
    """
    _kernels().off()


def _kernels() -> ForeignKernels:
    library = library_of_namespace(__package__)
    assert isinstance(library, Library)  # the package has opened it
    return library.foreign
