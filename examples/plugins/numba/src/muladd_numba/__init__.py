"""Kernels compiled by Numba, for the CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opwheel import Backend, hookimpl

if TYPE_CHECKING:
    import torch


def register(target: torch.library.Library) -> None:
    """Put the kernels into PyTorch's dispatcher."""
    from opwheel.dispatch import implement, overloads_of

    from .kernels import launch

    implement(target, overloads_of(target).values(), "cpu", launch)


@hookimpl
def opwheel_backend() -> Backend:
    """The hook that muladd calls."""
    return Backend(
        name="numba",
        device_type="cpu",
        dispatch_key="CPU",
        register=register,
        requires=["torch>=2.10", "numba>=0.60"],
    )
