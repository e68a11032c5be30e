"""Ask a model for the score after every set of edits, in batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DataError
from optfair.methods.sparse_counterfactuals.cells import Cells
from optfair.methods.sparse_counterfactuals.choices import Choices, checked_costs

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]
Flags = NDArray[np.bool_]

__all__ = ["LARGEST", "edit_sets", "enumerated_choices", "predicted"]

# More sets of edits than this make no problem that a general solver could hold.
LARGEST = 4_000_000
# Bytes of one batch of rows.
MEMORY = 64_000_000
# Rough bytes of one cell while the model works on it.
CELL = 32


def enumerated_choices(
    predict: Callable[[Any], Any],
    cells: Cells,
    target: float,
    *,
    costs: Any = None,
    most: int | None = None,
    memory: int = MEMORY,
) -> Choices:
    """Return the effect of every set of edits that changes something.

    Parameters
    ----------
    predict : callable
        Rows, in the container of the factuals, to one finite number each.
    cells : Cells
        Rows before and after.
    target : float
        mean(y*), subtracted from every score.
    costs : array-like (d,), optional
        Cost of an edit by feature.
    most : int, optional
        Edits in one row; larger sets are not enumerated.
    memory : int
        Bytes a batch of rows may take.

    Raises
    ------
    DataError
        Too many sets of edits, or a model that does not return one finite number per row.
    """
    row, edits = edit_sets(cells.differ, most)
    cell_costs = checked_costs(costs, cells.differ.shape[1])
    step = max(1, int(memory) // (CELL * cells.differ.shape[1]))
    scores = np.empty(row.size)
    for at in range(0, row.size, step):
        part = slice(at, at + step)
        scores[part] = predicted(predict, cells.rows(row[part], edits[part]), row[part].size)
    return Choices(row, edits, scores - target, cell_costs)


def edit_sets(differ: Flags, most: int | None = None) -> tuple[Indices, Flags]:
    """Return (row, edits) of all sets of edits in cells that differ, row by row.

    The first set of each row is empty.

    Examples
    --------
    >>> import numpy as np
    >>> row, edits = edit_sets(np.array([[True, False], [True, True]]))
    >>> row.tolist()
    [0, 0, 1, 1, 1, 1]
    >>> edits[4:].astype(int).tolist()
    [[0, 1], [1, 1]]
    """
    d = differ.shape[1]
    count = differ.sum(axis=1)
    limit = d if most is None else min(most, d)
    sizes = np.array([_sets(k, limit) for k in range(d + 1)], dtype=float)
    total = float(sizes[count].sum())
    if total > LARGEST:
        raise DataError(
            f"{total:.3g} sets of edits, more than {LARGEST:,}",
            f"up to {count.max()} features differ in a row, which makes {sizes[count.max()]:.3g}"
            " sets of it",
            "bound the edits of a row (most_edits=3), use fewer features, or fewer rows",
        )
    rows, sets = [], []
    for k in np.unique(count):  # rows with as many differing cells have tables of one shape
        members = np.flatnonzero(count == k)
        bits = _subsets(int(k), limit)
        places = np.nonzero(differ[members])[1].reshape(members.size, k)
        block = np.zeros((members.size, bits.shape[0], d), dtype=bool)
        np.put_along_axis(
            block,
            np.broadcast_to(places[:, None, :], (members.size, *bits.shape)),
            np.broadcast_to(bits, (members.size, *bits.shape)),
            axis=2,
        )
        rows.append(np.repeat(members, bits.shape[0]))
        sets.append(block.reshape(-1, d))
    row, edits = np.concatenate(rows), np.concatenate(sets)
    order = np.argsort(row, kind="stable")
    return row[order], edits[order]


def _sets(k: int, limit: int) -> float:
    """Return how many subsets of k things have at most so many members."""
    total = term = 1.0
    for s in range(1, min(k, limit) + 1):
        term *= (k - s + 1) / s
        total += term
    return total


def _subsets(k: int, limit: int) -> Flags:
    """Return all subsets of k things with at most so many members, one per line."""
    if limit >= k:
        return np.asarray((np.arange(2**k)[:, None] >> np.arange(k)) % 2 == 1)
    # level by level: subsets of s + 1 members extend those of s by a later thing
    level, levels = np.zeros((1, k), dtype=bool), [np.zeros((1, k), dtype=bool)]
    for _ in range(limit):
        last = np.where(level.any(axis=1), k - 1 - level[:, ::-1].argmax(axis=1), -1)
        which, thing = np.nonzero(np.arange(k) > last[:, None])
        level = level[which]
        level[np.arange(which.size), thing] = True
        levels.append(level)
    return np.concatenate(levels)


def predicted(predict: Callable[[Any], Any], rows: Any, count: int) -> Floats:
    """Return one finite number per row, or say what the model returned instead.

    Raises
    ------
    DataError
        A wrong shape, NaN or infinite scores, or no numbers.
    """
    returned = predict(rows)
    try:
        scores = np.asarray(returned, dtype=np.float64)
    except (TypeError, ValueError) as e:
        raise DataError(
            "the model does not return numbers",
            str(e),
            "give a function from rows to scores, such as the second column of predict_proba",
        ) from None
    if scores.shape not in ((count,), (count, 1)):
        raise DataError(
            f"the model returned shape {scores.shape} for {count} rows",
            "one number per row is needed",
            "give a function from rows to scores, such as the second column of predict_proba",
        )
    bad = ~np.isfinite(scores)
    if bad.any():
        raise DataError(
            f"the model returned {int(bad.sum())} scores that are NaN or infinite",
            f"of {count} rows",
            "check the model on the rows with some cells exchanged",
        )
    return scores.reshape(-1)
