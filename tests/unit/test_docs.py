"""Pages that are made from the code say what the code says."""

import re
import runpy
from pathlib import Path

import pytest
import transformer_ops

from benchmarks import summary

DOCS = Path(__file__).parents[2] / "docs"


def test_error_codes_are_current():
    page = runpy.run_path(str(DOCS / "error_codes.py"))["page"]()
    assert (DOCS / "error-codes.md").read_text() == page


def test_every_error_code_is_used_and_explained():
    from opwheel.registry import ERROR_CODES, error_codes

    package = Path(error_codes.__file__).parents[1]
    sources = "".join(path.read_text() for path in package.rglob("*.py") if path != Path(error_codes.__file__))
    sources += (DOCS.parent / "tools/src/opwheel_tools/include/opwheel/schema_library.h").read_text()
    assert set(re.findall(r"OPWHEEL-E\d+", sources)) == set(ERROR_CODES)


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
