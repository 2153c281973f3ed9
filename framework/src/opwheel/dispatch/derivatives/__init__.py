"""Derivatives: formulas as text or functions, what has to be kept for them, and the way through the reference."""

from .declared import Derivatives

__all__ = ["Derivatives"]
