r"""Couplings of factual and counterfactual rows: who serves whom, at what distance, with which values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from optfair.errors import DataError
from optfair.methods.fair_clustering.alignment import entropic_plan
from optfair.methods.fair_clustering.coupling import KantorovichCoupling
from optfair.methods.sparse_counterfactuals.tables import StackedRows, column_indices
from optfair.numbers import (
    Floats,
    Indices,
    check_choice,
    check_count,
    check_matrix,
    check_vector,
    checked,
    floats,
    one_of,
)

# Couplings of factual and counterfactual rows: who serves whom as the example to follow.
#
# A coupling is an (n, m) array p with entries p_ij ≥ 0 and total 1. Row i of it, divided by its
# sum, is the distribution of counterfactuals that row i is compared with.

COUPLINGS = ("ot", "entropic", "uniform", "random", "aligned", "nearest")


@checked(cost=floats)
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


@checked(n=check_count, m=check_count)
def uniform_coupling(n: int, m: int) -> Floats:
    """Return the independent coupling: every row is compared with all counterfactuals.

    Examples
    --------
    >>> uniform_coupling(1, 2).tolist()
    [[0.5, 0.5]]
    """
    return np.full((n, m), 1.0 / (n * m))


@checked(n=check_count, m=check_count, rng=one_of(np.random.Generator))
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


def checked_alignment(alignment: Any, m: int) -> Indices:
    """Return the factual row of each counterfactual.

    Raises
    ------
    DataError
        Not one whole number each.
    """
    owner = np.asarray(alignment)
    if owner.shape != (m,) or owner.dtype.kind not in "iu":
        raise DataError(
            "alignment does not fit the counterfactuals",
            f"shape {owner.shape} and type {owner.dtype} for {m} counterfactuals",
            "give the number of a factual row for each of them",
        )
    return owner


@checked(n=check_count, m=check_count)
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
    owner = checked_alignment(alignment, m)
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


@checked(cost=floats)
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
    check_choice(kind, "coupling", COUPLINGS)
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


# Points for distances between rows of numbers and categories.


@dataclass(frozen=True, eq=False)
class MixedEncoding:
    r"""Numbers standardised, categories as indicators, each feature weighted.

    .. math::
        \|e(x) - e(r)\|^2 = \sum_{k\ \text{numeric}} w_k \frac{(x_k - r_k)^2}{s_k^2}
            + \sum_{k\ \text{categorical}} w_k [x_k \ne r_k]

    s is the standard deviation over all tables of the stack together; a feature that is
    constant there counts nothing.

    Attributes
    ----------
    weights : array (d,)
        w.
    scales : array (d,)
        s of the numeric features, 1 for others.
    """

    stack: StackedRows
    weights: Floats
    scales: Floats

    @classmethod
    def of(cls, stack: StackedRows, weights: Any = None) -> MixedEncoding:
        """Return the encoding of a stack.

        Parameters
        ----------
        stack : StackedRows
            Tables.
        weights : array-like (d,) or dict of feature to number, optional
            Non-negative, 1 by default.

        Raises
        ------
        DataError
            Weights that do not fit.

        Examples
        --------
        >>> stack = StackedRows.of([[0.0, 1.0]], [[2.0, 3.0]], categorical=[1])
        >>> encoding = MixedEncoding.of(stack, {"x1": 4.0})
        >>> x, r = (encoding.points(block) for block in stack.blocks)
        >>> round(float(((x - r) ** 2).sum()), 9)  # 2² / 1² for the number, 4 for the category
        8.0
        """
        w = _weights(weights, stack.names)
        codes = np.concatenate(stack.blocks)
        scales = np.ones(len(stack.names))
        for j in np.flatnonzero(stack.numeric):
            column = stack.numbers(codes, int(j))
            if (column != column[:1]).any():
                unit = 2.0 ** np.floor(np.log2(np.abs(column).max()))  # squares stay floats
                scales[j] = (column / unit).std() * unit
        return cls(stack, w, scales)

    def points(self, codes: Indices, stack: StackedRows | None = None) -> Floats:
        """Return coded rows as points whose squared distances are those above.

        Parameters
        ----------
        codes : int array (n, d)
            Rows.
        stack : StackedRows, optional
            Whose codes they are, that of the encoding by default.
        """
        stack = self.stack if stack is None else stack
        parts = []
        for j in range(codes.shape[1]):
            if stack.numeric[j]:
                scale = np.sqrt(self.weights[j]) / self.scales[j]
                parts.append(scale * stack.numbers(codes, j)[:, None])
            else:
                indicator = codes[:, j, None] == np.arange(stack.sizes[j])
                parts.append(np.sqrt(0.5 * self.weights[j]) * indicator)
        return np.ascontiguousarray(np.concatenate(parts, axis=1), dtype=np.float64)

    def cost(self, x: Indices, r: Indices) -> Floats:
        """Return the squared distances (n, m) of coded rows."""
        from scipy.spatial.distance import cdist

        return np.asarray(cdist(self.points(x), self.points(r), "sqeuclidean"))


def _weights(weights: Any, names: tuple[str, ...]) -> Floats:
    given: Any = weights
    if weights is None:
        return np.ones(len(names))
    if isinstance(weights, Mapping):
        given = np.ones(len(names))
        given[column_indices(names, weights)] = [float(v) for v in weights.values()]
    w = check_vector(given, "feature_weights", len(names))
    if (w < 0).any() or not w.any():
        raise DataError(
            "feature_weights has a negative entry, or all are zero",
            remedy="give one non-negative number per feature",
        )
    return w


# The value each cell may take: that of one coupled counterfactual, or an average of several.

VALUES = ("max", "avg")


def assigned_values(
    stack: StackedRows,
    counterfactuals: Indices,
    coupling: Floats,
    value: str,
    rng: np.random.Generator | None = None,
) -> tuple[StackedRows, Indices]:
    r"""Return the value of every cell, as codes of a stack that knows it.

    .. math::
        \text{max: } q_i = r_{\tau(i)},\; \tau(i) = \arg\max_j p_{ij}; \qquad
        \text{avg: } q_{ik} = \sum_j \frac{p_{ij}}{\sum_{j'} p_{ij'}} r_{jk}

    "avg" never invents a category: a categorical feature takes the value with the largest
    total probability (the mode), that of the most probable row at ties. Features of whole
    numbers take the average rounded to a whole number.

    Parameters
    ----------
    stack : StackedRows
        Factuals, counterfactuals and maybe more.
    counterfactuals : int array (m, d)
        Codes of the counterfactuals.
    coupling : array (n, m)
        p.
    value : {"max", "avg"}
        Which.
    rng : Generator, optional
        Draws one of several most probable rows, as all are under a uniform coupling; the first
        by default.

    Returns
    -------
    stack : StackedRows
        The same, with averages added.
    codes : int array (n, d)
        Codes of q in it.

    Raises
    ------
    DeclarationError
        An unknown name.

    Examples
    --------
    >>> import numpy as np
    >>> stack = StackedRows.of([[0.0, 0.0]], [[1.0, 5.0], [2.0, 5.0], [6.0, 7.0]], categorical=[1])
    >>> p = np.array([[0.3, 0.3, 0.4]])
    >>> for value in ("max", "avg"):
    ...     known, codes = assigned_values(stack, stack.blocks[1], p, value)
    ...     print(known.rows(codes).round(3).tolist())
    [[6.0, 7.0]]
    [[3.3, 5.0]]

    References
    ----------
    You, Bian, Cao: Joint Distribution-Informed Shapley Values for Sparse Counterfactual
    Explanations, eq. (9) and (10).
    """
    check_choice(value, "value", VALUES)
    partner = _most_probable(coupling, rng)
    codes = counterfactuals[partner].copy()
    single = (coupling > 0).sum(axis=1) == 1
    if value == "max" or single.all():  # an average of one row is that row, to the last digit
        return stack, codes
    share = coupling / coupling.sum(axis=1, keepdims=True)
    numbers = np.zeros(codes.shape)
    for j in range(codes.shape[1]):
        if stack.numeric[j]:
            column = stack.numbers(counterfactuals, j)
            average = share @ column
            # rounding must not carry an average of equal numbers away from them
            average = np.clip(average, column.min(), column.max())
            average = np.rint(average) if stack.whole[j] else average
            numbers[:, j] = np.where(single, column[partner], average)
        else:
            votes = share @ (counterfactuals[:, j, None] == np.arange(stack.sizes[j]))
            best = votes.max(axis=1)
            own = votes[np.arange(len(votes)), codes[:, j]] >= best - 1e-12
            codes[:, j] = np.where(own, codes[:, j], votes.argmax(axis=1))
    return stack.with_numbers(numbers, codes)


def _most_probable(coupling: Floats, rng: np.random.Generator | None) -> Indices:
    if rng is None:
        return np.asarray(coupling.argmax(axis=1))
    tied = coupling >= coupling.max(axis=1, keepdims=True) * (1.0 - 1e-12)
    return np.asarray(np.where(tied, rng.random(coupling.shape), -1.0).argmax(axis=1))
