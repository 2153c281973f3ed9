"""``bench``: a library's operators against their alternatives, in one interleaved run.

What is measured is the library's to say: its module ``opinfos.benchmarks`` has a
:class:`~opwheel_tools.bench.suite.Suite` called ``SUITE``; without one, operators are measured with the samples of
their :class:`~opwheel_tools.OpInfo` (``from_samples``). Read in this order: ``suite`` (what a library gives),
``selection`` (which cases and implementations take part), ``checking`` (nothing wrong is timed), ``sampling`` (how it
is timed), ``runner`` (all of it together), ``results`` (what comes out); then ``tables``, ``plot`` and ``comparison``
show it. ``triad`` is a limit of the machine that a suite may use.
"""
