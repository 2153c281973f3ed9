"""``doctor``: do the installed versions fit each other? pip has a look when it installs, and nobody at import."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from importlib import metadata

from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name

from ..registry import Finding
from ..registry.loading import installed_version, is_met_by
from ..text import describe_exception

_Asked = tuple[NormalizedName, str]  # a distribution, and one of its extras


def contradictions(names: Iterable[str]) -> list[Finding]:
    """What distributions require (``Requires-Dist``) and is not there in that version.

    Of the extras, those that one of them requires of another count. A distribution without metadata requires nothing.
    """
    waiting = {(canonicalize_name(name), "") for name in names}
    concerned = {name for name, _ in waiting}
    seen: set[_Asked] = set()
    findings: dict[Finding, None] = {}
    while waiting:
        name, extra = waiting.pop()
        seen.add((name, extra))
        for finding, asked in _look_at(name, extra):
            findings.update(dict.fromkeys(finding))
            waiting |= {one for one in asked if one[0] in concerned} - seen
    return sorted(findings)


def _look_at(name: str, extra: str) -> Iterator[tuple[list[Finding], set[_Asked]]]:
    """For each requirement that applies: what is wrong with it, and the extras that it asks for."""
    try:
        found = metadata.distribution(name)
        version, texts = found.version, found.requires or ()
    except Exception:  # not there, or damaged, which is another finding
        return
    for text in texts:
        try:
            requirement = Requirement(text)
            applies = requirement.marker is None or requirement.marker.evaluate({"extra": extra})
        except Exception as error:  # as in check_requirement
            problem = f"{name} {version} requires {text!r}, which cannot be read: {describe_exception(error)}"
            yield [Finding("OPWHEEL-E033", problem, f"reinstall {name}")], set()
            continue
        if applies:
            asked = {(canonicalize_name(requirement.name), one) for one in requirement.extras}
            yield list(_contradiction(name, version, requirement)), asked


def _contradiction(name: str, version: str, requirement: Requirement) -> Iterator[Finding]:
    installed = installed_version(requirement.name)
    if installed is not None and is_met_by(installed, requirement):
        return
    requirement.marker = None
    there = f"{requirement.name} {installed} is installed" if installed else "that is not installed"
    other = f", or a version of {name} that works with {requirement.name} {installed}" if installed else ""
    fix = f"pip install {shlex.quote(str(requirement))}{other}"
    yield Finding("OPWHEEL-E033", f"{name} {version} requires {requirement}, but {there}", fix)
