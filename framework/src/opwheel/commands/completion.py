"""What a shell needs to complete command lines: ``eval "$(waves --show-completion bash)"`` in its start file."""

from __future__ import annotations

from collections.abc import Iterable

_SCRIPTS = {
    "bash": 'complete -o default -W "{words}" {name}',
    "zsh": "compdef 'compadd {words}; _files' {name}",
    "fish": 'complete --command {name} --condition __fish_use_subcommand --arguments "{words}"',
}
SHELLS = tuple(_SCRIPTS)


def script(shell: str, name: str, words: Iterable[str]) -> str:
    """The line for a shell's start file.

    Args:
        shell: one of :data:`SHELLS`.
        name: of the program.
        words: its commands and options.
    """
    return _SCRIPTS[shell].format(name=name, words=" ".join(words))
