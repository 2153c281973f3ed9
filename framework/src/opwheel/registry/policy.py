"""plugins.toml and the environment: which backends may load, and who comes first.

Precedence, from weak to strong: the file that the operator library ships, the user's file named by ``<PREFIX>_PLUGINS``
(tables of backends are merged by name, each key under [policy] replaces the shipped one), the environment variables.
``<PREFIX>_BACKENDS`` is in the place of ``disable``.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ..memory.settings import HUGE_PAGES, RESULT_CACHE
from ..text import describe_exception, describe_value
from .errors import PolicyError
from .regular_files import in_full, read_regular
from .status import Finding

FALLBACKS = ("error", "reference")
COMPILE = ("fuse", "kernel")
FOREIGN = ("off", "on")
# include/opwheel/detail/cpu/capability.h reads the variable itself; bf16 is of aarch64.
CPU_CAPABILITIES = ("baseline", "avx2", "avx512", "bf16")
_CHOICES = {
    "fallback": FALLBACKS,
    "huge-pages": HUGE_PAGES,
    "result-cache": RESULT_CACHE,
    "compile": COMPILE,
    "foreign": FOREIGN,
}
PROBE_TIMEOUT_S = 10.0
MAX_PROBE_TIMEOUT_S = 86_400.0
MAX_FILE = 2**20  # bytes


class _Known:
    def __init__(self, name: str, distribution: str, directory: str = "", hint: str = "") -> None:
        self.name = name
        self.distribution = distribution
        self.directory = directory
        self.hint = hint


class KnownRuntime(_Known):
    """One ``[runtimes.NAME]`` table: kernels one can install for a runtime that is not PyTorch's dispatcher."""


class KnownBackend(_Known):
    """One ``[backends.NAME]`` table: a backend one can install."""

    def __init__(
        self, name: str, distribution: str, dispatch_key: str, device: str, directory: str = "", hint: str = ""
    ) -> None:
        super().__init__(name, distribution, directory, hint)
        self.dispatch_key = dispatch_key
        self.device = device


class Policy:
    """What the files and the environment say, merged; where they say nothing, as it is written here."""

    backends: Mapping[str, KnownBackend] = MappingProxyType({})
    runtimes: Mapping[str, KnownRuntime] = MappingProxyType({})
    first_party: frozenset[str] = frozenset()  # distributions in the shipped file
    disable: frozenset[str] = frozenset()
    prefer: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    fallback: str = "error"
    huge_pages: str = "advise"  # for large new results on a CPU
    result_cache: str = "keep"  # their memory, for the next ones
    compile: str = "fuse"
    foreign: str = "off"  # kernels for operators that others define
    cpu_capability: str | None = None  # the newest instruction set that kernels for the CPU may use
    check: bool | None = None  # results of kernels in Python: of every call, of none; None: of the first of each kind
    allow: frozenset[str] | None = None
    autoload: bool = True
    strict: bool = False
    trace: bool = False
    probe_timeout_s: float = PROBE_TIMEOUT_S
    lock: str | None = None  # path of the lock file
    findings: tuple[Finding, ...] = ()

    def replaced(self, **changes: Any) -> Policy:
        """Another policy, which differs in these attributes."""
        policy = Policy()
        vars(policy).update(vars(self), **changes)
        return policy

    def rejects(self, name: str, namespace: str) -> tuple[str, str] | None:
        """Why the backend may not load, and what to change; None if it may."""
        prefix = namespace.upper()
        if not self.autoload:
            return (f"{prefix}_AUTOLOAD=0", f"call {namespace}.load({name!r}), or unset the variable")
        if self.allow is None:
            fix = f"remove {name!r} from disable, or name it in {prefix}_BACKENDS"
            return ("plugins.toml lists it under [policy] disable", fix) if name in self.disable else None
        if name not in self.allow:
            listed = ",".join(sorted(self.allow))
            return (
                f"{prefix}_BACKENDS={listed} does not name it",
                f"add {name} to {prefix}_BACKENDS, or unset the variable",
            )
        return None

    def unknown_names(
        self, installed: set[str], prefix: str, is_dispatch_key: Callable[[str], bool]
    ) -> Iterator[Finding]:
        """Backends and dispatch keys that the policy names and that do not exist."""
        known = sorted(installed | set(self.backends))
        file = "in plugins.toml"
        sources = [
            ("OPWHEEL-E011", f"{prefix}_BACKENDS", self.allow or ()),
            ("OPWHEEL-E010", f"[policy] disable {file}", self.disable),
            *(("OPWHEEL-E010", f"[policy] prefer.{key} {file}", names) for key, names in self.prefer.items()),
        ]
        for code, source, names in sources:
            for name in sorted(set(names) - set(known)):
                problem = f"{source} names {name!r}, which is not a backend; known are {', '.join(known)}"
                yield Finding(code, problem, f"correct or remove {name!r} there")
        for key in self.prefer:
            if not is_dispatch_key(key):
                problem = f"[policy] prefer {file} names {key!r}, which is not a dispatch key of PyTorch"
                yield Finding("OPWHEEL-E010", problem, "write it as PyTorch does: CPU, CUDA, XPU")

    def rank(self, key: str, name: str) -> int:
        """Position in the order of preference for a dispatch key; unnamed ones come last."""
        order = self.prefer.get(key, ())
        return order.index(name) if name in order else len(order)


def read_policy(shipped: Path, environment: Mapping[str, str], prefix: str) -> Policy:
    """Merge the shipped file, the user's file and the environment. Mistakes become findings, they do not raise."""
    policy = _overlay(Policy(), _read_compiled(shipped) or read_file(shipped))
    policy = policy.replaced(first_party=frozenset(known.distribution for known in policy.backends.values()))
    findings: list[Finding] = []
    user_file = environment.get(f"{prefix}_PLUGINS")
    if user_file:
        try:
            policy = _overlay(policy, read_file(Path(user_file)))
        except PolicyError as error:
            fix = f"correct it, or unset {prefix}_PLUGINS"
            findings.append(Finding(error.code, f"{error.message}; the file is ignored", fix))
    return _overlay_environment(policy, environment, prefix, findings).replaced(findings=tuple(findings))


def only_check(environment: Mapping[str, str], prefix: str) -> Policy:
    """The policy of operators that no distribution ships: ``<PREFIX>_CHECK`` alone is read."""
    findings: list[Finding] = []
    variable = f"{prefix}_CHECK"
    given = {variable: environment[variable]} if variable in environment else {}
    return _overlay_environment(Policy(), given, prefix, findings).replaced(findings=tuple(findings))


def read_file(path: Path) -> dict[str, Any]:
    """Parse and validate a plugins.toml.

    Returns:
        ``{"backends": {name: KnownBackend}, "runtimes": {name: KnownRuntime}, "policy": {key: value}}`` with what the
        file has.

    Raises:
        PolicyError: naming file, line and key.
    """
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib  # pragma: no cover  # Python 3.10
    path = in_full(path)
    try:
        content = read_regular(path, MAX_FILE)
    except OSError as error:
        raise PolicyError("OPWHEEL-E010", f"{path}: cannot be read: {error.strerror}") from error
    try:
        text = content.decode()
        document = tomllib.loads(text)
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise PolicyError("OPWHEEL-E010", f"{path}:{line}: is not UTF-8 text") from error
    except tomllib.TOMLDecodeError as error:
        place = re.search(r" \((?:at line (\d+).*|at end of document)\)$", str(error))
        at = place[1] if place and place[1] else text.count("\n") + 1
        problem = str(error)[: place.start()] if place else str(error)
        raise PolicyError("OPWHEEL-E010", f"{path}:{at}: is not TOML: {problem}") from error
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, lists within lists
        problem = f"is too much for the parser: {describe_exception(error)}"
        raise PolicyError("OPWHEEL-E010", f"{path}:{_line_too_much(text, tomllib.loads)}: {problem}") from error
    return _Validator(path, text).document(document)


def _line_too_much(text: str, parse: Callable[[str], Any]) -> int:
    """The first line that makes the parser fail other than by saying what is wrong: it reads from the front."""
    lines = text.split("\n")

    def is_too_much(end: int) -> bool:
        try:
            parse("\n".join(lines[:end]))
        except (ValueError, RecursionError) as error:
            return type(error) in (ValueError, RecursionError)
        return False

    return bisect_left(range(len(lines)), True, key=is_too_much)


def _read_compiled(path: Path) -> dict[str, Any] | None:
    """The plugins.json that the build wrote for the file; None if there is none, or if it is for another text.

    Importing a TOML parser would be a tenth of the operator library's import.
    """
    try:
        compiled = json.loads(path.with_suffix(".json").read_bytes())
        text = path.read_bytes()
        is_current = compiled["sha256"] == hashlib.sha256(text).hexdigest()
        return _Validator(path, text.decode()).document(compiled["document"]) if is_current else None
    except Exception:  # not there, or damaged, in whatever way: the text counts
        return None


class _Validator:
    """Checks the parsed document; keeps the text to find the line of a key."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self.lines = text.splitlines()

    def document(self, document: dict[str, Any]) -> dict[str, Any]:
        self.only_keys(document, ("backends", "runtimes", "policy"), ())
        backends = self.table(document.get("backends", {}), ("backends",))
        runtimes = self.table(document.get("runtimes", {}), ("runtimes",))
        policy = self.table(document.get("policy", {}), ("policy",))
        self.only_keys(policy, ("disable", "prefer", *_CHOICES), ("policy",))
        return {
            "backends": {name: self.backend(name, table) for name, table in backends.items()},
            "runtimes": {name: self.runtime(name, table) for name, table in runtimes.items()},
            "policy": {key.replace("-", "_"): self.policy_value(key, value) for key, value in policy.items()},
        }

    def backend(self, name: str, table: Any) -> KnownBackend:
        return KnownBackend(
            name=name, **self.texts(table, ("backends", name), ("distribution", "dispatch-key", "device"))
        )

    def runtime(self, name: str, table: Any) -> KnownRuntime:
        return KnownRuntime(name=name, **self.texts(table, ("runtimes", name), ("distribution",)))

    def texts(self, table: Any, where: tuple[str, ...], required: tuple[str, ...]) -> dict[str, str]:
        """The table of something one can install, as field names and values."""
        self.only_keys(self.table(table, where), (*required, "directory", "hint"), where)
        for key in required:
            if key not in table:
                self.fail(where, f"has no {key!r}")
        for key, value in table.items():
            self.expect(isinstance(value, str) and value, (*where, key), value, "a text that is not empty")
        return {key.replace("-", "_"): value for key, value in table.items()}

    def policy_value(self, key: str, value: Any) -> Any:
        where = ("policy", key)
        if key == "disable":
            return frozenset(self.names(value, where))
        if key == "prefer":
            return {k: tuple(self.names(v, (*where, k))) for k, v in self.table(value, where).items()}
        choices = _CHOICES[key]
        self.expect(value in choices, where, value, " or ".join(map(repr, choices)))
        return value

    def names(self, value: Any, where: tuple[str, ...]) -> list[str]:
        is_names = isinstance(value, list) and all(isinstance(item, str) for item in value)
        self.expect(is_names, where, value, "a list of backend names")
        return list(value)

    def table(self, value: Any, where: tuple[str, ...]) -> dict[str, Any]:
        self.expect(isinstance(value, dict), where, value, "a table")
        return dict(value)

    def only_keys(self, table: dict[str, Any], allowed: tuple[str, ...], where: tuple[str, ...]) -> None:
        for key in table:
            if key not in allowed:
                self.fail((*where, key), f"is not a known key; known are {', '.join(allowed)}")

    def expect(self, holds: Any, where: tuple[str, ...], value: Any, wanted: str) -> None:
        if not holds:
            self.fail(where, f"is {describe_value(value)}, expected {wanted}")

    def fail(self, where: tuple[str, ...], problem: str) -> None:
        raise PolicyError("OPWHEEL-E010", f"{self.path}:{self.line_of(where)}: {'.'.join(where)} {problem}")

    def line_of(self, where: tuple[str, ...]) -> int:
        """Line of the most specific part of the dotted key that stands in the text."""
        best, start = 1, 0
        for part in where:
            key = re.escape(part)
            pattern = re.compile(rf"""(^\s*|[\[.{{,]\s*)["']?{key}["']?\s*([\].=])""")
            for number in range(start, len(self.lines)):
                if pattern.search(self.lines[number].split("#")[0]):
                    best, start = number + 1, number
                    break
        return best


def _overlay(policy: Policy, document: dict[str, Any]) -> Policy:
    return policy.replaced(
        backends={**policy.backends, **document["backends"]},
        runtimes={**policy.runtimes, **document["runtimes"]},
        **document["policy"],
    )


def _overlay_environment(
    policy: Policy, environment: Mapping[str, str], prefix: str, findings: list[Finding]
) -> Policy:
    def read(name: str, parse: Callable[[str], Any], default: Any) -> Any:
        variable = f"{prefix}_{name}"
        if variable not in environment:
            return default
        try:
            return parse(environment[variable])
        except ValueError as error:
            problem = f"{variable}={environment[variable]!r} is ignored: {error}"
            findings.append(Finding("OPWHEEL-E011", problem, f"correct or unset {variable}"))
            return default

    return policy.replaced(
        allow=read("BACKENDS", _parse_names, policy.allow),
        autoload=read("AUTOLOAD", _parse_switch, policy.autoload),
        strict=read("STRICT", _parse_switch, policy.strict),
        trace=read("TRACE", _parse_switch, policy.trace),
        fallback=read("FALLBACK", _one_of(FALLBACKS), policy.fallback),
        huge_pages=read("HUGE_PAGES", _one_of(HUGE_PAGES), policy.huge_pages),
        result_cache=read("RESULT_CACHE", _one_of(RESULT_CACHE), policy.result_cache),
        compile=read("COMPILE", _one_of(COMPILE), policy.compile),
        foreign=read("FOREIGN", _one_of(FOREIGN), policy.foreign),
        check=read("CHECK", _parse_switch, policy.check),
        cpu_capability=read("CPU_CAPABILITY", _one_of(CPU_CAPABILITIES), policy.cpu_capability),
        probe_timeout_s=read("PROBE_TIMEOUT", _parse_seconds, policy.probe_timeout_s),
        lock=environment.get(f"{prefix}_LOCK"),
    )


def _parse_names(text: str) -> frozenset[str]:
    return frozenset(name.strip() for name in text.split(",") if name.strip())


def _parse_switch(text: str) -> bool:
    if text not in ("0", "1"):
        raise ValueError("expected 0 or 1")
    return text == "1"


def _one_of(values: tuple[str, ...]) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in values:
            raise ValueError(f"expected {' or '.join(values)}")
        return text

    return parse


def _parse_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= MAX_PROBE_TIMEOUT_S:  # Python's own limit depends on the platform
        raise ValueError(f"expected a positive number of seconds, {MAX_PROBE_TIMEOUT_S:g} at most")
    return seconds
