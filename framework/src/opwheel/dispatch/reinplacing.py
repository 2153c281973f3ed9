"""Keeps what an operator writes to apart from everything else, where torch.compile's inductor removes copies.

PyTorch lets an operator that writes to its arguments stay in a graph, on copies that inductor removes where it can.
It also removes the copies that the program itself makes, and loses track of them: in ``y = x.clone(); f_(y, x)`` the
operator gets ``x`` twice (pytorch/pytorch#198031), in ``y = x[1].clone(); f_(y.t())`` it writes into ``x[0]``. So the
arguments of such an operator go through an operator of ours, ``opwheel::copy``, that inductor does not know as a copy.
When it has decided what is written in place, that becomes a copy where one is needed, and nothing elsewhere.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from .._import_hooks import after_import
from .._namespace import NAMESPACE
from .._once import once
from .._torch import private
from .overlap import may_overlap_itself
from .overload import Overload


def register(overload: Overload) -> None:
    """Give torch.compile copies of what ``overload``, which writes to arguments, gets."""
    copy = _copy_operator()
    kind = private.functional_tensor()

    def with_copies(*args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        values = overload.bind(args, kwargs)
        for tensor in pytree.tree_leaves([values[i] for i in overload.written]):
            if isinstance(tensor, kind) and (base := private.made_in_graph(tensor)) is not None:
                private.replace_functional(base.elem, copy(base, True).elem)
        return overload.unbind(
            tuple(
                value if i in overload.written else pytree.tree_map_only(kind, lambda one: copy(one, False), value)
                for i, value in enumerate(values)
            )
        )

    private.before_functionalization(overload.op, with_copies)


@once
def _copy_operator() -> Any:
    """``opwheel::copy``, which is defined when the first operator needs it."""
    library = torch.library.Library(NAMESPACE, "DEF")
    library.define("copy(Tensor x, bool is_written) -> Tensor")
    library.impl("copy", _copied, "CompositeExplicitAutograd")
    _libraries.append(library)
    operator = getattr(torch.ops, NAMESPACE).copy.default

    @after_import("torch._inductor.lowering")
    def _register_lowering() -> None:
        private.register_lowering(operator, _needs_copy)

    return operator


_libraries: list[torch.library.Library] = []  # definitions last as long as these objects


def _copied(x: Tensor, is_written: bool) -> Tensor:
    """A copy with the same strides, where elements have places of their own."""
    del is_written  # it keeps copies that are written to and those that are read apart in a graph
    return x.clone() if may_overlap_itself(x) else x.new_empty_strided(x.shape, x.stride()).copy_(x)


def _needs_copy(node: Any) -> bool:
    """Whether a call of ``opwheel::copy``, in the graph that is compiled, cannot be its argument itself.

    What is only read can, if nothing writes to its memory until everybody has read it; what is written to can, if it is
    new, not a part of something or a view, and nobody looks at it once that has happened.
    """
    given, is_written = node.args
    memory = private.storage_of_node(given)
    later = [*_after(node)]
    if is_written:
        same = _in_memory(memory, node)
        is_new = memory is not None and same[0] is given and given.op == "call_function"
        own = private.storage_of_node(node)
        first = next((i for i, other in enumerate(later) if own in private.storages_written_by(other)), len(later))
        return not is_new or any(user in later[first:] for other in same for user in other.users)
    last = max(map(later.index, node.users), default=-1)
    return any(memory in private.storages_written_by(other) for other in later[: last + 1])


def _in_memory(memory: int | None, copy: Any) -> list[Any]:
    """What is in some memory, or may be: other copies of it, which may have become their arguments."""
    found: list[Any] = []
    for node in copy.graph.nodes:
        is_copy = node.target is copy.target and node.args[0] in found
        if node is not copy and (is_copy or private.storage_of_node(node) == memory):
            found.append(node)
    return found


def _after(node: Any) -> Any:
    while (node := node.next).op != "root":
        yield node
