"""The choices of every row: sets of edits, what the model then says, and what they cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import gcd, lcm
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DataError

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]
Flags = NDArray[np.bool_]

__all__ = ["Choices", "checked_costs", "common_unit"]

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
    try:
        vector = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as e:
        raise DataError(
            f"{what} has entries that are not numbers", str(e), "give numbers"
        ) from None
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
