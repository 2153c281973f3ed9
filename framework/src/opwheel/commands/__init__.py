"""The commands: ``waves doctor`` of a library, ``opwheel --library waves doctor`` of any.

Those that operations need are here, one module each, and need the standard library alone. Those of authors are in
``opwheel-tools``, which registers them as entry points (:mod:`.tools`).

Exit codes: 0 no problem, 1 a finding, 2 wrong usage. Nothing here imports a library before its command runs.
"""

from __future__ import annotations

import argparse
import errno
import io
import os
import sys
from importlib import import_module

from . import completion, tools
from .parser import Parser
from .target import Target, UsageError

_NOT_WRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EPIPE)
# By name, what help says of them; each is a module with add_arguments() and run().
_COMMANDS = {
    "doctor": "show every backend: its state, the reason, the fix",
    "explain": "say which backend's kernel runs, and why",
    "config": "print compiler flags or paths of libraries",
    "lock": "record the installed wheels and the chosen backends",
}


def main(library: str | None = None) -> None:
    """Run the command line of a library, given its module, or of ``opwheel``, and end the process with its status."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # not every terminal has all characters
    name = library or "opwheel"
    try:
        try:
            status = run(name, library, sys.argv[1:])
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except OSError as error:
        if error.filename is not None or error.errno not in _NOT_WRITTEN:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # where Python writes the rest when it ends
        if error.errno != errno.EPIPE:  # whoever reads it may have seen enough
            print(f"{name}: the output cannot be written: {error.strerror}", file=sys.stderr)
        status = 1
    sys.exit(status)


def hand_over(package: str) -> None:
    """``python -m <package> COMMAND``: the command in a new process, which decides what its import of the package does.

    Never returns.
    """
    os.execv(sys.executable, [sys.executable, "-m", "opwheel", "--library", package, *sys.argv[1:]])  # noqa: S606


def run(name: str, library: str | None, arguments: list[str]) -> int:
    """Run one command line.

    Args:
        name: of the program, for messages.
        library: the module of its library; None for the script ``opwheel``, which takes ``--library``.
        arguments: the words of the command line.

    Returns:
        The exit status.
    """
    options, rest = _split(arguments)
    parser = _parser(name, library)
    given = parser.parse_args(options)
    target = Target(library or given.library)
    try:
        if given.version:
            from .version import version

            print(version(target))
            return 0
        if given.show_completion:
            print(completion.script(given.show_completion, name, [*_described(library), "--help", "--version"]))
            return 0
        if not rest:
            parser.print_help(sys.stderr)
            return 2
        command, *words = rest
        if command in _COMMANDS:
            return _run(command, f"{name} {command}", words, target)
        if command in tools.COMMANDS and (library is None or command not in tools.OF_NO_LIBRARY):
            return tools.run(command, f"{name} {command}", words, target)
        raise UsageError(f"there is no command {command!r}; `{name} --help` lists them")
    except UsageError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """The options in front of the command, and the command with what follows."""
    words = iter(range(len(arguments)))
    for i in words:
        if arguments[i] in ("--library", "--show-completion"):
            next(words, None)  # its value
        elif not arguments[i].startswith("-"):
            return arguments[:i], arguments[i:]
    return arguments, []


def _described(library: str | None) -> dict[str, str]:
    """The commands by name, with what help says of them."""
    return _COMMANDS | {
        command: f"{text} (pip install opwheel-tools)" if tools.is_missing(command) else text
        for command, text in tools.COMMANDS.items()
        if library is None or command not in tools.OF_NO_LIBRARY
    }


def _parser(name: str, library: str | None) -> Parser:
    described = _described(library)
    width = max(map(len, described))
    parser = Parser(
        prog=name,
        usage=f"{name} [options] COMMAND ...",
        description=f"Inspect and test the operator library {library}."
        if library
        else "Create, inspect and test operator libraries.",
        epilog="\n".join(["commands:", *(f"  {command:<{width}}  {text}" for command, text in described.items())])
        + f"\n\n`{name} COMMAND --help` describes one.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="store_true", help="print versions")
    parser.add_argument("--show-completion", choices=completion.SHELLS, help="print a line for the shell's start file")
    if library is None:
        parser.add_argument("--library", metavar="MODULE", help="the operator library to use")
    return parser


def _run(command: str, name: str, words: list[str], target: Target) -> int:
    module = import_module(f".{command}", __name__)
    parser = Parser(prog=name, description=module.__doc__)
    module.add_arguments(parser)
    status: int = module.run(parser.parse_args(words), target)
    return status
