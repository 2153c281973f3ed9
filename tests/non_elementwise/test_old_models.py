"""What models that were saved before do when their operator has another schema: the table of docs/changing-a-schema.md.

When a callee of a kernel has got another argument: test_cpp_calls.py.
"""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from opwheel.dispatch import Operator, register_python
from opwheel_tools import breaking_changes

ROOT = Path(__file__).parents[2]
BEFORE = "f(Tensor x, float k=2) -> Tensor"
RIGHT = "3.0 2.0"
SAVED = ("exported", "traced", "scripted", "compiled")


def run(folder, what, schema):
    """A line for each kind of model: its results, or the class of the error."""
    command = [sys.executable, "-m", "tests.non_elementwise.old_models", str(folder), what, schema]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = (line.partition(" ") for line in done.stdout.splitlines())
    return {kind: result for kind, _, result in lines if kind in ("eager", *SAVED)}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    run(folder, "save", BEFORE)
    return folder


GROWN = "f(Tensor x, float k=2, float extra=0, *, bool negate=False) -> Tensor"


@pytest.mark.slow
@pytest.mark.parametrize("schema", [BEFORE, GROWN], ids=["deprecated", "more arguments"])
def test_right(models, schema):
    assert run(models, "run", schema) == dict.fromkeys(("eager", *SAVED), RIGHT)
    assert breaking_changes([BEFORE], [schema]) == []


# What PyTorch makes of the rest, with no error for some of it.
WRONG = {
    "f(Tensor input, float k=2) -> Tensor": {"exported": "RuntimeError"},
    "f(Tensor x, float factor=2) -> Tensor": {"exported": "2.0 2.0"},
    "f(Tensor x, float k=5) -> Tensor": {"exported": "3.0 5.0", "traced": "3.0 5.0", "scripted": "3.0 5.0"},
    "f(Tensor x, float extra=0, float k=2) -> Tensor": dict.fromkeys(("exported", "traced", "scripted"), "5.0 2.0"),
}


@pytest.mark.slow
@pytest.mark.parametrize("schema", WRONG)
def test_wrong_and_found_by_the_library_s_test(models, schema):
    results = run(models, "run", schema)
    assert {kind: results[kind] for kind in ("exported", "traced", "scripted") if results[kind] != RIGHT} == WRONG[
        schema
    ]
    assert len(breaking_changes([BEFORE], [schema])) == 1


@pytest.fixture(scope="module")
def deprecated():
    operators = [
        Operator("old", reference=lambda x, k: x * k, deprecated="use waves_deprecated.new", doc="The product."),
        Operator("new", reference=lambda x, k: x * k, doc="The product."),
    ]
    kernels = {f"{one.name}(Tensor x, float k) -> Tensor": one.reference for one in operators}
    return register_python("waves_deprecated", kernels, operators, module=__name__)


def test_a_deprecated_function_says_what_to_use(deprecated):
    x = torch.ones(2, requires_grad=True)
    with pytest.warns(
        FutureWarning, match=r"^waves_deprecated\.old is deprecated: use waves_deprecated\.new$"
    ) as caught:
        deprecated["old"](x, 3.0).sum().backward()
    assert [warning.filename for warning in caught] == [__file__]
    assert x.grad.tolist() == [3, 3]
    assert deprecated["old"].__doc__ == "The product.\n\nDeprecated: use waves_deprecated.new."
    assert deprecated["new"].__doc__ == "The product."


@pytest.mark.filterwarnings("error")
def test_its_operator_and_its_successor_say_nothing(deprecated):
    x = torch.ones(2)
    assert torch.ops.waves_deprecated.old(x, 3.0).tolist() == [3, 3]
    assert deprecated["new"](x, 3.0).tolist() == [3, 3]


@pytest.mark.filterwarnings("ignore:waves_deprecated")
def test_it_compiles_as_one_graph(deprecated):
    compiled = torch.compile(lambda x: deprecated["old"](x, 3.0) + 1, fullgraph=True, backend="aot_eager")
    assert compiled(torch.ones(2)).tolist() == [4, 4]
