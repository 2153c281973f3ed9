"""Kernels compiled by Numba, for the CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opwheel.registry import Backend, hookimpl

if TYPE_CHECKING:
    import torch


def register(target: torch.library.Library) -> None:
    """Put the kernels into PyTorch's dispatcher."""
    from muladd import overloads
    from opwheel.dispatch import implement

    from .kernels import launch

    implement(target, overloads.values(), "cpu", launch)


@hookimpl
def opwheel_backend() -> Backend:
    """The hook that muladd calls."""
    return Backend(
        name="numba",
        device_type="cpu",
        dispatch_key="CPU",
        abi=1,
        register=register,
        requires=["torch>=2.10", "numba>=0.60"],
    )
