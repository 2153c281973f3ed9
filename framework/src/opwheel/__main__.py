"""``python -m opwheel``."""

from .commands import main

main()
