"""The memory of tensors, views and wrappers."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from ..lookup import attribute, find, is_missing

has_storage = find("torch._C._has_storage")  # tensors of torch.func have none
address = find("torch._C._data_address")  # 0 for fake tensors, for which data_ptr() raises
is_alias = find("torch._C._is_alias_of")  # whether two tensors have one storage
is_wrapped = find("torch._C._functorch.is_functorch_wrapped_tensor")  # by torch.func, or functionalization

_get_creation_meta = find("torch._C._autograd._get_creation_meta")
_get_unwrapped = find("torch._C._functorch.get_unwrapped")
_CreationMeta = find("torch._C._autograd.CreationMeta")
_is_view = find("torch.Tensor._is_view")


def storage_address(storage: torch.UntypedStorage) -> int:
    """Where the object of C++ is that a storage is in Python: equal for those that share memory."""
    address: int = attribute(storage, "_cdata", "torch.UntypedStorage._cdata")
    return address


def layers(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """The tensor, and beneath it those that transforms of ``torch.func``, and functionalization, have wrapped."""
    yield tensor
    while is_wrapped(tensor):
        tensor = _get_unwrapped(tensor)
        yield tensor


def tensor_address(tensor: torch.Tensor) -> int | None:
    """Where the object of C++ is that a tensor is in Python; None where PyTorch does not say."""
    return None if is_missing("torch.Tensor._cdata") else tensor._cdata


def base_of(view: torch.Tensor) -> torch.Tensor | None:
    """The tensor that a differentiable view is a view of; None if it is no view."""
    return attribute(view, "_base", "torch.Tensor._base") if _is_view(view) else None


def view_may_be_modified(view: torch.Tensor) -> bool:
    """False for views that autograd cannot rebase: one of several from one call, or made under no_grad."""
    return bool(_get_creation_meta(view) == _CreationMeta.DEFAULT)


def has_memory(tensor: torch.Tensor) -> bool:
    """Whether its storage has an address. Asking in another way copies memory that is shared until somebody writes."""
    return bool(address(tensor))
