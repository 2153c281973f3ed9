"""Saves and runs models whose operator calls ``waves_callee::four``: test_cpp_calls.py starts it.

python -m tests.non_elementwise.old_model FOLDER save   four(Tensor x) doubles x
python -m tests.non_elementwise.old_model FOLDER run    four(Tensor x, float k=3) multiplies that by k: prints results
"""

import ctypes
import sys
from pathlib import Path

import torch
from opwheel.registry import callees


def main(folder, what):
    for name in ("types", "calls"):
        library = ctypes.CDLL(str(folder / f"lib{name}.so"))
    callees.connect(library)
    argument = "" if what == "save" else ", float k=3"
    torch.library.define("waves_callee::four", f"(Tensor x{argument}) -> Tensor")
    torch.library.impl("waves_callee::four", "CPU")(lambda x, k=1.0 if what == "save" else 3.0: x * 2 * k)
    torch.library.register_fake("waves_calls::four")(torch.empty_like)
    (save if what == "save" else run)(folder)


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.ops.waves_calls.four(x)


def save(folder):
    x = torch.ones(1)
    program = torch.export.export(Model(), (x,))
    torch.export.save(program, folder / "model.pt2")
    torch.jit.trace(Model(), x).save(folder / "model.pt")
    torch._inductor.aoti_compile_and_package(program, package_path=str(folder / "compiled.pt2"))


def run(folder):
    x = torch.ones(1)
    models = [
        torch.ops.waves_calls.four,
        torch.export.load(folder / "model.pt2").module(),
        torch.jit.load(folder / "model.pt"),
        torch._inductor.aoti_load_package(str(folder / "compiled.pt2")),
    ]
    print(*(model(x).item() for model in models))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
