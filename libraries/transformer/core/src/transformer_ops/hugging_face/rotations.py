"""Rotary embeddings: attention whose code calls a known rotation gets the operator in its place.

What the operator takes for granted about the tables of angles is known by where they come from: a module of known code
marks those that it makes, and a table that somebody has changed since has another version.
"""

from __future__ import annotations

import dis
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import CellType, FunctionType, ModuleType
from typing import Any

import torch
from torch import Tensor

from .attention_functions import NAME, AttentionFunctions, with_operator
from .code_digest import called_functions
from .form import Form
from .hooks import has_hooks, loaded, why_not_left_out

_ops = torch.ops.transformer_ops

# Of a table of angles: the version of the tensor when its columns were what the name says.
HALVES = "_transformer_ops_equal_halves"
PAIRS = "_transformer_ops_equal_pairs"


@dataclass(frozen=True)
class Rotation:
    """What a function ``apply_rotary_pos_emb(q, k, cos, sin)`` computes.

    Attributes:
        tables: the columns that it relies on: :data:`HALVES` if it reads all of them and the operator reads the first
            half, :data:`PAIRS` if neighbours have to be the same, ``"first half"`` if it reads no more than that, and
            ``"half"`` if there are half as many columns as elements.
        interleaved: whether it rotates neighbours.
        is_partial: whether tables of fewer columns rotate the first elements of each head alone.
    """

    tables: str = HALVES
    interleaved: bool = False
    is_partial: bool = False

    def fits(self, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> bool:
        """Whether these are tables that the operator takes, and whose columns are known to be as it needs them."""
        columns = cos.shape[-1] * (2 if self.tables == "half" else 1)
        length = q.shape[-1]
        return (
            q.dtype == k.dtype == cos.dtype == sin.dtype
            and q.dim() == k.dim() == 4
            and cos.dim() == sin.dim() == 3
            and length == k.shape[-1]
            and cos.shape == sin.shape
            and (columns == length or (self.is_partial and columns < length))
            and columns % 2 == 0
            and (
                self.tables not in (HALVES, PAIRS)
                or all(getattr(table, self.tables, None) == version(table) for table in (cos, sin))
            )
        )

    def rotate(self, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        """The same by the operator."""
        if self.tables == PAIRS:
            cos, sin = cos[..., ::2], sin[..., ::2]
        columns = cos.shape[-1] * (2 if self.tables in ("half", PAIRS) else 1)
        if columns == q.shape[-1]:
            return self._rotate(q, k, cos, sin)
        turned = self._rotate(q[..., :columns], k[..., :columns], cos, sin)
        return tuple(torch.cat((one, x[..., columns:]), -1) for one, x in zip(turned, (q, k), strict=True))  # type: ignore[return-value]

    def _rotate(self, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        is_half = cos.shape[-1] != q.shape[-1]
        return _ops.rope(q, k, cos, sin, None, 1, self.interleaved, q.shape[-1] if is_half else None)  # type: ignore[no-any-return]


def version(table: Tensor) -> int:
    """How often a tensor has been written; 0 for those that are compiled, or of inference_mode, which do not count."""
    return 0 if torch.compiler.is_compiling() or table.is_inference() else table._version


@dataclass(frozen=True)
class RotaryEmbedding(Form):
    """A module that returns tables of cosines and sines.

    Attributes:
        tables: what their columns are, :data:`HALVES` or :data:`PAIRS`.
    """

    tables: str = HALVES

    def obstacle(self, module: Any) -> str:
        reason = why_not_left_out(module)
        return f"it {reason}" if reason else ""

    def forward(self, own: Callable[..., Any]) -> Callable[..., Any]:
        def forward(module: Any, *args: Any, **kwargs: Any) -> Any:
            tables = own(module, *args, **kwargs)
            if not has_hooks(module):  # which may change them
                for table in tables:
                    setattr(table, self.tables, version(table))
            return tables

        return forward


@dataclass(frozen=True)
class Attention(Form):
    """Attention whose ``forward`` calls a known rotation, by its global name.

    Attributes:
        home: the module that defines the ``forward``.
        name: of the function, there.
        rotation: what it computes.
        attention: the ``forward``, inside of its decorators.
        functions: those that it chooses from, if the operator can take the place of one.
    """

    home: ModuleType
    name: str
    rotation: Rotation
    attention: FunctionType
    functions: AttentionFunctions | None

    def operator(self, module: Any) -> str:
        chosen = getattr(getattr(module, "config", None), "_attn_implementation", None)
        return "rope and attention" if self.functions and chosen == "sdpa" else "rope"

    def forward(self, own: Any) -> Callable[..., Any]:
        changed: Callable[..., Any] | None = self._changed(own)
        assert changed is not None
        return changed

    def _changed(self, own: Any) -> Any:
        """The same function with the operator for the rotation; None if the decorators around it are not known."""
        if own is self.attention:
            # Other names, in the module where the function looks: what others replace there later counts.
            others: dict[str, Any] = {self.name: _by_operator(self.home, self.name, self.rotation)}
            if self.functions:
                others[NAME] = self.functions
            renamed = {name: f"_{name}_by_transformer_ops" for name in others}
            for name, other in others.items():
                setattr(self.home, renamed[name], other)
            names = tuple(renamed.get(name, name) for name in own.__code__.co_names)
            return _copy(own, own.__code__.replace(co_names=names), own.__closure__)
        inner = own.__wrapped__  # a decorator's, which has the function in a cell
        changed = self._changed(inner)
        cells = own.__closure__ or ()
        if changed is None or inner not in [cell.cell_contents for cell in cells]:
            return None
        return _copy(
            own, own.__code__, tuple(CellType(changed) if one.cell_contents is inner else one for one in cells)
        )


def attention_of(forward: Any, find: Callable[[FunctionType], Any]) -> Attention | None:
    """The form of a ``forward`` that calls one rotation, which ``find`` knows; None if it does not, or otherwise."""
    inner = forward
    while isinstance(inner, FunctionType) and hasattr(inner, "__wrapped__"):
        inner = inner.__wrapped__
    home = loaded(getattr(inner, "__module__", ""))
    if not isinstance(inner, FunctionType) or home is None or inner.__globals__ is not vars(home):
        return None
    for name in inner.__code__.co_names:
        value = inner.__globals__.get(name)
        rotation = find(value) if isinstance(value, FunctionType) else None
        if isinstance(rotation, Rotation):
            uses = [one.opname for one in dis.get_instructions(inner.__code__) if one.argval == name]
            functions = with_operator(home) if NAME in inner.__code__.co_names else None
            form = Attention(home, name, rotation, inner, functions)
            if set(uses) == {"LOAD_GLOBAL"} and form._changed(forward) is not None:
                return form
    return None


def _copy(function: Any, code: Any, closure: Any) -> Any:
    copied = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, closure)
    copied.__kwdefaults__ = function.__kwdefaults__
    return copied


@cache
def _by_operator(home: ModuleType, name: str, rotation: Rotation) -> Callable[..., Any]:
    shipped = getattr(home, name)
    called = called_functions(shipped)

    def apply_rotary_pos_emb(*args: Any, **options: Any) -> Any:
        own = getattr(home, name)
        is_changed = own is not shipped or any(getattr(module, one) is not function for module, one, function in called)
        if is_changed or options or len(args) != 4 or not rotation.fits(*args):
            return own(*args, **options)
        return rotation.rotate(*args)

    return apply_rotary_pos_emb
