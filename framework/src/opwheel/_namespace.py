"""The namespace of opwheel's own operators in PyTorch's dispatcher.

It is ``opwheel``, but for a copy inside of another package, as in an exported kernel: each copy defines its own.
"""

NAMESPACE = str(__package__).replace(".", "_")
