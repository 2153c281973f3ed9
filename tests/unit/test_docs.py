"""Pages that are made from the code say what the code says."""

import ast
import re
import runpy
from itertools import pairwise
from pathlib import Path

import pytest
import transformer_ops

from benchmarks import summary

DOCS = Path(__file__).parents[2] / "docs"


def test_error_codes_are_current():
    page = runpy.run_path(str(DOCS / "error_codes.py"))["page"]()
    assert (DOCS / "error-codes.md").read_text() == page


def test_the_table_of_placements_is_current():
    """Made by ``python docs/placements.py``."""
    assert (DOCS / "placements.md").read_text() == runpy.run_path(str(DOCS / "placements.py"))["page"]()


def test_every_error_code_is_used_and_explained():
    from opwheel.registry import ERROR_CODES, error_codes

    package = Path(error_codes.__file__).parents[1]
    sources = "".join(path.read_text() for path in package.rglob("*.py") if path != Path(error_codes.__file__))
    tools = [*(DOCS.parent / "tools/src").rglob("*.py"), *(DOCS.parent / "backends/executorch/src").rglob("*.py")]
    header = DOCS.parent / "tools/src/opwheel_tools/include/opwheel/schema_library.h"
    sources += "".join(path.read_text() for path in [*tools, header])
    assert set(re.findall(r"OPWHEEL-E\d+", sources)) == set(ERROR_CODES)


SOURCES = ("framework", "tools/src", "core/src", "backends/*/src", "libraries/*/core/src", "libraries/*/backends/*/src")


def environment_variables():
    """What Python and C++ read: names with their prefix; and names of a library's own, without it."""
    whole, own = set(), set()
    for path in (path for folder in SOURCES for path in DOCS.parent.glob(f"{folder}/**/*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and re.fullmatch(r"(OPWHEEL|MULADD)_[A-Z_]+", str(node.value)):
                whole.add(node.value)
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "read" and path.name == "policy.py":
                own.add(node.args[0].value)
            if isinstance(node, ast.JoinedStr):
                for value, text in pairwise(node.values):
                    is_prefix = isinstance(value, ast.FormattedValue) and re.search(
                        r"prefix|upper\(\)", ast.unparse(value)
                    )
                    found = is_prefix and isinstance(text, ast.Constant) and re.match(r"_([A-Z_]+)\b", text.value)
                    own |= {found[1]} if found else set()
    headers = DOCS.parent / "tools/src/opwheel_tools/include/opwheel"
    for path in headers.rglob("*.h"):
        text = path.read_text()
        if "getenv" in text:
            own |= {name.lstrip("_") for name in re.findall(r'"(_?[A-Z]+_[A-Z_]+)"', text)}
    return whole, own


def test_every_environment_variable_is_on_the_page():
    from opwheel.registry import variables

    whole, own = environment_variables()
    assert {"OPWHEEL_AUTOGRAD", "OPWHEEL_TORCHES"} <= whole
    assert {"BACKENDS", "LOCK", "REQUIRE", "LIBRARY_PATH", "CPU_CAPABILITY", "HUGE_PAGES"} <= own
    assert own == set(variables.KNOWN)
    page = (DOCS / "policy.md").read_text()
    rows = set(re.findall(r"^\| `([A-Z_]+)", page, re.MULTILINE))
    assert rows == whole | {f"MULADD_{name}" for name in own}


def test_the_call_flow_names_files_that_exist():
    root = DOCS.parent
    text = (DOCS / "how-a-call-flows.md").read_text()
    framework = root / "framework/src/opwheel"
    folders = {"dispatch": framework, "registry": framework, "opwheel": root / "tools/src/opwheel_tools/include"}
    paths = re.findall(r"`((?:dispatch|registry|opwheel|framework|core|backends)/[\w./]*)`", text)
    assert len(paths) > 20
    assert [path for path in paths if not (folders.get(path.partition("/")[0], root) / path).exists()] == []


@pytest.mark.parametrize("page", summary.PAGES, ids=lambda path: path.name)
def test_pages_have_the_committed_results(page):
    text = page.read_text()
    assert "benchmarks/summary.py writes this" in text
    assert summary.replaced(text) == text, "python -m benchmarks.summary"


def test_the_api_page_of_transformer_ops_has_every_function_and_class():
    page = (DOCS / "transformer-api.md").read_text()
    names = {name for name in transformer_ops.__all__ if callable(getattr(transformer_ops, name))}
    methods = {name for name in names if hasattr(transformer_ops.library, name)}
    assert names - methods
    for name in names - methods:
        assert f":: transformer_ops.{name}\n" in page, name
    for name in methods:
        assert f"`{name}`" in page, name
