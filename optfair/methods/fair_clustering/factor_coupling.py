"""Kantorovich coupling -> fair assignment with (n0 + n1) K variables, and back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.core.solution import Solution
from optfair.errors import ClassError
from optfair.methods.fair_clustering.fair_assignment import FairAssignment
from optfair.methods.fair_clustering.kantorovich import KantorovichCoupling

Floats = NDArray[np.float64]

__all__ = ["FactoredCoupling", "factor_coupling", "glue"]


@dataclass(frozen=True, eq=False)
class FactoredCoupling:
    """The factored problem with the way back.

    Attributes
    ----------
    original : KantorovichCoupling
        What was factored.
    problem : FairAssignment
        Same optimum, (n0 + n1) K variables; rows of the first set come first.
    """

    original: KantorovichCoupling
    problem: FairAssignment

    def recover(self, solution: Solution) -> Any:
        """Return a sparse plan (n0 x n1) of the coupling from a solution of `problem`."""
        n0 = self.original.data["a"].size
        A = np.asarray(solution["assignment"])
        mass = float(self.original.data["a"].sum())
        first = A[:n0] * self.original.data["a"][:, None]
        second = A[n0:] * self.original.data["b"][:, None] * (mass / self.original.data["b"].sum())
        return glue(first, second)


def factor_coupling(problem: KantorovichCoupling) -> FactoredCoupling:
    r"""Return the fair assignment problem with the same optimum.

    Because :math:`c_{ij} = \min_k (\pi_0 D_{ik} + \pi_1 D_{jk})`, an optimal pair meets in a
    cluster: reading that cluster off each pair gives assignments with equal group fractions,
    and gluing the two sides of each cluster gives a plan back. Preserves the optimal value
    (for marginals of sum 1); class LP on both sides.

    Parameters
    ----------
    problem : KantorovichCoupling
        Declared from points and centers with the exact transport weight.

    Returns
    -------
    FactoredCoupling

    Raises
    ------
    ClassError
        The cost does not factor: the paper's weight, a free cost matrix, or further terms.

    Examples
    --------
    >>> import numpy as np
    >>> import optfair as of
    >>> rng = np.random.default_rng(0)
    >>> x, y, mu = rng.normal(size=(6, 2)), rng.normal(size=(9, 2)), rng.normal(size=(3, 2))
    >>> p = of.KantorovichCoupling(x, y, centers=mu)
    >>> f = of.factor_coupling(p)
    >>> bool(np.isclose(f.problem.solve().objective, p.solve().objective, rtol=1e-12))
    True
    """
    points = problem.data.get("points")
    if points is None:
        raise ClassError(
            "a free cost matrix does not factor through clusters",
            "the factored form needs c_ij = min_k (π0 D_ik + π1 D_jk)",
            "declare the coupling from points and centers",
        )
    if problem.data["transport_weight"] != "exact":
        raise ClassError(
            "the paper's transport weight 2 π0 π1 does not factor",
            "only the exact weight π0 π1 makes the pair cost a minimum over clusters",
            "use transport_weight='exact'",
        )
    lost = problem.structure_refusal("coupling")
    if lost:
        raise ClassError("this coupling has further terms", lost, "factor the plain coupling")
    first, second, pi0 = points
    n0, n1 = first.rows, second.rows
    a, b = problem.data["a"], problem.data["b"]
    weights = np.concatenate([pi0 * a / a.sum(), (1.0 - pi0) * b / b.sum()])
    factored = FairAssignment(
        np.vstack([first.points, second.points]),
        groups=np.repeat([0, 1], [n0, n1]),
        centers=first.centers,
        sample_weight=weights,
        metric=first.metric,
        p=first.p,
    )
    return FactoredCoupling(problem, factored)


def glue(first: Floats, second: Floats) -> Any:
    """Glue the two sides of every cluster by the north-west corner rule.

    Parameters
    ----------
    first, second : arrays (n0, K), (n1, K)
        Mass of each point in each cluster; equal column sums.

    Returns
    -------
    scipy.sparse.csr_array (n0, n1)
        A plan with those marginals: per cluster at most as many entries as the two sides
        have together, minus one; for vertex assignments that is at most n0 + n1 + K in all.
    """
    rows, columns, masses = [], [], []
    for k in range(first.shape[1]):
        i, j = np.flatnonzero(first[:, k]), np.flatnonzero(second[:, k])
        if not i.size or not j.size:  # an empty cluster
            continue
        left, right = np.cumsum(first[i, k]), np.cumsum(second[j, k])
        right *= left[-1] / right[-1]
        ends = np.union1d(left, right)
        length = np.diff(ends, prepend=0.0)
        middle = ends - length / 2.0
        keep = length > 1e-12 * left[-1] / max(i.size, j.size)
        rows.append(i[np.minimum(np.searchsorted(left, middle), i.size - 1)][keep])
        columns.append(j[np.minimum(np.searchsorted(right, middle), j.size - 1)][keep])
        masses.append(length[keep])
    shape = (first.shape[0], second.shape[0])
    return sp.csr_array(
        (np.concatenate(masses), (np.concatenate(rows), np.concatenate(columns))), shape=shape
    )
