"""Describes these kernels to the operator library: what ``muladd doctor`` shows. Opens nothing."""

from opwheel import Runtime, hookimpl

from ._custom_ops_yaml import names_in
from ._files import custom_ops_yaml, library
from ._loading import SUPPORTED


@hookimpl
def opwheel_runtime() -> Runtime:
    """The kernels of the out variants, for ExecuTorch."""
    return Runtime(
        name="executorch",
        library=library,
        operators=[name.partition("::")[2] for name in names_in(custom_ops_yaml.read_text())],
        requires=[SUPPORTED],
    )
