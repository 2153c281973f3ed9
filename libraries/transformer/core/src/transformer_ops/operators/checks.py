"""What references refuse: PyTorch's operators would compute something."""

from collections.abc import Sequence

from torch import Tensor


def check_shape(a: Tensor, name: str, expected: Sequence[int]) -> None:
    """Refuse another shape, also one that could be broadcast to it.

    Raises:
        RuntimeError: it has another shape.
    """
    if a.shape != expected:
        raise RuntimeError(
            f"argument '{name}' has shape {tuple(a.shape)}, expected {tuple(expected)}; pass a tensor of that shape"
        )


def check_like(a: Tensor, name: str, b: Tensor, other_name: str) -> None:
    """Refuse a tensor of another shape or dtype than another argument's.

    Raises:
        RuntimeError: shapes or dtypes differ.
    """
    if a.shape != b.shape:
        raise RuntimeError(
            f"argument '{name}' has shape {tuple(a.shape)}, but '{other_name}' has {tuple(b.shape)}; "
            "pass a tensor of that shape"
        )
    if a.dtype != b.dtype:
        raise RuntimeError(
            f"argument '{name}' is {a.dtype}, but '{other_name}' is {b.dtype}; convert one of them with .to(...)"
        )


def check_apart(a: Tensor, name: str, b: Tensor, other_name: str) -> None:
    """Refuse one tensor as two arguments that are written to. Kernels look at the memory as well.

    Raises:
        RuntimeError: it is the same tensor.
    """
    if a is b:
        raise RuntimeError(
            f"argument '{name}' shares memory with '{other_name}', and both are written to; clone one of them first"
        )
