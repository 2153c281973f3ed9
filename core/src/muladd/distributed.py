"""Sharding rules for DTensor: import this module, and the operators compute on distributed tensors.

::

    import muladd, muladd.distributed

    muladd.fma(x, gamma, beta)  # sharded inputs give a sharded result, without communication

A module of its own, because importing PyTorch's DTensor takes longer than importing all of muladd. Functional and
in-place variants have rules; an out variant with DTensors raises.
"""

from . import overloads
from opwheel.dispatch import sharding

sharding.register(overloads.values())
