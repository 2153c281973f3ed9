"""Which operators run."""

from collections import Counter

from torch.utils._python_dispatch import TorchDispatchMode


class Operators(TorchDispatchMode):
    """Counts those of a namespace that arrive below Autograd, by name."""

    def __init__(self, namespace="transformer_ops"):
        super().__init__()
        self.namespace = namespace
        self.counts = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == self.namespace:
            self.counts[func._schema.name.partition("::")[2]] += 1
        return func(*args, **(kwargs or {}))
