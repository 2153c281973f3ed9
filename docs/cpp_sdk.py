"""Writes the C++ SDK's reference, docs/cpp-sdk/*.md, from the headers and their comments: `python docs/cpp_sdk.py`.

In the overview, docs/cpp-sdk.md, it writes the list of headers. A test compares all of them with what it would write.
"""

from __future__ import annotations

import itertools
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

OVERVIEW = Path(__file__).with_name("cpp-sdk.md")
FOLDER = Path(__file__).with_name("cpp-sdk")
INCLUDE = Path(__file__).parents[1] / "tools/src/opwheel_tools/include/opwheel"


class Group(NamedTuple):
    """Headers that are described on one page, in the order in which one reads them."""

    name: str
    title: str
    when: str
    headers: tuple[str, ...]


GROUPS = (
    Group(
        "library",
        "A library: operators, functors, schemas",
        "in the core wheel of a library, and in programs that load it without Python",
        ("operators.h", "functor.h", "schema_library.h", "load.h"),
    ),
    Group(
        "elementwise",
        "Element-wise kernels",
        "in a backend that computes the library's functors: on the CPU, or with a launch of its own on another device",
        ("elementwise_kernels.h", "cpu/backend.h", "cpu/vectorized_loops.h"),
    ),
    Group(
        "kernels",
        "Kernels by hand",
        "in a backend with kernels of operators that are not element-wise, on any device",
        ("kernels.h", "views.h", "call.h", "cpu/matmul.h"),
    ),
    Group(
        "cpu-rows",
        "Loops over rows on the CPU",
        "in kernels for the CPU that work on one row at a time: norms, softmax, losses",
        ("cpu/rows.h", "cpu/row_kernels.h", "cpu/row_table.h", "cpu/vectorized_rows.h", "cpu/short_rows.h"),
    ),
    Group(
        "cuda",
        "CUDA",
        "in a CUDA backend: element-wise operators, and loops over rows",
        ("cuda/backend.h", "cuda/enqueue.cuh", "cuda/rows.cuh", "cuda/vectorized_rows.cuh"),
    ),
    Group(
        "sycl",
        "SYCL",
        "in an XPU backend: element-wise operators, and loops over rows",
        ("xpu/backend.h", "xpu/device/elementwise.h", "xpu/device/rows.h", "xpu/rows.h"),
    ),
)


class Declaration(NamedTuple):
    """Something public, with the comment above it."""

    name: str
    text: str
    comment: str


def headers() -> list[Path]:
    """Those that authors include."""
    found = {path for path in INCLUDE.rglob("*.*h") if "detail" not in path.relative_to(INCLUDE).parts}
    ordered = [INCLUDE / name for group in GROUPS for name in group.headers]
    if found != set(ordered):
        raise ValueError(f"GROUPS and the headers differ in {sorted(map(_name, found.symmetric_difference(ordered)))}")
    return ordered


_EXPORTS = re.compile(r"^// IWYU pragma: begin_exports\n(.*?)^// IWYU pragma: end_exports\n", re.MULTILINE | re.DOTALL)
_INCLUDED = re.compile(r'^#include "opwheel/(detail/.+)"$', re.MULTILINE)


def passed_on(header: Path) -> list[Path]:
    """The headers in ``detail/`` that are a part of this one: its exports, and what is included inside a namespace."""
    source = header.read_text()
    names = [name for block in _EXPORTS.findall(source) for name in _INCLUDED.findall(block)]
    names += [name for name in _INCLUDED.findall(source) if name.endswith(".inc.h")]
    return [INCLUDE / name for name in names]


def sections() -> dict[Path, list[Path]]:
    """Each header with what it is the first one to pass on."""
    shown: set[Path] = set()
    found = {}
    for header in headers():
        found[header] = [path for path in passed_on(header) if path not in shown]
        shown.update(found[header])
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


_INTERNAL = re.compile(r" \((?:opwheel/detail|opwheel/dispatch|docs|tests)/[\w./-]+\)")


def _escaped(text: str) -> str:
    """One line without references to internal files, and with what Markdown would take for HTML or bold escaped."""
    text = _INTERNAL.sub("", " ".join(text.split()))
    return re.sub(r"(`[^`]*`)|<|__", lambda match: match[1] or re.sub(r"([<_])", r"\\\1", match[0]), text)


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


_LIST = re.compile(r"(?<=<!-- headers: docs/cpp_sdk\.py writes this -->\n).*(?=<!-- end of what)", re.DOTALL)


def pages() -> dict[Path, str]:
    """The text of every page, the overview first."""
    overview = _LIST.sub(lambda _: "\n" + "\n".join(map(_headers_of, GROUPS)) + "\n", OVERVIEW.read_text())
    passed = sections()
    return {OVERVIEW: overview} | {FOLDER / f"{group.name}.md": _page(group, passed) for group in GROUPS}


def _headers_of(group: Group) -> str:
    lines = [_line(group, INCLUDE / name) for name in group.headers]
    return f"**[{group.title}](cpp-sdk/{group.name}.md)**: {group.when}.\n\n" + "".join(lines)


def _line(group: Group, header: Path) -> str:
    anchor = re.sub(r"[^a-z0-9_]", "", f"opwheel{_name(header)}")  # as GitHub and MyST make it from the heading
    first_sentence = re.split(r"[.:?](?:\s|$)", summary(header), maxsplit=1)[0]
    return f"- [`opwheel/{_name(header)}`](cpp-sdk/{group.name}.md#{anchor}): {first_sentence}\n"


def _page(group: Group, passed: dict[Path, list[Path]]) -> str:
    head = f"""<!-- written by docs/cpp_sdk.py from the comments in the headers -->

# {group.title}

Headers of the [C++ SDK](../cpp-sdk.md) to include {group.when}.
"""
    return head + "".join(_section(INCLUDE / name, passed[INCLUDE / name]) for name in group.headers)


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
    FOLDER.mkdir(exist_ok=True)
    for page, text in pages().items():
        page.write_text(text)
