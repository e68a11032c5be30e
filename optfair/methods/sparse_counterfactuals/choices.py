"""The choices of every row: sets of edits, what the model then says, and what they cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import gcd, lcm
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DataError, NotInstalled
from optfair.features.feature_problem import feature_names
from optfair.numbers import floats

__all__ = ["Cells", "Choices", "common_unit", "edit_sets", "enumerated_choices", "predicted"]


# The choices of every row: sets of edits, what the model then says, and what they cost.

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]
Flags = NDArray[np.bool_]


# Largest denominator of a cost that counts as a multiple of a common unit.
DENOMINATOR = 1_000


@dataclass(frozen=True, eq=False)
class Choices:
    """All choices of all rows, one below the other.

    Parameters
    ----------
    row : int array (N,)
        Row of each choice; the choices of a row are neighbours.
    edits : bool array (N, d)
        Features that the choice edits.
    effects : array (N,)
        g = f(z) − mean(y*): score after the edits minus the target.
    cell_costs : array (d,)
        Cost of one edit of each feature.
    """

    row: Indices
    edits: Flags
    effects: Floats
    cell_costs: Floats

    @classmethod
    def from_tables(cls, effects: Any, edits: Any, cell_costs: Any = None) -> Choices:
        """Return choices from one table per row, or from a table that all rows share.

        Parameters
        ----------
        effects : array-like (n, P), or n sequences of numbers
            Effect of each choice of each row.
        edits : array-like (P, d), or n of them
            The features each choice edits, as truth values.
        cell_costs : array-like (d,), optional
            Cost of an edit by feature; 1 by default.

        Raises
        ------
        DataError
            Tables that do not fit, entries that are not finite, a row without choices.
        """
        tables = [_vector(g, f"effects of row {i}") for i, g in enumerate(_sequence(effects))]
        if not tables:
            raise DataError("effects is empty", remedy="give one list of numbers per row")
        shared, sets = _edit_tables(edits, len(tables))
        for i, (g, S) in enumerate(zip(tables, sets, strict=True)):
            if g.size != S.shape[0]:
                raise DataError(
                    f"row {i} has {g.size} effects for {S.shape[0]} sets of edits",
                    remedy="give one effect per set of edits",
                )
            if S.shape[1] != sets[0].shape[1]:
                raise DataError(
                    f"row {i} edits {S.shape[1]} features, row 0 edits {sets[0].shape[1]}",
                    remedy="give one column per feature, in the same order for all rows",
                )
        for i, S in enumerate(sets[:1] if shared else sets):
            if np.unique(S, axis=0).shape[0] < S.shape[0]:
                raise DataError(
                    f"a set of edits occurs twice in row {i}",
                    remedy="give every set of edits once, with one effect",
                )
        row = np.repeat(np.arange(len(tables)), [g.size for g in tables])
        stacked = np.tile(sets[0], (len(tables), 1)) if shared else np.concatenate(sets)
        costs = checked_costs(cell_costs, stacked.shape[1])
        return cls(row, stacked, np.concatenate(tables), costs)

    def __post_init__(self) -> None:
        for array in (self.row, self.edits, self.effects, self.cell_costs):
            array.flags.writeable = False

    @property
    def rows(self) -> int:
        """Number n of rows."""
        return int(self.row[-1]) + 1

    @property
    def features(self) -> int:
        """Number d of features."""
        return int(self.edits.shape[1])

    @property
    def size(self) -> int:
        """Number N of choices."""
        return int(self.row.size)

    @cached_property
    def starts(self) -> Indices:
        """First choice of each row, and N."""
        return np.searchsorted(self.row, np.arange(self.rows + 1))

    @cached_property
    def costs(self) -> Floats:
        """Cost of each choice (N,)."""
        costs = np.zeros(self.size)
        for j in np.flatnonzero(self.cell_costs):  # truth values have no fast matrix product
            costs += np.where(self.edits[:, j], self.cell_costs[j], 0.0)
        costs.flags.writeable = False
        return costs

    @cached_property
    def editable(self) -> Flags:
        """Cells that some choice edits (n, d): in the others an edit would change nothing."""
        return np.asarray(np.logical_or.reduceat(self.edits, self.starts[:-1], axis=0))

    @cached_property
    def unedited(self) -> float:
        """Sum of effects without edits; NaN when some row has to be edited."""
        at = ~self.edits.any(axis=1)
        return float(self.effects[at].sum()) if int(at.sum()) == self.rows else np.nan


def checked_costs(costs: Any, features: int) -> Floats:
    """Return the cost of an edit by feature; 1 by default."""
    if costs is None:
        return np.ones(features)
    given = _vector(costs, "costs").copy()
    if given.shape != (features,) or (given < 0).any():
        raise DataError(
            "costs does not fit the features",
            f"{given.size} numbers for {features} features, the least is {given.min(initial=0):g}",
            "give one non-negative cost per feature",
        )
    return given


def common_unit(costs: Floats) -> float | None:
    """Return the largest unit that all costs are multiples of, or None when there is none.

    Examples
    --------
    >>> import numpy as np
    >>> common_unit(np.array([1.0, 2.5])), common_unit(np.array([1.0, 2.0**0.5]))
    (0.5, None)
    """
    fractions = [Fraction(float(c)).limit_denominator(DENOMINATOR) for c in costs]
    if any(abs(float(q) - c) > 1e-12 * max(1.0, c) for q, c in zip(fractions, costs, strict=True)):
        return None
    bottom = lcm(*(q.denominator for q in fractions))
    top = gcd(*(int(q * bottom) for q in fractions))
    return (top or bottom) / bottom


def _sequence(values: Any) -> Sequence[Any]:
    try:
        return list(values)
    except TypeError:
        raise DataError(
            f"effects is a {type(values).__name__}", remedy="give one list of numbers per row"
        ) from None


def _vector(values: Any, what: str) -> Floats:
    vector = floats(values, what)
    if vector.ndim != 1 or not vector.size:
        raise DataError(
            f"{what} is no list of numbers", f"shape {vector.shape}", "give one number per choice"
        )
    bad = ~np.isfinite(vector)
    if bad.any():
        raise DataError(
            f"{what} has {int(bad.sum())} entries that are NaN or infinite",
            f"the first is entry {int(np.flatnonzero(bad)[0])}",
            "the model must give a finite number for every set of edits",
        )
    return vector


def _edit_tables(edits: Any, rows: int) -> tuple[bool, list[Flags]]:
    """Return (whether all rows share one table, tables)."""
    try:
        # tables of different lengths make no array
        array = np.asarray(edits)
    except ValueError:
        array = np.empty(0)
    if array.ndim == 2 and array.dtype != object:
        return True, [_flags(array, "edits")] * rows
    tables = [_flags(np.asarray(S), f"edits of row {i}") for i, S in enumerate(_sequence(edits))]
    if len(tables) != rows:
        raise DataError(
            f"{len(tables)} tables of edits for {rows} rows of effects",
            remedy="give one table per row, or one (P x d) table for all rows",
        )
    return False, tables


def _flags(table: NDArray[Any], what: str) -> Flags:
    if table.ndim != 2 or not table.size:
        raise DataError(
            f"{what} has shape {table.shape}",
            remedy="give one line per set of edits and one column per feature",
        )
    if table.dtype != bool and not np.isin(table, (0, 1)).all():
        raise DataError(f"{what} has entries other than 0 and 1", remedy="give truth values")
    return np.array(table, dtype=bool)


# Rows before and after, cell by cell: where they differ, and rows with some cells exchanged.


@dataclass(frozen=True, eq=False)
class Cells:
    """Factual rows and the value each cell may take instead.

    Parameters
    ----------
    factuals, values : arrays (n, d) or data frames with the same columns
        Rows as they are, and the value assigned to every cell. Entries may be categories.

    Examples
    --------
    >>> import numpy as np
    >>> cells = Cells.of([[1.0, 2.0], [3.0, 4.0]], [[1.0, 5.0], [6.0, 7.0]])
    >>> cells.differ.tolist()
    [[False, True], [True, True]]
    >>> cells.rows(np.array([1]), np.array([[True, False]])).tolist()
    [[6.0, 4.0]]
    """

    factuals: Any
    values: Any
    names: tuple[str, ...]
    differ: Flags

    @classmethod
    def of(cls, factuals: Any, values: Any) -> Cells:
        """Return cells from rows; frames keep their type and the types of their columns.

        Raises
        ------
        DataError
            Shapes or columns that do not fit, missing entries.
        """
        framed = [hasattr(x, "columns") for x in (factuals, values)]
        if framed[0] != framed[1]:
            raise DataError(
                "one of factuals and values is a data frame, the other is not",
                remedy="give both as frames, or both as arrays",
            )
        before: Any
        after: Any
        before, after = (x if framed[0] else _array(x) for x in (factuals, values))
        if before.shape != after.shape or len(before.shape) != 2 or 0 in before.shape:
            raise DataError(
                "values does not fit the factuals",
                f"shapes {after.shape} and {before.shape}",
                "give the value of every cell of every factual row, aligned row by row",
            )
        names = feature_names(before, before.shape[1])
        if framed[0] and list(after.columns) != list(before.columns):
            raise DataError(
                "values has other columns than the factuals",
                f"{', '.join(map(str, after.columns))}; {', '.join(names)}",
                "give the same columns in the same order",
            )
        columns = [
            (_column(before, j), _column(after, j), names[j]) for j in range(before.shape[1])
        ]
        for x, q, name in columns:
            for where, column in (("factuals", x), ("values", q)):
                missing = _missing(column)
                if missing.any():
                    row = int(np.flatnonzero(missing)[0])
                    raise DataError(
                        f"{where} has missing entries in {name!r}",
                        f"the first is in row {row}",
                        "drop or impute them: it cannot be told whether such a cell changes",
                    )
        differ = np.stack([np.asarray(x != q, dtype=bool) for x, q, _ in columns], axis=1)
        return cls(before, after, names, differ)

    def column(self, index: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return (factuals, values) of one feature."""
        return _column(self.factuals, index), _column(self.values, index)

    def rows(self, index: Indices, edits: Flags) -> Any:
        """Return some of the rows with the edited cells exchanged, in the container given.

        Parameters
        ----------
        index : int array (m,)
            Rows, with repetition.
        edits : bool array (m, d)
            Cells that take the new value.
        """
        if not hasattr(self.factuals, "columns"):
            return np.where(edits, self.values[index], self.factuals[index])
        try:
            import narwhals as nw
        except ImportError:
            raise NotInstalled(
                "rows in data frames need narwhals",
                "the module 'narwhals' was not found",
                "pip install optfair[frames], or give arrays",
            ) from None

        both = nw.concat([nw.from_native(self.factuals), nw.from_native(self.values)])
        n = self.factuals.shape[0]
        place = index[:, None] + n * edits
        # column by column, so that each keeps its type
        native = [both[name][place[:, j]].to_native() for j, name in enumerate(both.columns)]
        if hasattr(native[0], "reset_index"):  # pandas would align columns by their old labels
            native = [series.reset_index(drop=True) for series in native]
        return type(self.factuals)(dict(zip(both.columns, native, strict=True)))


def _array(rows: Any) -> NDArray[Any]:
    try:
        array = np.array(rows)
    except ValueError as e:
        raise DataError("rows have different lengths", str(e), "give rows x columns") from None
    if array.dtype.kind in "US":  # numbers and text together would all become text
        array = np.array(rows, dtype=object)
    return array


def _column(rows: Any, index: int) -> NDArray[Any]:
    if hasattr(rows, "columns"):
        return np.asarray(rows[rows.columns[index]])
    return np.asarray(rows[:, index])


def _missing(column: NDArray[Any]) -> Flags:
    if column.dtype == object:
        return np.array([v is None or v is not v or v != v for v in column], dtype=bool)
    return np.asarray(column != column)


# Ask a model for the score after every set of edits, in batches.

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
