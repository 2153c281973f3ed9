"""Judges a kernel: any callable against a reference in PyTorch.

Read in this order: ``subjects`` (what is judged; ``declared``, of an opwheel library), ``cases`` (calls of it),
``saved`` (what a backward operator has of its forward one), ``variants`` (calls around these), ``programs`` (ways to
call it), ``trials`` (a variant in a program), ``rounding`` and ``expectation`` (what the reference says, and how far a
result may be from it; ``lower_bits``, where inputs are exact), ``worker`` (the processes that hold candidate and
reference), ``comparison``, ``verdict``, ``reproduction``, ``judgement`` (all of it). ``calls``, ``generated``,
``rounding``, ``processes`` and ``limits`` serve the audit, too. ``invariance`` judges claims about bits.
"""

from typing import TYPE_CHECKING

from opwheel._import_hooks import names_from

if TYPE_CHECKING:
    from .invariance.run import judge_invariance
    from .invariance.verdict import InvarianceVerdict
    from .run import judge
    from .usage import UsageError
    from .verdict import Finding, Verdict

__getattr__ = names_from(
    __name__,
    {
        "judge": ".run",
        "judge_invariance": ".invariance.run",
        "InvarianceVerdict": ".invariance.verdict",
        "UsageError": ".usage",
        **dict.fromkeys(("Finding", "Verdict"), ".verdict"),
    },
)

__all__ = ["Finding", "InvarianceVerdict", "UsageError", "Verdict", "judge", "judge_invariance"]
