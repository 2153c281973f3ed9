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
    # Result k is (k + 1) times the product of the tensors, plus the numbers. No factor of 1: times 1 is a copy, and
    # PyTorch then overlooks that the tensor itself was modified.
    values = [" + ".join([f"{k + 1} * {product}" if k else product, *numbers]) for k in range(results)]
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
    _add_rows(include / "operators.h", [operator.row for operator in operators])
    functors = "".join(operator.functor for operator in operators)
    _append(include / "functors.h", f"\nnamespace muladd {{{functors}}}  // namespace muladd\n")
    declarations = "".join(operator.declaration for operator in operators)
    names = ", ".join(operator.name.upper() for operator in operators)
    _append(
        folder / "core/src/muladd/operators/__init__.py",
        f"\nfrom opwheel import Elementwise, Operator\n{declarations}\nOPERATORS = (*OPERATORS, {names})\n",
    )
    return folder


def _append(file: Path, text: str) -> None:
    file.write_text(file.read_text() + text)


def _add_rows(header: Path, rows: list[str]) -> None:
    """At the start of the list, which is the header's macro of several lines."""
    text, count = re.subn(
        r"^(#define \w+_OPERATORS\(.*)\\\n", lambda match: match[0] + "".join(f"  {row} \\\n" for row in rows),
        header.read_text(), flags=re.MULTILINE,
    )  # fmt: skip
    assert count == 1, f"{header} defines {count} lists of operators"
    header.write_text(text)
