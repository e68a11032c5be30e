"""Why a term has its class: one row in function-in-set language."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from optfair.core.problem_class import ProblemClass

if TYPE_CHECKING:
    from optfair.convexity.proof import CurvatureProof

__all__ = ["Evidence"]


@dataclass(frozen=True)
class Evidence:
    """One term's contribution to the class of a problem.

    Parameters
    ----------
    term : str
        Name of the term.
    function : str
        What the function is: "affine", "convex quadratic", "convex" ...
    set : str
        The set it lies in ("Zero", "Nonpositive", "PSD" ...), or "minimize" / "maximize".
    problem_class : ProblemClass
        Class of a problem with this term alone.
    note : str
        How it was decided, where that is not the composition rules of CVXPY.
    proof : CurvatureProof, optional
        What proves it, where that is a proof beyond these rules.
    support : tuple
        What builds the terms that the proof rests on.

    Examples
    --------
    >>> print(Evidence("row sum", "affine", "Zero", ProblemClass()))
    row sum: affine in Zero -> LP
    """

    term: str
    function: str
    set: str
    problem_class: ProblemClass
    note: str = ""
    proof: CurvatureProof | None = field(default=None, compare=False, repr=False)
    support: tuple[Any, ...] = field(default=(), compare=False, repr=False)

    def __str__(self) -> str:
        if self.set in ("minimize", "maximize"):
            what = f"{self.set} {self.function}"
        else:
            what = f"{self.function} in {self.set}" if self.set else self.function
        note = f" ({self.note})" if self.note else ""
        return f"{self.term}: {what} -> {self.problem_class}{note}"
