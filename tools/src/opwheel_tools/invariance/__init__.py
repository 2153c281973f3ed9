"""Do the bits of a function's results depend on what they must not depend on? Checks at zero tolerance.

Read in this order: ``subject`` (what is called), ``bits`` (how results are compared), ``inputs`` (more rows, other
widths and layouts made from one call), ``checks`` (one for each name of a claim in ``Operator(invariant=...)``).

A subject is any callable. Nothing in here knows operators, libraries or the conformance kit.
"""
