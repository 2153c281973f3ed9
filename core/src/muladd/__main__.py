"""``python -m muladd``."""

from opwheel.commands import hand_over

hand_over(__package__)
