"""What a direct call of a backend's C function saves in a model that AOTInductor compiled.

The model is one muladd of two tensors of 8 x 4, so that its time is nearly all overhead. Both packages are called in
turns, and the median of the microseconds per call over the rounds is reported, with quartiles.

    python benchmarks/aotinductor_c_shim.py --folder build/shim --json benchmarks/results/aotinductor_c_shim.json
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import muladd
import torch
from opwheel.aotinductor import c_shims, keep_kernels
from opwheel_tools.bench.machine import describe_machine
from torch import Tensor, nn

VARIANTS = ("dispatcher", "c_shim")


class Model(nn.Module):
    """One operator of muladd between two of PyTorch's."""

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """Compute relu(a) * b + 2.5."""
        return muladd.muladd(torch.relu(a), b, 2.5)


def compiled(folder: Path, inputs: tuple[Tensor, ...]) -> dict[str, object]:
    """Both packages, from the folder where they are there already."""
    configs = {"dispatcher": {}, "c_shim": {"aot_inductor.custom_ops_to_c_shims": c_shims(muladd.library, "cpu")}}
    program = torch.export.export(Model(), inputs)
    models = {}
    for name in VARIANTS:
        path = folder / f"{name}.pt2"
        if not path.exists():
            with keep_kernels(muladd.library):
                torch._inductor.aoti_compile_and_package(
                    program, package_path=str(path), inductor_configs=configs[name]
                )
        models[name] = torch._inductor.aoti_load_package(str(path))
        torch.testing.assert_close(models[name](*inputs), Model()(*inputs))
    return models


def measure(models: dict[str, object], inputs: tuple[Tensor, ...], rounds: int, calls: int) -> dict[str, list[float]]:
    """Microseconds per call, one number for each round."""
    samples: dict[str, list[float]] = {name: [] for name in models}
    for _ in range(rounds):
        for name, model in models.items():
            start = time.perf_counter()
            for _ in range(calls):
                model(*inputs)
            samples[name].append((time.perf_counter() - start) / calls * 1e6)
    return samples


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, help="keep the compiled packages here for the next time")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--calls", type=int, default=2000)
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    inputs = (torch.randn(8, 4), torch.randn(8, 4))
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.folder or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        models = compiled(folder, inputs)
        samples = measure(models, inputs, options.rounds, options.calls)
    report: dict[str, object] = {"machine": describe_machine(), "rounds": options.rounds, "calls": options.calls}
    for name, values in samples.items():
        low, middle, high = statistics.quantiles(values, n=4)
        report[f"{name}_us"] = {
            "median": round(middle, 2), "lower_quartile": round(low, 2), "upper_quartile": round(high, 2)
        }  # fmt: skip
    print(json.dumps(report, indent=2))
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
