"""The schema of one overload, as the dispatch kernels need it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .._torch import private

if TYPE_CHECKING:
    from .declaration_like import DeclarationLike

# Types of arguments that are or contain tensors.
TENSOR_KINDS = frozenset({"Tensor", "Optional[Tensor]", "List[Tensor]", "List[Optional[Tensor]]"})

# The formula of an input that has no gradient, as in derivatives.yaml; `not_differentiable` says the same.
NON_DIFFERENTIABLE = "non_differentiable"


class Overload:
    """One overload of a declared operator: ``axpby``, ``axpby.out`` or ``axpby_``.

    Args:
        operator: its declaration.
        namespace: of the operators.
        schema_text: such as ``"axpby(Tensor x, Tensor y, float a) -> Tensor"``.
        siblings: all overloads of the library by name.
    """

    def __init__(
        self,
        operator: DeclarationLike,
        namespace: str,
        schema_text: str,
        siblings: Mapping[str, Overload] | None = None,
    ) -> None:
        self.operator = operator
        self.namespace = namespace
        self.schema_text = schema_text
        self._siblings = {} if siblings is None else siblings  # filled while it is made

    def __repr__(self) -> str:
        return f"Overload({self.qualified_name})"

    @property
    def rule(self) -> Any:
        """What the operator may be relied on for."""
        return self.operator.rule

    @cached_property
    def name(self) -> str:
        """Such as ``"axpby.out"``."""
        return self.schema_text.partition("(")[0]

    @cached_property
    def qualified_name(self) -> str:
        """Such as ``"waves::axpby.out"``."""
        return f"{self.namespace}::{self.name}"

    @cached_property
    def op(self) -> Any:
        """The callable, ``torch.ops.waves.axpby.out``."""
        packet, name = self._packet_and_name
        return getattr(packet, name)

    @property
    def packet(self) -> Any:
        """All overloads of that name, ``torch.ops.waves.axpby``."""
        return self._packet_and_name[0]

    @property
    def was_looked_up(self) -> bool:
        """Whether :attr:`op` exists: PyTorch makes it when somebody asks ``torch.ops`` for it."""
        packet, name = self._packet_and_name
        return name in vars(packet)

    @property
    def _packet_and_name(self) -> tuple[Any, str]:
        return private.packet_and_name(self.qualified_name)

    @cached_property
    def schema(self) -> Any:
        return private.parse_schema(self.schema_text)

    @cached_property
    def arguments(self) -> tuple[str, ...]:
        """Names of the positional arguments."""
        return tuple(argument.name for argument in self.schema.arguments if not argument.kwarg_only)

    @cached_property
    def tensor_arguments(self) -> tuple[str, ...]:
        """Names of the positional arguments that are tensors."""
        return tuple(
            argument.name
            for argument in self.schema.arguments
            if not argument.kwarg_only and str(argument.type) == "Tensor"
        )

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of all arguments, the keyword-only ones last."""
        return tuple(argument.name for argument in self.schema.arguments)

    @cached_property
    def tensor_positions(self) -> tuple[int, ...]:
        """Positions, among :attr:`names`, of arguments that are or contain tensors."""
        return tuple(i for i, a in enumerate(self.schema.arguments) if str(a.real_type) in TENSOR_KINDS)

    @cached_property
    def without_gradient(self) -> frozenset[str]:
        """Names of the results and arguments that are declared to have no gradient."""
        keys = [key for key, formula in (self.operator.derivatives or {}).items() if formula == NON_DIFFERENTIABLE]
        return frozenset([*self.operator.not_differentiable, *(one.strip() for key in keys for one in key.split(","))])

    @cached_property
    def constants(self) -> tuple[int, ...]:
        """Positions, among :attr:`names`, of the tensors that are declared to have no gradient."""
        return tuple(i for i in self.tensor_positions if self.names[i] in self.without_gradient)

    def as_constants(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """The values of all arguments, those in :attr:`constants` without history, gradient and tangent."""
        return tuple([_detached(v) if i in self.constants else v for i, v in enumerate(values)])

    @cached_property
    def has_plain_tensors_only(self) -> bool:
        """Whether every argument with tensors is one tensor: none is optional or a list."""
        return all(str(self.schema.arguments[i].real_type) == "Tensor" for i in self.tensor_positions)

    @cached_property
    def written(self) -> tuple[int, ...]:
        """Positions, among :attr:`names`, of the arguments that are overwritten, by their alias annotations."""
        return tuple(i for i, a in enumerate(self.schema.arguments) if a.alias_info and a.alias_info.is_write)

    @cached_property
    def result_names(self) -> tuple[str, ...]:
        """How formulas call the results: by their names or, without one, ``result`` or ``result0``, ``result1`` ..."""
        returns = self.schema.returns
        return tuple(r.name or ("result" if len(returns) == 1 else f"result{i}") for i, r in enumerate(returns))

    @cached_property
    def device_argument(self) -> int | None:
        """Position, among :attr:`names`, of the argument that says where an operator without tensors computes."""
        kinds = [str(argument.real_type) for argument in self.schema.arguments]
        return next((i for i, kind in enumerate(kinds) if kind in ("Device", "Optional[Device]")), None)

    @cached_property
    def is_random(self) -> bool:
        """Whether two calls with the same arguments may differ."""
        kinds = {str(argument.real_type) for argument in self.schema.arguments}
        return bool({"Generator", "Optional[Generator]"} & kinds) or torch.Tag.nondeterministic_seeded in self.op.tags

    @cached_property
    def mutates(self) -> bool:
        """Whether some argument is overwritten."""
        return bool(self.written)

    @cached_property
    def is_out(self) -> bool:
        """Whether the result goes into the keyword-only argument ``out`` and is returned."""
        return self._hands_back and self.schema.arguments[self.written[0]].kwarg_only

    @cached_property
    def is_in_place(self) -> bool:
        """Whether an argument is overwritten and returned."""
        return self._hands_back and not self.is_out

    @property
    def _hands_back(self) -> bool:
        return self.mutates and any(result.alias_info for result in self.schema.returns)

    @property
    def target(self) -> str:
        """Name of the argument that an out or in-place variant overwrites."""
        return self.names[self.written[0]]

    @property
    def functional(self) -> Overload:
        """The overload that an out or in-place variant is a variant of."""
        return self._siblings[self.operator.name]

    @cached_property
    def training(self) -> Overload | None:
        """The operator that is called in place of this one where a gradient is recorded."""
        return self._siblings[self.operator.training] if self.operator.training else None

    @property
    def siblings(self) -> Mapping[str, Overload]:
        """All overloads of the library by name."""
        return self._siblings

    def sibling(self, name: str) -> Overload | None:
        """Another overload of the library, or None."""
        return self._siblings.get(name)

    def has_sibling(self, name: str) -> bool:
        """Whether the library has an operator of that name, also one that was registered before."""
        return name in self._siblings or hasattr(getattr(torch.ops, self.namespace), name)

    @cached_property
    def _defaults(self) -> tuple[Any, ...]:
        return tuple(private.default_of(argument) for argument in self.schema.arguments)

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        """The value of every argument in the schema's order: the dispatcher leaves out those that are the defaults."""
        if len(args) == len(self.names):
            return args
        values = args + self._defaults[len(args) :]
        if not kwargs:
            return values
        return tuple([kwargs.get(name, value) for name, value in zip(self.names, values, strict=True)])

    def unbind(self, values: tuple[Any, ...]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Positional and keyword arguments of a call with these values: the opposite of :meth:`bind`."""
        count = len(self.arguments)
        return values[:count], dict(zip(self.names[count:], values[count:], strict=True))

    def call(self, function: Any, values: tuple[Any, ...]) -> Any:
        """Call a function that has the schema's arguments, such as :attr:`op` or the reference."""
        args, kwargs = self.unbind(values)
        return function(*args, **kwargs)

    def tensors(self, args: tuple[Any, ...]) -> list[Tensor]:
        """The input tensors among the positional arguments."""
        return [value for name, value in zip(self.arguments, args, strict=True) if name in self.tensor_arguments]

    def all_tensors(self, values: tuple[Any, ...]) -> list[Tensor]:
        """Every tensor among the values of all arguments, those in optional arguments and lists included."""
        return list(tensors_in(values[i] for i in self.tensor_positions))

    def mutated(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        """The tensor that an out or in-place variant overwrites."""
        target: Tensor = kwargs[self.target] if self.is_out else args[self.written[0]]
        return target


def _detached(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_detached(one) for one in value]
    return value.detach() if isinstance(value, Tensor) else value


def tensors_in(values: Iterable[Any]) -> Iterator[Tensor]:
    """The tensors among values and lists of values."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors_in(value)


def as_tuple(results: Any) -> tuple[Any, ...]:
    """One result, several or none as a tuple."""
    return results if isinstance(results, tuple) else () if results is None else (results,)
