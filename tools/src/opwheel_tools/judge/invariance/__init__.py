"""Judges claims about bits: ``opwheel judge CANDIDATE --invariant batch:x=0,result=0``, without a reference.

Read in this order: ``claims`` (what is claimed, as text or as ``Operator(invariant=...)`` has it), ``callee`` (the
candidate, with names for its arguments and results), ``worker`` (the process that calls it, with the checks of
``opwheel_tools.invariance``), ``verdict``, ``run`` (all of it).
"""
