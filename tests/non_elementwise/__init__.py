"""Operators of every class, declared with kernels in Python, and what must hold for them."""
