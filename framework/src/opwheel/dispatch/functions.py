"""The functions of an operator library, made from its schemas as dataclasses makes methods: a source text, run once.

Of the operator ``scale(Tensor x, float factor) -> Tensor`` with an out variant, declared with
``tensor_variant={"factor": "mul"}``, this is made::

    def scale(x, factor, *, out=None):
        if _type(factor) is not _float:
            if _type(factor) is _Tensor or _is_tensor(factor):
                return _op_mul(x, factor) if out is None else mul(x, factor, out=out)
            factor = _number(factor, "scale: factor", "a number or a torch.Tensor")
        if out is not None:
            return _op_scale_out(x, factor, out=out)
        return _op_scale(x, factor)

What begins with ``_op_`` is PyTorch's own function that calls the operator (:mod:`.operations`).
A call costs what it would if somebody had written this by hand.
"""

from __future__ import annotations

import inspect
import keyword
import linecache
import math
import textwrap
import warnings
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, count
from types import SimpleNamespace
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from .._torch import private
from .arguments import is_tensor, number
from .operations import add_operations, name_in_source
from .overload import Overload

Functions = dict[str, Callable[..., Any]]

# What the source text calls. With an underscore: an argument may be called `type`, an operator `number`.
_NAMES = {
    "_type": type,
    "_float": float,
    "_torch": torch,
    "_Tensor": Tensor,
    "_is_tensor": is_tensor,
    "_number": number,
    "_warn": warnings.warn,
    "_FutureWarning": FutureWarning,
}

_namespaces: dict[str, SimpleNamespace] = {}
_called: WeakKeyDictionary[Callable[..., Any], tuple[Overload, ...]] = WeakKeyDictionary()  # by function


def functions_of(namespace: str) -> Any:
    """The functions of an operator library as attributes, whether they are public or not.

    They are there when the library has been opened. For gradient formulas, which are written before::

        waves = functions_of("waves")
        gradients = {"x": lambda grad, y: waves.mul(grad, y)}
    """
    return _namespaces.setdefault(namespace, SimpleNamespace())


def operators_of(function: Callable[..., Any]) -> tuple[Any, ...]:
    """The operators that a call of a library's public function may be, for tools that tell calls apart by operators.

    Those are dispatch modes, and policies of ``torch.utils.checkpoint.create_selective_checkpoint_contexts``. The first
    is the operator of the function's own name; others are the one that is called in its place where a gradient is
    recorded (``Operator(training=...)``), its out variant, and those that take a tensor in the place of a number.

    Args:
        function: such as ``waves.norm``, where ``waves`` is a library, or what wraps it (:func:`functools.wraps`).

    Returns:
        Overloads, such as ``(torch.ops.waves.norm.default, torch.ops.waves.norm_training.default)``.

    Raises:
        TypeError: it is no function of an operator library.
    """
    called = _called.get(inspect.unwrap(function))
    if called is None:
        raise TypeError(f"{function!r} is no public function of an operator library")
    return tuple(overload.op for overload in called)


def _called_by(overload: Overload, overloads: Mapping[str, Overload]) -> tuple[Overload, ...]:
    """What a function may call: its own operator first."""
    out = overloads.get(f"{overload.name}.out")
    found = [overload, out] if out else [overload]
    for name in filter(None, (overload.operator.training, *_tensor_variants(overload, overloads).values())):
        found += _called_by(overloads[name], overloads)
    return tuple(found)


def make_functions(module: str, overloads: Mapping[str, Overload]) -> Functions:
    """A function for every operator, and one for its in-place variant.

    Args:
        module: where they will be found, for ``pickle``.
        overloads: all overloads of the library by name.

    Returns:
        Those that are public: the operators with a docstring. :func:`functions_of` has all.

    Raises:
        ValueError: a schema that cannot be written as a function in Python, or a ``tensor_variant`` that does not fit.
    """
    main = [overload for overload in overloads.values() if not overload.name.endswith(".out")]
    namespace = next(iter(overloads.values())).namespace
    source = "\n\n".join(_Source(overload, overloads).text() for overload in main)
    scope: dict[str, Any] = dict(_NAMES)
    add_operations(scope, overloads.values())
    exec(compile(source, _remember(namespace, source), "exec"), scope)  # noqa: S102  # made above, of checked names
    functions = {overload.name: _described(scope[overload.name], overload, overloads, module) for overload in main}
    vars(functions_of(namespace)).update(functions)
    _called.update({functions[overload.name]: _called_by(overload, overloads) for overload in main})
    return {overload.name: functions[overload.name] for overload in main if overload.operator.doc}


def check_functions(overloads: Mapping[str, Overload]) -> None:
    """Refuse what :func:`make_functions` cannot make functions for.

    Raises:
        ValueError: as it does.
    """
    for overload in overloads.values():
        _Source(overload, overloads).text()
        _annotations(overload, overloads)


def renew_function(function: Callable[..., Any], made: Callable[..., Any]) -> None:
    """Let a public function do what one does that was made for the same schema afterwards, for all who have it."""
    function.__globals__.update(made.__globals__)
    function.__code__ = made.__code__  # of the same text
    function.__doc__, function.__module__ = made.__doc__, made.__module__
    _called[function] = _called[made]
    vars(functions_of(_called[function][0].namespace))[function.__name__] = function


def retire_function(function: Callable[..., Any], instead: Callable[..., Any]) -> None:
    """Let a public function raise what ``instead`` raises, for all who have it.

    Its parameters cannot be changed: Dynamo remembers those of each function that it has traced.
    """
    function.__globals__["_instead"] = instead
    function.__code__ = _retired.__code__
    function.__defaults__ = function.__kwdefaults__ = None


def _retired(*args: Any, **kwargs: Any) -> Any:
    return _instead(*args, **kwargs)  # type: ignore[name-defined]  # noqa: F821  # among the function's global names


def forget_functions(overloads: Mapping[str, Overload]) -> None:
    """Undo :func:`make_functions`: :func:`functions_of` has them no longer."""
    for overload in overloads.values():
        function = vars(functions_of(overload.namespace)).pop(overload.name, None)
        if function is not None:
            linecache.cache.pop(function.__code__.co_filename, None)


class _Source:
    """The source text of one function."""

    def __init__(self, overload: Overload, overloads: Mapping[str, Overload]) -> None:
        self.name = overload.name
        self.overload = overload
        self.out = overloads.get(f"{self.name}.out")
        self.arguments = [argument.name for argument in overload.schema.arguments]
        self.types = {argument.name: str(argument.type) for argument in overload.schema.arguments}
        self.given = ", ".join(f"{a.name}={a.name}" if a.kwarg_only else a.name for a in overload.schema.arguments)
        self.variants = _tensor_variants(overload, overloads)
        self.overloads = overloads
        for name in (self.name, *self.arguments):
            if keyword.iskeyword(name) or name in _NAMES or name.startswith("_op_"):
                raise ValueError(f"{overload.qualified_name}: a function in Python cannot have the name {name!r}")
        if self.out is not None and [a.name for a in self.out.schema.arguments] != [*self.arguments, "out"]:
            raise ValueError(f"{self.out.schema_text}: its arguments must be those of {self.name}, and out")

    def text(self) -> str:
        parts = [self._deprecation(), self._numbers()]
        if self.out is not None:
            given = ", ".join(filter(None, (self.given, "out=out")))
            call = f"{name_in_source(self.out)}({given})"
            hands_back = f"return {call}" if self.out.schema.returns else f"{call}\n    return out"
            parts.append(f"if out is not None:\n    {hands_back}\n")
        parts.append(f"return {name_in_source(self.overload)}({self.given})\n")
        return f"def {self.name}({self._parameters()}):\n" + textwrap.indent("".join(parts), "    ")

    def _deprecation(self) -> str:
        """Tell whoever calls the function; under torch.compile, which cannot warn, nobody is told."""
        instead = self.overload.operator.deprecated
        text = f"{self.overload.namespace}.{self.name} is deprecated: {instead}"
        call = f"if not _torch.compiler.is_compiling():\n    _warn({text!r}, _FutureWarning, 2)\n"
        return call if instead else ""

    def _parameters(self) -> str:
        schema = self.overload.schema.arguments
        positional = [_parameter(argument) for argument in schema if not argument.kwarg_only]
        named = [_parameter(argument) for argument in schema if argument.kwarg_only]
        if self.out is not None:
            named.append("out=None")
        return ", ".join([*positional, *(["*", *named] if named else [])])

    def _numbers(self) -> str:
        """Numbers become float, as the kernels take them; what is a tensor goes to another operator."""
        lines = []
        for name in self.arguments:
            variant = self.variants.get(name)
            is_float = self.types[name] == "float"
            indent = "    " if is_float else ""
            if is_float:
                lines.append(f"if _type({name}) is not _float:")
            if variant:
                lines.append(f"{indent}if _type({name}) is _Tensor or _is_tensor({name}):")
                lines.append(f"{indent}    return {self._call_of(variant)}")
            if is_float:
                expected = "a number or a torch.Tensor" if variant else "a number"
                lines.append(f'    {name} = _number({name}, "{self.name}: {name}", "{expected}")')
        return "".join(f"{line}\n" for line in lines)

    def _call_of(self, variant: str) -> str:
        """A call of the operator that takes a tensor; without its function where that would only pass arguments on."""
        other = self.overloads[variant]
        converts = other.operator.tensor_variant or any(str(a.type) == "float" for a in other.schema.arguments)
        called = variant if converts else name_in_source(other)
        if self.out is None:
            return f"{called}({self.given})"
        return f"{called}({self.given}) if out is None else {variant}({self.given}, out=out)"


def _parameter(argument: Any) -> str:
    if not argument.has_default_value():
        return str(argument.name)
    return f"{argument.name}={_literal(private.default_of(argument))}"


def _literal(value: Any) -> str:
    """A default value as source text."""
    if isinstance(value, (list, tuple)):
        return f"({''.join(f'{_literal(one)}, ' for one in value)})"
    if isinstance(value, torch.device):
        return f"_torch.device({str(value)!r})"
    if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
        return f"_{value}"
    if isinstance(value, float) and not math.isfinite(value):
        return f"_float({str(value)!r})"
    return repr(value)


def _tensor_variants(overload: Overload, overloads: Mapping[str, Overload]) -> dict[str, str]:
    """For an argument that may be a tensor instead, the function that computes with it.

    Raises:
        ValueError: there is no such argument, or the other operator does not take the same arguments otherwise.
    """
    suffix = "_" if overload.is_in_place else ""
    found = {}
    for argument, operator in overload.operator.tensor_variant.items():
        where = f"{overload.qualified_name}: tensor_variant={{{argument!r}: {operator!r}}}"
        variant = overloads.get(operator + suffix)
        if variant is None and suffix:
            continue
        if variant is None:
            raise ValueError(f"{where}: the library has no operator {operator!r}")
        wanted = [("Tensor", "") if a.name == argument else _taken(a) for a in overload.schema.arguments]
        if argument not in overload.arguments or wanted != [_taken(a) for a in variant.schema.arguments]:
            raise ValueError(f"{where}: {variant.schema_text} does not take the arguments of {overload.schema_text}")
        if f"{overload.name}.out" in overloads and f"{variant.name}.out" not in overloads:
            raise ValueError(f"{where}: {operator!r} has no out variant, but {overload.name!r} has")
        found[argument] = variant.name
    return found


def _taken(argument: Any) -> tuple[str, str]:
    return str(argument.type), argument.name if argument.kwarg_only else ""


def _remember(namespace: str, source: str) -> str:
    """Let tracebacks, debuggers and ``inspect.getsource`` find the text under a file name of its own."""
    numbered = (f"<functions of {namespace}, part {part}>" for part in count(2))
    lines = source.splitlines(keepends=True)
    for name in chain((f"<functions of {namespace}>",), numbered):
        entry = (len(source), None, lines, name)
        if linecache.cache.setdefault(name, entry) is entry:  # else another thread may take the same name
            break
    return name


def _described(
    function: Callable[..., Any], overload: Overload, overloads: Mapping[str, Overload], module: str
) -> Callable[..., Any]:
    """What a reader of the function wants to know: its types, its text, and where it is found."""
    function.__annotations__ = _annotations(overload, overloads)
    function.__module__ = module
    doc = _in_place_doc(overload) if overload.is_in_place else inspect.cleandoc(overload.operator.doc)
    instead = overload.operator.deprecated
    function.__doc__ = f"{doc}\n\nDeprecated: {instead}." if instead else doc
    return function


def _annotations(overload: Overload, overloads: Mapping[str, Overload]) -> dict[str, Any]:
    variants = _tensor_variants(overload, overloads)
    annotations: dict[str, Any] = {}
    for argument in overload.schema.arguments:
        kind = _python_type(argument.real_type)
        annotations[argument.name] = kind | Tensor if argument.name in variants else kind
    if f"{overload.name}.out" in overloads:
        annotations["out"] = Tensor | None
    results = tuple(_python_type(result.real_type) for result in overload.schema.returns)
    annotations["return"] = None if not results else results[0] if len(results) == 1 else tuple[results]  # type: ignore[valid-type]
    return annotations


def _in_place_doc(overload: Overload) -> str:
    base, target = overload.name.removesuffix("_"), overload.arguments[0]
    return f""":func:`{base}` in place: the result overwrites ``{target}``, whose shape and dtype must be the result's.

Args: as those of :func:`{base}`; one that is a number in the schema must be a number.

Returns:
    ``{target}``.

Raises:
    RuntimeError: as :func:`{base}`, with ``{target}`` in the place of ``out``.
    TypeError: an argument is not a number, but has to be one."""


_PYTHON_TYPES: Mapping[str, Any] = {
    "Tensor": Tensor,
    "number": int | float | complex | bool,
    "ScalarType": torch.dtype,
    "Layout": torch.layout,
    "Device": torch.device,
    "MemoryFormat": torch.memory_format,
    "Generator": torch.Generator,
    "SymInt": int,
    "bool": bool,
    "int": int,
    "float": float,
    "str": str,
}


def _python_type(kind: Any) -> Any:
    """What a type of a schema is in Python.

    Raises:
        ValueError: it is none that a function in Python can be annotated with.
    """
    if kind.kind() == "OptionalType":
        return _python_type(kind.getElementType()) | None
    if kind.kind() == "ListType":
        return Sequence[_python_type(kind.getElementType())]  # type: ignore[misc]
    if str(kind) not in _PYTHON_TYPES:
        raise ValueError(f"the type {kind} of a schema has no counterpart in Python")
    return _PYTHON_TYPES[str(kind)]
