"""The version of transformer-ops-core, read by the build and by ``transformer_ops.__version__``."""

__version__ = "0.1.0"
