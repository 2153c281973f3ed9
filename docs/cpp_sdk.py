"""Writes docs/cpp-sdk.md from the SDK's headers and their comments: `python docs/cpp_sdk.py`. A test checks it."""

from __future__ import annotations

import itertools
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).with_name("cpp-sdk.md")
INCLUDE = Path(__file__).parents[1] / "tools/src/opwheel_tools/include/opwheel"
HEAD = """# C++ SDK

The headers under `opwheel/` that operator libraries and backends include; `opwheel_tools.build` passes their
folder to the compiler, and `muladd config --includes` prints it. They need C++20 and the LibTorch
stable ABI, nothing else of PyTorch.
[Writing a backend](writing-a-backend.md) uses them from top to bottom.

Made from the headers by `python docs/cpp_sdk.py`. Nobody includes what is in `opwheel/detail/`; where a
header passes some of it on, the page shows it with the first that does. Everything in a namespace `detail` is private.

| header | what |
|---|---|
"""

# The order in which one reads them.
ORDER = (
    *("operators.h", "functor.h", "schema_library.h", "kernels.h", "views.h", "call.h"),
    *("elementwise_kernels.h", "load.h"),
    *("cpu/backend.h", "cpu/vectorized_loops.h", "cpu/rows.h", "cpu/row_kernels.h", "cpu/row_table.h"),
    *("cpu/vectorized_rows.h", "cpu/matmul.h"),
    *("cuda/backend.h", "cuda/enqueue.cuh", "cuda/rows.cuh", "cuda/vectorized_rows.cuh"),
    *("xpu/backend.h", "xpu/device/elementwise.h", "xpu/device/rows.h", "xpu/rows.h"),
)


class Declaration(NamedTuple):
    """Something public, with the comment above it."""

    name: str
    text: str
    comment: str


def headers() -> list[Path]:
    """Those that authors include."""
    found = {path for path in INCLUDE.rglob("*.*h") if "detail" not in path.relative_to(INCLUDE).parts}
    ordered = [INCLUDE / name for name in ORDER]
    if found != set(ordered):
        raise ValueError(f"ORDER and the headers differ in {sorted(map(_name, found.symmetric_difference(ordered)))}")
    return ordered


_EXPORTS = re.compile(r"^// IWYU pragma: begin_exports\n(.*?)^// IWYU pragma: end_exports\n", re.MULTILINE | re.DOTALL)
_INCLUDED = re.compile(r'^#include "opwheel/(detail/.+)"$', re.MULTILINE)


def passed_on(header: Path) -> list[Path]:
    """The headers in ``detail/`` that are a part of this one: its exports, and what is included inside a namespace."""
    source = header.read_text()
    names = [name for block in _EXPORTS.findall(source) for name in _INCLUDED.findall(block)]
    names += [name for name in _INCLUDED.findall(source) if name.endswith(".inc.h")]
    return [INCLUDE / name for name in names]


def sections() -> list[tuple[Path, list[Path]]]:
    """Each header with what it is the first one to pass on."""
    shown: set[Path] = set()
    found = []
    for header in headers():
        new = [path for path in passed_on(header) if path not in shown]
        shown.update(new)
        found.append((header, new))
    return found


def _name(header: Path) -> str:
    return header.relative_to(INCLUDE).as_posix()


def summary(header: Path) -> str:
    """The comment at the top; what is indented in it, code or a table, becomes a block of its own."""
    text = re.match(r"(?://.*\n)+", header.read_text())
    return "" if text is None else _as_markdown(text[0])


def _as_markdown(comment: str) -> str:
    lines = re.sub(r"^\s*// ?", "", comment.rstrip(), flags=re.MULTILINE).splitlines()
    parts = []
    for is_code, group in itertools.groupby(lines, key=lambda line: not line or line.startswith("    ")):
        part = textwrap.dedent("\n".join(group)).strip()
        if part:
            parts.append(_fenced(part) if is_code else _escaped(part))
    return "\n\n".join(parts)


def _fenced(text: str) -> str:
    has_columns = re.search(r"\S {2,}(?!//)\S", text)  # apart from a comment behind code
    return f"```{'text' if has_columns else 'cpp'}\n{text}\n```"


def _escaped(text: str) -> str:
    """One line, with what Markdown would take for HTML escaped outside of code."""
    return re.sub(r"`[^`]*`|<", lambda match: "\\<" if match[0] == "<" else match[0], " ".join(text.split()))


# What may come before the name: a function's result, a type's keyword, a macro's directive.
_NAME = re.compile(
    r"(?P<type>\b(?:struct|class|enum class|union)\s+(?P<type_name>\w+))"
    r"|(?P<alias>\busing\s+(?P<alias_name>\w+)\s*=)"
    r"|(?P<function>(?P<function_name>~?\b[a-zA-Z_]\w*|operator\S+)\s*\()"
)
_MACRO = re.compile(r"^#define (?P<text>(?P<name>OPWHEEL_(?!DETAIL_)\w+)(?:\([^)]*\)| \d+$)?)", re.MULTILINE)
# Directives and calls of our own macros.
_NO_STATEMENT = re.compile(r"^[ \t]*#(?:.*\\\n)*.*|^OPWHEEL_DETAIL_\w+\(.*\)$", re.MULTILINE)
_ACCESS = re.compile(r"\b(public|private|protected)\s*:(?!:)")
_EMPTY = r"(?<== )\{\}"  # the value of an argument or a member: no braces that would hold anything
_TOKEN = re.compile(
    rf'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])\'|{_EMPTY}|[{{}};]|[^{{}};/"\']+|/', re.DOTALL
)
_TEMPLATE = re.compile(r"^template <.*?>(?= (?:struct|class|inline|constexpr|using|void|auto|\w))")
_OPENS_TYPE = re.compile(r"\b(struct|class|union)\s+(\w+)[^()]*$")


def declarations(header: Path) -> list[Declaration]:
    """Public macros, types and functions, in the header's order."""
    source = header.read_text()
    macros = [
        Declaration(match["name"], match["text"].strip(), _comment_before(source, match.start()))
        for match in _MACRO.finditer(source)
        if f"#undef {match['name']}" not in source
    ]
    seen: dict[str, Declaration] = {}
    for declaration in (*macros, *_walk(source)):
        seen.setdefault(declaration.text, declaration)
    return list(seen.values())


def _comment_before(source: str, position: int) -> str:
    comment = re.search(r"(?:^[ \t]*//.*\n)+\Z", source[:position], re.MULTILINE)
    # The one at the top is about the header.
    return "" if comment is None or comment.start() == 0 else _as_markdown(comment[0])


def _walk(source: str) -> Iterator[Declaration]:
    """Follow braces: names count in namespaces and in the public part of types, nowhere else."""
    # These have no braces that would matter; blank, so that positions stay.
    code = _NO_STATEMENT.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), source)
    scopes: list[tuple[str, bool]] = []  # name of the type or "", whether its members are public
    statement, start = "", 0
    for token in _TOKEN.finditer(code):
        text = token[0]
        if text.startswith(("//", "/*")):
            continue
        if text not in ("{", "}", ";"):
            if not _ACCESS.sub("", statement).strip():
                start = token.start() + re.match(rf"\s*(?:{_ACCESS.pattern}\s*)?", text).end()
            statement += text
            continue
        words = " ".join(statement.split())
        access = _ACCESS.findall(words)
        if access and scopes and scopes[-1][0]:
            scopes[-1] = (scopes[-1][0], access[-1] == "public")
            words = _ACCESS.split(words)[-1].strip()
        is_visible = all(public for _, public in scopes)
        found = _public_name(words, text)
        if is_visible and found:
            owner = next((name for name, _ in reversed(scopes) if name), "")
            qualified = f"{owner}::{found[0]}" if owner else found[0]
            yield Declaration(qualified, found[1], _comment_before(source, source.rfind("\n", 0, start) + 1))
        if text == "{":
            opens_type = _OPENS_TYPE.search(_TEMPLATE.sub("", words))
            if words.startswith(("namespace", "extern")):
                scopes.append(("", "detail" not in words))
            elif opens_type and not words.startswith("enum"):
                scopes.append((opens_type[2], opens_type[1] != "class"))
            else:
                scopes.append(("", False))
            statement = ""
        elif text == "}":
            scopes.pop()
            statement = ""
        else:
            statement = ""


def _public_name(words: str, end: str) -> tuple[str, str] | None:
    """Name and signature of what a statement declares; None if it is nothing that one calls or names."""
    words = re.sub(r"\s+", " ", words)
    plain = _TEMPLATE.sub("", words)
    if (
        not words
        or words.startswith(("namespace", "friend", "return", "static_assert", "extern"))
        or words.endswith(("= delete", "= default"))
    ):
        return None
    found = _NAME.search(plain)
    if found is None:
        return None
    if found["type"]:
        return (found["type_name"], words.partition(" : ")[0]) if end == "{" else None
    if found["alias"]:
        return found["alias_name"], words
    before = plain[: found.start("function")]
    if "=" in before or found["function_name"].startswith("~"):
        return None
    return found["function_name"], _signature(words)


def _signature(words: str) -> str:
    """Without a constructor's initialisers and `inline`, which tell a caller nothing."""
    return re.sub(r"\)( noexcept)? : .*$", r")\1", words.replace("inline ", ""))


def page() -> str:
    """The page's text."""
    return HEAD + "".join(map(_row, headers())) + "".join(_section(header, new) for header, new in sections())


def _row(header: Path) -> str:
    anchor = re.sub(r"[^a-z0-9_]", "", f"opwheel{_name(header)}")  # as GitHub and MyST make it from the heading
    first_sentence = re.split(r"[.:?](?:\s|$)", summary(header), maxsplit=1)[0]
    return f"| [`opwheel/{_name(header)}`](#{anchor}) | {first_sentence} |\n"


def _section(header: Path, passed: list[Path]) -> str:
    parts = [f"## opwheel/{_name(header)}", *_content(header)]
    for path in passed:
        parts += [f"### {path.name.partition('.')[0].replace('_', ' ').capitalize()}", *_content(path)]
    return "\n" + "\n\n".join(parts) + "\n"


def _content(header: Path) -> list[str]:
    source = f"<!-- from {header.relative_to(INCLUDE.parents[4])} -->"
    about = re.sub(r"^```(?=\w)", f"{source}\n\n```", summary(header), flags=re.MULTILINE)
    return [about, *filter(None, ["\n".join(map(_item, declarations(header)))])]


def _item(declaration: Declaration) -> str:
    indent = "  " if "::" in declaration.name else ""
    return f"{indent}- `{declaration.text}`" + (f": {declaration.comment}" if declaration.comment else "")


if __name__ == "__main__":
    PAGE.write_text(page())
