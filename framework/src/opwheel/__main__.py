"""``python -m opwheel``."""

from .cli import main

main()
