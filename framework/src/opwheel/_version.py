"""The version of muladd-core, read by the build and by ``muladd.__version__``."""

__version__ = "0.1.0"
