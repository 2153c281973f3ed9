"""Derivatives: formulas as text or functions, what has to be kept for them, and the way through the reference."""

from .plan import Derivatives, Plan
from .through_reference import gradients_through_reference

__all__ = ["Derivatives", "Plan", "gradients_through_reference"]
