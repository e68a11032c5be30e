"""Coefficients of compiled constraints: ranges by variable, entry and row, and repeated rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

if TYPE_CHECKING:
    from optfair.compile.form import Compiled
    from optfair.core.problem import Problem
    from optfair.solution.conic_form import ConicForm

__all__ = [
    "Piece",
    "Range",
    "balanced_range",
    "column_ranges",
    "extreme_entries",
    "repeated_rows",
    "stacked",
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


@dataclass(frozen=True, eq=False)
class Piece:
    """One constraint compiled alone."""

    name: str
    compiled: Compiled

    @property
    def form(self) -> ConicForm:
        """Its cone program."""
        return self.compiled.form

    @property
    def columns(self) -> dict[str, slice]:
        """Columns of its variables."""
        return self.form.columns


def column_ranges(problem: Problem, pieces: list[Piece]) -> dict[str, Range]:
    """Return the range of the coefficients of each variable."""
    found = {}
    for name in problem.variables:
        parts = [
            np.asarray(sp.csc_array(p.form.A)[:, p.columns[name]].data, dtype=float)
            for p in pieces
            if name in p.columns
        ]
        if parts:
            found[name] = Range.of(np.concatenate(parts))
    return found


def extreme_entries(pieces: list[Piece]) -> tuple[tuple[str, Range], ...]:
    """Return the entries of variables with the largest and the smallest coefficients."""
    most: dict[tuple[str, int], float] = {}
    entries: dict[str, NDArray[np.int64]] = {}
    for p in pieces:
        largest = np.asarray(abs(sp.csc_array(p.form.A)).max(axis=0).toarray()).ravel()
        for name, at in p.columns.items():
            if name not in entries:
                entries[name] = p.compiled.places()[name] - at.start
            for i, size in enumerate(largest[at]):
                if size > 0.0:
                    most[(name, i)] = max(most.get((name, i), 0.0), float(size))
    ranked = sorted(most, key=lambda k: -most[k])
    chosen = ranked if len(ranked) <= 2 * EXTREMES else [*ranked[:EXTREMES], *ranked[-EXTREMES:]]
    named = []
    for name, i in chosen:
        # of a symmetric variable the first of the two entries that share the column
        where = np.argwhere(entries[name] == i)[0]
        label = f"{name}[{', '.join(str(int(j)) for j in where)}]" if where.size else name
        named.append((label, Range(most[(name, i)], most[(name, i)])))
    return tuple(named)


def widest_rows(pieces: list[Piece]) -> tuple[tuple[str, int, Range], ...]:
    """Return the rows with the widest range: term, row within its compiled form, range."""
    found = []
    for p in pieces:
        A = sp.csr_array(p.form.A)
        A.eliminate_zeros()
        filled = np.flatnonzero(np.diff(A.indptr))
        if not filled.size:
            continue
        sizes, starts = np.abs(A.data), A.indptr[:-1][filled]
        low, high = np.minimum.reduceat(sizes, starts), np.maximum.reduceat(sizes, starts)
        wide = np.flatnonzero(high > WIDE_ROW * low)
        worst = wide[np.argsort(-(high[wide] / low[wide]), kind="stable")][:EXTREMES]
        found += [(p.name, int(filled[k]), Range(float(low[k]), float(high[k]))) for k in worst]
    return tuple(sorted(found, key=lambda r: -r[2].ratio)[:EXTREMES])


def stacked(problem: Problem, pieces: list[Piece]) -> Any:
    """Put the constraints under each other: shared variables first, auxiliary columns apart."""
    sizes = dict.fromkeys(problem.variables, 0)
    for p in pieces:
        for name, at in p.columns.items():
            sizes[name] = max(sizes[name], at.stop - at.start)
    starts = dict(zip(sizes, np.cumsum([0, *sizes.values()])[:-1], strict=True))
    width = int(sum(sizes.values()))
    rows, cols, data = [np.zeros(0, int)], [np.zeros(0, int)], [np.zeros(0)]
    height = 0
    for p in pieces:
        target = np.full(p.form.q.size, -1)
        for name, at in p.columns.items():
            target[at] = starts[name] + np.arange(at.stop - at.start)
        auxiliary = target < 0
        target[auxiliary] = width + np.arange(int(auxiliary.sum()))
        width += int(auxiliary.sum())
        A = sp.coo_array(p.form.A)
        rows.append(A.row + height)
        cols.append(target[A.col])
        data.append(A.data)
        height += A.shape[0]
    entries = np.concatenate(data)
    where = (np.concatenate(rows), np.concatenate(cols))
    return sp.csc_array(sp.coo_array((entries, where), shape=(height, width)))


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


def _linear_rows(pieces: list[Piece]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield (term, key of the row up to a positive factor, right-hand side included)."""
    for p in pieces:
        owner: dict[int, tuple[str, int]] = {
            j: (name, j - at.start)
            for name, at in p.columns.items()
            for j in range(at.start, at.stop)
        }
        A = sp.csr_array(p.form.A)
        for c in p.form.cones:
            if c.kind not in ("zero", "nonneg"):
                continue
            for i in range(c.start, c.stop):
                cells = {
                    owner.get(int(A.indices[k])): float(A.data[k])
                    for k in range(A.indptr[i], A.indptr[i + 1])
                    if A.data[k] != 0.0
                }
                if not cells or None in cells:
                    continue
                ordered = sorted(cells.items(), key=lambda cell: str(cell[0]))
                # an inequality keeps its direction, an equality has none
                factor = ordered[0][1] if c.kind == "zero" else abs(ordered[0][1])
                numbers = [v / factor for _, v in ordered] + [float(p.form.b[i]) / factor]
                key = (
                    c.kind,
                    *(k for k, _ in ordered),
                    *(float(f"{v:.12g}") + 0.0 for v in numbers),
                )
                yield p.name, key


def repeated_rows(pieces: list[Piece]) -> tuple[tuple[str, str], ...]:
    """Return pairs of terms of which one repeats a row of the other."""
    if sum(p.form.A.nnz for p in pieces) > MOST_ENTRIES:
        return ()
    seen: dict[tuple[Any, ...], str] = {}
    pairs: dict[tuple[str, str], None] = {}
    for name, key in _linear_rows(pieces):
        if key in seen:
            pairs[(seen[key], name)] = None
        seen.setdefault(key, name)
    return tuple(pairs)
