"""The least informative distribution with given moments."""

from __future__ import annotations

from typing import Any

import cvxpy as cp

from optfair.core.declaration import declaration
from optfair.core.problem import Declaration, Problem
from optfair.numbers import check_matrix, check_vector

__all__ = ["MaximumEntropy"]


class MaximumEntropy(Problem):
    r"""Find the distribution of largest entropy with given expectations.

    .. math::
        \max_p\; -\sum_j p_j \log p_j \quad\text{s.t.}\quad 1^T p = 1,\; F p = m

    Class: CONIC(exp). The entropy is defined for p ≥ 0 only, so no sign is needed.

    The solution has the Gibbs form :math:`p_j \propto \exp(-\lambda^T F_j)`, where λ are the
    multipliers of ``moments``.

    Parameters
    ----------
    functions : array-like (m, n)
        Value of each function at each outcome.
    moments : array-like (m,)
        Expectation of each function.

    Attributes
    ----------
    variables : ``probabilities`` (n,)

    Raises
    ------
    DataError
        Entries that are not finite numbers, lengths that do not fit.

    Examples
    --------
    >>> p = MaximumEntropy(functions=[[1.0, 2.0, 3.0]], moments=[2.0])
    >>> p.problem_class, p.solve()["probabilities"].round(3)
    (CONIC(exp), array([0.333, 0.333, 0.333]))

    References
    ----------
    Jaynes: Information Theory and Statistical Mechanics, Physical Review 106 (1957).
    """

    title = "MaximumEntropy"

    def __init__(self, *, functions: Any, moments: Any) -> None:
        F = check_matrix(functions, "functions")
        super().__init__({"functions": F, "moments": check_vector(moments, "moments", F.shape[0])})

    def declare(self) -> Declaration:
        """Declare the probabilities, their entropy and moments."""
        F = self.data["functions"]
        p = cp.Variable(F.shape[1], name="probabilities")
        return declaration(
            "maximize",
            {"entropy": cp.sum(cp.entr(p))},
            {"sum": cp.sum(p) == 1, "moments": F @ p == self.data["moments"]},
            latex={
                "entropy": r"-\textstyle\sum_j p_j \log p_j",
                "sum": "1^T p = 1",
                "moments": "F p = m",
            },
        )
