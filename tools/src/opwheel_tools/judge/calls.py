"""One call of an operator, and files of calls: JSON and tensors, read without running code."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

_FORMAT = "opwheel calls 1"


class Call(NamedTuple):
    """A call of an operator.

    Args:
        operator: ``"namespace::name.overload"``.
        args: positional arguments.
        kwargs: keyword arguments.
        origin: ``"given"``, ``"recorded"`` or ``"generated from the schema"``.
    """

    operator: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    origin: str = "given"

    @property
    def op(self) -> Any:
        """The overload in ``torch.ops``."""
        return overload(self.operator)


class CallsFileError(ValueError):
    """A file that holds no calls."""

    code = "OPWHEEL-E093"


def path_of(operator: str) -> str:
    """Where ``torch.ops`` has an overload: ``"aten.mm.default"``, where the dispatcher says ``"aten::mm"``."""
    namespace, _, name = operator.partition("::")
    return f"{namespace}.{name}" if "." in name else f"{namespace}.{name}.default"


def overload(operator: str) -> Any:
    """An overload in ``torch.ops`` by its name in the dispatcher."""
    return attrgetter(path_of(operator))(torch.ops)


def name_of(op: Any) -> str:
    """The dispatcher's name of an overload, as :func:`overload` takes it."""
    return str(op.name())


def save(calls: list[Call], path: Path) -> None:
    """Write calls to a file.

    Raises:
        TypeError: an argument is neither a tensor, a number, a string, a dtype, a device nor a list of these.
    """
    tensors: list[Tensor] = []
    texts = [[c.operator, c.origin, encode(c.args, tensors), encode(c.kwargs, tensors)] for c in calls]
    tensors = [one.clone() for one in tensors]  # a view would bring all of its memory
    torch.save({"format": _FORMAT, "calls": json.dumps(texts), "tensors": tensors}, path)


def load(path: Path) -> list[Call]:
    """Read what :func:`save` wrote.

    Raises:
        CallsFileError: the file is something else.
    """
    try:
        content = torch.load(path, weights_only=True)
        if content["format"] != _FORMAT:
            raise CallsFileError(f"{path} is not of the format {_FORMAT!r}")
        rows, tensors = json.loads(content["calls"]), content["tensors"]
    except CallsFileError:
        raise
    except Exception as error:
        raise CallsFileError(f"{path} holds no calls that opwheel audit recorded: {error}") from error
    return [Call(op, decode(args, tensors), decode(kwargs, tensors), origin) for op, origin, args, kwargs in rows]


def fresh(value: Any) -> Any:
    """The same arguments with tensors of their own; strides are kept where no elements overlap."""
    return pytree.tree_map(lambda v: v.detach().clone() if isinstance(v, Tensor) else v, value)


def text(value: Any, of_tensor: Callable[[Tensor], str] = repr) -> str:
    """Python that makes an argument, and a tensor in it as ``of_tensor`` says."""
    if isinstance(value, Tensor):
        return of_tensor(value)
    if isinstance(value, (list, tuple)):
        inside = ", ".join(text(one, of_tensor) for one in value)
        return f"[{inside}]" if isinstance(value, list) else f"({inside}{',' * (len(value) == 1)})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {text(one, of_tensor)}" for key, one in value.items()) + "}"
    if isinstance(value, float) and value - value != 0:  # an infinity or nan
        return f'float("{value}")'
    if isinstance(value, torch.device):
        return f"torch.{value!r}"
    return repr(value)


def is_plain(value: Any) -> bool:
    """Whether :func:`save` can write it."""
    try:
        encode(value, [])
    except TypeError:
        return False
    return True


class Place(str):
    """Python that names a tensor of a call: ``t[number]``."""

    number: int

    def __new__(cls, number: int) -> Place:
        """Name the tensor with this number."""
        self = super().__new__(cls, f"t[{number}]")
        self.number = number
        return self

    def __repr__(self) -> str:
        return str(self)


class Places(Sequence[Any]):
    """In the place of a call's tensors, the Python that names each, for :func:`decode`."""

    def __getitem__(self, number: Any) -> Place:
        return Place(number)

    def __len__(self) -> int:
        return 0


_CONSTANTS = (torch.dtype, torch.layout, torch.memory_format)


def encode(value: Any, tensors: list[Tensor]) -> Any:
    """What JSON can hold of arguments; each tensor is appended to ``tensors``, and its place stands for it.

    Raises:
        TypeError: there is something else than tensors, numbers, strings, dtypes, devices and lists of these.
    """
    if isinstance(value, Tensor):
        if type(value) is not Tensor and type(value) is not torch.nn.Parameter:
            raise TypeError(f"a {type(value).__name__} cannot be written")
        tensors.append(value.detach())
        return {"tensor": len(tensors) - 1}
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return {"float": value.hex()}
    if isinstance(value, complex):
        return {"complex": [value.real.hex(), value.imag.hex()]}
    if isinstance(value, _CONSTANTS):
        return {"torch": str(value).removeprefix("torch.")}
    if isinstance(value, torch.device):
        return {"device": str(value)}
    if isinstance(value, (list, tuple)):
        return {type(value).__name__: [encode(one, tensors) for one in value]}
    if isinstance(value, dict):
        return {"dict": {key: encode(one, tensors) for key, one in value.items()}}
    raise TypeError(f"a {type(value).__name__} cannot be written")


def decode(value: Any, tensors: Sequence[Tensor]) -> Any:
    """The arguments that :func:`encode` has written, with these tensors in their places."""
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "float":
        return float.fromhex(content)
    if kind == "complex":
        return complex(*map(float.fromhex, content))
    if kind == "torch":
        constant = getattr(torch, content)
        if not isinstance(constant, _CONSTANTS):
            raise CallsFileError(f"{content!r} is not a constant of torch")
        return constant
    if kind == "device":
        return torch.device(content)
    if kind in ("list", "tuple"):
        items = [decode(one, tensors) for one in content]
        return tuple(items) if kind == "tuple" else items
    if kind == "dict":
        return {key: decode(one, tensors) for key, one in content.items()}
    raise CallsFileError(f"there is no value of the kind {kind!r}")
