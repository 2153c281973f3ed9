"""Modules that take the place of PyTorch's: the same arguments and state dicts, computed by these operators."""

from __future__ import annotations

import functools
from collections.abc import Callable
from numbers import Integral
from typing import Any

import torch
from opwheel import functions_of
from torch import Tensor, nn

from .losses import cross_entropy, fused_linear_cross_entropy
from .operators.rms_norm import check_mode

_ops = functions_of("transformer_ops")


def _row(shape: Any) -> int:
    """The length of a row; the operators normalise over the last dimension alone."""
    sizes = (shape,) if isinstance(shape, Integral) else tuple(shape)
    if len(sizes) != 1:
        raise ValueError(f"normalized_shape is {sizes}, expected one number: the size of the last dimension")
    return int(sizes[0])


def _check_row(name: str, given: Tensor, expected: tuple[int, ...]) -> None:
    if given.shape[-1:] != expected:
        raise RuntimeError(f"{name} has the shape {list(given.shape)}, expected a last dimension of {expected[0]}")


def _in_one_dtype(norm: Callable[..., Tensor], x: Tensor, *parameters: Tensor | None) -> Tensor:
    """A norm of rows and parameters of several dtypes, as PyTorch's: computed in the widest, in the dtype of ``x``.

    Autocast, which casts all arguments by itself, is left alone.
    """
    if torch.is_autocast_enabled(x.device.type):
        return norm(x, *parameters)
    given = (one.dtype for one in parameters if one is not None)
    dtype = functools.reduce(torch.promote_types, given, x.dtype)
    return norm(x.to(dtype), *(None if one is None else one.to(dtype) for one in parameters)).to(x.dtype)


class RMSNorm(nn.RMSNorm):
    """``torch.nn.RMSNorm`` over the last dimension, by :func:`transformer_ops.rms_norm`.

    The weight may have another dtype than the input, such as float32 with bfloat16.

    Args:
        normalized_shape: size of the last dimension, a number or a sequence of one.
        eps: added to the mean of the squares; None: ``torch.finfo(dtype).eps`` of the dtype that the input is computed
            in, float64 for float64, else float32.
        elementwise_affine: whether there is a weight, which starts as ``1 - offset``.
        device: of the weight.
        dtype: of the weight.
        offset: added to the weight: 1.0 in Gemma.
        casting_mode: as :func:`transformer_ops.rms_norm` has it; PyTorch's own is ``"gemma"``.

    Raises:
        ValueError: there are several normalised dimensions, or ``casting_mode`` is not known.
    """

    def __init__(
        self,
        normalized_shape: Any,
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        offset: float = 0.0,
        casting_mode: str = "gemma",
    ) -> None:
        _row(normalized_shape)
        check_mode(casting_mode)
        self.offset = offset  # first: PyTorch's __init__ calls reset_parameters
        self.casting_mode = casting_mode
        super().__init__(normalized_shape, eps, elementwise_affine, device, dtype)

    def reset_parameters(self) -> None:
        """Let the weight and the offset be 1 together."""
        if self.elementwise_affine:
            nn.init.constant_(self.weight, 1 - self.offset)

    def forward(self, x: Tensor) -> Tensor:
        """The normalised rows of ``x``, whose last dimension has the module's size."""
        _check_row("x", x, self.normalized_shape)
        computed = torch.float64 if x.dtype == torch.float64 else torch.float32
        eps = torch.finfo(computed).eps if self.eps is None else self.eps
        weight, options = self.weight, (eps, self.offset, self.casting_mode)
        if weight is None or weight.dtype == x.dtype:
            return _ops.rms_norm(x, weight, *options)  # type: ignore[no-any-return]
        return _in_one_dtype(lambda x, weight: _ops.rms_norm(x, weight, *options), x, weight)

    def extra_repr(self) -> str:
        """PyTorch's, and what it does not have if that is not as in PyTorch."""
        own = f", offset={self.offset}" if self.offset else ""
        own += f", casting_mode={self.casting_mode!r}" if self.casting_mode != "gemma" else ""
        return super().extra_repr() + own


class LayerNorm(nn.LayerNorm):
    """``torch.nn.LayerNorm`` over the last dimension, by :func:`transformer_ops.layer_norm`.

    Its arguments are ``torch.nn.LayerNorm``'s. The parameters may have another dtype than the input, such as float32
    with bfloat16.

    Raises:
        ValueError: there are several normalised dimensions.
    """

    def __init__(self, normalized_shape: Any, *args: Any, **kwargs: Any) -> None:
        _row(normalized_shape)
        super().__init__(normalized_shape, *args, **kwargs)

    def forward(self, input: Tensor) -> Tensor:
        """The normalised rows of ``input``, whose last dimension has the module's size."""
        _check_row("input", input, self.normalized_shape)
        weight, bias, dtype = self.weight, self.bias, input.dtype
        if (weight is None or weight.dtype == dtype) and (bias is None or bias.dtype == dtype):
            return _ops.layer_norm(input, weight, bias, self.eps)  # type: ignore[no-any-return]
        return _in_one_dtype(lambda *given: _ops.layer_norm(*given, self.eps), input, weight, bias)


class Linear(nn.Linear):
    """``torch.nn.Linear`` by :func:`transformer_ops.linear`: a row's bits do not depend on what is computed with it.

    Its arguments are ``torch.nn.Linear``'s.
    """

    def forward(self, input: Tensor) -> Tensor:
        """``(..., in_features)`` to ``(..., out_features)``."""
        return _ops.linear(input, self.weight, self.bias)  # type: ignore[no-any-return]


class _GatedLinear(nn.Module):
    """``down_proj(activation(gate_proj(x)) * up_proj(x))``, with the names that Hugging Face's models have."""

    def __init__(self, width: int, hidden: int, *, bias: bool = False, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        options = {"bias": bias, "device": device, "dtype": dtype}
        self.gate_proj = nn.Linear(width, hidden, **options)
        self.up_proj = nn.Linear(width, hidden, **options)
        self.down_proj = nn.Linear(hidden, width, **options)


class SwiGLU(_GatedLinear):
    """The feed-forward block of Llama: ``down_proj(swiglu(gate_proj(x), up_proj(x)))``.

    Args:
        width: of the input and the result.
        hidden: features in between.
        bias: whether the three linear layers have one.
        device: of the parameters.
        dtype: of the parameters.
    """

    def forward(self, x: Tensor) -> Tensor:
        """A tensor of the shape of ``x``, ``(..., width)``."""
        result: Tensor = self.down_proj(_ops.swiglu(self.gate_proj(x), self.up_proj(x)))
        return result


class GEGLU(_GatedLinear):
    """The feed-forward block of Gemma: ``down_proj(geglu(gate_proj(x), up_proj(x)))``; arguments as :class:`SwiGLU`."""

    def forward(self, x: Tensor) -> Tensor:
        """A tensor of the shape of ``x``, ``(..., width)``."""
        result: Tensor = self.down_proj(_ops.geglu(self.gate_proj(x), self.up_proj(x)))
        return result


def _options(loss: Any) -> str:
    names = ("ignore_index", "reduction", "label_smoothing", "lse_square_scale", "softcap")
    return ", ".join(f"{name}={getattr(loss, name)!r}" for name in names)


class CrossEntropyLoss(nn.CrossEntropyLoss):
    """``torch.nn.CrossEntropyLoss`` of class indices, by :func:`transformer_ops.cross_entropy`.

    Args:
        weight: a factor for each class.
        ignore_index: targets that do not count.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        label_smoothing: share of the target that is spread over all classes.
        lse_square_scale: factor of the z-loss.
        softcap: of the logits.
    """

    def __init__(
        self,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
        *,
        lse_square_scale: float = 0.0,
        softcap: float | None = None,
    ) -> None:
        super().__init__(weight, ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing)
        self.lse_square_scale = lse_square_scale
        self.softcap = softcap

    def forward(self, input: Tensor, target: Tensor, token_weight: Tensor | None = None) -> Tensor:
        """The loss of logits ``(rows, classes)`` and targets ``(rows,)``; a factor for each row's loss, ``(rows,)``."""
        loss = cross_entropy(
            input,
            target,
            self.weight,
            self.ignore_index,
            self.lse_square_scale,
            self.label_smoothing,
            self.reduction,
            self.softcap,
            token_weight=token_weight,
        )
        assert isinstance(loss, Tensor)
        return loss

    def extra_repr(self) -> str:
        """All options but the weight, which is in the state dict."""
        return _options(self)


class FusedLinearCrossEntropyLoss(nn.Module):
    """The loss of a linear layer's results without all of them in memory (``fused_linear_cross_entropy``).

    Args:
        ignore_index: targets that do not count.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        label_smoothing: share of the target that is spread over all classes.
        lse_square_scale: factor of the z-loss.
        softcap: of the logits.
        class_weight: a factor for each class, as the weight of ``torch.nn.CrossEntropyLoss``.
    """

    class_weight: Tensor | None

    def __init__(
        self,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
        *,
        lse_square_scale: float = 0.0,
        softcap: float | None = None,
        class_weight: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.register_buffer("class_weight", class_weight)
        self.ignore_index = ignore_index
        self.reduction = reduction
        self.label_smoothing = label_smoothing
        self.lse_square_scale = lse_square_scale
        self.softcap = softcap

    def forward(
        self,
        weight: Tensor,
        input: Tensor,
        target: Tensor,
        bias: Tensor | None = None,
        token_weight: Tensor | None = None,
    ) -> Tensor:
        """The loss of ``input @ weight.T + bias``: rows of ``(rows, width)``, ``(classes, width)``, ``(rows,)``."""
        return fused_linear_cross_entropy(
            input,
            weight,
            target,
            bias,
            self.ignore_index,
            self.lse_square_scale,
            self.label_smoothing,
            self.reduction,
            self.softcap or 0.0,
            self.class_weight,
            token_weight,
        )

    def extra_repr(self) -> str:
        """All options."""
        return _options(self)
