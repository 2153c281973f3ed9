"""Models of Hugging Face's transformers, computed by these operators."""

from .known_code import FORMS, TESTED, register_family
from .patching import Patch, patch, unpatch

__all__ = ["FORMS", "TESTED", "Patch", "patch", "register_family", "unpatch"]
