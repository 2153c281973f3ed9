"""PyTorch's attention, as models of transformers choose it, by the operator for the calls for which it is faster.

Attention of transformers looks a function up by the name in its configuration, and calls it. Where that is the one
around :func:`torch.nn.functional.scaled_dot_product_attention`, and its code is known, a call on a CPU that is causal,
has no mask and as many keys as queries is computed by the operator.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import BuiltinFunctionType, ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from .code_digest import UnknownCodeError, code_digest

_ops = torch.ops.transformer_ops

# What others have put in its place, here or later, is theirs.
_PYTORCHS: Any = functional.scaled_dot_product_attention
if not isinstance(_PYTORCHS, BuiltinFunctionType):
    _PYTORCHS = None

NAME = "ALL_ATTENTION_FUNCTIONS"
"""Of the mapping, in the modules that define attention."""

# Of transformers' sdpa_attention_forward, which differs by release and by what it knows of PyTorch's.
_DIGESTS = {
    "55b7e852d1738ae5": "5.23, with PyTorch 2.13",
    "6dc645c8945fafc9": "5.23, with PyTorch 2.8 to 2.12",
    "a788613b5009f7c6": "4.57",
}
_OPTIONS = ("softcap", "output_attentions", "position_bias", "cache")  # that this code reads; it passes over all others
_DTYPES = (torch.float32, torch.float64)  # with 16 bits PyTorch's is faster where the processor has AMX
_LENGTH = 128  # of a head; longer ones have not been measured


class AttentionFunctions:
    """The mapping of a module, with the operator in the place of one function.

    Args:
        home: the module whose mapping it is: what others put into it, or in its place, later counts.
        shipped: the function.
    """

    def __init__(self, home: ModuleType, shipped: Callable[..., Any]) -> None:
        self._home = home
        self._shipped = shipped
        self._by_operator = _by_operator(shipped)

    def get_interface(self, name: str, default: Callable[..., Any]) -> Callable[..., Any]:
        """What attention of transformers 5 calls."""
        return self._replaced(getattr(self._home, NAME).get_interface(name, default))

    def __getitem__(self, name: str) -> Callable[..., Any]:
        """What that of transformers 4 calls."""
        return self._replaced(getattr(self._home, NAME)[name])

    def _replaced(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return self._by_operator if function is self._shipped else function


def with_operator(home: ModuleType) -> AttentionFunctions | None:
    """The mapping of a module that defines attention; None if it has none, or none with a function of known code."""
    functions = getattr(home, NAME, {})
    if "sdpa" not in functions:
        return None
    try:
        is_known = code_digest(functions["sdpa"]) in _DIGESTS
    except UnknownCodeError:
        return None
    return _made(home, functions["sdpa"]) if is_known else None


_made = cache(AttentionFunctions)


def _by_operator(shipped: Callable[..., Any]) -> Callable[..., Any]:
    def sdpa_attention_forward(
        module: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        dropout: float = 0.0,
        scaling: float | None = None,
        is_causal: bool | None = None,
        **options: Any,
    ) -> Any:
        is_ours = (
            not torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
            and functional.scaled_dot_product_attention is _PYTORCHS
            and attention_mask is None
            and not dropout
            and (getattr(module, "is_causal", True) if is_causal is None else is_causal) is True
            and not any(options.get(name) is not None and options[name] is not False for name in _OPTIONS)
            and _fits(query, key, value, getattr(module, "num_key_value_groups", 1))
        )
        if not is_ours:
            options |= {"dropout": dropout, "scaling": scaling, "is_causal": is_causal}
            return shipped(module, query, key, value, attention_mask, **options)
        q, k, v = (x.transpose(1, 2) for x in (query, key, value))
        return _ops.attention(q, k, v, True, scaling, None, None, None), None

    return sdpa_attention_forward


def _fits(query: Tensor, key: Tensor, value: Tensor, group: int) -> bool:
    """Whether the operator computes a causal call faster, of which ``group`` heads share one of keys and values."""
    return (
        query.device.type == "cpu"
        and query.dtype == key.dtype == value.dtype
        and query.dtype in _DTYPES
        and query.dim() == key.dim() == 4
        and key.shape == value.shape
        and query.shape[0] == key.shape[0]
        and query.shape[1] == key.shape[1] * group
        and query.shape[2] == key.shape[2]
        and query.shape[3] == key.shape[3] <= _LENGTH
        and query.shape[2] > 1
    )
