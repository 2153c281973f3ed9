"""Which placements of an operator are right: found from its reference on parts of its samples, and proved by PyTorch.

Read in this order: :mod:`.parts` (what each process has of a tensor), :mod:`.simulation` (a call on every process, in
this one), :mod:`.candidates` (what cannot be right, by what results depend on), :mod:`.finding` (what is right for one
sample), :mod:`.generalising` (the rules that all samples show), :mod:`.keeping` (the file in the library's wheel);
:mod:`.reductions` (what exchanges numbers on the way).
:mod:`.sweep` and :mod:`.validator` judge the rules that DTensor has with parts of PyTorch's own validator: they know
nothing of how the rules were found.
"""
