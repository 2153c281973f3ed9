"""Two operators on the CPU, computed by NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opwheel import Backend, hookimpl

if TYPE_CHECKING:
    import torch

OPERATORS = ("add", "add.out", "scale", "scale.out")


def register(target: torch.library.Library) -> None:
    """Put the kernels into PyTorch's dispatcher."""
    import numpy as np
    import torch
    from opwheel.dispatch import implement, in_compute_dtype, overloads_of

    def add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(np.asarray(a.detach().numpy() + b.detach().numpy()))

    def scale(x: torch.Tensor, factor: float) -> torch.Tensor:
        return torch.from_numpy(np.asarray(x.detach().numpy() * torch.tensor(factor, dtype=x.dtype).numpy()))

    launch = in_compute_dtype({"add": add, "scale": scale})

    def quietly(name: str, outputs: tuple[torch.Tensor, ...], args: tuple[object, ...]) -> None:
        with np.errstate(all="ignore"):  # nan and infinity are results like others
            launch(name, outputs, args)

    implement(target, [overloads_of(target)[name] for name in OPERATORS], "cpu", quietly)


@hookimpl
def opwheel_backend() -> Backend:
    """The hook that muladd calls."""
    return Backend(
        name="numpy",
        device_type="cpu",
        dispatch_key="CPU",
        register=register,
        operators=OPERATORS,
        requires=["torch>=2.10", "numpy"],
    )
