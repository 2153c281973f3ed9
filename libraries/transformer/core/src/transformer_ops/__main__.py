"""``python -m transformer_ops``."""

from opwheel.cli import main

main(__package__)
