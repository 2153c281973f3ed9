"""A folder of templates becomes a project. A file that ends in .jinja is rendered, others are copied."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from .names import ScaffoldError

TEMPLATES = Path(__file__).parent / "templates"
_SUFFIX = ".jinja"


class Project(NamedTuple):
    """A project that was written."""

    folder: Path
    files: tuple[Path, ...]  # relative to it


def check_free(folder: Path) -> None:
    """Check that nothing would be overwritten.

    Raises:
        ScaffoldError: there is something already.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ScaffoldError(
            f"{folder} exists and is not an empty folder; remove it, or choose another one with --output"
        )


def render(sources: Iterable[str], folder: Path, values: Mapping[str, Any]) -> tuple[Path, ...]:
    """Write the template folders ``sources``, one over the other, into ``folder``.

    In the names of files and folders, ``_package_`` stands for the value ``package``, and ``_dot_`` for a leading dot,
    which packaging tools would leave out.
    """
    import jinja2  # most commands write no project

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # noqa: S701  # what it writes is source code, not HTML
    )
    written: dict[Path, None] = {}  # in order, each once
    for source in sources:
        for path in sorted(path for path in (TEMPLATES / source).rglob("*") if path.is_file()):
            if "__pycache__" in path.parts:
                continue
            template = path.relative_to(TEMPLATES).as_posix()
            name = path.relative_to(TEMPLATES / source).as_posix().removesuffix(_SUFFIX)
            target = Path(name.replace("_package_", str(values["package"])).replace("_dot_", "."))
            is_template = path.suffix == _SUFFIX
            text = environment.get_template(template).render(values) if is_template else path.read_text()
            (folder / target).parent.mkdir(parents=True, exist_ok=True)
            (folder / target).write_text(text)
            written[target] = None
    return tuple(written)
