"""Coefficients of compiled constraints: ranges by variable, entry and row, and repeated rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

if TYPE_CHECKING:
    from optfair.compile.form import Compiled

__all__ = [
    "Range",
    "balanced_range",
    "column_ranges",
    "extreme_entries",
    "repeated_rows",
    "term_ranges",
    "widest_rows",
]

# Range within one row that is shown, and how many rows and entries are.
WIDE_ROW, EXTREMES = 1e4, 3
# Coefficients above which rows are not compared.
MOST_ENTRIES = 100_000


@dataclass(frozen=True)
class Range:
    """Smallest and largest size of nonzero numbers.

    Examples
    --------
    >>> Range.of([0.0, -4.0, 0.5]).ratio
    8.0
    """

    smallest: float
    largest: float

    @classmethod
    def of(cls, numbers: Any) -> Range:
        """Return the range of numbers, (0, 0) when all are zero."""
        sizes = np.abs(np.asarray(numbers, dtype=float)).ravel()
        sizes = sizes[sizes > 0.0]
        return cls(float(sizes.min()), float(sizes.max())) if sizes.size else cls(0.0, 0.0)

    @property
    def ratio(self) -> float:
        """Largest over smallest, 1 without numbers."""
        return self.largest / self.smallest if self.smallest > 0.0 else 1.0

    def __str__(self) -> str:
        return f"{self.smallest:.1e} .. {self.largest:.1e}" if self.largest > 0.0 else "none"


def term_ranges(compiled: Compiled) -> dict[str, tuple[Range, Range]]:
    """Return the ranges of the coefficients and of the right-hand sides of each constraint."""
    owner, names = _owners(compiled)
    A = sp.coo_array(compiled.form.A)
    coefficients = _by_owner(np.abs(A.data), owner[A.row], len(names))
    sides = _by_owner(np.abs(compiled.form.b), owner, len(names))
    return dict(zip(names, zip(coefficients, sides, strict=True), strict=True))


def _owners(compiled: Compiled) -> tuple[NDArray[np.intp], list[str]]:
    """Return the constraint of each row, -1 for a row of the objective, and their names."""
    names = list(compiled.constraints)
    number = {name: k for k, name in enumerate(names)}
    owner = np.full(compiled.form.b.size, -1, dtype=np.intp)
    for o in compiled.owners:
        if o.bound:
            owner[o.start : o.stop] = number[o.term]
    return owner, names


def _by_owner(sizes: Any, owner: NDArray[np.intp], count: int) -> list[Range]:
    """Return the range of positive sizes of each owner."""
    here = (sizes > 0.0) & (owner >= 0)
    low, high = np.full(count, np.inf), np.zeros(count)
    np.minimum.at(low, owner[here], sizes[here])
    np.maximum.at(high, owner[here], sizes[here])
    low = np.where(high > 0.0, low, 0.0)
    return [Range(float(a), float(b)) for a, b in zip(low, high, strict=True)]


def column_ranges(compiled: Compiled) -> dict[str, Range]:
    """Return the range of the coefficients of each variable."""
    A = sp.csc_array(compiled.form.A)
    return {
        name: Range.of(A.data[A.indptr[at.start] : A.indptr[at.stop]])
        for name, at in compiled.form.columns.items()
    }


def extreme_entries(compiled: Compiled) -> tuple[tuple[str, Range], ...]:
    """Return the entries of variables with the largest and the smallest coefficients."""
    largest = np.asarray(abs(sp.csc_array(compiled.form.A)).max(axis=0).toarray()).ravel()
    declared = np.zeros(largest.size, dtype=bool)
    for at in compiled.form.columns.values():
        declared[at] = True
    columns = np.flatnonzero(declared & (largest > 0.0))
    ranked = columns[np.argsort(-largest[columns], kind="stable")]
    if ranked.size > 2 * EXTREMES:
        ranked = np.concatenate([ranked[:EXTREMES], ranked[-EXTREMES:]])
    places, named = compiled.places(), []
    for j in ranked:
        name = next(n for n, at in compiled.form.columns.items() if at.start <= j < at.stop)
        # of a symmetric variable the first of the two entries that share the column
        where = np.argwhere(places[name] == j)[0]
        label = f"{name}[{', '.join(str(int(i)) for i in where)}]" if where.size else name
        named.append((label, Range(float(largest[j]), float(largest[j]))))
    return tuple(named)


def widest_rows(compiled: Compiled) -> tuple[tuple[str, int, Range], ...]:
    """Return the rows with the widest range: term, row within its compiled form, range."""
    A = sp.csr_array(compiled.form.A)
    A.eliminate_zeros()
    owner, names = _owners(compiled)
    filled = np.flatnonzero((np.diff(A.indptr) > 0) & (owner >= 0))
    if not filled.size:
        return ()
    sizes = np.append(np.abs(A.data), 1.0)
    ends = np.column_stack([A.indptr[filled], A.indptr[filled + 1]]).ravel()
    low = np.minimum.reduceat(sizes, ends)[::2]
    high = np.maximum.reduceat(sizes, ends)[::2]
    wide = np.flatnonzero(high > WIDE_ROW * low)
    worst = wide[np.argsort(-(high[wide] / low[wide]), kind="stable")][:EXTREMES]
    found = []
    for k in worst:
        name = names[owner[filled[k]]]
        row = int(np.searchsorted(compiled.rows(name), filled[k]))
        found.append((name, row, Range(float(low[k]), float(high[k]))))
    return tuple(found)


def balanced_range(A: Any, rounds: int = 20) -> float:
    """Return the range of coefficients after geometric scaling of rows and columns."""
    M = sp.coo_array(A)
    keep = M.data != 0.0
    if not keep.any():
        return 1.0
    logs, row, col = np.log(np.abs(M.data[keep])), M.row[keep], M.col[keep]
    in_row = np.maximum(np.bincount(row, minlength=M.shape[0]), 1)
    in_col = np.maximum(np.bincount(col, minlength=M.shape[1]), 1)
    for _ in range(rounds):
        logs = logs - (np.bincount(row, logs, M.shape[0]) / in_row)[row]
        logs = logs - (np.bincount(col, logs, M.shape[1]) / in_col)[col]
    return float(np.exp(min(logs.max() - logs.min(), 700.0)))


def repeated_rows(compiled: Compiled) -> tuple[tuple[str, str], ...]:
    """Return pairs of terms of which one repeats a linear row of the other, up to a factor."""
    A = sp.csr_array(compiled.form.A)
    A.eliminate_zeros()
    if A.nnz > MOST_ENTRIES:
        return ()
    A.sort_indices()
    owner, names = _owners(compiled)
    auxiliary = np.zeros(A.shape[1], dtype=bool)
    for _, start, stop in compiled.auxiliary:
        auxiliary[start:stop] = True
    count = np.diff(A.indptr)
    lead = np.append(A.data, 1.0)[A.indptr[:-1]]
    seen: dict[tuple[Any, ...], int] = {}
    pairs: dict[tuple[str, str], None] = {}
    for cone in compiled.form.cones:
        if cone.kind not in ("zero", "nonneg"):
            continue
        # an inequality keeps its direction, an equality has none
        factor = lead if cone.kind == "zero" else np.abs(lead)
        data = _digits(A.data / np.repeat(factor, count))
        sides = _digits(compiled.form.b / factor)
        for i in range(cone.start, cone.stop):
            at = slice(A.indptr[i], A.indptr[i + 1])
            if owner[i] < 0 or not count[i] or auxiliary[A.indices[at]].any():
                continue
            key = (cone.kind, A.indices[at].tobytes(), data[at].tobytes(), float(sides[i]))
            if key in seen:
                pairs[(names[seen[key]], names[owner[i]])] = None
            seen.setdefault(key, int(owner[i]))
    place = {name: k for k, name in enumerate(names)}
    return tuple(sorted(pairs, key=lambda pair: (place[pair[1]], place[pair[0]])))


def _digits(numbers: Any) -> Any:
    """Round to forty binary digits, -0.0 to 0.0: rows that are scaled differ in the last ones."""
    mantissa, exponent = np.frexp(numbers)
    return np.ldexp(np.round(np.ldexp(mantissa, 40)), exponent - 40) + 0.0
