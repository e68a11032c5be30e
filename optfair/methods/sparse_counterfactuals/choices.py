"""The choices of every row: sets of edits, what the model then says, what they cost, and which sums they reach."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from math import gcd, lcm
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DataError, DeclarationError, UnsupportedProblem, kind_of
from optfair.features.predictor import predicted
from optfair.methods.sparse_counterfactuals.tables import Cells
from optfair.numbers import Flags, Floats, Indices, check_vector

# The choices of every row: sets of edits, what the model then says, and what they cost.

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
        tables = [check_vector(g, f"effects of row {i}") for i, g in enumerate(_sequence(effects))]
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
    given = check_vector(costs, "costs").copy()
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
            f"effects is {kind_of(values)}", remedy="give one list of numbers per row"
        ) from None


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


def model_choices(
    predict: Any,
    factuals: Any,
    values: Any,
    target: Any,
    costs: Any,
    most_edits: int | None,
    memory: int | None,
) -> tuple[Choices, Cells]:
    """Return the choices of rows from the scores of a model, and the cells they edit."""
    if not callable(predict):
        raise DeclarationError(
            f"predict is {kind_of(predict)}, which cannot be called",
            remedy="give a function from rows to scores",
        )
    if most_edits is not None and (int(most_edits) != most_edits or most_edits < 0):
        raise DeclarationError(
            f"most_edits is {most_edits!r}", remedy="give a whole number, or leave it out"
        )
    cells, aim = Cells.of(factuals, values), check_vector(np.atleast_1d(target), "target").mean()
    most = None if most_edits is None else int(most_edits)
    more: dict[str, Any] = {"costs": costs, "most": most, "memory": memory or MEMORY}
    return enumerated_choices(predict, cells, float(aim), **more), cells


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


# The allowed choices of every row by integer cost.


# Entries of the tables of the dynamic program: beyond this the costs are too fine for it.
LARGEST_TABLE = 20_000_000


@dataclass(frozen=True, eq=False)
class Pool:
    """Choices of one row that matter when only the sum of effects and the cost count.

    Sorted by cost, then by effect; of choices with the same effect the cheapest is kept.
    """

    effects: Floats
    costs: Indices
    index: Indices

    def drawn(self, size: int, rng: np.random.Generator) -> Pool:
        """Return some of the choices, the cheapest among them."""
        others = 1 + rng.choice(self.costs.size - 1, size - 1, replace=False)
        kept = np.concatenate([[0], np.sort(others)])
        return Pool(self.effects[kept], self.costs[kept], self.index[kept])

    def levels(self) -> list[tuple[int, slice]]:
        """Return (cost, its choices) for every cost that occurs."""
        ends = np.flatnonzero(np.diff(self.costs)) + 1
        bounds = [0, *ends.tolist(), self.costs.size]
        return [(int(self.costs[a]), slice(a, b)) for a, b in pairwise(bounds)]


@dataclass(frozen=True, eq=False)
class RowTable:
    """Least and largest effect by row and cost, in units that make every cost an integer.

    Attributes
    ----------
    rows : int
        Number n of rows.
    effects, costs, starts : arrays
        Of all choices; costs in units.
    allowed : bool array (N,)
        Choices that no rule leaves out.
    unit : float
        Cost of one unit.
    lower, upper : arrays (n, K + 1)
        Least and largest effect of a row at each cost; ±infinite where there is no choice.
    """

    rows: int
    effects: Floats
    costs: Indices
    starts: Indices
    allowed: Flags
    unit: float
    lower: Floats
    upper: Floats

    @classmethod
    def of(cls, choices: Choices, allowed: Flags, unit: float) -> RowTable:
        """Return the table of choices whose costs are multiples of a unit.

        Raises
        ------
        UnsupportedProblem
            The costs are too fine for a table.
        """
        c = choices
        costs = np.rint(c.costs / unit).astype(np.intp)
        n, K = c.rows, int(costs.max(initial=0))
        if n * (K + 1) > LARGEST_TABLE:
            raise UnsupportedProblem(
                f"costs in steps of {unit:g} make a table of {n} x {K + 1} entries",
                f"at most {LARGEST_TABLE:,} are held",
                "round the costs",
            )
        key = c.row * (K + 1) + costs
        lower, upper = np.full(n * (K + 1), np.inf), np.full(n * (K + 1), -np.inf)
        np.minimum.at(lower, key[allowed], c.effects[allowed])
        np.maximum.at(upper, key[allowed], c.effects[allowed])
        shape = (n, K + 1)
        return cls(
            n, c.effects, costs, c.starts, allowed, unit, lower.reshape(shape), upper.reshape(shape)
        )

    @property
    def cheapest(self) -> Indices:
        """Least cost of each row (n,); K + 1 where no choice is left."""
        there = np.isfinite(self.lower)
        first = np.where(there.any(axis=1), there.argmax(axis=1), self.lower.shape[1])
        return np.asarray(first, dtype=np.intp)

    @property
    def dearest(self) -> int:
        """Cost of the dearest choices of all rows."""
        there = np.isfinite(self.lower)
        last = self.lower.shape[1] - 1 - there[:, ::-1].argmax(axis=1)
        return int(last.sum())

    def capacity(self, budget: float) -> int:
        """Return how many units a budget buys, no more than can be spent."""
        # a budget that misses a whole number of units by rounding buys it
        bought = np.floor(min(budget / self.unit, float(self.dearest)) + 1e-9)
        return int(bought)

    def pool(self, row: int) -> Pool:
        """Return the allowed choices of a row."""
        at = np.arange(self.starts[row], self.starts[row + 1])
        at = at[self.allowed[at]]
        order = np.lexsort((self.costs[at], self.effects[at]))
        at = at[order]
        first = np.ones(at.size, dtype=bool)
        first[1:] = self.effects[at][1:] != self.effects[at][:-1]
        at = at[first]
        at = at[np.lexsort((self.effects[at], self.costs[at]))]
        return Pool(self.effects[at], self.costs[at], at)

    def choice(self, row: int, cost: int, effect: float) -> int:
        """Return a choice of a row with this cost and effect."""
        at = np.arange(self.starts[row], self.starts[row + 1])
        same = self.allowed[at] & (self.costs[at] == cost) & (self.effects[at] == effect)
        return int(at[same.argmax()])


# The least and the largest sum of effects for every budget, by a forward dynamic program.


@dataclass(frozen=True, eq=False)
class Reach:
    """Range of the sum of effects by budget.

    Attributes
    ----------
    lower, upper : arrays (C + 1,)
        Least and largest sum with at most so many units; ±infinite where none is possible.
    """

    table: RowTable
    lower: Floats
    upper: Floats
    _least: Indices
    _largest: Indices

    def least(self, budget: int) -> Indices:
        """Return the choices (n,) of the least sum with at most so many units."""
        return self._back(self._least, self.table.lower, budget)

    def largest(self, budget: int) -> Indices:
        """Return the choices (n,) of the largest sum with at most so many units."""
        return self._back(self._largest, self.table.upper, budget)

    def _back(self, picks: Indices, best: Floats, budget: int) -> Indices:
        chosen = np.empty(self.table.rows, dtype=np.intp)
        for i in range(self.table.rows - 1, -1, -1):
            k = int(picks[i, budget])
            chosen[i] = self.table.choice(i, k, float(best[i, k]))
            budget -= k
        return chosen


def reach(table: RowTable, capacity: int) -> Reach:
    r"""Return the range of the sum for budgets 0, ..., C.

    .. math:: L_i(c) = \min_{k \le c} L_{i-1}(c - k) + l_{ik},\qquad L_0 = 0

    with l_ik the least effect of row i at cost k; the largest sum in the same way.
    """
    # both ends step by step together: least sums of the effects and of their negatives
    best = np.stack([table.lower, -table.upper])
    value = np.zeros((2, capacity + 1))
    picks = np.empty((2, table.rows, capacity + 1), dtype=np.intp)
    for i in range(table.rows):
        value, picks[:, i] = _step(value, best[:, i])
    return Reach(table, value[0], -value[1], picks[0], picks[1])


def layers(best: Floats, capacity: int) -> Floats:
    """Return the least sum of rows i, ..., n − 1 for every budget, i = 0, ..., n."""
    n = best.shape[0]
    layers = np.zeros((n + 1, capacity + 1))
    for i in range(n - 1, -1, -1):
        layers[i] = _step(layers[None, i + 1], best[None, i])[0][0]
    return layers


def _step(value: Floats, row: Floats) -> tuple[Floats, Indices]:
    """Return the least sums with one row more, and the cost of that row's choice.

    Parameters
    ----------
    value : array (m, C + 1)
        Least sums so far, for m programs at once.
    row : array (m, K + 1)
        Least effect of the row at each cost.
    """
    # a choice that costs more and is no better is never needed
    useful = row[:, 1:] < np.minimum.accumulate(row[:, :-1], axis=1)
    costs = np.concatenate([[0], 1 + np.flatnonzero(useful.any(axis=0))])
    top, width = int(costs[-1]), value.shape[1]
    padded = np.full((value.shape[0], top + width), np.inf)
    padded[:, top:] = value
    candidates = padded[:, np.arange(top, top + width)[:, None] - costs]
    candidates += row[:, None, costs]
    at = candidates.argmin(axis=2)
    return np.take_along_axis(candidates, at[:, :, None], axis=2)[:, :, 0], costs[at]
