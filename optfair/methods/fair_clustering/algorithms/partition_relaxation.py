"""A bound on all partitions of rows into few clusters, from a semidefinite program by splitting."""

from __future__ import annotations

import time

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.spatial import ConvexHull

from optfair.proofs.definiteness import cholesky

Floats = NDArray[np.float64]
Members = NDArray[np.bool_]
Integers = NDArray[np.intp]

# Steps between two looks at the bound, looks between two at the rows that are missing, rows that one
# adds at most, and how often.
STEPS, LOOKS, ADDED, ROUNDS = 50, 5, 500, 40
# Over-relaxation of the splitting; how far sets are apart, and value and bound, where it is done.
RELAXED, APART, NEAR = 1.6, 1e-3, 1e-5
# Violations, in parts of a typical diagonal entry, from which rows are added; multipliers, in parts
# of the largest, below which they are left out again.
BROKEN, IDLE = 2e-3, 1e-7
# Part of what is missing that rounds must win, each so many.
WON, EVERY = 0.03, 4
# Groups up to which the sides of the hull of their counts are looked for.
MOST_GROUPS = 5


def hull_sides(points: Floats, *, flat: bool = False) -> tuple[Floats, Floats]:
    """Return normals and offsets of the sides of a hull, within the directions that points differ in.

    Parameters
    ----------
    points : array (k, d)
        Numbers near 1.
    flat : bool
        And, to both sides, of the directions in which they do not differ.
    """
    middle = points.mean(axis=0)
    # of a triangle with the same ways: points may be many
    _, sizes, ways = np.linalg.svd(np.linalg.qr(points - middle, mode="r"), full_matrices=True)
    size = np.zeros(len(ways))
    size[: sizes.size] = sizes
    differ = size > 1e-9 * max(size[0], 1e-9)
    rest, ways = ways[~differ], ways[differ]
    along = (points - middle) @ ways.T
    sides = np.zeros((0, 0)) if len(ways) == 0 else np.array([[1.0], [-1.0]])
    if len(ways) > 1:
        sides = np.unique(ConvexHull(along).equations[:, :-1].round(12), axis=0)
    normals = np.vstack([sides @ ways, *((rest, -rest) if flat else ())])
    # rounding of a number near 1
    return normals, (points @ normals.T).max(axis=0) + 1e-14


class PartitionRelaxation:
    r"""Bound the cost of partitions by multipliers of their semidefinite relaxation.

    .. math::
        \min_Z\; \tfrac12 \langle D, Z\rangle \quad\text{s.t.}\quad Z \succeq 0,\; Z \ge 0,\;
        Z 1 = 1,\; \operatorname{tr} Z \le K,\\
        Z_{ij} + Z_{il} \le Z_{ii} + Z_{jl},\quad Z_{ij} \le Z_{ii},\quad
        \alpha Z_{ii} + \textstyle\sum_g \beta_g \sum_{j \in g} Z_{ij} \le \gamma

    Where rows i and j are in one cluster of m rows Z is 1/m, and 0 where they are apart; the last
    rows are the sides of the hull of :math:`(1/m, m_g/m)` over the counts that a cluster may have.
    With multipliers :math:`N \ge 0` of the entries and :math:`\mu \ge 0` of the rows A,
    :math:`M = \tfrac12 D - N + A^T \mu` bounds the cost by

    .. math::
        -b^T \mu + \tfrac1n 1^T M 1 + (K - 1)\, \min(0, \lambda_{\min}(M \text{ across } 1)),

    whatever the multipliers are; they are found by splitting: copies of Z that are semidefinite with
    that trace, nonnegative, and within the rows, are drawn together (Peng, Wei 2007, on the
    relaxation; the alternating direction method of multipliers). Rows are added where they are
    broken.

    Parameters
    ----------
    D : array (n, n)
        Squared distances.
    members : list of arrays
        Rows of each group.
    counts : array (T, G) of int
        What a cluster may have of each group.
    most : int
        Clusters.
    filled : bool
        Whether all of them must have rows.
    rounding : float
        Relative error of a sum of n² products; entries of D are within it.
    """

    def __init__(
        self,
        D: Floats,
        members: list[Integers],
        counts: NDArray[np.int64],
        most: int,
        filled: bool,
        rounding: float,
    ) -> None:
        n = len(D)
        self.C, self.size, self.rounding = 0.5 * D, n, rounding
        self.most, self.filled = most, filled
        self.typical = most / n
        self.pull = max(float(self.C.mean()), 1e-300) / self.typical
        group = np.zeros(n, dtype=np.intp)
        for g, own in enumerate(members):
            group[own] = g
        self.own = np.eye(len(members))[group]
        size = counts.sum(axis=1, keepdims=True)
        points = np.hstack([1.0 / size, counts[:, :-1] / size])
        some = points if len(members) <= MOST_GROUPS else points[:, :1]
        self.normals, self.offsets = hull_sides(some, flat=True)
        # rows at hand, by number, and what goes on from one call to the next
        self.codes, self.multipliers = np.zeros(0, dtype=np.int64), np.zeros(0)
        self.entries = self.push = np.zeros((n, n))
        self.Z = np.full((n, n), 1.0 / n)

    # -- rows: first those of triangles, i (n n) + j n + l, then pairs, then sides of the hull

    def _rows(self, codes: NDArray[np.int64]) -> tuple[sp.csr_array, Floats]:
        """Return rows on the n² entries, symmetric in them, and their sides."""
        n, k = self.size, codes.size
        row, column, value = [], [], []
        b = np.zeros(k)

        def put(at: Integers, i: Integers, j: Integers, coefficient: Floats | float) -> None:
            half = np.broadcast_to(0.5 * np.asarray(coefficient), at.shape)
            for one, other in ((i, j), (j, i)):
                row.append(at)
                column.append(one * n + other)
                value.append(half)

        at = np.flatnonzero(codes < n**3)
        i, j, other = codes[at] // n**2, codes[at] // n % n, codes[at] % n
        put(at, i, j, 1.0)
        put(at, i, other, 1.0)
        put(at, i, i, -1.0)
        put(at, j, other, -1.0)
        at = np.flatnonzero((codes >= n**3) & (codes < n**3 + n**2))
        i, j = (codes[at] - n**3) // n, (codes[at] - n**3) % n
        put(at, i, j, 1.0)
        put(at, i, i, -1.0)
        at = np.flatnonzero(codes >= n**3 + n**2)
        side, i = (codes[at] - n**3 - n**2) // n, (codes[at] - n**3 - n**2) % n
        normals = self.normals[side]
        put(at, i, i, normals[:, 0])
        for g in range(self.normals.shape[1] - 1):
            for member in np.flatnonzero(self.own[:, g]):
                put(at, i, np.full(at.size, member), normals[:, 1 + g])
        b[at] = self.offsets[side]
        A = sp.coo_array(
            (np.concatenate(value), (np.concatenate(row), np.concatenate(column))), (k, n * n)
        )
        return sp.csr_array(A), b

    def _missing(self) -> NDArray[np.int64]:
        """Return the rows that are broken most, by number."""
        n, Z = self.size, self.Z
        own = np.diag(Z)
        over = Z[:, :, None] + Z[:, None, :] - own[:, None, None] - Z
        at = np.arange(n)
        over[:, ~np.triu(np.ones((n, n), dtype=bool), 1)] = -np.inf
        over[at, at, :] = over[at, :, at] = -np.inf
        pairs = Z - own[:, None]
        shares = np.vstack([own, (Z @ self.own[:, : self.normals.shape[1] - 1]).T])
        sides = self.normals @ shares - self.offsets[:, None]
        every = np.concatenate([over.ravel(), pairs.ravel(), sides.ravel()])
        every[self.codes] = -np.inf
        broken = np.flatnonzero(every > BROKEN * self.typical)
        return np.asarray(broken[np.argsort(-every[broken], kind="stable")[:ADDED]], dtype=np.int64)

    def bound(
        self, joined: Members, parted: Members, target: float, deadline: float
    ) -> tuple[float, Floats]:
        """Return a bound on partitions with some rows together and some apart, and Z near it.

        Parameters
        ----------
        joined, parted : arrays (n, n) of bool
            Which rows are; closed under what follows.
        target : float
            A bound as large as this is enough.
        deadline : float
            ``time.perf_counter()`` value.
        """
        n, best, before = self.size, -np.inf, -np.inf
        first = np.where(joined.any(axis=1), np.minimum(joined.argmax(axis=1), np.arange(n)), -1)
        j = np.flatnonzero((first >= 0) & (first < np.arange(n)))
        same = np.concatenate([first[j] * n + j, j * n + first[j]]) + n**3
        free = np.zeros(same.size)
        for rounds in range(ROUNDS):
            A, b = self._rows(np.concatenate([same, self.codes]))
            own, free, done = self._drawn(A, b, free, parted, target, deadline)
            best = max(best, own)
            if best >= target or time.perf_counter() > deadline:
                break
            if rounds % EVERY == EVERY - 1:
                if best - before < WON * (target - best):
                    break
                before = best
            kept = self.multipliers > IDLE * self.multipliers.max(initial=0.0)
            self.codes, self.multipliers = self.codes[kept], self.multipliers[kept]
            fresh = self._missing()
            if done and not fresh.size:
                break
            self.codes = np.concatenate([self.codes, fresh])
            self.multipliers = np.concatenate([self.multipliers, np.zeros(fresh.size)])
        return best, self.Z

    def _drawn(
        self,
        A: sp.csr_array,
        b: Floats,
        free: Floats,
        parted: Members,
        target: float,
        deadline: float,
    ) -> tuple[float, Floats, bool]:
        """Draw the copies together for some steps; return the best bound, and whether they met."""
        n, pull, equal = self.size, self.pull, free.size
        gram = (A @ A.T).toarray()
        gram[np.diag_indices(b.size)] += 2.0
        factor = cho_factor(gram, check_finite=False)
        across = sp.csr_array(A.T)
        Z, W = self.Z, np.maximum(self.Z, 0.0)
        W = np.where(parted, 0.0, W)
        slack = np.maximum(b - A @ Z.ravel(), 0.0)
        slack[:equal] = 0.0
        U, V = self.push / pull, -self.entries / pull
        r = np.concatenate([free, self.multipliers]) / pull
        best, done = -np.inf, False
        for step in range(1, STEPS * LOOKS + 1):
            rhs = (Z - U + W - V - self.C / pull).ravel() + across @ (b - slack - r)
            x = 0.5 * (rhs - across @ cho_solve(factor, A @ rhs, check_finite=False))
            X = x.reshape(n, n)
            ahead = RELAXED * X + (1.0 - RELAXED) * Z
            Z = self._semidefinite(ahead + U)
            U = U + ahead - Z
            ahead = RELAXED * X + (1.0 - RELAXED) * W
            W = np.where(parted, 0.0, np.maximum(ahead + V, 0.0))
            V = V + ahead - W
            left = RELAXED * (b - A @ x) + (1.0 - RELAXED) * slack
            slack = np.maximum(left - r, 0.0)
            slack[:equal] = 0.0
            r = r - left + slack
            if step % STEPS:
                continue
            N, y = -V * pull, r * pull
            N = np.where(parted, N, np.maximum(N, 0.0))
            y[equal:] = np.maximum(y[equal:], 0.0)
            own = self.proved(A, b, N, y)
            if own > best:
                best, self.entries, self.multipliers = own, N, y[equal:]
                self.Z, self.push, free = Z, U * pull, y[:equal]
            apart = np.linalg.norm(X - Z) + np.linalg.norm(X - W)
            done = apart < APART * self.most**0.5 and float((self.C * Z).sum()) - own < NEAR * own
            if best >= target or done or time.perf_counter() > deadline:
                break
        return best, free, done

    def _semidefinite(self, Y: Floats) -> Floats:
        """Return the nearest of the semidefinite matrices with row sums 1 and that trace."""
        n, trace = self.size, self.most - 1.0
        if trace == 0.0:
            return np.full((n, n), 1.0 / n)
        across = _across_ones(0.5 * (Y + Y.T))
        w, Q = np.linalg.eigh(across - (2.0 * float(np.abs(across).max()) + self.typical))
        w, Q = w[1:], Q[:, 1:]  # the first is that of 1
        w = w[::-1]
        over = (np.cumsum(w) - trace) / np.arange(1.0, n)
        level = over[np.flatnonzero(w > over)[-1]]
        if not self.filled:
            level = max(level, 0.0)
        kept = np.maximum(w - level, 0.0)[::-1]
        some = kept > 0.0
        return np.asarray((Q[:, some] * kept[some]) @ Q[:, some].T + 1.0 / n)

    def proved(self, A: sp.csr_array, b: Floats, N: Floats, y: Floats) -> float:
        r"""Return the bound of multipliers, charged for rounding.

        Each entry of M is a sum whose terms are T at most in all, and Z has entries of sum n: what
        they are off costs :math:`\gamma n \max T`. A projection across 1 and a shift are off by a
        few roundings of entries, in a matrix of trace K at most.
        """
        n, K, g = self.size, self.most, self.rounding + 4.0 * b.size * np.finfo(float).eps
        charged = (abs(sp.csr_array(A.T)) @ np.abs(y)).reshape(n, n)
        M = self.C - N + (A.T @ y).reshape(n, n)
        M = 0.5 * (M + M.T)
        terms = float((self.C + np.abs(N) + charged).max())
        P = _across_ones(M)
        P = 0.5 * (P + P.T)
        size = max(float(np.abs(M).max()), 1e-300)
        shifted = P + size  # 1 is an eigenvector of n times that
        least = float(np.linalg.eigvalsh(shifted)[0]) - 1e-12 * n * size
        if cholesky(shifted - least * np.eye(n), 0.0) is None:
            return -np.inf
        paid = (K - 1.0) * (least if self.filled else min(least, 0.0))
        sides = float(np.abs(b) @ np.abs(y))
        slack = g * (n * terms + 8.0 * n * K * (size + abs(least)) + sides)
        return float(M.sum() / n - b @ y) + paid - slack


def _across_ones(Y: Floats) -> Floats:
    """Return a matrix without what it has along 1."""
    Y = Y - Y.mean(axis=0)
    return np.asarray(Y - Y.mean(axis=1, keepdims=True))
