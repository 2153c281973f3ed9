"""What operators claim that the bits of their results do not depend on ("The same bits in training and sampling")."""

from __future__ import annotations

ALWAYS = dict.fromkeys(("threads", "layout", "compiled", "repeat"), True)
RECORDED = ALWAYS | {"grad": True}
OF_ROWS = RECORDED | {"batch": True}
"""Of operators whose rule says which dimensions are free."""


def along(dim: int, *names: str) -> dict[str, int]:
    """The same dimension of arguments and results."""
    return dict.fromkeys(names, dim)


def rows_of(results: tuple[str, ...], *arguments: str) -> dict[str, object]:
    """Claims of an operator of rows whose other results are sums over them."""
    return RECORDED | {"batch": along(-2, *arguments, *results), "order": along(-2, *arguments)}
