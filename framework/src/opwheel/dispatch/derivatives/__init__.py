"""Derivatives: formulas as text or functions, what has to be kept for them, and the way through the reference."""

from .plan import Derivatives, Plan

__all__ = ["Derivatives", "Plan"]
