"""What ``muladd doctor`` shows; opens nothing."""

from opwheel.registry import Runtime

from ._custom_ops_yaml import names_in
from ._files import custom_ops_yaml, library
from ._loading import SUPPORTED

RUNTIME = Runtime(
    name="executorch",
    library=library,
    operators=[name.partition("::")[2] for name in names_in(custom_ops_yaml.read_text())],
    requires=[SUPPORTED],
)
