"""Rules: what an operator may be relied on for, beyond computing what its reference computes.

A rule is a claim by the operator's author, and the conformance kit tests it. :class:`Opaque` claims nothing,
:class:`Rows` that leading dimensions do not matter, :class:`Elementwise` everything that PyTorch's own element-wise
operators do. Another claim is another subclass of :class:`Rule`.
"""

from typing import TYPE_CHECKING

from ..._import_hooks import names_from
from .elementwise import Elementwise
from .opaque import Opaque
from .rule import Rule

if TYPE_CHECKING:
    from .rows import Rows

__getattr__ = names_from(__name__, {"Rows": ".rows"})  # element-wise libraries have none

__all__ = ["Elementwise", "Opaque", "Rows", "Rule"]
