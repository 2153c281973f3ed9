"""Who may import and include whom: tools -> framework; in each commands -> ... -> registry; libraries -> framework.

What tools use of a library, its opinfos, may import the tools; nothing else of the library imports either.
"""

import ast
import graphlib
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FRAMEWORK = ROOT / "framework/src/opwheel"
TOOLS = ROOT / "tools/src/opwheel_tools"

BASE = {"_import_hooks", "_namespace", "_once", "_torch", "_version", "formats", "memory", "text"}
REGISTRY = {*BASE, "registry"}
DISPATCH = {
    *REGISTRY,
    "dispatch",
    "foreign",
    "",
}  # "": the package itself, whose names are those of registry and dispatch
# Part of opwheel -> the parts that it may import.
ARROWS = {
    **{part: set() for part in BASE},
    "_torch": {"_import_hooks", "_torch"},
    "memory": {"_torch", "memory"},
    "registry": REGISTRY,
    "foreign": {*REGISTRY, "foreign"},
    "dispatch": DISPATCH,
    "": DISPATCH,
    "_build": {"_build"},  # runs where torch need not be importable
    "aotinductor": DISPATCH,
    "cuda": {"cuda", "registry"},  # the probe of a library's CUDA backend, which imports it
    "commands": {*DISPATCH, "commands"},
    "scripts": {"commands"},
    "__main__": {"commands"},
}
_OF_FRAMEWORK = {f"opwheel.{part}".rstrip(".") for part in DISPATCH}
# The same of opwheel_tools, with the parts of opwheel by their full names.
TOOLS_ARROWS = {
    "_version": set(),
    "": {"_version", "just_in_time", "opinfo", "opwheel._import_hooks", "schema_changes"},
    "just_in_time": {*_OF_FRAMEWORK, "opwheel._build", "compiled"},
    "opinfo": {*_OF_FRAMEWORK, "opinfo"},
    "schema_changes": {"opwheel._torch"},
    "compiled": {"opwheel._build"},
    "build": {"", "build", "opwheel._build"},  # where torch need not be importable
    # Of libraries that need not know of opwheel.
    "hub": set(),
    "invariance": {"invariance"},
    "judge": {*_OF_FRAMEWORK, "hub", "invariance", "judge", "opinfo", "testing"},
    "audit": {"audit", "hub", "judge", "opwheel._torch", "opwheel.formats", "opwheel.text"},
    "testing": {*_OF_FRAMEWORK, "compiled", "invariance", "opinfo", "testing"},
    "bench": {*_OF_FRAMEWORK, "bench", "compiled", "opinfo"},
    "scaffold": {*_OF_FRAMEWORK, "", "scaffold"},
    "export": {*_OF_FRAMEWORK, "export"},
    "commands": {
        *_OF_FRAMEWORK,
        "opwheel.commands",
        "opwheel._build",
        "",
        "commands",
        "audit",
        "judge",
        "opinfo",
        "testing",
        "bench",
        "scaffold",
        "export",
    },
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


def part_of(name, root):
    """The part of a package that a dotted name is in: "registry", or "" for the package itself."""
    part = [*name.split("."), ""][1]
    return part if (root / part).is_dir() or (root / f"{part}.py").is_file() else ""


def imports_of_part(root, part):
    """What the files of a part of a package import, as pairs of the file and a dotted name."""
    folder, module = root / part, root / f"{part or '__init__'}.py"
    files = [module] if module.is_file() else sorted(folder.rglob("*.py"))
    assert files
    for path in files:
        package = ".".join(path.relative_to(root.parent).parts[:-1])
        yield from ((path.relative_to(ROOT), name) for name in imports(path, package))


@pytest.mark.parametrize("part", sorted(ARROWS))
def test_parts_of_the_framework(part):
    for path, name in imports_of_part(FRAMEWORK, part):
        assert name.split(".")[0] != "opwheel_tools", f"{path} imports {name}"
        if name.split(".")[0] == "opwheel":
            assert part_of(name, FRAMEWORK) in ARROWS[part], f"{path} imports {name}"


@pytest.mark.parametrize("part", sorted(TOOLS_ARROWS))
def test_parts_of_the_tools(part):
    for path, name in imports_of_part(TOOLS, part):
        if name.split(".")[0] == "opwheel_tools":
            assert part_of(name, TOOLS) in TOOLS_ARROWS[part], f"{path} imports {name}"
        if name.split(".")[0] == "opwheel":
            assert f"opwheel.{part_of(name, FRAMEWORK)}".rstrip(".") in TOOLS_ARROWS[part], f"{path} imports {name}"


def modules_and_imports(root):
    """The modules of a package by their dotted names, each with those of the same package that it imports."""
    files = {".".join(path.relative_to(root.parent).with_suffix("").parts): path for path in root.rglob("*.py")}
    modules = {name.removesuffix(".__init__"): path for name, path in files.items()}
    found = {}
    for module, path in modules.items():
        package = ".".join(path.relative_to(root.parent).parts[:-1])
        names = {name if name in modules else name.rpartition(".")[0] for name in imports(path, package)}
        found[module] = {name for name in names if name in modules and not module.startswith(f"{name}.")} - {module}
    return found


PACKAGES = sorted(
    package
    for folder in ("framework", "tools", "core", "backends/*", "libraries/*/core", "libraries/*/backends/*")
    for package in ROOT.glob(f"{folder}/src/*")
    if (package / "__init__.py").is_file()
)


@pytest.mark.parametrize("root", PACKAGES, ids=lambda root: root.name)
def test_no_circle_of_files(root):
    """Imports in functions and for types count as well."""
    assert list(graphlib.TopologicalSorter(modules_and_imports(root)).static_order())  # a circle is a CycleError


def test_circles_are_found(tmp_path):
    house = tmp_path / "house"
    house.mkdir()
    files = {
        "__init__": "from .first import a\n",
        "first": "def f():\n    from .second import b\n",
        "second": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .third import c\n",
        "third": "import house.first\n",
        "fourth": "from .first import a\nfrom . import second\n",
    }
    for name, text in files.items():
        (house / f"{name}.py").write_text(text)
    with pytest.raises(graphlib.CycleError) as caught:
        list(graphlib.TopologicalSorter(modules_and_imports(house)).static_order())
    assert set(caught.value.args[1]) == {"house.first", "house.second", "house.third"}


@pytest.mark.parametrize("part", ["registry", "commands"])
def test_operations_need_the_standard_library_and_what_production_has(part):
    allowed = {"opwheel", "torch", "pluggy", "packaging", "tomli", *sys.stdlib_module_names}
    for path, name in imports_of_part(FRAMEWORK, part):
        assert name.split(".")[0] in allowed, f"{path} imports {name}"


@pytest.mark.parametrize(("root", "arrows"), [(FRAMEWORK, ARROWS), (TOOLS, TOOLS_ARROWS)], ids=["opwheel", "tools"])
def test_every_part_is_listed(root, arrows):
    found = {path.stem for path in root.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    assert found - {"__init__"} == set(arrows) - {""}


def test_the_framework_names_no_library():
    for path in sorted([*(ROOT / "framework").rglob("*"), *(ROOT / "tools").rglob("*")]):
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
    library = package.partition(".")[0]
    for_tools = f"{library}.opinfos"
    is_for_tools = f"{package}.{path.stem}.".startswith(f"{for_tools}.")
    allowed = {library, "opwheel", "torch", *sys.stdlib_module_names, *(["opwheel_tools"] if is_for_tools else [])}
    found = set(imports(path, package))
    assert {name.split(".")[0] for name in found} <= allowed
    assert is_for_tools or not {name for name in found if f"{name}.".startswith(f"{for_tools}.")}


@pytest.mark.parametrize(
    "path",
    python_files("backends/*/src", "libraries/*/backends/*/src", "examples/plugins/*/src"),
    ids=lambda path: str(path)[-60:],
)
def test_backends_do_not_import_the_library(path):
    """Its import, which loads them, is not complete; and another library's may use the same code."""
    assert {"muladd", "transformer_ops"}.isdisjoint({name.split(".")[0] for name in imports(path, "backend")})


SDK = TOOLS / "include/opwheel"
INCLUDE = re.compile(r"^\s*#\s*include\s+(\S+)", re.MULTILINE)
SOURCES = {".h", ".cuh", ".cpp", ".cu", ".jinja", ".py", ".md"}


def text_files(*folders):
    """Sources, documentation and what has C++ in it as text: what a build has made is left out."""
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            parts = path.relative_to(ROOT).parts
            above = parts[: parts.index("src")] if "src" in parts else parts  # a package is called build as well
            is_made = {"build", "_build", ".venv", "__pycache__"} & set(above)
            if path.suffix in SOURCES and not is_made and path.is_file():
                yield path


EVERYWHERE = (
    "framework",
    "tools",
    "core",
    "backends",
    "libraries",
    "examples",
    "benchmarks",
    "docs",
    "tests",
    "release",
)


def test_headers_of_the_framework():
    allowed = re.compile(
        r'"opwheel/.*"|<(torch|sycl)/.*>|<cuda_(runtime|bf16|fp16)\.h>|<cooperative_groups\.h>|<(arm_neon|dlfcn|link|immintrin|stdlib|unistd|sys/(auxv|mman))\.h>|<[a-z_]+>'
    )
    headers = [path for suffix in ("h", "cuh") for path in (TOOLS / "include").rglob(f"*.{suffix}")]
    assert headers
    for path in headers:
        for include in re.findall(r"^#\s*include\s+(\S+)", path.read_text(), re.MULTILINE):
            beside = (path.parent / include.strip('"')).is_file()
            assert beside or allowed.fullmatch(include), f"{path.relative_to(ROOT)} includes {include}"


def test_every_header_of_the_sdk_that_is_included_exists():
    folders = set()  # that have such includes
    for path in text_files(*EVERYWHERE):
        for name in re.findall(r'#\s*include\s+"(opwheel/[\w./]+)"', path.read_text()):
            assert (SDK.parent / name).is_file(), f"{path.relative_to(ROOT)} includes {name}"
            folders.add(path.relative_to(ROOT).parts[0])
    assert folders >= {"tools", "core", "backends", "libraries", "examples", "docs", "tests"}


def test_only_the_tools_include_what_is_in_detail():
    """Authors include the other headers; tests/toolchain has the SDK's own tests."""
    folders = [folder for folder in EVERYWHERE if folder != "tools"]
    templates = TOOLS.relative_to(ROOT) / "scaffold/templates"
    for path in text_files(*folders, templates):
        if "toolchain" not in path.parts:
            assert not re.search(r'#\s*include\s+"opwheel/detail/', path.read_text()), path.relative_to(ROOT)


def namespaces_of_includes(source):
    """Each include of a source, and the depth of braces that it is at."""
    code = re.sub(r"//[^\n]*", "", source)
    for include in INCLUDE.finditer(code):
        before = re.sub(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])\'', "", code[: include.start()])
        before = re.sub(r"^\s*#\s*define(?:.*\\\n)*.*", "", before, flags=re.MULTILINE)
        yield include[1], before.count("{") - before.count("}")


def test_what_is_included_inside_a_namespace_says_so_in_its_name():
    """It is named .inc.h, and has no guard: each place that includes it gets its own."""
    inside = set()
    for path in text_files("tools/src/opwheel_tools/include", "backends", "libraries", "core"):
        if path.suffix in {".h", ".cuh", ".cpp", ".cu"}:
            source = path.read_text()
            for include, depth in namespaces_of_includes(source):
                assert depth == 0 or include.endswith('.inc.h"'), f"{path.relative_to(ROOT)} includes {include}"
                inside |= {include} if depth else set()
            is_guarded = "#pragma once" in source or re.search(r"^#ifndef (\w+)\n#define \1$", source, re.MULTILINE)
            assert not (path.name.endswith(".inc.h") and is_guarded), path.relative_to(ROOT)
    assert '"opwheel/detail/reductions.inc.h"' in inside


def test_includes_inside_a_namespace_are_seen():
    source = '#include <a>\n#define F(x) {\nnamespace n {\n// {\n#include "b"\n}\nconst char* c = "{";\n#include "d"\n'
    assert list(namespaces_of_includes(source)) == [("<a>", 0), ('"b"', 1), ('"d"', 0)]
