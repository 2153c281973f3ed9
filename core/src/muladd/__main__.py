"""``python -m muladd``."""

from .cli import main

main()
