"""Generates the C++ code that registers a selection of kernels: ``python -m muladd_executorch.select``.

The CMake functions under ``sdk/cmake`` call it. It runs ExecuTorch's own code generation (``gen_oplist``, then ``gen``)
with the templates that ExecuTorch's wheel leaves out, and refuses a selection that would silently come out empty.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from ._custom_ops_yaml import names_in
from ._files import sdk_dir

_MAGIC = b"ET"  # after the four bytes of a flatbuffer's root; a version number follows


def main() -> None:
    """Write ``RegisterCodegenUnboxedKernelsEverything.cpp`` and ``NativeFunctions.h`` into the output folder."""
    parser = argparse.ArgumentParser(prog="python -m muladd_executorch.select", description=__doc__.splitlines()[0])
    parser.add_argument("--yaml", type=Path, required=True, help="custom_ops.yaml with the operators and kernels")
    parser.add_argument("--output", type=Path, required=True, help="folder for the generated code")
    parser.add_argument("--header", help="declares the kernels; if it is not given, they are declared by their schemas")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--root-ops", help="comma-separated operators; all of the file if nothing is said")
    which.add_argument("--model", type=Path, help="an exported program: the operators it calls")
    options = parser.parse_args()
    try:
        generate(options.yaml, options.output, options.root_ops, options.model, options.header)
    except SelectionError as error:
        parser.exit(2, f"muladd_executorch.select: {error}\n")


class SelectionError(ValueError):
    """The selection does not fit the operators there are."""

    code = "OPWHEEL-E084"


def generate(yaml: Path, output: Path, root_ops: str | None, model: Path | None, header: str | None) -> None:
    """Run both steps of the code generation.

    Raises:
        SelectionError: an operator is not in the file, or the model uses none of them.
    """
    if not yaml.is_file():
        raise SelectionError(f"there is no file {yaml}")
    known = names_in(yaml.read_text())
    if model is None:
        selected = known if root_ops is None else tuple(name.strip() for name in root_ops.split(",") if name.strip())
    else:
        selected = _operators_of(model, known)
    unknown = sorted(set(selected) - set(known))
    if unknown or not selected:
        problem = f"{yaml} has no {', '.join(unknown)}" if unknown else f"nothing is selected from {yaml}"
        raise SelectionError(f"{problem}; it has {', '.join(known)}")
    output.mkdir(parents=True, exist_ok=True)
    selection = output / "selected_operators.yaml"
    _run("executorch.codegen.tools.gen_oplist", f"--root_ops={','.join(selected)}", f"--output_path={selection}")
    _run(
        "executorch.codegen.gen",
        f"--source-path={sdk_dir}",
        f"--install-dir={output}",
        f"--op-selection-yaml-path={selection}",
        f"--functions-yaml-path={yaml}",
        *_torch_yamls(),
    )
    if header is not None:
        (output / "NativeFunctions.h").write_text(f'#include "{header}"\n')


def _operators_of(model: Path, known: tuple[str, ...]) -> tuple[str, ...]:
    """The model's operators in the namespaces of the file; the runtime's own kernel libraries have the others."""
    if not model.is_file():
        raise SelectionError(f"there is no file {model}")
    # ExecuTorch's own reader believes whatever it is given, and crashes.
    with model.open("rb") as file:
        if file.read(6)[4:] != _MAGIC:
            raise SelectionError(f"{model} is not an ExecuTorch program")
    from executorch.codegen.tools.gen_oplist import _get_operators

    namespaces = {name.partition("::")[0] for name in known}
    return tuple(name for name in _get_operators(str(model)) if name.partition("::")[0] in namespaces)


def _torch_yamls() -> tuple[str, str]:
    import torchgen

    folder = Path(torchgen.__file__).parent / "packaged/ATen/native"
    return f"--aten-yaml-path={folder / 'native_functions.yaml'}", f"--tags-path={folder / 'tags.yaml'}"


def _run(module: str, *arguments: str) -> None:
    subprocess.run([sys.executable, "-m", module, *arguments], check=True, stdout=sys.stderr)


if __name__ == "__main__":
    main()
