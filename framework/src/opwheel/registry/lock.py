"""The lock file: which wheels are installed and whose kernels win, and whether that is still so.

Imported only where a lock file is used.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from ..formats import Format
from .discovery import find_plugins
from .errors import LockError
from .installed import InstalledWheel, found_elsewhere, read_installed
from .policy import Policy
from .regular_files import in_full, read_regular
from .resolution import Claim
from .status import Finding

FORMAT = Format("opwheel lock", 1)
MAX_FILE = 2**24  # bytes

Owners = Mapping[tuple[str, str], str]  # (operator, dispatch key) -> backend


class Snapshot(NamedTuple):
    """What a lock file says.

    ``foreign`` says whether kernels for operators that others define may be on; ``winners`` has the backend by dispatch
    key and operator.
    """

    distributions: dict[str, dict[str, str]]
    plugins: dict[str, str]
    fallback: str
    foreign: str
    winners: dict[str, dict[str, str]]

    def as_text(self, namespace: str) -> str:
        """The file's content."""
        document = {"format": FORMAT.as_json(), "library": namespace, **self._asdict()}
        return json.dumps(document, indent=2, sort_keys=True) + "\n"


class Inventory(NamedTuple):
    """What is installed: the operator library's own wheel and those of its plugins; and what is wrong with that."""

    wheels: dict[str, InstalledWheel]
    plugins: dict[str, str]  # name of the entry point -> distribution, if there are several with commas
    problems: list[str]


_FRAMEWORK = "opwheel"  # its registry decides what is loaded


def take_inventory(library: str, groups: Iterable[str]) -> Inventory:
    """Read the files of the framework, of the library and of every distribution with an entry point in the groups."""
    distributions = {}
    plugins: dict[str, list[str]] = {}
    problems = []
    for group in groups:
        found, findings = find_plugins(group)
        problems += [finding.message for finding in findings]
        for plugin in found:
            distributions[plugin.distribution] = plugin.installed
            plugins.setdefault(plugin.name, []).append(plugin.distribution)
    for name in (_FRAMEWORK, library):
        try:
            distributions[name] = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            problems.append(f"{name} is not installed, it is only imported")
    wheels = {name: read_installed(dist, name) for name, dist in sorted(distributions.items())}
    for wheel in wheels.values():
        problems += [*wheel.problems, *found_elsewhere(wheel)]
    return Inventory(wheels, {name: ", ".join(sorted(owners)) for name, owners in sorted(plugins.items())}, problems)


def snapshot(inventory: Inventory, policy: Policy, owners: Owners) -> Snapshot:
    """The lock file's content for this process."""
    wheels = {name: {"version": wheel.version, "sha256": wheel.sha256} for name, wheel in inventory.wheels.items()}
    winners: dict[str, dict[str, str]] = {}
    for (operator, key), backend in sorted(owners.items()):
        winners.setdefault(key, {})[operator] = backend
    return Snapshot(wheels, inventory.plugins, policy.fallback, policy.foreign, winners)


def take_snapshot(
    own: tuple[str, Path],
    groups: Iterable[str],
    policy: Policy,
    claims: Iterable[Claim],
    owners: Owners,
    failed: Iterable[str],
) -> Snapshot:
    """What a lock file would say of this process.

    Args:
        own: the operator library's distribution, and its schema library.
        groups: of entry points.
        policy: what it says of the fallback and of kernels for operators of others.
        claims: of all backends that were asked.
        owners: those whose kernels are registered.
        failed: what is wrong with backends.

    Raises:
        LockError: something is wrong that must not be locked.
    """
    inventory = take_inventory(own[0], groups)
    winners = [claim for claim in claims if claim.backend.name in owners.values()]
    problems = [*failed, *inventory.problems, *foreign_files(inventory, [own, *files_of(winners)])]
    if problems:
        raise LockError("OPWHEEL-E072", f"this installation cannot be locked: {'; '.join(problems)}")
    return snapshot(inventory, policy, owners)


def foreign_files(inventory: Inventory, files: Iterable[tuple[str, Path]]) -> list[str]:
    """Files that are used, but are not among those of the distribution they should come from."""
    return [
        f"{path} is used, but is not a file of {name}"
        for name, path in files
        if name in inventory.wheels and not inventory.wheels[name].has(str(path))
    ]


def files_of(claims: Iterable[Claim]) -> list[tuple[str, Path]]:
    """Module and libraries of backends, each with the distribution it should come from."""
    return [
        (claim.plugin.distribution, path)
        for claim in claims
        for path in (Path(sys.modules[claim.plugin.module].__file__ or ""), *claim.backend.libraries)
    ]


def _command(namespace: str, file: Path | str) -> str:
    return shlex.join((namespace, "lock", str(file)))


def read_lock(path: Path, namespace: str) -> Snapshot:
    """Parse a lock file.

    Raises:
        LockError: it cannot be read, or is no lock file of this operator library.
    """
    path = in_full(path)
    try:
        document = json.loads(read_regular(path, MAX_FILE))
    except OSError as error:
        raise LockError("OPWHEEL-E070", f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # RecursionError: lists within lists
        raise LockError("OPWHEEL-E070", f"{path}: is not JSON: {error}") from error
    problem = _problem_with(document, namespace)
    if problem:
        raise LockError("OPWHEEL-E070", f"{path}: {problem}; `{_command(namespace, path)}` writes it again")
    return Snapshot(**{field: document[field] for field in Snapshot._fields})


def _problem_with(document: Any, namespace: str) -> str:
    if not isinstance(document, dict) or "format" not in document:
        return "is not a lock file"
    if document["format"] != FORMAT.as_json():
        return f"has format {document['format']!r}, this version reads {FORMAT.as_json()!r}"
    if document.get("library") != namespace:
        return f"is for the operator library {document.get('library')!r}, not {namespace!r}"
    wrong = [field for field in Snapshot._fields if not _is_valid(field, document.get(field))]
    return f"its {wrong[0]!r} is missing or malformed" if wrong else ""


def _is_valid(field: str, value: Any) -> bool:
    if field in ("fallback", "foreign"):
        return isinstance(value, str)
    if not isinstance(value, dict):
        return False
    rows = [value] if field == "plugins" else list(value.values())
    needed = {"version", "sha256"} if field == "distributions" else set()
    return all(isinstance(row, dict) and needed <= row.keys() and _is_text(row.values()) for row in rows)


def _is_text(values: Iterable[Any]) -> bool:
    return all(isinstance(value, str) for value in values)


def differences(locked: Snapshot, here: Snapshot) -> Iterable[str]:
    """How an installation differs from a lock file, in sentences."""
    for name in sorted(locked.distributions.keys() | here.distributions.keys()):
        then, now = locked.distributions.get(name), here.distributions.get(name)
        if then is None or now is None:
            yield f"{name} is installed, but not locked" if then is None else f"{name} is locked, but not installed"
        elif then["version"] != now["version"]:
            yield f"{name} {now['version']} is installed, {then['version']} is locked"
        elif then["sha256"] != now["sha256"]:
            digests = f"{now['sha256'][:12]} instead of {then['sha256'][:12]}"
            yield f"{name} {now['version']} is installed from another wheel than the locked one ({digests})"
    for name in sorted(locked.plugins.keys() & here.plugins.keys()):
        if locked.plugins[name] != here.plugins[name]:
            yield f"the plugin {name!r} is in {here.plugins[name]}, locked is {locked.plugins[name]}"
    if locked.fallback != here.fallback:
        yield f"the fallback is {here.fallback!r}, locked is {locked.fallback!r}"
    if locked.foreign != here.foreign:
        yield f"kernels for operators of others are {here.foreign}, locked is {locked.foreign}"
    yield from _other_winners(locked.winners, here.winners)


def _other_winners(locked: dict[str, dict[str, str]], here: dict[str, dict[str, str]]) -> Iterable[str]:
    for key in sorted(locked.keys() | here.keys()):
        then, now = locked.get(key, {}), here.get(key, {})
        changed: dict[tuple[str, str], list[str]] = {}
        for operator in sorted(then.keys() | now.keys()):
            if then.get(operator) != now.get(operator):
                pair = (now.get(operator, "no backend"), then.get(operator, "none"))
                changed.setdefault(pair, []).append(operator)
        for (winner, expected), operators in changed.items():
            yield f"at {key} {winner} wins {', '.join(operators)}, locked is {expected}"


class Guard:
    """Compares a process with a lock file while the operator library is loaded.

    Raises:
        LockError: the lock file cannot be used; and from the methods that check, if there is a difference.
    """

    def __init__(self, file: str, namespace: str, policy: Policy) -> None:
        if not file:
            variable = f"{namespace.upper()}_LOCK"
            raise LockError("OPWHEEL-E070", f"{variable} is empty: name a lock file, or unset it to do without one")
        self.locked = read_lock(Path(file), namespace)
        self._file = file
        self._policy = policy
        self._inventory = Inventory({}, {}, [])
        self._advice = f"install what is locked, or accept what is installed with `{_command(namespace, file)}`"

    def check_installed(self, library: str, groups: Iterable[str], schema_library: Path) -> None:
        """Before anything is opened: wheels, their files, the fallback."""
        self._fail_if(self.compare_installed(library, groups, schema_library))

    def check_winners(self, claims: Iterable[Claim], owners: Owners) -> None:
        """Before a backend is opened, with those who are going to win; and afterwards, with those who have won."""
        self._fail_if(self.compare_winners(claims, owners))

    def check_foreign(self, setting: str) -> None:
        """Before kernels for operators of others are switched ``"on"``."""
        here = self.locked._replace(foreign=setting)
        self._fail_if(list(differences(self.locked, here)))

    def compare_installed(self, library: str, groups: Iterable[str], schema_library: Path) -> list[str]:
        """What :meth:`check_installed` would name."""
        self._inventory = take_inventory(library, groups)
        here = snapshot(self._inventory, self._policy, {})._replace(winners=self.locked.winners)
        foreign = foreign_files(self._inventory, [(library, schema_library)])
        return [*self._inventory.problems, *foreign, *differences(self.locked, here)]

    def compare_winners(self, claims: Iterable[Claim], owners: Owners) -> list[str]:
        """What :meth:`check_winners` would name."""
        here = snapshot(self._inventory, self._policy, owners)
        winners = [claim for claim in claims if claim.backend.name in owners.values()]
        return [*foreign_files(self._inventory, files_of(winners)), *differences(self.locked, here)]

    def findings(self, differences: Iterable[str]) -> list[Finding]:
        """The same differences for a report, each once."""
        return [Finding("OPWHEEL-E071", difference, self._advice) for difference in dict.fromkeys(differences)]

    def _fail_if(self, found: list[str]) -> None:
        if found:
            named = "; ".join(dict.fromkeys(found))
            raise LockError("OPWHEEL-E071", f"the installation differs from {self._file}: {named}; {self._advice}")
