"""Private names of PyTorch: all of them are listed, exist, and are used in opwheel/_torch alone."""

import ast
import re
from pathlib import Path

import pytest
import torch
from opwheel._torch import lookup, names, private

ROOT = Path(__file__).parents[2]
PRIVATE = ROOT / "framework/src/opwheel/_torch"
SOURCES = ("framework/src", "tools/src", "core/src", "backends/*/src", "libraries/*/core/src", "libraries/*/*/*/src")
# Where private names are used all the same, and what for.
ELSEWHERE = {
    "opwheel_tools/judge/watching.py": "what a candidate may replace, to hide what it does",
    "opwheel_tools/judge/samples.py": "the calls that PyTorch's own tests make of its operators",
    "opwheel_tools/audit/checks/": "programs that show a defect contain these sources, and need PyTorch alone",
    "opwheel_tools/testing/placements/": "PyTorch's own validator of sharding rules",
    "transformer_ops/hugging_face/hooks.py": "hooks and own forwards of modules",
    "transformer_ops/hugging_face/activations.py": "what Transformers' activations compute",
    "transformer_ops/hugging_face/deferred_logits.py": "a tensor whose values are computed when they are used",
    "transformer_ops_triton/kernels/arguments.py": "assertions on the device",
}
# Attributes of others than PyTorch: of NamedTuples, of the standard library and of typer.
OF_OTHERS = {"_replace", "_asdict", "_fields", "_make", "_field_defaults", "_getframe", "_exit", "_handle"}


def is_private(name):
    return name.startswith("_") and not name.startswith("__")


def chain(node):
    """The dotted name of an attribute, from where it begins."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id if isinstance(node, ast.Name) else "", *reversed(parts)])


def defined_here(trees):
    """Names that the sources themselves give to something."""
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                yield node.name
            elif isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store):
                yield node.id if isinstance(node, ast.Name) else node.attr


def private_names(tree, ours):
    """Names under ``torch`` with a private part, and private attributes of what is not ours."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "torch":
            found = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            found = [alias.name for alias in node.names if alias.name.split(".")[0] == "torch"]
        elif isinstance(node, ast.Attribute):
            name = chain(node)
            of_torch = name.startswith("torch.") and is_private(node.attr)
            found = [name] if of_torch or (is_private(node.attr) and node.attr not in ours) else []
        else:
            found = []
        yield from (name for name in found if any(map(is_private, name.split("."))))


def sources():
    found = [path for folder in SOURCES for path in sorted(ROOT.glob(f"{folder}/**/*.py"))]
    return [path for path in found if "build" not in path.parts and "tests" not in path.parts]


def test_used_in_one_place():
    trees = {path: ast.parse(path.read_text()) for path in sources()}
    ours = {*defined_here(trees.values()), *OF_OTHERS} - {name.rpartition(".")[2] for name in names.NAMES}
    elsewhere = [
        f"{path.relative_to(ROOT)}: {name}"
        for path, tree in trees.items()
        if PRIVATE not in path.parents and not any(one in str(path) for one in ELSEWHERE)
        for name in private_names(tree, ours)
        if not name.startswith(names.FOR_USERS)
    ]
    assert elsewhere == []


@pytest.mark.parametrize("path", names.NAMES)
def test_it_exists(path):
    assert not isinstance(lookup.find(path), lookup.Missing)


def test_every_name_is_used():
    text = "".join(path.read_text() for path in PRIVATE.glob("private/*.py"))
    used = set(re.findall(r'"((?:torch|Library)\.[\w.]+)"', text)) - {
        "torch.utils.checkpoint",
        "torch._native.registry",
    }  # of sys.modules
    assert used == set(names.NAMES)


def test_every_function_is_tested():
    tests = (ROOT / "tests/unit/test_torch_private.py").read_text()
    assert [name for name in private.__all__ if f"private.{name}" not in tests] == []


def test_what_a_missing_one_says(monkeypatch):
    """It warns once, in words, and raises the same when it is used, in whatever way."""
    path = "torch._C._not_there"
    name = names.Name(path, "to test", "nothing is tested")
    monkeypatch.setitem(names.NAMES, path, name)
    with pytest.warns(RuntimeWarning, match="no torch._C._not_there, which opwheel uses for this: to test. Without it"):
        missing = lookup.find(path)
    assert lookup.missing() == [name]
    words = f"PyTorch {re.escape(torch.__version__)} has no torch._C._not_there"
    for use in (lambda: missing(1), lambda: missing.x, lambda: missing & 1, lambda: 1 & missing, lambda: missing >= 0):
        with pytest.raises(RuntimeError, match=words):
            use()
    with pytest.raises(RuntimeError, match=words), missing:
        pass
    lookup.find(path)  # warns no more: RuntimeWarnings of opwheel are errors here
