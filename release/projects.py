"""The projects of this repository, and which interpreters here can build them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from opwheel.registry import read_file

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]

# Runs in the interpreter that would build: which requirements of pyproject.toml are not met there?
_UNMET = """
import json, sys
from importlib import metadata
from packaging.requirements import Requirement
if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

def is_met(text):
    requirement = Requirement(text)
    if requirement.marker is not None and not requirement.marker.evaluate():
        return True
    try:
        return requirement.specifier.contains(metadata.version(requirement.name), prereleases=True)
    except metadata.PackageNotFoundError:
        return False

with open(sys.argv[1], "rb") as file:
    requires = tomllib.load(file)["build-system"]["requires"]
print(json.dumps([text for text in requires if not is_met(text)]))
"""


class Project(NamedTuple):
    """A folder that builds one wheel."""

    name: str
    folder: Path

    @property
    def distribution(self) -> str:
        """As the names of its files start: ``"muladd_cpu"``."""
        document = tomllib.loads((self.folder / "pyproject.toml").read_text())
        return str(document["project"]["name"]).replace("-", "_")


def projects() -> list[Project]:
    """The framework, its tools, the core, all of plugins.toml, the metapackage; then each of libraries/."""
    found = [Project("framework", ROOT / "framework"), Project("tools", ROOT / "tools")]
    found += _of_library(ROOT, ROOT / "plugins.toml", "")
    found.append(Project("metapackage", ROOT / "metapackage"))
    for folder in sorted((ROOT / "libraries").glob("*")):
        (plugins,) = folder.glob("core/src/*/plugins.toml")
        found += _of_library(folder, plugins, f"{folder.name}-")
    return found


def _of_library(folder: Path, plugins: Path, prefix: str) -> list[Project]:
    document = read_file(plugins)
    known = [*document["backends"].values(), *document["runtimes"].values()]
    parts = {"core": "core"}  # by folder: one wheel may have several backends
    for one in known:
        parts.setdefault(one.directory, one.name)
    return [Project(f"{prefix}{name}", folder / directory) for directory, name in parts.items()]


def unmet_requirements(project: Project, python: str) -> list[str]:
    """What the interpreter lacks of what the project's pyproject.toml wants for a build."""
    command = [python, "-c", _UNMET, str(project.folder / "pyproject.toml")]
    answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return list(json.loads(answer))
