"""Writes an installed library, with one backend, in the layout of Hugging Face's kernels Hub.

What is written needs nothing but PyTorch: it has copies of opwheel, of what opwheel needs, and of the library and the
backend, which import each other relatively. The operators are in a namespace of its own, ``torch.ops.<id>``, so that
several versions, and the installed library, can be in one process.
"""

from .errors import ExportError
from .kernel import Kernel, export_kernel

__all__ = ["ExportError", "Kernel", "export_kernel"]
