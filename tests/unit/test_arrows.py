"""Who may import and include whom: cli -> bench, testing, scaffold -> dispatch -> registry; libraries -> framework."""

import ast
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FRAMEWORK = ROOT / "framework/src/opwheel"

BASE = {
    *("_version", "_huge_pages", "_import_hooks", "_native", "_torch_private", "_torch_release"),
    *("guarded_memory", "printable", "process_memory", "processes", "result_cache"),
    "standard_output",
}
REGISTRY = {*BASE, "registry"}
DISPATCH = {*REGISTRY, "dispatch", ""}  # "": the package itself, whose names are those of registry and dispatch
# Part of opwheel -> the parts that it may import.
ARROWS = {
    **{part: set() for part in BASE},
    "_native": {"_torch_release"},
    "guarded_memory": {"_native"},
    "process_memory": {"result_cache"},
    "result_cache": {"_native"},
    "registry": REGISTRY,
    "dispatch": DISPATCH,
    "": DISPATCH,
    "build": {"build"},  # runs where torch need not be importable
    "aotinductor": DISPATCH,
    # Of libraries that know nothing of opwheel.
    "audit": {"_torch_private", "audit", "printable", "processes"},
    "testing": {*DISPATCH, "testing"},
    "bench": {*DISPATCH, "bench", "build"},  # the limit of the machine is compiled
    "scaffold": {*DISPATCH, "scaffold"},
    "cli": {*DISPATCH, "cli", "audit", "testing", "bench", "scaffold", "build"},
    "scripts": {"cli"},
    "__main__": {"cli"},
}


def python_files(*folders):
    return [path for folder in folders for path in sorted(ROOT.glob(f"{folder}/**/*.py"))]


def imports(path, package):
    """Dotted names of what a module imports, at whatever place, with relative imports resolved."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            outer = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*outer, *(node.module or "").split(".")]).rstrip(".")
            yield from (f"{base}.{alias.name}" for alias in node.names)


def part_of(name):
    """The part of opwheel that a dotted name is in: "registry", or "" for the package itself."""
    part = [*name.split("."), ""][1]
    return part if (FRAMEWORK / part).is_dir() or (FRAMEWORK / f"{part}.py").is_file() else ""


@pytest.mark.parametrize("part", sorted(ARROWS))
def test_parts_of_the_framework(part):
    folder, module = FRAMEWORK / part, FRAMEWORK / f"{part or '__init__'}.py"
    files = [module] if module.is_file() else sorted(folder.rglob("*.py"))
    assert files
    for path in files:
        package = ".".join(path.relative_to(FRAMEWORK.parent).parts[:-1])
        for name in imports(path, package):
            if name.split(".")[0] == "opwheel":
                assert part_of(name) in ARROWS[part], f"{path.relative_to(ROOT)} imports {name}"


def test_every_part_is_listed():
    found = {path.stem for path in FRAMEWORK.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    assert found - {"__init__"} == set(ARROWS) - {""}


def test_the_framework_names_no_library():
    for path in sorted((ROOT / "framework").rglob("*")):
        ours = path.suffix in {".py", ".h", ".cuh", ".cpp", ".jinja", ".toml", ".md"} and "build/lib" not in str(path)
        if ours:
            text = path.read_text().lower()
            assert [name for name in ("muladd", "transformer_ops", "transformer-ops") if name in text] == [], path


@pytest.mark.parametrize(
    "path", python_files("core/src", "libraries/*/core/src"), ids=lambda path: f"{path.parent.name}/{path.name}"
)
def test_libraries_import_the_framework(path):
    folder = next(folder for folder in path.parents if folder.name == "src")
    package = ".".join(path.relative_to(folder).parts[:-1])
    allowed = {package.partition(".")[0], "opwheel", "torch", *sys.stdlib_module_names}
    assert {name.split(".")[0] for name in imports(path, package)} <= allowed


@pytest.mark.parametrize(
    "path",
    python_files("backends/*/src", "libraries/*/backends/*/src", "examples/plugins/*/src"),
    ids=lambda path: str(path)[-60:],
)
def test_backends_do_not_import_the_library(path):
    """Its import, which loads them, is not complete; and another library's may use the same code."""
    assert {"muladd", "transformer_ops"}.isdisjoint({name.split(".")[0] for name in imports(path, "backend")})


def test_headers_of_the_framework():
    allowed = re.compile(
        r'"opwheel/.*"|<(torch|sycl)/.*>|<cuda_runtime\.h>|<(dlfcn|link|immintrin|stdlib|unistd|sys/mman)\.h>|<[a-z_]+>'
    )
    headers = [path for suffix in ("h", "cuh") for path in (FRAMEWORK / "include").rglob(f"*.{suffix}")]
    assert headers
    for path in headers:
        for include in re.findall(r"^#\s*include\s+(\S+)", path.read_text(), re.MULTILINE):
            beside = (path.parent / include.strip('"')).is_file()
            assert beside or allowed.fullmatch(include), f"{path.relative_to(ROOT)} includes {include}"
