"""What references refuse: PyTorch's operators would compute something."""

from torch import Tensor


def check_apart(a: Tensor, name: str, b: Tensor, other_name: str) -> None:
    """Refuse one tensor as two arguments that are written to. Kernels look at the memory as well.

    Raises:
        RuntimeError: it is the same tensor.
    """
    if a is b:
        raise RuntimeError(
            f"argument '{name}' shares memory with '{other_name}', and both are written to; clone one of them first"
        )
