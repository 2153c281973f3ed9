"""Rules: what an operator may be relied on for, beyond computing what its reference computes.

A rule is a claim by the operator's author, and the conformance kit tests it. :class:`Opaque` claims nothing,
:class:`Rows` that leading dimensions do not matter, :class:`Elementwise` everything that PyTorch's own element-wise
operators do. Another claim is another subclass of :class:`Rule`.
"""

from .elementwise import Elementwise
from .opaque import Opaque
from .rows import Rows
from .rule import Rule, Sharding

__all__ = ["Elementwise", "Opaque", "Rows", "Rule", "Sharding"]
