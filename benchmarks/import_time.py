"""What `import muladd` adds to `import torch`: in an environment of its own, and among 300 more distributions.

The first environment has what `pip install muladd-core muladd-cpu` installs, and nothing else. The second has 300
distributions more: each is one more file to look for when the backends are discovered. The third has all of this
environment, 300 distributions more, and three backends. Each sample is a fresh process, of each by turns.

The number that counts is the median of the milliseconds between the end of `import torch` and the end of `import
muladd`; the import of torch is there for comparison. Timings on a shared machine are noisy: the quartiles say how much.
A processor that other tenants share may also run at half its speed for seconds: a loop of fixed length in every process
tells, and `at_full_speed` has the samples in which it took at most 1.15 times its shortest time.

    python benchmarks/import_time.py --json benchmarks/results/import_time.json
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from importlib.metadata import distribution, entry_points
from pathlib import Path
from typing import Any

from opwheel_tools.bench.machine import describe_machine
from packaging.requirements import Requirement

CHILD = """
import json, time
start = time.perf_counter()
import torch
middle = time.perf_counter()
import muladd
end = time.perf_counter()
def loop(total=0):
    for i in range(100_000): total += i * i
def timed(start=0.0):
    start = time.perf_counter(); loop(); return time.perf_counter() - start
loop_ms = min(timed() for _ in range(5)) * 1e3
states = {name: status.state for name, status in muladd.backends().items()}
torch_ms, muladd_ms = (middle - start) * 1e3, (end - middle) * 1e3
print(json.dumps({"torch_ms": torch_ms, "muladd_ms": muladd_ms, "loop_ms": loop_ms, "states": states}))
"""
BACKENDS = 3
PLUGIN = """
from opwheel.registry import Backend, Probe, hookimpl

def register(library):
    library.impl("mul", lambda a, b: a * b)

@hookimpl
def opwheel_backend():
    return Backend("{name}", "{device}", "{key}", register=register, operators=["mul"], requires=["torch>=2.10"])
"""


def install(folder: Path, name: str, entry_points: str = "") -> None:
    """A minimal installed distribution."""
    metadata = folder / f"{name}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    if entry_points:
        (metadata / "entry_points.txt").write_text(entry_points)


def fill(folder: Path, distributions: int) -> None:
    """Distributions of which every third has entry points of some other kind."""
    for number in range(distributions):
        other = f"[console_scripts]\ntool{number} = filler:main\n" if number % 3 == 0 else ""
        install(folder, f"filler{number}", other)


def add_backends(folder: Path) -> None:
    """Backends up to three."""
    more = BACKENDS - len(entry_points(group="muladd.backends"))
    for name, device, key in (("second", "xpu", "XPU"), ("third", "mps", "MPS"))[:more]:
        (folder / f"{name}.py").write_text(PLUGIN.format(name=name, device=device, key=key))
        install(folder, name, f"[muladd.backends]\n{name} = {name}\n")


def requirements(*names: str) -> set[str]:
    """These distributions and whatever pip installs with them."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            needed = [Requirement(text) for text in distribution(name).requires or ()]
            waiting += [one.name.lower() for one in needed if one.marker is None or one.marker.evaluate({"extra": ""})]
    return found


def link(folder: Path, distributions: set[str]) -> None:
    """An environment of these distributions, which are in this one, as links."""
    for name in distributions:
        for file in distribution(name).files or ():
            top = file.parts[0]
            if top not in ("..", "__pycache__") and not (folder / top).exists():
                (folder / top).symlink_to(str(distribution(name).locate_file(top)))


def sample(folder: Path, *options: str) -> dict[str, Any]:
    """Import once in a fresh process."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": ""}
    command = [sys.executable, *options, "-c", CHILD]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(result.stdout)


def summary(samples: list[dict[str, Any]]) -> dict[str, object]:
    """Medians and quartiles, of all samples and of those at full speed."""
    shortest = min(one["loop_ms"] for one in samples)
    fast = [one for one in samples if one["loop_ms"] <= 1.15 * shortest]
    return {"backends": samples[0]["states"], "all": times(samples), "at_full_speed": times(fast)}


def times(samples: list[dict[str, Any]]) -> dict[str, object]:
    """Medians and quartiles."""

    def quartiles(key: str) -> dict[str, float]:
        low, middle, high = statistics.quantiles([one[key] for one in samples], n=4, method="inclusive")
        return {"median": round(middle, 2), "lower_quartile": round(low, 2), "upper_quartile": round(high, 2)}

    torch_ms, muladd_ms = quartiles("torch_ms"), quartiles("muladd_ms")
    ratio = round(muladd_ms["median"] / torch_ms["median"], 4)
    return {"samples": len(samples), "torch_ms": torch_ms, "muladd_ms": muladd_ms, "ratio": ratio}


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--samples", type=int, default=50)
    parser.add_argument("--distributions", type=int, default=300)
    options = parser.parse_args()
    samples: dict[str, list[dict[str, Any]]] = {"alone": [], "among": [], "crowded": []}
    without_this_environment = "-S"
    with tempfile.TemporaryDirectory() as folder:
        folders = {name: Path(folder) / name for name in samples}
        for one in folders.values():
            one.mkdir()
        installed = requirements("muladd-core", "muladd-cpu")
        for name in ("alone", "among"):
            link(folders[name], installed)
        for name in ("among", "crowded"):
            fill(folders[name], options.distributions)
        add_backends(folders["crowded"])
        for _ in range(options.samples + 1):
            for name, found in samples.items():
                found.append(sample(folders[name], *([without_this_environment] if name != "crowded" else [])))
    for found in samples.values():
        del found[0]  # it filled the file system's cache and wrote byte code
    assert all(one["states"] == {"cpu": "loaded"} for one in samples["alone"] + samples["among"])
    assert all(len(one["states"]) == BACKENDS and "broken" not in one["states"].values() for one in samples["crowded"])
    counts = {"alone": len(installed), "among": len(installed) + options.distributions}
    report = {
        "machine": describe_machine(),
        **{
            name: {"distributions": counts.get(name, options.distributions), **summary(found)}
            for name, found in samples.items()
        },
    }
    print(json.dumps(report, indent=2))
    if options.json:
        options.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
