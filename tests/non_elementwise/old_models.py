"""Saves and runs models whose operator ``waves_old::f`` has a schema of its own in each process: test_old_models.py.

python -m tests.non_elementwise.old_models FOLDER save SCHEMA    x * k, once with k=3 and once without k
python -m tests.non_elementwise.old_models FOLDER run SCHEMA     a line for each kind of model: its two results
"""

import sys
import warnings
from pathlib import Path

import torch
from opwheel.dispatch import Operator, register_python

X = torch.ones(1)


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.ops.waves_old.f(x, 3.0), torch.ops.waves_old.f(x)


def define(schema):
    """The operator, whose arguments are the schema's: the first one times the second one, plus the third one."""
    arguments = [argument.name for argument in torch._C.parse_schema(schema).arguments]
    defaults = {one.name: one.default_value for one in torch._C.parse_schema(schema).arguments}

    def f(*given, **named):
        values = {**defaults, **dict(zip(arguments, given, strict=False)), **named}
        x, k, *more = (values[name] for name in arguments)
        return x * k + (more[0] if more else 0)

    doc = "The product."
    return register_python(
        "waves_old", {schema: f}, [Operator("f", reference=f, deprecated="use waves_old.g", doc=doc)], module=__name__
    )["f"]


def save(folder):
    program = torch.export.export(Model(), (X,))
    torch.export.save(program, folder / "model.pt2")
    torch.jit.trace(Model(), X).save(folder / "traced.pt")
    torch.jit.script(Model()).save(folder / "scripted.pt")
    torch._inductor.aoti_compile_and_package(program, package_path=str(folder / "compiled.pt2"))


def run(folder):
    models = {
        "eager": Model,
        "exported": lambda: torch.export.load(folder / "model.pt2").module(),
        "traced": lambda: torch.jit.load(folder / "traced.pt"),
        "scripted": lambda: torch.jit.load(folder / "scripted.pt"),
        "compiled": lambda: torch._inductor.aoti_load_package(str(folder / "compiled.pt2")),
    }
    for kind, load in models.items():
        try:
            print(kind, *(result.item() for result in load()(X)))
        except Exception as error:
            print(kind, type(error).__name__)


if __name__ == "__main__":
    warnings.filterwarnings("error", "waves_old", FutureWarning)  # models call the operator, not its function
    define(sys.argv[3])
    {"save": save, "run": run}[sys.argv[2]](Path(sys.argv[1]))
