"""What an entry is: a public fix, and what the judge is to find in the commit before it."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent


class Entry(NamedTuple):
    """A fix of a wrong result.

    The module that has it as ``ENTRY`` has the functions ``candidate``, which calls what was fixed, ``reference``, the
    operator's definition in PyTorch, and ``inputs``.

    Args:
        repository: owner and name on GitHub.
        fix: the commit; its parent has the defect.
        wrong: what was wrong, in a line.
        group: of the finding in the parent, a key of the judge's ``GROUPS``.
        says: a part of what the finding says, which names the result or argument that the fix is about.
        source: the folder of the repository that goes to the search path.
        package: what is written of that folder; all of it where it is empty.
        accepted: findings in the fix that are known: groups, with the reason.
    """

    repository: str
    fix: str
    wrong: str
    group: str
    says: str
    source: str = "."
    package: str = ""
    accepted: tuple[tuple[str, str], ...] = ()

    @property
    def clone(self) -> str:
        """The folder of its repository in the folder of checkouts."""
        return self.repository.rpartition("/")[2]


def entries(folder: Path = HERE / "entries") -> dict[Path, Entry]:
    """All entries, by their files."""
    names = sorted(module.name for module in pkgutil.iter_modules([str(folder)]))
    return {
        folder / f"{name}.py": importlib.import_module(f"tests.time_machine.entries.{name}").ENTRY for name in names
    }
