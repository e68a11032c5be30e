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
# Entries that stay in the cache of a processor.
NEAR = 200_000
# Lines of a matrix up to which products are summed without BLAS.
FEW = 8
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
        """Return the scaled entries of T A_j Tᵀ, a column for each.

        Of A_j only the lines that are not 0 are multiplied.
        """
        k, n = self.columns.size, self.n
        entry = sp.coo_array(self.full)
        line, place = np.unique(
            entry.row.astype(np.int64) * n + entry.col // n, return_inverse=True
        )
        owner, width = line // n, np.bincount(line // n, minlength=k)
        first = np.cumsum(width) - width
        of_line = np.arange(line.size) - first[owner]
        across = np.searchsorted(line, entry.row.astype(np.int64) * n + entry.col % n)
        columns = np.empty((k, self.rows.size))
        order, at, flat = np.argsort(width, kind="stable"), 0, self.i * n + self.j
        while at < k:
            wide = width[order[at:]]
            fits = (np.arange(wide.size) + 1) * n * (n + 2 * wide) <= HELD
            fits &= wide <= 2 * wide[0] + 4  # the others are filled up with zeros
            some = order[at : at + max(1, int(fits.sum()))]
            most = int(width[some].max(initial=0))
            if 2 * most > n:
                full = to @ self.full[some].toarray().reshape(-1, n, n) @ to.T
            else:
                rank = np.full(k, -1)
                rank[some] = np.arange(some.size)
                own, mine = rank[owner] >= 0, rank[entry.row] >= 0
                lines = np.zeros((some.size, most), dtype=np.int64)
                lines[rank[owner[own]], of_line[own]] = line[own] % n
                inner = np.zeros((some.size, most, most))
                sides = of_line[place[mine]], of_line[across[mine]]
                inner[(rank[entry.row[mine]], *sides)] = entry.data[mine]
                half = to.T[lines]  # (j, l, n)
                inside = np.matmul(inner, half)
                if most <= FEW:
                    full = np.einsum("jla,jlb->jab", half, inside)
                else:
                    full = np.matmul(half.transpose(0, 2, 1), inside)
            columns[some] = np.take(full.reshape(some.size, n * n), flat, axis=1) * self.weight
            at += some.size
        return columns.T

    def add_to(self, M: Floats, Z: Floats, inverse: Floats) -> None:
        """Add tr(A_i Z A_j S⁻¹) to M, for all pairs of columns."""
        n, few, many = self.n, self.few, self.many
        if few.size and self.stack is not None:
            left, right = self.stack @ Z, np.ascontiguousarray((self.stack @ inverse).T)
            at, count, starts = self.line_row, self.line_row.size, self.starts
            block = np.zeros((few.size, few.size))  # it is symmetric: its upper half
            step, first = max(1, NEAR // max(count, 1)), 0
            while first < few.size:
                k = starts[first]
                last = max(first + 1, int(np.searchsorted(starts, k + step)))
                end = starts[last] if last < few.size else count
                part = np.take(left[k:end], at[k:], axis=1) * right[:, k:][at[k:end]]
                part = _sums(part, starts[first:] - k, axis=1)
                block[first:last, first:] = _sums(part, starts[first:last] - k, axis=0)
                first = last
            block = np.triu(block) + np.triu(block, 1).T
            own = self.columns[few]
            M[np.ix_(own, own)] += block
        step = max(1, HELD // (n * n))
        for k in range(0, many.size, step):
            some = many[k : k + step]
            at = (some[:, None] * n + np.arange(n)).ravel()
            U = (self.wide[at] @ inverse).reshape(some.size, n, n)
            U = np.matmul(Z, U).reshape(some.size, n * n)
            block = np.asarray(self.full @ U.T)
            M[np.ix_(self.columns, self.columns[some])] += block
            M[np.ix_(self.columns[some], self.columns[few])] += block[few].T


def _sums(M: Floats, starts: Indices, axis: int) -> Floats:
    """Return the sums of neighbouring lines from each start to the next."""
    size = np.diff(np.append(starts, M.shape[axis]))
    if (size == 1).all():
        return M
    if (size == 2).all():
        return np.asarray(M[:, ::2] + M[:, 1::2] if axis else M[::2] + M[1::2])
    return np.asarray(np.add.reduceat(M, starts, axis=axis))
