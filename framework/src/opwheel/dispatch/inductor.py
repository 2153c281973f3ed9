"""torch.compile's inductor writes element-wise operators into the same loop as their neighbours.

A call of a kernel costs it microseconds, and a pass over memory. So such operators are given to inductor as their
reference in the compute dtype, rounded once; ``compile = "kernel"`` in an operator's declaration or in the policy keeps
the call. ``torch.compile``'s other backends, ``torch.export`` and eager mode see the operators in any case.

What inductor and AOTAutograd keep on disk does not depend on decompositions: their keys get a digest of ours
(``torch.compiler.config.cache_key_tag``, which is for this).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType, ModuleType
from typing import Any

from .decompositions import decomposition_table
from .library_like import LibraryLike
from .overload import Overload


def register(library: LibraryLike, overloads: Iterable[Overload]) -> None:
    """Add to inductor's decompositions what the declarations and the policy let it fuse."""
    from torch._inductor.decomposition import decompositions, fast_random_decomps
    from torch.compiler import config

    fused = [overload for overload in overloads if is_fused(library, overload)]
    decompositions.update(decomposition_table(fused))
    fast_random_decomps.cache_clear()
    config.cache_key_tag += f" {library.namespace}:{digest(library, overloads)}"


@contextmanager
def kept(overloads: Iterable[Overload]) -> Iterator[None]:
    """While it lasts, inductor keeps the operators as calls."""
    from torch._inductor.decomposition import decompositions, fast_random_decomps
    from torch.compiler import config

    removed = {overload.op: decompositions.pop(overload.op, None) for overload in overloads}
    fast_random_decomps.cache_clear()
    tag = config.cache_key_tag
    config.cache_key_tag += f" kept:{','.join(sorted(map(str, removed)))}"
    try:
        yield
    finally:
        config.cache_key_tag = tag
        decompositions.update({op: decomposition for op, decomposition in removed.items() if decomposition})
        fast_random_decomps.cache_clear()


def is_fused(library: LibraryLike, overload: Overload) -> bool:
    """Whether inductor gets the reference in the place of calls."""
    return (
        overload.rule.fuses
        and not overload.mutates
        and overload.operator.compile == "fuse"
        and library.policy.compile == "fuse"
    )


def digest(library: LibraryLike, overloads: Iterable[Overload]) -> str:
    """Of all operators: their schemas, whether they are fused, and the code of their references and fake kernels."""
    text = hashlib.sha256()
    for overload in overloads:
        operator = overload.operator
        parts = (overload.qualified_name, overload.schema_text, str(is_fused(library, overload)))
        seen: set[int] = set()
        text.update("\n".join((*parts, _text(operator.reference, seen), _text(operator.fake, seen))).encode())
    return text.hexdigest()[:16]


def _text(value: Any, seen: set[int]) -> str:
    """What a function computes: its code, and all functions and values of its module that it names.

    Of an object that prints its address the text differs from process to process: nothing that was kept fits then.
    """
    if isinstance(value, ModuleType):
        return value.__name__
    if not isinstance(value, FunctionType):
        return repr(value)
    if id(value) in seen:
        return value.__qualname__
    seen.add(id(value))
    cells = [cell.cell_contents for cell in value.__closure__ or ()]
    named = [value.__globals__[name] for name in _names(value.__code__) if name in value.__globals__]
    used = [*cells, *named, *(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
    return _code(value.__code__) + "".join(_text(one, seen) for one in used)


def _code(code: CodeType) -> str:
    """All of a code object that says what it does: not where it stands."""
    constants = [_code(one) if isinstance(one, CodeType) else repr(one) for one in code.co_consts]
    return repr((code.co_code, code.co_names, code.co_varnames, constants))


def _names(code: CodeType) -> list[str]:
    inner = [name for one in code.co_consts if isinstance(one, CodeType) for name in _names(one)]
    return [*code.co_names, *inner]
