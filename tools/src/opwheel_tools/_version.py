"""The version of opwheel-tools, read by the build and by ``opwheel.__version__``."""

__version__ = "0.1.0"
