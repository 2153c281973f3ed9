"""``export-kernel``: a library in the layout of Hugging Face's kernels Hub."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from opwheel.commands.target import Target


def export_kernel(
    library: Annotated[str, typer.Argument(help="The library's module, such as waves.")],
    output: Annotated[Path, typer.Option(help="The kernel's folder, which gets build/<variant>.")],
    backend: Annotated[str, typer.Option(help="An installed backend, for CPU tensors.")] = "cpu",
    version: Annotated[
        int | None, typer.Option(help="The kernel's version; by default the library's major version.", min=0)
    ] = None,
) -> None:
    """Write a library with one backend as a kernel that Hugging Face's kernels package loads.

    From the installed wheels, with copies of all that they need but PyTorch. Loads what it has written, once.
    """
    from ..export import ExportError
    from ..export import export_kernel as run

    opened = Target(library).open()
    try:
        kernel = run(opened, backend, output, version=version)
    except (ExportError, OSError) as error:
        raise typer.BadParameter(str(error)) from None
    print(f"wrote {kernel.folder}")
    print(f"operators: torch.ops.{kernel.id}; layers: {', '.join(kernel.layers) or 'none'}")
    print(f'\nNext:\n  python -c "from kernels import get_local_kernel; get_local_kernel({str(output.resolve())!r})"')
