"""The conformance kit: proves that a backend computes what the operator library promises, under all of PyTorch.

Run it against an installed backend::

    pip install muladd-core[testing]
    pytest --pyargs opwheel.testing --backend NAME

It takes operators, references and gradients from the library's declarations, so it serves any operator library
(``--library MODULE``, a module with ``library`` and ``overloads``). It ends with a matrix of operators and
subsystems. A backend that is not loaded is skipped with its reason, and fails where ``MULADD_REQUIRE`` names it.
"""
