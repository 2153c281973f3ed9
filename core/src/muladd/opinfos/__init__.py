"""What tests and benchmarks need of muladd; tools alone import it. ``muladd bench`` measures ``benchmarks``."""

from opwheel_tools import OpInfo

OP_INFOS: dict[str, OpInfo] = {}  # all operators are element-wise: their samples follow from the schemas
