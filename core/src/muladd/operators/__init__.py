"""The operators, one declaration a file: docstring, reference, gradients."""

from .add import ADD
from .fma import FMA
from .mul import MUL
from .muladd import MULADD
from .muladd_backward import MULADD_BACKWARD
from .scale import SCALE

OPERATORS = (MULADD, MULADD_BACKWARD, FMA, MUL, ADD, SCALE)
