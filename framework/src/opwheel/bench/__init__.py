"""``muladd bench``: the operators beside their alternatives, in one interleaved run.

Read in this order: ``cases`` (what is measured), ``operands`` (on which tensors), ``peers`` (against what),
``sampling`` (how), ``runner`` (all of it together), ``results`` (what comes out); then ``tables``, ``plot`` and
``comparison`` show it.
"""
