"""``python -m muladd``."""

from opwheel.cli import main

main(__package__)
