"""Counterfactuals to refine: from data, from linear scores, from transport maps."""

from __future__ import annotations

from typing import Any

import numpy as np

from optfair.errors import DataError, DeclarationError
from optfair.features.linear_score import LinearScore
from optfair.methods.group_counterfactuals.group_counterfactual import IndependentCounterfactuals
from optfair.methods.sparse_counterfactuals.estimator.encoding import MixedEncoding
from optfair.methods.sparse_counterfactuals.estimator.generated import Counterfactuals, in_container
from optfair.methods.sparse_counterfactuals.estimator.predictor import Predictor
from optfair.methods.sparse_counterfactuals.estimator.stacked_rows import (
    StackedRows,
    column_indices,
)

__all__ = [
    "mapped_counterfactuals",
    "nearest_unlike_neighbours",
    "projected_counterfactuals",
]

# Points are taken this share of the target beyond it: a projection stands on the boundary.
BEYOND = 1e-7
# Distances between rows and candidates that are held at a time.
ENTRIES = 4_000_000


def nearest_unlike_neighbours(
    model: Any,
    factuals: Any,
    candidates: Any,
    *,
    target_class: Any = None,
    n_neighbors: int = 1,
    categorical: Any = (),
    feature_weights: Any = None,
    immutable: Any = (),
) -> Counterfactuals:
    r"""Return for each row its nearest candidates that the model puts into the target class.

    .. math:: r_i = \arg\min_{r \in B,\; f(r) = c} \|e(x_i) - e(r)\|

    with numbers standardised and categories as indicators; the first candidate at ties. Such
    counterfactuals are real rows, so they are plausible, and change most features.

    Parameters
    ----------
    model : classifier
        Any that decides for a class; see `Predictor`.
    factuals, candidates : arrays or data frames (n, d), (b, d)
        Rows, and rows to choose from, as the training set.
    target_class : label, optional
        The second of two classes by default.
    n_neighbors : int
        Counterfactuals per row.
    categorical, feature_weights
        See `SparseCounterfactuals`.
    immutable : sequence of str or int
        Features in which candidates must equal the row.

    Returns
    -------
    Counterfactuals
        ``n_neighbors`` rows for each factual row, nearest first.

    Raises
    ------
    DataError
        Fewer candidates in the target class (with the same immutable features) than asked for.

    Examples
    --------
    >>> from optfair.features.linear_score import LinearScore
    >>> score = LinearScore([1.0, 0.0], 0.0)
    >>> found = nearest_unlike_neighbours(
    ...     score, [[-1.0, 0.0], [-1.0, 9.0]], [[1.0, 1.0], [2.0, 8.0], [-3.0, 0.0]]
    ... )
    >>> found.rows.tolist()
    [[1.0, 1.0], [2.0, 8.0]]

    References
    ----------
    Albini, Long, Dervovic, Magazzeni: Counterfactual Shapley Additive Explanations, FAccT
    2022 (KNN).
    """
    from scipy.spatial.distance import cdist

    if isinstance(n_neighbors, bool) or int(n_neighbors) != n_neighbors or n_neighbors < 1:
        raise DeclarationError(
            f"n_neighbors={n_neighbors!r} is not a positive integer", remedy="give e.g. 1"
        )
    predictor = Predictor(model, target_class=target_class)
    stack = StackedRows.of(
        factuals, candidates, called=("factuals", "candidates"), categorical=categorical
    )
    x, b = stack.blocks
    reached = predictor.decided(stack.rows(b))
    pool = b[reached]
    if len(pool) < n_neighbors:
        raise DataError(
            f"{len(pool)} candidates are in class {predictor.target_class!r}",
            f"of {len(b)}; {n_neighbors} are asked for each row",
            "give more candidates, as the training set",
        )
    encoding = MixedEncoding.of(stack, feature_weights)
    held = column_indices(stack.names, immutable)
    points, targets = encoding.points(x), encoding.points(pool)
    chosen = np.empty((len(x), n_neighbors), dtype=np.intp)
    step = max(1, ENTRIES // len(pool))
    for low in range(0, len(x), step):
        part = slice(low, low + step)
        apart = cdist(points[part], targets)
        for j in held:
            apart[x[part, j, None] != pool[:, j]] = np.inf
        if n_neighbors == 1:  # the first at ties, as in a stable order
            order = apart.argmin(axis=1)[:, None]
        else:
            order = np.argsort(apart, axis=1, kind="stable")[:, :n_neighbors]
        short = np.isinf(np.take_along_axis(apart, order, axis=1)).any(axis=1)
        if short.any():
            raise DataError(
                f"{int(short.sum())} rows have fewer than {n_neighbors} candidates with their"
                " immutable features",
                f"the first is row {low + int(np.flatnonzero(short)[0])}",
                "hold fewer features, or give more candidates",
            )
        chosen[part] = order
    return Counterfactuals(
        stack.rows(pool[chosen.reshape(-1)]),
        np.repeat(np.arange(len(x)), n_neighbors),
        "nearest unlike neighbours",
    )


def projected_counterfactuals(
    score: Any,
    factuals: Any,
    *,
    probability: float | None = None,
    threshold: float | None = None,
    target_class: Any = None,
    feature_costs: Any = None,
) -> Counterfactuals:
    r"""Return the nearest points over a linear score, each row by itself.

    .. math:: \min_Z \tfrac1n \sum_i \|z_i - x_i\|^2 \quad\text{s.t.}\quad v^T z_i \ge t

    The quadratic program `IndependentCounterfactuals`: what Wachter's penalty tends to for a
    linear score as its weight grows. Points are taken 1e-7 beyond the boundary.

    Parameters
    ----------
    score : LinearScore, (coef, intercept) or fitted linear classifier
        What is to be convinced.
    factuals : array or data frame (n, d)
        Rows of numbers.
    probability, threshold, target_class, feature_costs
        See `IndependentCounterfactuals`.

    Raises
    ------
    DataError, DeclarationError
        Rows, score or target that do not fit.

    Examples
    --------
    >>> found = projected_counterfactuals(([1.0, 0.0], -1.0), [[0.0, 3.0]])
    >>> found.rows.round(4).tolist()
    [[1.0, 3.0]]

    References
    ----------
    Wachter, Mittelstadt, Russell: Counterfactual Explanations without Opening the Black Box,
    2018. Valero-Leal et al.: Optimal transport group counterfactual explanations, Table 1.
    """
    linear = LinearScore.of(score)
    v, t = linear.halfspace(target_class, probability=probability, threshold=threshold)
    sign = 1.0 if np.array_equal(v, linear.coef) else -1.0
    level = t + sign * linear.intercept
    problem = IndependentCounterfactuals(
        factuals,
        score=linear,
        threshold=level + BEYOND * (1.0 + abs(level)),
        target_class=target_class,
        feature_costs=feature_costs,
    )
    points = np.asarray(problem.solve()["counterfactuals"], dtype=float)
    return Counterfactuals(in_container(factuals, points), np.arange(len(points)), "projection")


def mapped_counterfactuals(transport_map: Any, factuals: Any) -> Counterfactuals:
    """Return where a transport map takes the rows.

    Parameters
    ----------
    transport_map : TransportMap, or anything with ``transform``
        As ``PSDMap(X, score=...)`` gives it: ``p.map(p.solve())``.
    factuals : array or data frame (n, d)
        Rows of numbers.

    Raises
    ------
    DeclarationError
        No ``transform``.
    DataError
        A map that does not return one row of as many features per row.

    Examples
    --------
    >>> from optfair.methods.group_counterfactuals.transport_map import TransportMap
    >>> g = TransportMap([[1.0, 0.0], [0.0, 1.0]], [2.0, 0.0])
    >>> mapped_counterfactuals(g, [[0.0, 3.0]]).rows.tolist()
    [[2.0, 3.0]]

    References
    ----------
    Valero-Leal et al.: Optimal transport group counterfactual explanations, Section 3.
    """
    if not hasattr(transport_map, "transform"):
        raise DeclarationError(
            f"a {type(transport_map).__name__} is no map",
            "it has no transform",
            "give p.map(p.solve()) of a map problem p",
        )
    found = transport_map.transform(factuals)
    points = np.asarray(found, dtype=float)
    if points.shape != np.shape(factuals):
        raise DataError(
            "the map does not return one counterfactual per row",
            f"shape {points.shape} for {np.shape(factuals)}",
            "give the features the map was made for",
        )
    rows = found if hasattr(found, "columns") else in_container(factuals, points)
    return Counterfactuals(rows, np.arange(len(points)), "a transport map")
