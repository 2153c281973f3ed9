"""The code blocks of a page, and what running each of them means.

=================  ==================================================================================================
block              run as
=================  ==================================================================================================
``python``         executed; all of a page share one namespace
``pycon``          a doctest in that namespace
``console``        after each ``$`` a command of bash, which must succeed. Lines below it must occur in what it prints,
                   in that order; numbers, spaces and what ``...`` stands for may differ
``toml``           parsed; a plugins.toml is read as a library reads it
named file         a block after a paragraph that is nothing but a path in backquotes becomes that file
``cpp``, ``cmake`` an excerpt: the comment ``<!-- from path -->`` names a file, which has these very lines, apart from
and ``text``       spaces; ``...`` stands for what is left out. That file is compiled by other tests. A template is read
                   as ``opwheel new-library waves`` writes it
=================  ==================================================================================================

A page runs in an empty folder with links to the repository's folders. What it installs with pip goes to a folder of its
own. ``<!-- not run: reason -->`` before a block exempts it; a test keeps the list of those short.
"""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
from markdown_it import MarkdownIt
from markdown_it.token import Token

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
_FILE_NAME = re.compile(r"`([\w./-]+\.\w+)`")
_NOT_RUN = re.compile(r"<!-- not run: (.+?) -->", re.DOTALL)
_FROM = re.compile(r"<!-- from (\S+) -->")
TEMPLATE_VALUES = {"namespace": "waves"}
_DIRECTIVE = re.compile(r"\{[\w-]+\}")  # MyST's own, with nothing to run: {toctree}, {literalinclude}


class Block(NamedTuple):
    """One fenced block."""

    language: str
    text: str
    line: int  # of its first line in the page
    file_name: str = ""
    not_run: str = ""  # the reason
    source: str = ""  # the file that it is an excerpt of


def blocks(page: Path) -> Iterator[Block]:
    """All code blocks of a page, in order."""
    about: dict[str, str] = {}
    for token in MarkdownIt("commonmark").parse(page.read_text()):
        if token.type in ("fence", "code_block"):
            language = token.info.partition(" ")[0]
            if not _DIRECTIVE.fullmatch(language):
                yield Block(language, token.content, token.map[0] + 2, **about)
            about = {}
        elif token.type in ("inline", "html_block"):
            about = _about(token)


def _about(token: Token) -> dict[str, str]:
    """What the paragraph or comment right before a block says of it."""
    kinds = {"file_name": _FILE_NAME} if token.type == "inline" else {"not_run": _NOT_RUN, "source": _FROM}
    found = {kind: pattern.fullmatch(token.content.strip()) for kind, pattern in kinds.items()}
    return {kind: " ".join(match[1].split()) for kind, match in found.items() if match}


class BlockError(Exception):
    """A block does not do what the page says."""


def run_python(block: Block, page: Path, namespace: dict[str, Any]) -> None:
    """Execute; an error's traceback names page and line."""
    exec(compile("\n" * (block.line - 1) + block.text, str(page), "exec"), namespace)


def run_session(block: Block, page: Path, namespace: dict[str, Any]) -> None:
    """Check an interactive session."""
    test = doctest.DocTestParser().get_doctest(block.text, namespace, page.name, str(page), block.line - 1)
    test.globs = namespace  # not a copy
    report: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=report.append, clear_globs=False)
    if report:
        raise BlockError("".join(report))


def run_console(block: Block, _: Path, __: dict[str, Any]) -> None:
    """Run its commands and compare what they print with what the page shows."""
    commands = re.split(r"^\$ ", block.text, flags=re.MULTILINE)
    if commands[0].strip() or len(commands) == 1:
        raise BlockError("a console block starts each command with '$ '")
    for text in commands[1:]:
        command, shown = _split_command(text)
        result = subprocess.run(
            ["bash", "-ec", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        if result.returncode != 0:
            raise BlockError(f"exit code {result.returncode}: {command}\n{result.stdout}")
        compare(shown, result.stdout)


def _split_command(text: str) -> tuple[str, list[str]]:
    lines = text.splitlines()
    end = next(i for i, line in enumerate(lines) if not line.endswith("\\")) + 1
    return "\n".join(lines[:end]), [line for line in lines[end:] if line.strip() not in ("", "...")]


def compare(shown: list[str], printed: str) -> None:
    """Raise BlockError unless the shown lines occur in that order."""
    rest = iter([_comparable(line) for line in printed.splitlines()])
    for line in shown:
        pattern = ".*".join(map(re.escape, _comparable(line).split("...")))
        if not any(re.fullmatch(pattern, candidate) for candidate in rest):
            raise BlockError(f"the page shows\n{line}\nbut this was printed:\n{printed}")


def _comparable(line: str) -> str:
    return " ".join(re.sub(r"\d+(\.\d+)*", "0", line).split())


def run_toml(block: Block, _: Path, __: dict[str, Any]) -> None:
    """Parse; raise where a library would complain."""
    from opwheel.registry import read_file

    if {"backends", "runtimes", "policy"} & set(tomllib.loads(block.text)):
        file = Path("plugins-of-the-page.toml")
        file.write_text(block.text)
        read_file(file)


def run_file(block: Block, _: Path, __: dict[str, Any]) -> None:
    """Write the file that a later block uses."""
    path = Path(block.file_name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(block.text)


def run_excerpt(block: Block, page: Path, _: dict[str, Any]) -> None:
    """Look the lines up in their file."""
    if not block.source:
        raise BlockError("an excerpt says in a comment where it is from: <!-- from path -->")
    path = ROOT / block.source
    text = path.read_text()
    source = _without_comment_marks(jinja2.Template(text).render(TEMPLATE_VALUES) if path.suffix == ".jinja" else text)
    for part in re.split(r"^.*\.\.\.$", block.text, flags=re.MULTILINE):
        if _without_comment_marks(part) not in source:
            raise BlockError(f"{page.name} shows what is not in {block.source}:\n{part}")


def _without_comment_marks(text: str) -> str:
    return " ".join(re.sub(r"^\s*((//|#)\s*)*", "", text, flags=re.MULTILINE).split())


RUNNERS: dict[str, Callable[[Block, Path, dict[str, Any]], None]] = {
    "python": run_python,
    "pycon": run_session,
    "console": run_console,
    "toml": run_toml,
    "cpp": run_excerpt,
    "cmake": run_excerpt,
    "text": run_excerpt,
}


def run_page(page: Path) -> None:
    """Run all blocks of a page, in the current folder."""
    namespace: dict[str, Any] = {"__name__": "__page__"}
    for block in blocks(page):
        if block.not_run:
            continue
        print(f"{page.name}:{block.line}", flush=True)
        runner = run_file if block.file_name else RUNNERS[block.language]
        runner(block, page, namespace)


def environment(folder: Path) -> dict[str, str]:
    """For the process of a page: this interpreter's commands first, pip installs into the folder."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("MULADD_")}
    installed = folder / "installed"
    return kept | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}",
        "PIP_TARGET": str(installed),
        "PIP_NO_DEPS": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PYTHONPATH": str(installed),
        "COLUMNS": "120",
        "OMP_NUM_THREADS": "1",  # small tensors; tests run side by side
    }


if __name__ == "__main__":
    run_page(Path(sys.argv[1]))
