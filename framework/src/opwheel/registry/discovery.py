"""Finds installed plugins: one scan of the installed metadata, each entry point loaded in isolation."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from types import FrameType
from typing import TypeVar

from ..text import describe_exception, describe_value
from .backend import Backend, Runtime
from .distributions import distributions_for, name_and_version
from .errors import CodedError, InvalidBackendError
from .hooks import plain_hook
from .regular_files import in_full
from .status import Finding
from .values import NAME, fix_in, is_name
from .warning_filters import kept_filters

Described = TypeVar("Described", Backend, Runtime)


class FoundPlugin:
    """A line of a distribution's entry_points.txt, not imported yet. ``entry_point`` is None where the line is none."""

    def __init__(
        self,
        name: str,
        distribution: str,
        version: str,
        group: str,
        line: str,
        entry_point: metadata.EntryPoint | None,
        installed: metadata.Distribution,
    ) -> None:
        self.name = name
        self.distribution = distribution
        self.version = version
        self.group = group
        self.line = line
        self.entry_point = entry_point
        self.installed = installed

    @property
    def module(self) -> str:
        """The module that the line names; empty where it names none."""
        return "" if self.entry_point is None else self.entry_point.module

    @property
    def is_being_imported(self) -> bool:
        """Whether the import of its module, or of a package around it, is under way: its hook is not there yet."""
        return bool(self._initializing())

    @property
    def is_imported_by_this_thread(self) -> bool:
        """Whether that import is what led here: it cannot end before this call has returned."""
        modules = self._initializing()
        frame: FrameType | None = sys._getframe()
        while frame is not None:
            if frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") in modules:
                return True
            frame = frame.f_back
        return False

    @property
    def files(self) -> str:
        """Where its Python files are, as far as they have been imported: a folder, or one file; else empty."""
        file = str(getattr(sys.modules.get(self.module.partition(".")[0]), "__file__", None) or "")
        return file.removesuffix("__init__.py")

    def _initializing(self) -> list[str]:
        parts = self.module.split(".")
        return [name for end in range(len(parts)) if _is_initializing(name := ".".join(parts[: end + 1]))]


def _is_initializing(name: str) -> bool:
    spec = getattr(sys.modules.get(name), "__spec__", None)
    return getattr(spec, "_initializing", False) is True


class PluginError(CodedError):
    """Reading a plugin failed: ``code`` says at which step, ``fix`` what its author changes, ``__cause__`` is why."""

    def __init__(self, code: str, reason: str, fix: str) -> None:
        super().__init__(reason)
        self.code = code
        self.fix = fix


def find_plugins(group: str) -> tuple[list[FoundPlugin], list[Finding]]:
    """Every entry point of the group, and what is wrong with the metadata of distributions that mention it.

    Of a distribution that is on sys.path twice, the first counts, as in Python. That is a finding where the metadata of
    another version may be that of the modules.
    """
    plugins: dict[str, list[FoundPlugin]] = {}
    findings: list[Finding] = []
    for distribution in distributions_for(group):
        try:
            found = _plugins_of(distribution, group) if _mentions(distribution, group) else []
            if found:
                first = plugins.setdefault(found[0].distribution, found)
                findings += _leftovers(first[0], found[0])
        except Exception as error:  # damaged metadata raises whatever its parser stumbles over
            problem = (
                f"the metadata in {_place(distribution)} is damaged, its backends are ignored: "
                f"{describe_exception(error)}"
            )
            fix = "reinstall or uninstall that distribution; if nothing else helps, delete the folder"
            findings.append(Finding("OPWHEEL-E025", problem, fix))
    return [plugin for found in plugins.values() for plugin in found], findings


def _leftovers(first: FoundPlugin, second: FoundPlugin) -> Iterator[Finding]:
    """Whether two distributions of one name are one, of which an installer has left or lost a part.

    They are not where each is whole in a folder of its own: Python takes the modules of the first, too.
    """
    one, other = first.installed, second.installed
    if first.version == second.version:
        return
    folder = Path(str(one.locate_file("")))
    module = folder.joinpath(*first.module.split("."))
    is_whole = (module / "__init__.py").exists() or module.with_suffix(".py").exists()
    if is_whole and folder != Path(str(other.locate_file(""))):
        return
    problem = (
        f"{first.distribution} is there twice: {first.version} ({_place(one)}), which counts, and {second.version} "
        f"({_place(other)})"
    )
    fixes = [fix for found in (one, other) if (fix := _without_pip(found))]
    fix = " or ".join(fixes) or f"pip uninstall {first.distribution} until none is left, and install it again"
    yield Finding("OPWHEEL-E026", problem, fix)


def _without_pip(distribution: metadata.Distribution) -> str:
    """How to be rid of metadata that pip does not remove; empty if it does.

    Those are an egg-info, which a build leaves among the sources, and what is in the current folder, where pip does not
    look.
    """
    from .hiding import is_current

    folder = Path(str(distribution.locate_file("")))
    if is_current(folder):
        return f"leave the folder {in_full(folder)}, or delete {_place(distribution)}"
    is_egg_info = str(_place(distribution)).endswith(".egg-info")
    return f"delete {_place(distribution)}" if is_egg_info and not distribution.read_text("installed-files.txt") else ""


def _place(distribution: metadata.Distribution) -> object:
    place = getattr(distribution, "_path", None) or distribution.locate_file("")
    return in_full(place) if isinstance(place, Path) else place  # of the current folder, it is relative


def _mentions(distribution: metadata.Distribution, group: str) -> bool:
    folder = getattr(distribution, "_path", None)
    try:
        if isinstance(folder, Path):  # bytes: the file may be damaged elsewhere
            return group.encode() in (folder / "entry_points.txt").read_bytes()
        return group in (distribution.read_text("entry_points.txt") or "")
    except (OSError, UnicodeDecodeError):
        # Any distribution could be a plugin of ours: one that cannot be read at all does not count as one.
        return False


def _plugins_of(distribution: metadata.Distribution, group: str) -> list[FoundPlugin]:
    lines = list(_lines_of(group, distribution.read_text("entry_points.txt") or ""))
    if not lines:
        return []
    name, version = name_and_version(distribution)
    if not (name and is_name(name) and version and version.isprintable() and len(version) <= 100):
        given = f"{describe_value(name)} and {describe_value(version)}"
        raise ValueError(f"METADATA must give Name and Version; it gives {given}")
    normalized = name.lower().replace("_", "-").replace(".", "-")
    while "--" in normalized:
        normalized = normalized.replace("--", "-")
    found = []
    for line in lines:
        name, _, value = map(str.strip, line.partition("="))
        is_valid = metadata.EntryPoint.pattern.match(value) is not None
        point = metadata.EntryPoint(name, value, group) if is_valid else None
        found.append(FoundPlugin(name, normalized, version, group, line, point, distribution))
    return found


def _lines_of(group: str, text: str) -> Iterator[str]:
    """The lines of one group in an entry_points.txt. ``Distribution.entry_points`` fails at the first that is wrong."""
    section = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("[") and line.endswith("]"):
            section = line.strip("[]")
        elif section == group and line and not line.startswith("#"):
            yield line


def read_plugin(plugin: FoundPlugin, hook: str, kind: type[Described]) -> Described:
    """Import the plugin's module and ask its hook.

    Args:
        plugin: where the module is.
        hook: name of one of :class:`~.pluggy_hooks.PluginHooks`.
        kind: the class of the record that the hook returns.

    Raises:
        PluginError: for whatever goes wrong in it, ``SystemExit`` included; only a KeyboardInterrupt passes.
    """
    title = kind.__name__
    table = f'[project.entry-points."{plugin.group}"] of pyproject.toml'
    if not is_name(plugin.name):
        reason = f"its entry point is called {describe_value(plugin.name)}, expected {NAME}"
        raise PluginError(
            "OPWHEEL-E022", reason, f'write a name such as acme = "{plugin.module or "module"}" in {table}'
        )
    if plugin.entry_point is None:
        reason = f"its entry point is {describe_value(plugin.line)}, expected {plugin.name} = MODULE"
        raise PluginError("OPWHEEL-E022", reason, f'write {plugin.name} = "module" in {table}')
    origin = plugin.entry_point.value
    importable = f'make `python -c "import {plugin.module}"` work, or name another module in {table}'
    with _blamed("OPWHEEL-E020", f"importing {origin} failed", importable):
        module = plugin.entry_point.load()
    right = f"`@hookimpl def {hook}()` in {plugin.module}, without parameters, returns {kind.example(plugin.name)}"
    with _blamed("OPWHEEL-E021", f"the hook of {origin} failed", f"correct the hook: {right}"):
        answers = _call_hook(module, plugin.name, hook)
    if answers is None:
        reason = f"{origin} has no function {hook} that is marked with @hookimpl"
        raise PluginError("OPWHEEL-E021", reason, f"write the hook: {right}")
    answer = answers[0] if answers else None  # pluggy leaves out hooks that return None
    if not isinstance(answer, kind):
        reason = f"the hook of {origin} returned {describe_value(answer)}, expected a {title}"
        raise PluginError("OPWHEEL-E021", reason, f"correct the hook: {right}")
    if answer.name != plugin.name:
        reason = f"the entry point is called {plugin.name!r}, but its {title} names itself {answer.name!r}"
        fix = f'write name="{plugin.name}" in the {title}, or {answer.name} = "{origin}" in {table}'
        raise PluginError("OPWHEEL-E022", reason, fix)
    return answer


@contextmanager
def _blamed(code: str, reason: str, fix: str) -> Iterator[None]:
    """Around a plugin's code: whatever it raises is the plugin's failure; a record that is not valid has its code.

    What it does to the filters of warnings is undone.
    """
    try:
        with kept_filters():
            yield
    except KeyboardInterrupt:
        raise
    except InvalidBackendError as error:
        raise PluginError("OPWHEEL-E022", reason, fix_in(error) or fix) from error
    except BaseException as error:
        raise PluginError(code, reason, fix) from error


def _call_hook(plugin: object, name: str, hook: str) -> list[object] | None:
    """What the hook has returned, in a list: an empty one for None, as pluggy has it. None where there is no hook."""
    function = plain_hook(plugin, hook)
    if function is None:
        from .pluggy_hooks import call_through_pluggy

        return call_through_pluggy(plugin, name, hook)
    answer = function()
    return [] if answer is None else [answer]
