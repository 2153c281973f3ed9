"""The users' pages are written for users: nothing of the project's own tests, targets, scripts and modules is on them.

They may link to a source that is tested, with words of their own as the link's text.
"""

import re

import pytest

from .blocks import ROOT

DOCS = ROOT / "docs"
# Everything else is a page for users.
CONTRIBUTORS = {"contributing", "development", "releasing", "changes", "how-a-call-flows"}
USERS = sorted(
    page
    for page in DOCS.rglob("*.md")
    if page.stem not in CONTRIBUTORS and not {"_build", "decisions"} & set(page.relative_to(DOCS).parts)
)

TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)) - {"demo", "wheels"}
TESTS = {path.stem for path in (ROOT / "tests").iterdir()} - {"README", "__init__", "__pycache__"}
INTERNAL = {
    "a path of a test": rf"\btests/(?:{'|'.join(TESTS)})\b",
    "a target of the Makefile that only contributors need": rf"(?:`|\$ )make (?:{'|'.join(TARGETS)})\b",
    "a script of the repository": r"\b(?:python -m (?:tests|benchmarks|release)\.|benchmarks/\w+\.py|docs/\w+\.py)",
    "a module of the framework that is not public": (
        r"\b(?:dispatch|registry|memory)/\w+(?:\.py|/)|\bopwheel(?:_tools)?[./]_(?!_)\w+|\bopwheel_tools/\w+/\w+\.py"
    ),
    "a header that nobody includes": r"\bopwheel/detail/\w",
}


def internal_words(text):
    """What a reader sees of such words, by kind: comments and the targets of links are left out."""
    seen = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    seen = re.sub(r"\]\([^)\s]*\)", "]", seen)
    return {kind: match[0] for kind, pattern in INTERNAL.items() if (match := re.search(pattern, seen))}


@pytest.mark.parametrize("page", USERS, ids=lambda page: str(page.relative_to(DOCS)))
def test_users_pages_have_no_internal_words(page):
    assert internal_words(page.read_text()) == {}


def test_the_users_pages_are_those_that_users_read():
    names = {str(page.relative_to(DOCS).with_suffix("")) for page in USERS}
    assert {"index", "cuda", "transformer", "cpp-sdk/kernels"} <= names
    assert not {"development", "decisions/index"} & names
    assert all((DOCS / f"{name}.md").exists() for name in CONTRIBUTORS)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("`tests/wheels` reads them", "a path of a test"),
        ("```console\n$ make nightly\n```", "a target of the Makefile that only contributors need"),
        ("`python -m benchmarks.gpu`", "a script of the repository"),
        ("in `dispatch/autograd.py`", "a module of the framework that is not public"),
        ("`opwheel/_torch`", "a module of the framework that is not public"),
        ("`opwheel/detail/plan.h`", "a header that nobody includes"),
    ],
)
def test_internal_words_are_seen(text, kind):
    assert list(internal_words(text)) == [kind]


def test_comments_links_and_the_user_s_own_files_are_no_internal_words():
    text = "<!-- from tests/wheels/a.py --> [source](../tests/wheels/a.py) `make demo` `opwheel.__version__` `pytest`"
    assert internal_words(text) == {}
