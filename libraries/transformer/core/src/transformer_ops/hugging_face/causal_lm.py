"""A model's head and its loss in one operator, which never has all of the logits in memory.

While a model computes a loss, its head returns :class:`~.deferred_logits.DeferredLogits`, and the loss is computed from
what they would be. This holds whatever the model does in between: where that is not known, they are computed first.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..losses import cross_entropy
from .deferred_logits import DeferredLogits, has_memory
from .form import Form
from .hooks import is_shipped_function, loaded, why_not_left_out

_is_loss_computed: ContextVar[bool] = ContextVar("is_loss_computed", default=False)
_LOW = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Head(Form):
    """The linear layer whose results are the logits."""

    def obstacle(self, module: Any) -> str:
        if type(module) is not nn.Linear:
            return "it is no torch.nn.Linear"
        if not is_shipped_function(nn.Linear.forward, nn.modules.linear):
            return "torch.nn.Linear has another forward"
        if reason := why_not_left_out(module):
            return f"it {reason}"
        is_parameter = module._parameters.get("weight") is not None
        return "" if is_parameter else "its weight is no parameter, as of a pruned or reparametrized module"

    def forward(self, own: Callable[..., Any]) -> Callable[..., Any]:
        def forward(module: Any, hidden: Tensor) -> Tensor:
            if torch.compiler.is_compiling() or not _is_loss_computed.get() or not _can_wait(module, hidden):
                return own(module, hidden)  # type: ignore[no-any-return]
            return DeferredLogits.of(hidden, module.weight, module.bias)

        return forward


def _can_wait(head: Any, hidden: Tensor) -> bool:
    """Whether nobody notices that the head computes nothing, and the operator takes what it has."""
    if not torch.amp.is_autocast_available(hidden.device.type):  # of tensors without data
        return False
    operands = (hidden, head.weight) if head.bias is None else (hidden, head.weight, head.bias)
    dtypes = {one.dtype for one in operands}
    # Autocast converts all of these dtypes but float64.
    fit = dtypes <= {*_LOW, torch.float32} if torch.is_autocast_enabled(hidden.device.type) else len(dtypes) == 1
    return (
        fit
        and dtypes <= {*_LOW, torch.float32, torch.float64}
        and not why_not_left_out(head)
        and all(type(one) in (Tensor, nn.Parameter) and one.device == hidden.device for one in operands)
        and all(map(has_memory, operands))
        and hidden.dim() >= 2
    )


@dataclass(frozen=True)
class CausalLM(Form):
    """A model of transformers that calls its ``loss_function`` with the results of its head."""

    is_last = True

    def operator(self, _module: Any) -> str:
        return "cross_entropy"

    def obstacle(self, module: Any) -> str:
        functions, models = loaded("transformers.loss.loss_utils"), loaded("transformers.modeling_utils")
        names = ("ForCausalLMLoss", "fixed_cross_entropy")
        are_shipped = functions and all(is_shipped_function(getattr(functions, one, None), functions) for one in names)
        if not are_shipped or getattr(module, "loss_function", None) is not functions.ForCausalLMLoss:  # type: ignore[union-attr]
            return "its loss_function is not ForCausalLMLoss"
        own = getattr(getattr(models, "PreTrainedModel", None), "loss_function", None)
        return "" if getattr(type(module), "loss_function", None) is own else "its class has a loss_function of its own"

    def forward(self, own: Callable[..., Any]) -> Callable[..., Any]:
        def forward(module: Any, *args: Any, **kwargs: Any) -> Any:
            has_loss = kwargs.get("labels") is not None and vars(module).get("_loss_function") is causal_lm_loss
            if torch.compiler.is_compiling() or not has_loss:
                return own(module, *args, **kwargs)
            token = _is_loss_computed.set(True)
            try:
                return own(module, *args, **kwargs)
            finally:
                _is_loss_computed.reset(token)

        return forward


def is_causal_lm(cls: type) -> bool:
    """Whether it is a model of transformers whose ``forward`` calls its ``loss_function``."""
    base = getattr(loaded("transformers.modeling_utils"), "PreTrainedModel", None)
    if base is None or not issubclass(cls, base):
        return False
    # Of a class that adds to another's forward, this is in the other one.
    return any("loss_function" in _names(vars(one).get("forward")) for one in cls.__mro__)


def _names(function: Any) -> tuple[str, ...]:
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return getattr(getattr(function, "__code__", None), "co_names", ())


def head_of(model: Any) -> nn.Module | None:
    """The module that computes the logits of a causal model, by the function that transformers has for it."""
    head = model.get_output_embeddings()
    return head if isinstance(head, nn.Module) else None


def causal_lm_loss(
    logits: Tensor,
    labels: Tensor,
    vocab_size: int,
    num_items_in_batch: Tensor | int | None = None,
    ignore_index: int = -100,
    shift_labels: Tensor | None = None,
    **_: Any,
) -> Tensor:
    """Transformers' ``ForCausalLMLoss``: position i predicts label i + 1. Of logits of every dtype it is float32."""
    if shift_labels is None:
        shift_labels = nn.functional.pad(labels, (0, 1), value=ignore_index)[..., 1:]
    reduction = "mean" if num_items_in_batch is None else "sum"
    target = shift_labels.to(logits.device)
    loss: Tensor | tuple[Tensor, Tensor] | None = None
    if isinstance(logits, DeferredLogits) and logits.shape[-1] == vocab_size:
        loss = logits.loss(target, ignore_index, reduction)
    if loss is None:
        rows = logits.reshape(-1, vocab_size)
        loss = cross_entropy(rows, target.reshape(-1), ignore_index=ignore_index, reduction=reduction)
    assert isinstance(loss, Tensor)
    loss = loss.float()
    if isinstance(num_items_in_batch, Tensor):
        num_items_in_batch = num_items_in_batch.to(loss.device)
    return loss if num_items_in_batch is None else loss / num_items_in_batch
