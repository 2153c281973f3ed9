"""``python -m transformer_ops``."""

from opwheel.commands import hand_over

hand_over(__package__)
