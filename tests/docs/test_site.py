"""The built site, and the pages that are made from the code."""

import importlib.util
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from markdown_it import MarkdownIt

from .blocks import ROOT

DOCS = ROOT / "docs"
SITE = DOCS / "_build/html"


@pytest.fixture(scope="session")
def site():
    """Where `make docs` put it."""
    if not (SITE / "index.html").exists():
        pytest.fail("there is no built site: make docs")
    return SITE


class References(HTMLParser):
    """Anchors of a page, what it refers to, its images, and the beginning of each paragraph."""

    def __init__(self, page):
        super().__init__()
        self.anchors, self.targets = set(), set()
        self.images, self.paragraphs = [], []
        self._at_start = False
        self.feed(page.read_text())

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.anchors.add(values.get("id"))
        self.targets |= {values[name] for name in ("href", "src") if values.get(name)}
        if tag == "img":
            self.images.append(values["src"])
        self._at_start = tag == "p"

    def handle_data(self, data):
        if self._at_start:
            self.paragraphs.append(data)
        self._at_start = False


def test_every_link_inside_of_the_site_leads_somewhere(site):
    pages = {path: References(path) for path in site.rglob("*.html")}
    broken = []
    for path, page in pages.items():
        for target in page.targets:
            url = urlsplit(target)
            if url.scheme or url.netloc:
                continue
            file = (path.parent / unquote(url.path)).resolve() if url.path else path
            if not file.exists() or (url.fragment and file in pages and url.fragment not in pages[file].anchors):
                broken.append(f"{path.name}: {target}")
    assert broken == []


SOURCES = sorted(path for path in DOCS.rglob("*.md") if "_build" not in path.parts)


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(DOCS)))
def test_every_image_of_a_page_is_on_the_site(site, source):
    page = site / source.relative_to(DOCS).with_suffix(".html")
    shown = References(page)
    assert [image for image in shown.images if not (page.parent / unquote(image)).is_file()] == []
    named = [Path(child.attrs["src"]).name for child in inline_of(source) if child.type == "image"]
    assert [Path(image).name for image in shown.images] == named
    assert [text for text in shown.paragraphs if text.startswith("!")] == []


def inline_of(source):
    """What the paragraphs of a page of Markdown consist of."""
    return [child for token in MarkdownIt("commonmark").parse(source.read_text()) for child in token.children or ()]


def test_some_page_has_an_image_of_another_folder(site):
    assert "cpu.png" in {Path(image).name for image in References(site / "benchmarks.html").images}


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_links_of_pages_outside_of_the_site(page):
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", (ROOT / page).read_text())
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_every_page_is_on_the_site(site):
    names = {path.relative_to(DOCS).with_suffix("") for path in DOCS.rglob("*.md") if "_build" not in path.parts}
    assert {name for name in names if not (site / name).with_suffix(".html").exists()} == set()


def test_the_index_lists_every_page(site):
    listed = References(site / "index.html").targets
    folders = (site, site / "decisions", site / "cpp-sdk")
    built = {path.relative_to(site) for folder in folders for path in folder.glob("*.html")}
    own = {"index.html", "genindex.html", "search.html", "py-modindex.html"}
    assert {str(path) for path in built} - own <= listed


def test_the_public_api_is_on_its_page(site):
    import muladd
    import opwheel
    import opwheel_tools
    from opwheel import dispatch, registry
    from opwheel_tools import build

    page = (site / "python-api.html").read_text()
    names = {f"muladd.{name}" for name in muladd.__all__}
    names |= {
        f"{module.__name__}.{name}"
        for module in (opwheel, opwheel_tools, registry, dispatch, build)
        for name in module.__all__
    }
    # Documented, or at least named as code.
    found = set(re.findall(r'id="(?:module-)?((?:muladd|opwheel)[\w.]*)"', page))
    found |= set(re.findall(r'class="pre">([\w.]+)<', page))
    missing = {name for name in names if not {name, name.rpartition(".")[2]} & found}
    assert missing == set()


def test_every_state_is_explained():
    from opwheel.registry import State

    page = (DOCS / "how-a-call-flows.md").read_text()
    assert [state for state in State if f"| `{state}` |" not in page] == []


def test_tables_with_sentences_have_headings_in_their_cells(site):
    policy, choosing, coverage = ((site / f"{name}.html").read_text() for name in ("policy", "choosing", "coverage"))
    assert "stacked" in policy
    assert 'data-heading="' not in policy, "two columns need none"
    assert 'data-heading="derivatives"' in choosing
    assert "stacked" not in coverage, "it has no sentences"


@pytest.fixture
def settings(monkeypatch):
    """docs/conf.py as a module."""
    spec = importlib.util.spec_from_file_location("site_settings", DOCS / "conf.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "site_settings", module)
    spec.loader.exec_module(module)
    return module


def test_links_to_files_of_the_repository(settings):
    page = DOCS / "decisions/page.md"
    text = (
        "[kit](../../tools/src/opwheel_tools/testing), [core](../../core), |[cell](../../core)|, [other](other.md), "
        "[up](../faq.md), ![plot](../../benchmarks/results/cpu.png)"
    )
    expected = (
        "kit (`tools/src/opwheel_tools/testing`), core, |cell|, [other](other.md), "
        "[up](../faq.md), ![plot](../../benchmarks/results/cpu.png)"
    )
    assert settings.link_outside(text, page, "") == expected
    assert "[core](https://host/blob/1/core)" in settings.link_outside(text, page, "https://host/blob/1")
    with pytest.raises(FileNotFoundError, match="nothing"):
        settings.link_outside("[text](../../nothing.py)", page, "")


def test_the_repository_s_url_is_that_of_the_build(settings, monkeypatch):
    variables = {"GITHUB_SERVER_URL": "https://host", "GITHUB_REPOSITORY": "a/b", "GITHUB_SHA": "1"}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert settings.repository_url() == "https://host/a/b/blob/1"
    monkeypatch.delenv("GITHUB_SHA")
    assert settings.repository_url() == ""


def test_patterns_in_the_index(settings):
    index = "```{toctree}\nfirst\nShort <long>\nnew-*\n```\n\n```{toctree}\nd/*\n*\n```\n"
    pages = {"first", "long", "new-b", "new-a", "d/1", "other"}
    expected = "```{toctree}\nfirst\nShort <long>\nnew-a\nnew-b\n```\n\n```{toctree}\nd/1\nother\n```\n"
    assert settings.expand_patterns(index, pages) == expected
