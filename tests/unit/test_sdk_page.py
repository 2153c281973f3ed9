"""The pages that docs/cpp_sdk.py writes from the SDK's headers and their comments are as those are."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


@pytest.fixture(scope="session")
def sdk():
    """docs/cpp_sdk.py."""
    return runpy.run_path(str(DOCS / "cpp_sdk.py"))


def test_the_pages_are_current(sdk):
    stale = [page.name for page, text in sdk["pages"]().items() if not page.exists() or page.read_text() != text]
    assert stale == [], "run: python docs/cpp_sdk.py"
    assert sorted(sdk["FOLDER"].iterdir()) == sorted(set(sdk["pages"]()) - {sdk["OVERVIEW"]})


def test_no_page_is_long(sdk):
    assert [page.name for page, text in sdk["pages"]().items() if text.count("\n") > 300] == []


@pytest.fixture(scope="session")
def reference(sdk):
    """The text of all generated pages but the overview."""
    return "".join(text for page, text in sdk["pages"]().items() if page != sdk["OVERVIEW"])


# At the beginning of a line, in no namespace `detail`: what clang-format leaves there are declarations.
FUNCTION = re.compile(r"^(?:(?:inline|constexpr|\[\[\w+\]\]|[\w:<>]+[&*]?) )+\*?(\w+)\(", re.MULTILINE)


def test_every_public_function_of_the_headers_is_on_a_page(sdk, reference):
    names = set()
    for header in (path for entry, passed in sdk["sections"]().items() for path in (entry, *passed)):
        public = re.sub(
            r"^namespace detail \{.*?^\}  // namespace detail", "", header.read_text(), flags=re.MULTILINE | re.DOTALL
        )
        names |= {match[1] for match in FUNCTION.finditer(public)}
    assert len(names) > 15
    assert {name for name in names if f"{name}(" not in reference} == set()


def test_the_headings_are_the_headers_that_authors_include(sdk, reference):
    include = ROOT / "tools/src/opwheel_tools/include"
    entries = [str(path.relative_to(include)) for path in sdk["headers"]()]
    assert re.findall(r"^## (opwheel/.+)$", reference, re.MULTILINE) == entries
    assert not any("/detail/" in entry for entry in entries)
    listed = re.findall(r"^- \[`(opwheel/.+)`\]", sdk["OVERVIEW"].read_text(), re.MULTILINE)
    assert listed == entries


HEADER = """// About it.
#pragma once

#define OPWHEEL_THING(x) \\
  do_it(x)
#define OPWHEEL_GONE
#undef OPWHEEL_GONE

namespace opwheel {
namespace detail {
inline int hidden() { return 1; }
}

// A type (opwheel/detail/type.h).
class Shape {
 public:
  // Makes one, __device__ too.
  explicit Shape(int n) : n_(n) {}
  Shape() = default;
  int size() const { return helper(n_); }

 private:
  int secret() { return 2; }
  int n_;
};

template <class C>
inline C twice(C c) {
  return c + other(c);
}

template <class C, int kCount>
class Row {
 public:
  C first() const { return c_; }

 private:
  C last() const { return c_; }
  C c_;
};

#define OPWHEEL_DETAIL_MAKE(x) int x();
OPWHEEL_DETAIL_MAKE(y)

// Some numbers.
inline int total(std::initializer_list<int> some = {}) { return add(some); }
}  // namespace opwheel
"""


def test_reads_a_header(sdk, tmp_path):
    header = tmp_path / "some.h"
    header.write_text(HEADER)
    found = {declaration.name: declaration for declaration in sdk["declarations"](header)}
    assert list(found) == [
        *("OPWHEEL_THING", "Shape", "Shape::Shape", "Shape::size", "twice", "Row", "Row::first", "total")
    ]
    assert found["Shape"].comment == "A type."
    assert found["Shape::Shape"] == ("Shape::Shape", "explicit Shape(int n)", r"Makes one, \_\_device\_\_ too.")
    assert found["twice"].text == "template <class C> C twice(C c)"
    assert found["total"] == ("total", "int total(std::initializer_list<int> some = {})", "Some numbers.")
    assert sdk["summary"](header) == "About it."
