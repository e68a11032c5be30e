r"""Couplings of factual and counterfactual rows: who serves whom as the example to follow.

A coupling is an (n, m) array p with entries p_ij ≥ 0 and total 1. Row i of it, divided by its
sum, is the distribution of counterfactuals that row i is compared with.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DataError, DeclarationError, nearest
from optfair.methods.fair_clustering.algorithms.entropic import entropic_plan
from optfair.methods.fair_clustering.kantorovich import KantorovichCoupling
from optfair.numbers import check_matrix

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

__all__ = [
    "COUPLINGS",
    "aligned_coupling",
    "checked_coupling",
    "coupling_of",
    "nearest_coupling",
    "optimal_transport_coupling",
    "random_coupling",
    "uniform_coupling",
]

COUPLINGS = ("ot", "entropic", "uniform", "random", "aligned", "nearest")


def optimal_transport_coupling(cost: Any, *, regularization: float | None = None) -> Floats:
    r"""Return the coupling of least cost between uniform marginals.

    .. math:: \min_{p \in \Pi(1/n, 1/m)} \sum_{ij} p_{ij} C_{ij}
              + \varepsilon \sum_{ij} p_{ij} \log (n m\, p_{ij})

    Without ε the linear program is solved exactly, through `KantorovichCoupling`, and its
    certificate is checked; with n = m the plan is then 1/n times a permutation. With ε > 0 it
    is an approximation by Sinkhorn's steps, in which every pair gets some mass.

    Parameters
    ----------
    cost : array-like (n, m)
        Squared distances, say.
    regularization : float, optional
        ε > 0, in units of the cost.

    Raises
    ------
    DataError, DeclarationError, SolverFailure
        A cost that is not finite; ε that is not positive, or too small to converge.

    Examples
    --------
    >>> optimal_transport_coupling([[1.0, 0.0], [0.0, 1.0]]).tolist()
    [[0.0, 0.5], [0.5, 0.0]]

    References
    ----------
    You, Bian, Cao: Joint Distribution-Informed Shapley Values for Sparse Counterfactual
    Explanations, eq. (8).
    """
    C = check_matrix(cost, "cost")
    if regularization is not None:
        return entropic_plan(C, regularization)
    plan = np.asarray(KantorovichCoupling(cost=C).solve()["plan"], dtype=float)
    return np.asarray(np.maximum(plan, 0.0))


def uniform_coupling(n: int, m: int) -> Floats:
    """Return the independent coupling: every row is compared with all counterfactuals.

    Examples
    --------
    >>> uniform_coupling(1, 2).tolist()
    [[0.5, 0.5]]
    """
    return np.full((n, m), 1.0 / (n * m))


def random_coupling(n: int, m: int, rng: np.random.Generator) -> Floats:
    """Return a coupling of every row with one counterfactual drawn for it.

    Counterfactuals are drawn without replacement as far as they last: for n = m this is a
    random permutation.

    Examples
    --------
    >>> import numpy as np
    >>> p = random_coupling(3, 3, np.random.default_rng(0))
    >>> p.sum(axis=0).tolist() == p.sum(axis=1).tolist()
    True
    """
    rounds = -(-n // m)
    drawn = np.concatenate([rng.permutation(m) for _ in range(rounds)])[:n]
    return _matched(drawn, m)


def aligned_coupling(n: int, m: int, alignment: Any = None) -> Floats:
    """Return the coupling of every row with the counterfactuals made for it.

    Parameters
    ----------
    n, m : int
        Factual and counterfactual rows.
    alignment : array-like (m,) of int, optional
        Factual row of each counterfactual; row j for counterfactual j by default.

    Raises
    ------
    DataError
        n ≠ m without an alignment; an alignment that does not fit or leaves a row without
        counterfactual.

    Examples
    --------
    >>> aligned_coupling(2, 3, [0, 0, 1]).tolist()
    [[0.25, 0.25, 0.0], [0.0, 0.0, 0.5]]
    """
    if alignment is None:
        if n != m:
            raise DataError(
                f"{m} counterfactuals for {n} factual rows have no alignment",
                "row j is taken for the counterfactual of row j only where there are as many",
                'give alignment=, the factual row of each counterfactual, or coupling="ot"',
            )
        return _matched(np.arange(n), m)
    owner = np.asarray(alignment)
    if owner.shape != (m,) or owner.dtype.kind not in "iu":
        raise DataError(
            "alignment does not fit the counterfactuals",
            f"shape {owner.shape} and type {owner.dtype} for {m} counterfactuals",
            "give the number of a factual row for each of them",
        )
    count = np.bincount(owner, minlength=n) if owner.min() >= 0 else np.zeros(0)
    if count.size != n:
        raise DataError(
            "alignment names rows that are not there",
            f"from {owner.min()} to {owner.max()}, there are rows 0 to {n - 1}",
            "number the factual rows from 0",
        )
    if not count.all():
        raise DataError(
            f"{int((count == 0).sum())} factual rows have no counterfactual",
            f"the first is row {int(np.flatnonzero(count == 0)[0])}",
            'drop them, or use coupling="ot", which finds one for every row',
        )
    p = np.zeros((n, m))
    p[owner, np.arange(m)] = 1.0 / (n * count[owner])
    return p


def nearest_coupling(cost: Any) -> Floats:
    """Return the coupling of every row with its nearest counterfactual, the first at ties.

    Examples
    --------
    >>> nearest_coupling([[2.0, 1.0], [3.0, 0.0]]).tolist()
    [[0.0, 0.5], [0.0, 0.5]]
    """
    C = check_matrix(cost, "cost")
    return _matched(C.argmin(axis=1), C.shape[1])


def checked_coupling(given: Any, n: int, m: int) -> Floats:
    """Return a coupling given as an array, rescaled to total 1.

    Raises
    ------
    DataError
        A wrong shape, negative or non-finite entries, a row without mass.
    """
    p = check_matrix(given, "coupling")
    if p.shape != (n, m):
        raise DataError(
            "coupling does not fit the rows",
            f"shape {p.shape} for {n} factual rows and {m} counterfactuals",
            "give one row per factual, one column per counterfactual",
        )
    if (p < 0).any():
        row, column = np.argwhere(p < 0)[0]
        raise DataError(
            f"coupling has {int((p < 0).sum())} negative entries",
            f"the first is {p[row, column]:g} in row {row}, column {column}",
            "give probabilities",
        )
    empty = np.flatnonzero(p.sum(axis=1) <= 0)
    if empty.size:
        raise DataError(
            f"coupling gives {empty.size} rows no counterfactual",
            f"the first is row {int(empty[0])}, whose entries are all zero",
            "give every row some mass",
        )
    return np.asarray(p / p.sum())


def coupling_of(
    kind: Any,
    n: int,
    m: int,
    *,
    cost: Callable[[], Floats],
    rng: np.random.Generator,
    alignment: Any = None,
    regularization: float | None = None,
) -> Floats:
    """Return a coupling by name, or one given as an array.

    Parameters
    ----------
    kind : {"ot", "entropic", "uniform", "random", "aligned", "nearest"} or array (n, m)
        Which.
    n, m : int
        Rows.
    cost : callable
        Returns the squared distances; called where they are needed.
    rng : Generator
        For "random".
    alignment, regularization
        For "aligned" and "entropic"; the latter is 0.05 of the mean cost by default.

    Raises
    ------
    DeclarationError
        An unknown name.
    """
    if not isinstance(kind, str):
        return checked_coupling(kind, n, m)
    if kind not in COUPLINGS:
        raise DeclarationError(f"unknown coupling {kind!r}", remedy=nearest(kind, COUPLINGS))
    if kind == "uniform":
        return uniform_coupling(n, m)
    if kind == "random":
        return random_coupling(n, m, rng)
    if kind == "aligned":
        return aligned_coupling(n, m, alignment)
    C = cost()
    if kind == "nearest":
        return nearest_coupling(C)
    if kind == "ot":
        return optimal_transport_coupling(C)
    return optimal_transport_coupling(
        C, regularization=0.05 * float(C.mean()) if regularization is None else regularization
    )


def _matched(partner: Indices, m: int) -> Floats:
    n = partner.size
    p = np.zeros((n, m))
    p[np.arange(n), partner] = 1.0 / n
    return p
