"""Train the digits classifier, export it with a dynamic batch and compile it to digits.pt2.

python export.py FOLDER             # writes digits.pt2 and the samples that run.cpp compares with
python export.py FOLDER --c-shims   # also digits_c_shims.pt2, which calls the CPU backend's C functions directly
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import muladd
import torch
from opwheel.aotinductor import c_shims, keep_kernels
from torch.export import Dim, export

sys.path.insert(0, str(Path(__file__).parents[1]))

from trained import trained_classifier, write_samples


def main() -> None:
    """Write the package, load it again and compare it with eager PyTorch on two batch sizes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--c-shims", action="store_true", help="also compile a model that needs no dispatcher")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)

    model = trained_classifier()
    pixels, side = write_samples(model, options.folder)
    batch = Dim("batch", min=1, max=4096)
    program = export(model, (pixels, side), dynamic_shapes=({0: batch}, {0: batch}))

    variants: dict[str, dict[str, object]] = {"digits.pt2": {}}
    if options.c_shims:
        variants["digits_c_shims.pt2"] = {"aot_inductor.custom_ops_to_c_shims": c_shims(muladd.library, "cpu")}
    for name, config in variants.items():
        # Without this the model would have the operators in its own loops, and need no muladd.
        with keep_kernels(muladd.library):
            package = torch._inductor.aoti_compile_and_package(
                program, package_path=str(options.folder.resolve() / name), inductor_configs=config
            )
        compiled = torch._inductor.aoti_load_package(package)
        with torch.no_grad():
            for n in (len(pixels), 7):
                torch.testing.assert_close(compiled(pixels[:n], side[:n]), model(pixels[:n], side[:n]))
        print(f"{package}: equal to eager PyTorch")


if __name__ == "__main__":
    main()
