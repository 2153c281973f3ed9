"""Pages that are made from the code say what the code says."""

import runpy
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_error_codes_are_current():
    page = runpy.run_path(str(DOCS / "error_codes.py"))["page"]()
    assert (DOCS / "error-codes.md").read_text() == page


def test_every_error_code_is_used():
    from opwheel.registry import ERROR_CODES, errors

    package = Path(errors.__file__).parents[1]
    sources = "".join(path.read_text() for path in package.rglob("*.py") if path != Path(errors.__file__))
    sources += (package / "include/opwheel/schema_library.h").read_text()
    assert [code for code in ERROR_CODES if code not in sources] == []
