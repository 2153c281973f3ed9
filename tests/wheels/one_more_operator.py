"""Writes operators into a copy of the repository as a contributor does: a row, a functor and a declaration each."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]


class NewOperator(NamedTuple):
    """Its name in the schema and in C++, and the three pieces of text."""

    name: str
    row: str
    functor: str
    declaration: str


SUB = NewOperator(
    "sub",
    'OPERATOR(sub, Sub, "sub(Tensor a, Tensor b) -> Tensor")',
    """
template <class C>
struct Sub {
  OPWHEEL_HOST_DEVICE C operator()(C a, C b) const { return a - b; }
};
""",
    """
SUB = Operator(
    "sub",
    reference=lambda a, b: a - b,
    rule=Elementwise(linear=(("a", "b"),)),
    derivatives={"a": "grad", "b": "-grad"},
)
""",
)


def draw(seed: int) -> NewOperator:
    """An operator that no list can know: its name, its numbers of tensors, of numbers and of results are drawn."""
    generator = random.Random(seed)
    name = "drawn_" + "".join(generator.choices("bcdfghjklmnpqrstvwxz", k=6))
    tensors = [f"t{i}" for i in range(generator.randint(1, 4))]
    numbers = [f"n{i}" for i in range(generator.randint(0, 2))]
    results = generator.randint(1, 3)
    product = " * ".join(tensors)
    # Result k is (k + 1) times the product of the tensors, plus the numbers.
    values = [" + ".join([f"{k + 1} * {product}", *numbers]) for k in range(results)]
    schema = ", ".join([*(f"Tensor {t}" for t in tensors), *(f"float {n}" for n in numbers)])
    returns = "Tensor" if results == 1 else f"({', '.join(['Tensor'] * results)})"
    row = f'OPERATOR({name}, {name.title()}, "{name}({schema}) -> {returns}")'
    functor = name.title()
    members = f"  C {', '.join(numbers)};\n" if numbers else ""
    constructor = (
        "  template <class Number>\n"
        f"  OPWHEEL_HOST_DEVICE explicit {functor}({', '.join(f'Number {n}' for n in numbers)})\n"
        f"      : {', '.join(f'{n}(static_cast<C>({n}))' for n in numbers)} {{}}\n"
        if numbers
        else ""
    )
    result_type = "C" if results == 1 else f"opwheel::Results<C, {results}>"
    returned = values[0] if results == 1 else f"{{{', '.join(values)}}}"
    code = (
        f"\ntemplate <class C>\nstruct {functor} {{\n{members}{constructor}"
        f"  OPWHEEL_HOST_DEVICE {result_type} operator()({', '.join(f'C {t}' for t in tensors)}) const {{\n"
        f"    return {returned};\n  }}\n}};\n"
    )
    grads = ["grad"] if results == 1 else [f"grads[{k}]" for k in range(results)]
    gradients = []
    for tensor in tensors:
        others = [other for other in tensors if other != tensor]
        total = " + ".join(" * ".join([f"{k + 1} * {grad}", *others]) for k, grad in enumerate(grads))
        gradients.append(f'        "{tensor}": "{total}",')
    reference = values[0] if results == 1 else f"({', '.join(values)})"
    declaration = (
        f'\n{name.upper()} = Operator(\n    "{name}",\n'
        f"    reference=lambda {', '.join([*tensors, *numbers])}: {reference},\n"
        "    rule=Elementwise(),\n    derivatives={\n" + "\n".join(gradients) + "\n    },\n)\n"
    )
    return NewOperator(name, row, code, declaration)


def copy_with(operators: list[NewOperator], folder: Path) -> Path:
    """A copy of the files that git has, with the operators added to muladd's core and to nothing else."""
    listed = subprocess.run(
        ["git", "ls-files", "core", "backends", "plugins.toml"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for file in listed.stdout.splitlines():
        if (ROOT / file).is_file():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / file, folder / file)
    include = folder / "core/src/muladd/include/muladd"
    declarations = folder / "core/src/muladd/operators/__init__.py"
    _append_rows(include / "operators.h", [operator.row for operator in operators])
    text = (include / "functors.h").read_text()
    end = text.rindex("}  // namespace muladd")
    (include / "functors.h").write_text(text[:end] + "".join(o.functor for o in operators) + "\n" + text[end:])
    names = ", ".join(operator.name.upper() for operator in operators)
    text = declarations.read_text()
    (listing,) = re.findall(r"^OPERATORS = \(.*?\)$", text, re.M | re.S)
    added = "".join(operator.declaration for operator in operators) + f"\nOPERATORS = (*OPERATORS, {names})\n"
    declarations.write_text(text.replace(listing, f"from opwheel import Elementwise, Operator\n\n{listing}\n{added}"))
    return folder


def _append_rows(header: Path, rows: list[str]) -> None:
    """At the end of the list, which is a macro: every line but the last ends with a backslash."""
    lines = [line.rstrip(" \\") for line in header.read_text().rstrip("\n").splitlines()]
    start = next(number for number, line in enumerate(lines) if line.startswith("#define "))
    listing = [*lines[start:], *(f"  {row}" for row in rows)]
    header.write_text("\n".join([*lines[:start], " \\\n".join(listing)]) + "\n")
