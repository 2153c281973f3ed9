"""What names mean in formulas: arguments, results, and the gradients of results that arrive."""

from __future__ import annotations

from collections.abc import Sequence

# Words for constants that could be names as well; None, True and False cannot be names in a schema.
CONSTANTS = {"true": True, "false": False}


class Names:
    """The names that the formulas of one operator may use.

    Args:
        arguments: names of the operator's arguments.
        results: what formulas call its results.

    Attributes:
        gradients: for each name of a gradient the position of its result; for ``grads``, all of them, a slice.
    """

    def __init__(self, arguments: Sequence[str], results: Sequence[str]) -> None:
        self._arguments = arguments
        self._results = results
        self.gradients: dict[str, int | slice] = {"grads": slice(0, len(results))}
        for i, result in enumerate(results):
            self.gradients |= dict.fromkeys((f"grads[{i}]", f"grad_{result}", f"grad_{i}"), i)
        if results:
            self.gradients["grad"] = 0

    def known(self) -> set[str]:
        """All names."""
        return {*self._arguments, *self._results, *self.gradients}

    def meaning(self, name: str) -> str:
        """What a name means that is known and not ambiguous, in the notation of ``csrc/autograd/notation.h``."""
        where = self.gradients.get(name)
        if isinstance(where, slice):
            return "gradients"
        if where is not None:
            return f"gradient {self._results[where]}"
        return f"result {name}" if name in self._results else f"argument {name}"

    def ambiguity(self, name: str, *, is_text: bool) -> tuple[str, str] | None:
        """What a name means and what to write instead, if it means more than one thing; else None.

        Args:
            name: as a formula has it.
            is_text: whether the formula is text; else it is a function, and the name one of its parameters.
        """
        meanings: list[str] = []
        ways_out: list[str] = []
        if name in self.gradients:
            other = self._other_name(name, is_text=is_text)
            meanings.append("the incoming gradient")
            ways_out.append(f"the incoming gradient is {other or 'without another name'}")
        if is_text and name in CONSTANTS:
            meanings.append("a constant")
            ways_out.append(f"the constant is {CONSTANTS[name]}")
        for kind, names in (("argument", self._arguments), ("result", self._results)):
            if _own_name(name) in names:
                meanings.append(f"an {kind}" if kind == "argument" else f"a {kind}")
                ways_out.append(f"the {kind} cannot be used under this name: give it another one in the schema")
        return (" and ".join(meanings), ", ".join(ways_out)) if len(meanings) > 1 else None

    def _other_name(self, name: str, *, is_text: bool) -> str:
        """Another name of the same gradient, which means nothing else; empty if there is none."""
        wanted = self.gradients[name]
        first = 0 if isinstance(wanted, slice) else wanted  # of several gradients the first, as an example
        for other, position in self.gradients.items():
            is_free = _own_name(other) not in {*self._arguments, *self._results}
            if other != name and position == first and is_free and (is_text or other.isidentifier()):
                return other
        return ""


def _own_name(name: str) -> str:
    """The name of an argument or a result that is meant: that of ``grads`` by ``grads[0]``."""
    return name.partition("[")[0]
