"""What is judged, and what it is compared with: anything that can be called, by name."""

from __future__ import annotations

import copy
import importlib.util
import inspect
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, NamedTuple

import torch

from .. import hub
from .declared import reference_of

DECLARED = ":reference"
"""Behind the name of an operator: the reference that its opwheel library declares."""

PACKET = type(torch.ops.aten.add)
"""All overloads of an operator."""

_OPERATORS = (PACKET, type(torch.ops.aten.add.Tensor))


class SubjectError(Exception):
    """There is no such thing, or it cannot be called."""

    code = None


def find(text: str) -> Any:
    """What a name stands for.

    Args:
        text: ``"module:name"``, ``"file.py:name"``, ``"folder:name"`` of a kernel, where the name may have dots,
            ``"namespace::operator"`` with or without an overload, or ``"namespace::operator:reference"``.

    Raises:
        SubjectError: there is none, or importing it raises.
    """
    if "::" in text and text.endswith(DECLARED):
        return _declared(text.removesuffix(DECLARED))
    if "::" in text:
        return _operator(text)
    place, separator, name = text.rpartition(":")
    if not separator or not name:
        raise SubjectError(f"{text!r} names nothing; write module:name, file.py:name or namespace::operator")
    try:
        contents = _contents(place)
    except FileNotFoundError as error:
        raise SubjectError(f"there is no file {place}") from error
    except Exception as error:
        raise SubjectError(f"{place} cannot be imported: {type(error).__name__}: {error}") from error
    first, *rest = name.split(".")
    try:
        return reduce(getattr, rest, contents[first])
    except (KeyError, AttributeError):
        public = ", ".join(sorted(key for key in contents if not key.startswith("_"))[:20])
        raise SubjectError(f"{place} has no {name!r}; it has: {public}") from None


def name_of(thing: Any) -> str:
    """A name that :func:`find` takes, of a function, class or operator; text stays as it is.

    Raises:
        SubjectError: it has none in its module.
    """
    if isinstance(thing, str):
        return thing
    if isinstance(thing, _OPERATORS):
        return str(thing).replace(".", "::", 1)
    module, name = getattr(thing, "__module__", None) or "torch", getattr(thing, "__qualname__", "<nothing>")
    found = sys.modules.get(module)
    try:
        is_there = reduce(getattr, name.split("."), found) is thing
    except AttributeError:
        is_there = False
    if not is_there:
        raise SubjectError(f"{thing!r} has no name in its module, by which another process finds it; give its name")
    return f"{module}:{name}" if module != "__main__" else f"{getattr(found, '__file__', '')}:{name}"


_files: dict[str, dict[str, Any]] = {}  # what each file that was run has


def _contents(place: str) -> dict[str, Any]:
    """The variables of a module, kernel or file. A file is run once, as a module of the name of its stem."""
    if hub.is_kernel(place):
        return vars(hub.load(place))
    if not place.endswith(".py"):
        if "" not in sys.path:
            sys.path.insert(0, "")  # as python -m has it; a module may lie in the current folder
        return vars(importlib.import_module(place))
    if place not in _files:
        sys.path.insert(0, str(Path(place).resolve().parent))  # as python FILE has it
        _files[place] = vars(_run(place))
    return _files[place]


def _run(place: str) -> ModuleType:
    """A file's module, which stays imported: PyTorch's compiler imports that of a function, and would run it again."""
    name = Path(place).stem
    while name in sys.modules:
        name += "_"
    module = ModuleType(name)
    module.__file__ = place
    sys.modules[name] = module
    try:
        exec(compile(Path(place).read_bytes(), place, "exec"), vars(module))  # noqa: S102 - what the user names
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _operator(text: str) -> Any:
    namespace, _, name = text.partition("::")
    try:
        return reduce(getattr, name.split("."), getattr(torch.ops, namespace))
    except AttributeError:
        raise SubjectError(f"no operator {text!r} is registered; import what registers it with --import") from None


def _declared(text: str) -> Callable[..., Any]:
    _operator(text)
    try:
        return reference_of(text)
    except KeyError:
        raise SubjectError(
            f"no opwheel library declares {text!r}; name what it is to compute with --reference"
        ) from None


def statements(text: str, name: str) -> list[str]:
    """Python that gives what a text stands for the name ``name``; it needs ``runpy`` and ``torch``."""
    place, _, attribute = text.rpartition(":")
    if "::" in text and text.endswith(DECLARED):
        operator = text.removesuffix(DECLARED)
        return ["from opwheel_tools.judge.declared import reference_of", f'{name} = reference_of("{operator}")']
    if "::" in text:
        return [f"{name} = torch.ops.{text.replace('::', '.')}"]
    if hub.is_kernel(place):
        return [*hub.statements(place), f"{name} = kernel.{attribute}"]
    if not place.endswith(".py"):
        return [f"from {place} import {attribute.split('.')[0]}", f"{name} = {attribute}"]
    first, _, rest = attribute.partition(".")
    return [f"{name} = runpy.run_path({place!r})[{first!r}]" + (f".{rest}" if rest else "")]


class Subject(NamedTuple):
    """Something to call.

    Args:
        function: takes the arguments of a case.
        in_float64: the same, for arguments in float64: a module whose parameters are in float64.
        code: places of the Python code that it is, as (file, line), by which a call of it is recognised.
        state: parameters and buffers in the state dict of the module that it is, copied.
        parameters: which of them are parameters.
    """

    function: Callable[..., Any]
    in_float64: Callable[..., Any]
    code: tuple[tuple[str, int], ...] = ()
    state: dict[str, torch.Tensor] = {}  # noqa: RUF012  # never written
    parameters: frozenset[str] = frozenset()


def make(thing: Any, init: Iterable[Any] = ()) -> Subject:
    """A subject of what :func:`find` gave.

    Args:
        thing: a function, an ``nn.Module`` class or object, an ``autograd.Function`` class, an operator.
        init: arguments of the module's class, which makes its parameters with the seed 0.

    Raises:
        SubjectError: it cannot be called, or is a Triton kernel.
    """
    if isinstance(thing, type) and issubclass(thing, torch.autograd.Function):
        return Subject(thing.apply, thing.apply, _code_of(thing.forward))
    if isinstance(thing, type) and issubclass(thing, torch.nn.Module):
        torch.manual_seed(0)
        thing = _made(thing, init)
    if isinstance(thing, torch.nn.Module):
        thing.requires_grad_(False)
        kept = thing.state_dict()  # without buffers that are not
        tensors = {**dict(thing.named_parameters()), **dict(thing.named_buffers())}
        state = {name: value.detach().clone() for name, value in tensors.items() if name in kept}
        if len(state) < len(tensors):  # buffers outside of the state dict have shapes that go with the others
            state = {}
        parameters = frozenset(name for name, _ in thing.named_parameters())
        code = _code_of(type(thing).forward)
        return Subject(_Module(thing, None), _Module(thing, torch.float64), code, state, parameters)
    if type(thing).__module__.partition(".")[0] == "triton":
        raise SubjectError(
            f"{getattr(thing, '__name__', 'this')} is a Triton kernel, which is called with a grid; name the function "
            "that launches it"
        )
    if not callable(thing):
        raise SubjectError(f"a {type(thing).__name__} cannot be called")
    return Subject(thing, thing, _code_of(thing))


def _made(cls: type[torch.nn.Module], init: Iterable[Any]) -> torch.nn.Module:
    try:
        return cls(*init)
    except Exception as error:  # whatever the class raises
        raise SubjectError(
            f"{cls.__name__} cannot be made: {type(error).__name__}: {error}; "
            "name a function that gives its arguments with --init"
        ) from error


class _Module:
    """A module whose parameters and buffers have the dtype of the arguments."""

    def __init__(self, module: torch.nn.Module, dtype: torch.dtype | None) -> None:
        self._module = module
        self._holder = _Holder(module)
        self._one_thread = threading.Lock()
        self._dtype = dtype

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.with_state({}, args, kwargs)

    def with_state(self, state: dict[str, torch.Tensor], args: Any, kwargs: Any) -> Any:
        """Call it with these parameters and buffers, and its own for those that are not given."""
        floats = [x for x in (*args, *kwargs.values()) if isinstance(x, torch.Tensor) and x.is_floating_point()]
        dtype = self._dtype or (floats[0].dtype if floats else None)
        own = {**dict(self._module.named_parameters()), **dict(self._module.named_buffers())}
        cast = {n: v.to(dtype) if dtype and v.is_floating_point() else v for n, v in own.items()}
        used = {f"module.{n}": v for n, v in {**cast, **state}.items()}
        with self._own_holder(own.values()) as holder:
            result, after = torch.func.functional_call(holder, used, args, kwargs)
        for name, value in after.items():
            if name in state and value is not state[name]:  # another tensor has the place of the buffer
                with torch.no_grad():
                    state[name].copy_(value)
        return result

    @contextmanager
    def _own_holder(self, tensors: Iterable[torch.Tensor]) -> Iterator[torch.nn.Module]:
        """The holder; in other threads a copy with the same tensors, as functional_call exchanges them for all threads.

        What cannot be copied is used by one thread at a time.
        """
        if threading.current_thread() is threading.main_thread():
            yield self._holder
            return
        try:
            holder = copy.deepcopy(self._holder, {id(one): one for one in tensors})
        except Exception:  # whatever the module's attributes raise
            with self._one_thread:
                yield self._holder
            return
        yield holder


class _Holder(torch.nn.Module):
    """Gives a module's buffers after the call as well."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        result = self.module(*args, **kwargs)
        return result, dict(self.module.named_buffers())


def _code_of(function: Any) -> tuple[tuple[str, int], ...]:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return () if code is None else (place_of(code),)


def place_of(code: CodeType) -> tuple[str, int]:
    """File and line of a function, by which two processes know it."""
    return str(Path(code.co_filename).resolve()), code.co_firstlineno


def imports_of(imports: Iterable[str], *names: str) -> tuple[str, ...]:
    """The modules to import first: those that are given, and packages that register operators of these names.

    They have a namespace's name, and can be imported.
    """
    namespaces = (name.partition("::")[0] for name in names if "::" in name)
    packages = (one for one in namespaces if one.isidentifier() and importlib.util.find_spec(one) is not None)
    return tuple(dict.fromkeys((*imports, *packages)))
