"""Train the digits classifier, export it with a dynamic batch and lower it to digits.pte for ExecuTorch.

python export.py FOLDER    # writes digits.pte and the samples that run.cpp compares with
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import muladd_executorch
import torch
from executorch.exir import to_edge
from executorch.runtime import Runtime
from torch.export import Dim, export

sys.path.insert(0, str(Path(__file__).parents[1]))

from trained import trained_classifier, write_samples


def main() -> None:
    """Write the program, run it in this process and compare it with eager PyTorch on two batch sizes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)

    model = trained_classifier()
    pixels, side = write_samples(model, folder)
    batch = Dim("batch", min=1, max=1024)
    exported = export(model, (pixels, side), dynamic_shapes=({0: batch}, {0: batch}))
    program = to_edge(exported).to_executorch()
    path = folder / "digits.pte"
    path.write_bytes(program.buffer)

    muladd_executorch.load()
    loaded = Runtime.get().load_program(path)  # stays: a method does not keep its program alive
    method = loaded.load_method("forward")
    with torch.no_grad():
        for n in (len(pixels), 7):
            found, expected = method.execute([pixels[:n], side[:n]])[0], model(pixels[:n], side[:n])
            tolerance = 32 * torch.finfo(torch.float32).eps * float(expected.abs().max())
            torch.testing.assert_close(found, expected, rtol=0, atol=tolerance)
    print(f"{path}: equal to eager PyTorch")


if __name__ == "__main__":
    main()
