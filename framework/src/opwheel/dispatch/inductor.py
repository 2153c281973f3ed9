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
from typing import Any

from .._import_hooks import after_import
from .decompositions import decomposition_table
from .fallback import LibraryLike
from .overload import Overload


def register(library: LibraryLike, overloads: Iterable[Overload]) -> None:
    """Add to inductor's decompositions, once it is imported, what the declarations and the policy let it fuse."""

    @after_import("torch._inductor.decomposition")
    def _fuse() -> None:
        from torch._inductor.decomposition import decompositions, fast_random_decomps
        from torch.compiler import config

        fused = [overload for overload in overloads if is_fused(library, overload)]
        decompositions.update(decomposition_table(fused))
        fast_random_decomps.cache_clear()
        config.cache_key_tag += f" {library.namespace}:{digest(fused)}"


@contextmanager
def kept(overloads: Iterable[Overload]) -> Iterator[None]:
    """While it lasts, inductor keeps the operators as calls."""
    from torch._inductor.decomposition import decompositions, fast_random_decomps
    from torch.compiler import config

    removed = {overload.op: decompositions.pop(overload.op, None) for overload in overloads}
    fast_random_decomps.cache_clear()
    names = ",".join(sorted(str(op) for op, decomposition in removed.items() if decomposition))
    try:
        with config.patch(cache_key_tag=f"{config.cache_key_tag} kept:{names}"):
            yield
    finally:
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


def digest(overloads: Iterable[Overload]) -> str:
    """Of the operators, and of what is computed in their place: their schemas and the code of their references."""
    text = hashlib.sha256()
    for overload in overloads:
        text.update(overload.qualified_name.encode() + overload.schema_text.encode())
        text.update(_code(overload.operator.reference).encode())
    return text.hexdigest()[:16]


def _code(function: Any) -> str:
    code = getattr(function, "__code__", None)
    return str(getattr(function, "__qualname__", type(function))) if code is None else _text(code)


def _text(code: Any) -> str:
    """All of a code object that says what it does: not where it stands."""
    constants = [_text(one) if hasattr(one, "co_code") else repr(one) for one in code.co_consts]
    return repr((code.co_code, code.co_names, code.co_varnames, constants))
