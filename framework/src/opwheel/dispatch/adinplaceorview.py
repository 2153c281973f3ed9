"""The kernel at the ADInplaceOrView key: counts the modification, so that a stale saved tensor is noticed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .._torch import private
from .arguments import check_tensors
from .overload import Overload, tensors_in


def adinplaceorview_kernel(overload: Overload) -> Callable[..., Any]:
    """The kernel for an overload that writes to arguments; it is called with the dispatch key set in front."""

    def kernel(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        values = overload.bind(args, kwargs)
        if any(values[i] is None for i in overload.written):
            check_tensors(overload, args, kwargs)
        targets = list(tensors_in(values[i] for i in overload.written))
        for target in targets:
            if target.is_inference() and not torch.is_inference_mode_enabled():
                raise RuntimeError(
                    f"{overload.name}: an inference tensor cannot be overwritten outside of torch.inference_mode(); "
                    "clone"
                )
        with private.below_version_bump():
            result = overload.op.redispatch(private.after_version_bump(keyset), *args, **kwargs)
        for target in targets:
            torch.autograd.graph.increment_version(target)
        return result

    return kernel
