"""Every defect that tests of the tests seed fits the sources as they are; and the edits by tokens themselves."""

from pathlib import Path

import muladd
import opwheel_tools
import pytest

from tests.cpp_edit import replace
from tests.mutants.mutations import (
    CUDA_CLUSTER_MUTATIONS,
    CUDA_MUTATIONS,
    CUDA_ROW_MUTATIONS,
    CUDA_TEAM_MUTATIONS,
    MUTATIONS,
    SYCL_ROW_MUTATIONS,
)

ALL = [*MUTATIONS, *CUDA_MUTATIONS, *CUDA_ROW_MUTATIONS, *CUDA_TEAM_MUTATIONS, *CUDA_CLUSTER_MUTATIONS]
ALL += SYCL_ROW_MUTATIONS


@pytest.mark.parametrize("mutation", ALL, ids=lambda mutation: mutation.name)
def test_fits_the_sources(mutation):
    library = muladd if mutation.header.startswith("muladd/") else opwheel_tools
    include = Path(library.get_include())
    assert mutation.mutated(include) != (include / mutation.header).read_text()


def test_formatting_and_comments_do_not_matter():
    source = "int f(int a) {  // a + 1\n  return a   // the first\n      + 1;\n}\n"
    assert replace(source, "a+1", "a") == "int f(int a) {  // a + 1\n  return a;\n}\n"
    assert replace('f("a + 1", a + 1, a + 1\'000)', "a + 1,", "b,") == 'f("a + 1", b, a + 1\'000)'


def test_within_a_block():
    source = (
        "struct A {{ int f() {{ return 1; }} }};\nstruct B {{ int f() {{ return {}; }} }};\nint g() {{ return 1; }}\n"
    )
    assert replace(source.format(1), "return 1", "return 2", within="struct B") == source.format(2)


@pytest.mark.parametrize(
    ("old", "within", "words"),
    [
        ("b + 1", "", "there 0 times"),
        ("a + 1", "", r"there 2 times, not once \(lines \[1, 2\]\)"),
        ("a + 1", "int h()", "'int h.*there 0 times"),
        ("b", "int f()", r"there 0 times within 'int f\(\)'"),
    ],
)
def test_what_does_not_fit_is_named(old, within, words):
    source = "int f() { return a + 1; }\nint g() { return a + 1; }\nint b;\n"
    with pytest.raises(ValueError, match=words):
        replace(source, old, "", within=within)
