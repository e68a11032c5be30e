"""One positive semidefinite block of a program, and the products an interior-point method needs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.numbers import Floats

Indices = NDArray[np.int64]

# Entries of a stack of matrices that are held at a time.
HELD = 8_000_000
# Seconds for one product of entries, and for one of a dense product of matrices (measured).
GATHERED, MULTIPLIED = 6e-9, 3e-11


@dataclass(eq=False)
class Block:
    """A positive semidefinite block: matrices of the columns that occur in it.

    Parameters
    ----------
    n : int
        Order.
    rows : array (t,)
        Rows of the program that hold its lower triangle.
    i, j : array (t,)
        Row and column of each.
    """

    n: int
    rows: Indices
    i: Indices
    j: Indices
    columns: Indices = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    full: Any = None  # (k, n n): the matrices, row by row
    weight: Floats = field(default_factory=lambda: np.zeros(0))

    def prepare(self, A: Any) -> None:
        """Read the matrices of the columns."""
        every = sp.csc_array(A[self.rows])
        self.columns = np.flatnonzero(np.diff(every.indptr))
        own = sp.coo_array(every[:, self.columns])
        k, n = self.columns.size, self.n
        self.weight = np.where(self.i == self.j, 1.0, np.sqrt(2.0))
        i, j, v = self.i[own.row], self.j[own.row], own.data / self.weight[own.row]
        off = i != j
        place = np.concatenate([i * n + j, (j * n + i)[off]])
        column = np.concatenate([own.col, own.col[off]])
        self.full = sp.csr_array((np.r_[v, v[off]], (column, place)), shape=(k, n * n))
        self.full.sum_duplicates()
        self._choose()

    def _choose(self) -> None:
        """Decide which columns meet each other entry by entry, and which by dense products."""
        n, k = self.n, self.columns.size
        entry = sp.coo_array(self.full)
        line = np.unique(entry.row.astype(np.int64) * n + entry.col // n)
        count = np.bincount(line // n, minlength=k)
        order = np.argsort(count, kind="stable")
        some = np.concatenate([[0], np.cumsum(count[order])])
        dense = (k - np.arange(k + 1)) * (4.0 * n**3 * MULTIPLIED + 2e-9 * k * n)
        best = int(np.argmin(GATHERED * some.astype(float) ** 2 + dense))
        sparse = np.zeros(k, dtype=bool)
        sparse[order[:best]] = True
        self.few, self.many = np.flatnonzero(sparse), np.flatnonzero(~sparse)
        lines = line[sparse[line // n]]
        self.line_row = lines % n
        owner = np.searchsorted(self.few, lines // n)
        self.starts = np.flatnonzero(np.r_[True, owner[1:] != owner[:-1]]) if owner.size else owner
        wide = sp.csr_array(self.full.reshape((k * n, n)))
        self.stack = sp.csr_array(wide[lines]) if lines.size else None
        self.wide = wide

    def matrix(self, entries: Floats) -> Floats:
        """Return the symmetric matrix of scaled entries."""
        full = np.zeros((self.n, self.n))
        full[self.i, self.j] = entries / self.weight
        full[self.j, self.i] = full[self.i, self.j]
        return full

    def entries(self, matrix: Floats) -> Floats:
        """Return scaled entries of the symmetric part of a matrix."""
        return np.asarray(0.5 * (matrix[self.i, self.j] + matrix[self.j, self.i]) * self.weight)

    def scaled(self, to: Floats) -> Floats:
        """Return the scaled entries of T A_j Tᵀ, a column for each."""
        k, n = self.columns.size, self.n
        found = np.empty((self.rows.size, k))
        step = max(1, HELD // (n * n))
        for at in range(0, k, step):
            own = self.full[at : at + step].toarray().reshape(-1, n, n)
            own = to @ own @ to.T
            found[:, at : at + step] = own[:, self.i, self.j].T * self.weight[:, None]
        return found

    def add_to(self, M: Floats, Z: Floats, inverse: Floats) -> None:
        """Add tr(A_i Z A_j S⁻¹) to M, for all pairs of columns."""
        n, few, many = self.n, self.few, self.many
        if few.size and self.stack is not None:
            left, right = self.stack @ Z, self.stack @ inverse
            at, count = self.line_row, self.line_row.size
            right = right[:, at]
            found = np.empty((count, few.size))
            step = max(1, HELD // max(count, 1))
            for k in range(0, count, step):
                part = left[k : k + step][:, at] * right[:, k : k + step].T
                found[k : k + step] = np.add.reduceat(part, self.starts, axis=1)
            own = self.columns[few]
            M[np.ix_(own, own)] += np.add.reduceat(found, self.starts, axis=0)
        step = max(1, HELD // (n * n))
        for k in range(0, many.size, step):
            some = many[k : k + step]
            at = (some[:, None] * n + np.arange(n)).ravel()
            U = (self.wide[at] @ inverse).reshape(some.size, n, n)
            U = np.matmul(Z, U).reshape(some.size, n * n)
            found = np.asarray(self.full @ U.T)
            M[np.ix_(self.columns, self.columns[some])] += found
            M[np.ix_(self.columns[some], self.columns[few])] += found[few].T
