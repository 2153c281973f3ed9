"""The operators, one file each: public function, reference and gradients."""

from .add import ADD, add
from .fma import FMA, fma
from .mul import MUL, mul
from .muladd import MULADD, muladd, muladd_
from .muladd_backward import MULADD_BACKWARD
from .scale import SCALE, scale

DECLARATIONS = (MULADD, MULADD_BACKWARD, FMA, MUL, ADD, SCALE)

__all__ = ["DECLARATIONS", "add", "fma", "mul", "muladd", "muladd_", "scale"]
