"""Which operators run."""

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode


class Recorded(TorchDispatchMode):
    """Notes the operators that arrive below Autograd and vmap, and what they return."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        """As ``aten.mul`` and ``aten.mul.out``."""
        self.results: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.names.append(str(func).removesuffix(".default"))
        self.results.append(result)
        return result
