"""The digits classifier of examples/digits.py, trained, and samples with the scores that eager PyTorch gives them."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[1]))

from digits import OPERATORS, DigitClassifier, load_data, train

SEED = 0
EPOCHS = 5


def trained_classifier() -> nn.Module:
    """The classifier with muladd's operators, after a few epochs."""
    torch.manual_seed(SEED)
    model = DigitClassifier(OPERATORS["muladd"])
    train("training", {"muladd": model}, load_data(SEED)[0], EPOCHS, SEED)
    return model.eval()


@torch.no_grad()
def write_samples(model: nn.Module, folder: Path) -> tuple[Tensor, Tensor]:
    """Write the test images as raw arrays for samples.h, with the right digits and the model's scores."""
    test = load_data(SEED)[1]
    scores = model(test.pixels, test.side)
    arrays = {"pixels": test.pixels, "side": test.side, "digit": test.digit, "scores": scores}
    for name, values in arrays.items():
        values.numpy().tofile(folder / f"{name}.bin")
    return test.pixels, test.side
