"""The conformance kit: proves that a backend computes what the operator library promises, under all of PyTorch.

Run it against an installed backend::

    pip install opwheel-tools[testing]
    pytest --pyargs opwheel_tools.testing --library MODULE --backend NAME

It takes operators, references and gradients from the library's declarations, so it serves any operator library. It
ends with a matrix of operators and subsystems. A backend that is not loaded is skipped with its reason, and fails where
``<LIBRARY>_REQUIRE``, with the library's name in capitals, names it.
"""
