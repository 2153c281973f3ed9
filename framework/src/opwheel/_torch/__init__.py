"""What depends on PyTorch's release: its private names, and the native libraries that are built for each minor one.

Empty: ``setup.py`` imports :mod:`.release` where there is no torch.
"""
