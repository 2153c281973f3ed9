"""Sphinx's settings: `make docs` builds the site from the pages in this folder."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path

import muladd
from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).parent))  # for stacked_tables

project = "opwheel and muladd"
project_copyright = "the muladd contributors"
release = muladd.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
    "stacked_tables",
]
exclude_patterns = ["_build"]

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = True
copybutton_line_continuation_character = "\\"

html_theme = "furo"
pygments_dark_style = "a11y-dark"  # the theme's underlines names, as if they were links
html_title = f"opwheel and muladd {release}"
html_favicon = "_static/favicon.svg"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_show_sourcelink = False
html_theme_options = {"top_of_page_buttons": []}

ROOT = Path(__file__).parents[1]
_OUTSIDE = re.compile(r"(?<!!)\[(?P<text>[^\[\]]+)\]\((?P<target>(?:\.\./)+[^)\s]+)\)")


def repository_url() -> str:
    """Where the files of this commit can be seen, if this is a build of GitHub Actions; otherwise empty."""
    variables = ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_SHA")
    server, repository, commit = (os.environ.get(variable, "") for variable in variables)
    return f"{server}/{repository}/blob/{commit}" if server and repository and commit else ""


def link_outside(text: str, page: Path, url: str) -> str:
    """Make links to files of the repository that are not on the site lead there; without a URL, say the path.

    Links to other pages stay as they are, and so do images: Sphinx copies their files into the site, wherever in the
    repository they lie.

    Raises:
        FileNotFoundError: a link leads to nothing.
    """

    def replace(link: re.Match[str]) -> str:
        target = (page.parent / link["target"].partition("#")[0]).resolve()
        if not target.exists():
            raise FileNotFoundError(f"{page}: link to {link['target']}, which does not exist")
        if target.suffix == ".md" and target.is_relative_to(ROOT / "docs"):
            return link[0]
        path = target.relative_to(ROOT)
        if url:
            return f"[{link['text']}]({url}/{path})"
        is_enough = str(path) in link["text"] or link.string[: link.start()].endswith("|")  # in a narrow table
        return link["text"] if is_enough else f"{link['text']} (`{path}`)"

    return _OUTSIDE.sub(replace, text)


def expand_patterns(index: str, pages: Iterable[str]) -> str:
    """Put the pages into the index's toctrees: a line with a pattern stands for those that no line before it names.

    Sphinx's own ``:glob:`` would list a page again for each pattern, and warn where none matches.
    """
    named = {re.sub(r".+ <(.+)>", r"\1", line) for line in index.splitlines()}  # as it is, or behind a shorter title
    rest = sorted(set(pages) - named)
    lines = []
    for line in index.splitlines():
        if re.fullmatch(r"[\w/-]*\*", line):
            matching = [page for page in rest if re.fullmatch(line.replace("*", "[^/]*"), page)]
            rest = [page for page in rest if page not in matching]
            lines += matching
        else:
            lines.append(line)
    return "\n".join(lines) + "\n"


def _read_source(app: Sphinx, name: str, content: list[str]) -> None:
    content[0] = link_outside(content[0], Path(app.env.doc2path(name)), repository_url())
    if name == "index":
        content[0] = expand_patterns(content[0], app.env.found_docs - {"index"})


def setup(app: Sphinx) -> None:
    """Sphinx calls it."""
    app.connect("source-read", _read_source)
