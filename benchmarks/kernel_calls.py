"""What a call of another operator costs a kernel: opwheel/call.h against PyTorch's raw call of the dispatcher.

The callee is `aten::alias`, which does next to nothing. Both are called in turns by a C function, with the native
library and, as where there is none for this PyTorch, through Python. The median of the nanoseconds per call over the
rounds is reported.

    python benchmarks/kernel_calls.py --json benchmarks/results/kernel_calls.json
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import subprocess
import tempfile
from pathlib import Path

from opwheel._build.toolchain import find_cxx, find_torch, stable_abi_macros
from opwheel.registry import callees
from opwheel_tools import get_include
from opwheel_tools.bench.machine import describe_machine

SOURCE = """
#include <chrono>

#include "opwheel/call.h"

using namespace opwheel;

OPWHEEL_CALLEE(alias, "aten::alias(Tensor self) -> Tensor")

Tensor raw(const Tensor& x) {
  AtenTensorHandle reference = nullptr;
  OPWHEEL_SHIM(aoti_torch_new_tensor_handle(x.handle(), &reference));
  StableIValue stack[] = {torch::stable::detail::from(reference)};
  OPWHEEL_SHIM(torch_call_dispatcher("aten::alias", "", stack, TORCH_ABI_VERSION));
  return Tensor(torch::stable::detail::to<AtenTensorHandle>(stack[0]));
}

template <class Body>
double ns_per_call(int calls, const Body& body) {
  const Tensor x = new_empty({4}, ScalarType::Float, Device{aoti_torch_device_type_cpu(), -1});
  body(x);
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) body(x);
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count() / calls;
}

#define EXPORT extern "C" __attribute__((visibility("default")))
EXPORT double raw_ns(int calls) { return ns_per_call(calls, raw); }
EXPORT double call_ns(int calls) {
  return ns_per_call(calls, [](const Tensor& x) { return call<alias>(x); });
}
"""


def build(folder: Path) -> ctypes.CDLL:
    """The library with both calls."""
    source, output = folder / "calls.cpp", folder / "libcalls.so"
    source.write_text(SOURCE)
    torch = find_torch()
    flags = ["-std=c++20", "-O3", "-fPIC", *stable_abi_macros("2.10"), f"-I{get_include()}", f"-isystem{torch.include}"]
    link = ["-shared", str(source), "-o", str(output), f"-L{torch.lib}", "-ltorch_cpu"]
    subprocess.run([*find_cxx(), *flags, *link], check=True)
    library = ctypes.CDLL(str(output))
    library.raw_ns.restype = library.call_ns.restype = ctypes.c_double
    return library


def main() -> None:
    """Measure, and print or write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        library = build(Path(folder))
    samples: dict[str, list[float]] = {"raw": [], "native": [], "python": []}
    for _ in range(arguments.rounds):
        samples["raw"].append(library.raw_ns(arguments.calls))
        callees.connect(library)
        samples["native"].append(library.call_ns(arguments.calls))
        library.opwheel_set_dispatcher(*callees.functions_in_python())
        samples["python"].append(library.call_ns(arguments.calls // 20))
    medians = {f"{name}_ns": round(statistics.median(values)) for name, values in samples.items()}
    report = {"machine": describe_machine(), "rounds": arguments.rounds, "calls": arguments.calls, **medians}
    text = json.dumps(report, indent=2)
    if arguments.json:
        arguments.json.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
