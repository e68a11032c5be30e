"""Counterfactuals to refine: from data, from linear scores, from transport maps, from DiCE."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optfair.errors import DataError, DeclarationError, kind_of
from optfair.features.predictor import Predictor
from optfair.methods.group_counterfactuals.members import IndependentCounterfactuals
from optfair.methods.sparse_counterfactuals.couplings import MixedEncoding, checked_alignment
from optfair.methods.sparse_counterfactuals.tables import StackedRows, column_indices
from optfair.numbers import Floats, Indices, check_choice, check_table, checked, whole

# Counterfactual rows, and for which factual row each was made.


@dataclass(frozen=True, eq=False)
class Counterfactuals:
    """Counterfactual rows, and for which factual row each was made.

    Attributes
    ----------
    rows : array or data frame (m, d)
        r.
    alignment : int array (m,) or None
        Factual row of each, where it is known.
    source : str
        Who made them.

    Examples
    --------
    >>> import numpy as np
    >>> found = given_counterfactuals(np.zeros((2, 3)))
    >>> found.alignment.tolist(), found.source
    ([0, 1], 'given')
    """

    rows: Any
    alignment: Indices | None
    source: str

    def __len__(self) -> int:
        return int(self.rows.shape[0])

    def __repr__(self) -> str:
        known = "alignment unknown" if self.alignment is None else "aligned"
        return f"Counterfactuals: {len(self)} rows from {self.source}, {known}"


@checked(rows=check_table)
def given_counterfactuals(rows: Any, *, alignment: Any = "rows") -> Counterfactuals:
    """Return counterfactuals that exist already, from any generator.

    Parameters
    ----------
    rows : array or data frame (m, d)
        r.
    alignment : "rows", array-like (m,) of int, or None
        Row j is for factual row j; the factual row of each; or unknown.

    Raises
    ------
    DataError
        No table, an alignment that does not fit.

    Examples
    --------
    >>> given_counterfactuals([[0.0, 1.0], [2.0, 1.0]]).alignment.tolist()
    [0, 1]
    """
    table = rows if hasattr(rows, "columns") else np.asarray(rows)
    if len(table.shape) != 2 or 0 in table.shape:
        raise DataError(
            "counterfactuals are no table with rows", f"shape {table.shape}", "give rows x columns"
        )
    if isinstance(alignment, str) and alignment == "rows":
        alignment = np.arange(table.shape[0])
    owner = None if alignment is None else checked_alignment(alignment, table.shape[0])
    return Counterfactuals(table, owner, "given")


def in_container(factuals: Any, points: Floats) -> Any:
    """Return points in the container of the factual rows."""
    if not hasattr(factuals, "columns"):
        return points
    names = list(factuals.columns)
    frame = type(factuals)({name: points[:, j] for j, name in enumerate(names)})
    return frame.set_axis(factuals.index, axis=0) if hasattr(frame, "set_axis") else frame


# Counterfactuals to refine: from data, from linear scores, from transport maps.

# Points are taken this share of the target beyond it: a projection stands on the boundary.
BEYOND = 1e-7
# Distances between rows and candidates that are held at a time.
ENTRIES = 4_000_000


@checked(factuals=check_table, candidates=check_table)
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

    if not whole(n_neighbors) or n_neighbors < 1:
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
    options = {"score": score, "target_class": target_class, "feature_costs": feature_costs}
    asked = IndependentCounterfactuals(
        factuals, probability=probability, threshold=threshold, **options
    )
    level = asked.level + asked.constant
    beyond = level + BEYOND * (1.0 + abs(level))
    problem = IndependentCounterfactuals(factuals, threshold=beyond, **options)
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
            f"{kind_of(transport_map)} is no map",
            "it has no transform",
            "give p.map(p.solve()) of a map problem p",
        )
    images = transport_map.transform(factuals)
    points = np.asarray(images, dtype=float)
    if points.shape != np.shape(factuals):
        raise DataError(
            "the map does not return one counterfactual per row",
            f"shape {points.shape} for {np.shape(factuals)}",
            "give the features the map was made for",
        )
    rows = images if hasattr(images, "columns") else in_container(factuals, points)
    return Counterfactuals(rows, np.arange(len(points)), "a transport map")


# Counterfactuals made by DiCE (the package dice-ml), from what it returns.


def dice_counterfactuals(
    result: Any, factuals: Any, *, on_missing: str = "raise"
) -> Counterfactuals:
    """Return the counterfactuals in a result of DiCE.

    Parameters
    ----------
    result : object, or sequence of data frames
        What ``generate_counterfactuals`` of dice-ml returns: an object with
        ``cf_examples_list``, one entry per query row whose ``final_cfs_df`` has its
        counterfactuals; or those frames themselves, None for a row without any.
    factuals : pandas.DataFrame (n, d)
        The query rows. Columns that it does not have, as the outcome that DiCE appends, are
        left out; values take the types of its columns.
    on_missing : {"raise", "skip"}
        What to do about rows for which none was found. Skipped rows are missing in the
        alignment: leave them out of the factuals, or let a coupling find partners.

    Returns
    -------
    Counterfactuals
        Aligned: row by row as in the query.

    Raises
    ------
    DataError, DeclarationError
        No such object, another number of entries than rows, missing columns, values that do
        not fit their column, rows without counterfactual.

    Examples
    --------
    >>> import pandas as pd
    >>> query = pd.DataFrame({"age": [20, 30], "job": ["a", "b"]})
    >>> found = [
    ...     pd.DataFrame({"age": ["25", "20"], "job": ["a", "b"], "income": [1, 1]}),
    ...     pd.DataFrame({"age": ["35"], "job": ["b"], "income": [1]}),
    ... ]
    >>> r = dice_counterfactuals(found, query)
    >>> r, r.alignment.tolist(), r.rows["age"].tolist()
    (Counterfactuals: 3 rows from DiCE, aligned, [0, 0, 1], [25, 20, 35])

    References
    ----------
    Mothilal, Sharma, Tan: Explaining Machine Learning Classifiers through Diverse
    Counterfactual Explanations, FAT* 2020.
    """
    check_choice(on_missing, "on_missing", ("raise", "skip"))
    if not hasattr(factuals, "columns") or not hasattr(factuals, "astype"):
        raise DataError("factuals is no pandas data frame", remedy="give the query of DiCE")
    frames = _frames(result)
    if len(frames) != len(factuals):
        raise DataError(
            f"{len(frames)} entries for {len(factuals)} factual rows",
            remedy="give the rows that DiCE was asked about, in the same order",
        )
    without = [i for i, frame in enumerate(frames) if frame is None or not len(frame)]
    if without and (on_missing == "raise" or len(without) == len(frames)):
        raise DataError(
            f"DiCE found no counterfactual for {len(without)} rows",
            f"the first is row {without[0]}",
            'leave them out, or set on_missing="skip"',
        )
    names = list(factuals.columns)
    kept = [(i, frame) for i, frame in enumerate(frames) if frame is not None and len(frame)]
    for i, frame in kept:
        missing = [str(name) for name in names if name not in frame.columns]
        if missing:
            raise DataError(
                f"the counterfactuals of row {i} have no column {missing[0]!r}",
                f"they have {', '.join(map(str, frame.columns))}",
                "give the rows that DiCE was asked about, with the same columns",
            )
    import pandas as pd

    rows = pd.concat([frame[names].astype(object) for _, frame in kept], ignore_index=True)
    try:
        # DiCE gives numbers as text, or whole numbers as fractions
        rows = pd.DataFrame({name: _typed(rows[name], factuals[name].dtype) for name in names})
    except (TypeError, ValueError) as e:
        raise DataError(
            "counterfactuals have values that do not fit their column", str(e), "check them"
        ) from None
    owner = np.repeat([i for i, _ in kept], [len(frame) for _, frame in kept])
    return Counterfactuals(rows, owner.astype(np.intp), "DiCE")


def _typed(column: Any, dtype: Any) -> Any:
    if getattr(dtype, "kind", "O") in "iu":
        numbers = column.astype(float)
        if not (numbers == numbers.round()).all():
            raise ValueError(f"column {column.name!r} has fractions, the factuals whole numbers")
        return numbers.astype(dtype)
    return column.astype(dtype)


def _frames(result: Any) -> Sequence[Any]:
    entries = getattr(result, "cf_examples_list", None)
    if entries is not None:
        return [entry.final_cfs_df for entry in entries]
    if hasattr(result, "final_cfs_df"):  # of one row
        return [result.final_cfs_df]
    if isinstance(result, (list, tuple)) and all(
        frame is None or hasattr(frame, "columns") for frame in result
    ):
        return list(result)
    raise DataError(
        f"{kind_of(result)} is no result of DiCE",
        "it has no cf_examples_list and is no sequence of data frames",
        "give what generate_counterfactuals returned",
    )
