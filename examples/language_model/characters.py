"""The text that models of characters learn: Python's own help, which ships inside Python (``pydoc_data.topics``)."""

from __future__ import annotations

from collections.abc import Iterator
from pydoc_data.topics import topics

import torch
from torch import Tensor

TEXT = "\n".join(topics[name] for name in sorted(topics))
CHARACTERS = sorted(set(TEXT))


def encoded() -> Tensor:
    """The text as numbers of characters."""
    number = {character: i for i, character in enumerate(CHARACTERS)}
    return torch.tensor([number[character] for character in TEXT])


def batches(steps: int, seed: int, size: int, context: int) -> Iterator[Tensor]:
    """Random pieces of the text, ``(size, context + 1)``."""
    generator = torch.Generator().manual_seed(seed)
    text = encoded()
    for _ in range(steps):
        starts = torch.randint(len(text) - context - 1, (size, 1), generator=generator)
        yield text[starts + torch.arange(context + 1)]
