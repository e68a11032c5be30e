r"""Semidefinite programs whose multipliers are products of points on spheres, as those of maximum cuts.

.. math::
    \min_{Z \succeq 0}\; \langle B, Z \rangle \quad \text{s.t.} \quad
    \sum_{i:\, j(i) = j} |e_i| Z_{ii} = \rho_j,
    \qquad
    \max_x\; \rho^T x \quad \text{s.t.} \quad B - \operatorname{diag}(|e_i| x_{j(i)}) \succeq 0

With :math:`Z = D V V^T D`, D diagonal, the lines of V that share a column of the program are
a point on a sphere. With about :math:`\sqrt{2m}` columns for m spheres a minimum of second order is,
but for special B, one of the program; Newton's method on the spheres multiplies the sparse B by
a few columns where an interior-point method factors dense blocks. Columns of the program are what
the spheres are worth. All of it is an attempt: the pair is proved like any other.

References
----------
Burer, Monteiro: A nonlinear programming algorithm for solving semidefinite programs via low-rank
factorization, 2003. Absil, Baker, Gallivan: Trust-region methods on Riemannian manifolds, 2007.
Boumal, Voroninski, Bandeira: Deterministic guarantees for Burer-Monteiro factorizations of smooth
semidefinite programs, 2020.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.numbers import Floats
from optfair.proofs.cones import Cone, least_of_krylov

Indices = NDArray[np.int64]

# Lines from which on this is faster than the interior-point method (measured).
LINES = 40
# Length of the gradient to stop at, as a share of the tolerance, and what it is divided by next.
FLAT, FLATTER = 0.1, 10.0
# Pairs that are tried, Newton steps for one, and products for a step.
TRIES, STEPS, PRODUCTS = 4, 200, 500
# Share of the tolerance that room inside the cones may cost.
ROOM = 0.05
# Room for eigenvalues below 0, as a multiple of the least.
BEYOND = 1.1
# Columns at first, as a share of those that are enough.
FEW = 1.0 / 3.0
# Digits of a value that are lost by rounding.
NOISE = 1e-14
TINY = float(np.finfo(float).tiny)


@dataclass(frozen=True, eq=False)
class Spheres:
    """A program as points on spheres.

    Attributes
    ----------
    C : sparse (l, l)
        Costs of products of lines, in units in which the spheres have radius 1.
    sphere : array (l,)
        The column of the program for each line.
    size : array (l,)
        What a line is multiplied by for these units.
    worth : array (m,)
        What a column of the program is multiplied by.
    blocks : list of (Cone, array)
        Semidefinite blocks and their lines.
    half : array
        Rows of the half-lines; their lines are the last.
    rows : int
        Of the program.
    """

    C: Any
    sphere: Indices
    size: Floats
    worth: Floats
    blocks: list[tuple[Cone, Indices]]
    half: Indices
    rows: int

    @classmethod
    def of(cls, q: Floats, A: Any, b: Floats, cones: Sequence[Cone]) -> Spheres | None:
        """Read a program; None where it is another one, or too small."""
        A = sp.csr_array(A)
        many, places, on = np.diff(A.indptr), [], []
        blocks: list[tuple[Cone, Indices]] = []
        for c in cones:
            own = np.arange(c.start, c.stop)
            if c.kind == "psd":
                i, j = (np.asarray(p, dtype=np.int64) for p in c.places)
                first = sum(block.order for block, _ in blocks)
                blocks.append((c, first + np.arange(c.order)))
                on.append(own[i == j][np.argsort(i[i == j])])
                used = np.flatnonzero(b[own])
                value = b[own][used] / np.where(i == j, 1.0, c.root)[used]
                places.append((value, i[used] + first, j[used] + first))
        alone = np.zeros(b.size, dtype=bool)
        for c in cones:
            alone[c.start : c.stop] = c.kind == "nonneg"
        half = np.flatnonzero(alone & (many > 0))
        line = np.concatenate([*on, half]) if on else half
        if not LINES <= line.size == A.nnz or (many[line] != 1).any():
            return None  # a line without a column, or an entry elsewhere
        sphere, entry = A.indices[A.indptr[line]].astype(np.int64), A.data[A.indptr[line]]
        sign = np.zeros(q.size)
        sign[sphere] = np.sign(entry)
        radius = -sign * q
        if (np.sign(entry) != sign[sphere]).any() or not (radius > 0.0).all():
            return None
        last = np.arange(line.size - half.size, line.size)
        value, i, j = (np.concatenate(p) for p in zip(*places, (b[half], last, last), strict=True))
        size = np.sqrt(radius[sphere] / np.abs(entry))
        scaled = value * size[i] * size[j]
        C = sp.coo_array((scaled, (i, j)), shape=(line.size, line.size))
        off = i != j
        C = C + sp.coo_array((scaled[off], (j[off], i[off])), shape=C.shape)
        return cls(sp.csr_array(C), sphere, size, sign / radius, blocks, half, b.size)

    @property
    def enough(self) -> int:
        """Columns of V with which no minimum is a local one only, but for special costs."""
        return min(self.size.size, int(np.ceil(np.sqrt(2.0 * self.worth.size))) + 1)

    @property
    def cubes(self) -> float:
        """Sum of the cubes of the orders of what falls apart."""
        part = sp.csgraph.connected_components(self.C, directed=False)[1]
        return float((np.bincount(part).astype(float) ** 3).sum())

    def pairs(
        self, tolerance: float, deadline: float, log: Callable[[str], None] | None = None
    ) -> Iterator[tuple[Floats, Floats]]:
        """Yield pairs of the program, each nearer to an optimum."""
        rng = np.random.default_rng(0)
        V = np.zeros((self.size.size, 0))
        flat = FLAT * tolerance
        for _ in range(TRIES):
            # more columns lead out of what is a minimum for few only
            more = min(max(int(FEW * self.enough), V.shape[1]) + 1, self.enough - V.shape[1])
            new = rng.standard_normal((self.size.size, more))
            new *= 1e-3 / np.sqrt(max(more, 1)) if V.shape[1] else 1.0
            V = self._on(np.hstack([V, new]))
            V, value, ended = self._descended(V, flat, deadline, log)
            yield self._pair(V, value, tolerance, ended=ended)
            if not ended:
                return
            flat /= FLATTER

    def _sums(self, a: Floats, b: Floats) -> Floats:
        """Return the inner products of the points on each sphere, for its lines."""
        each = np.einsum("ij,ij->i", a, b)
        return np.asarray(np.bincount(self.sphere, each, self.worth.size)[self.sphere])

    def _on(self, V: Floats) -> Floats:
        return np.asarray(V / np.sqrt(self._sums(V, V))[:, None])

    def _descended(
        self, V: Floats, flat: float, deadline: float, log: Callable[[str], None] | None
    ) -> tuple[Floats, float, bool]:
        """Return a point with a short gradient, its value, and whether there was time for it."""
        CV = np.asarray(self.C @ V)
        worth, value = self._sums(CV, V), float(np.vdot(CV, V))
        reach = np.sqrt(self.worth.size)
        for k in range(STEPS):
            g = 2.0 * (CV - worth[:, None] * V)
            length = float(np.linalg.norm(g))
            if log is not None and k % 10 == 0:
                log(f"{k:3d} {value: .9e} {length:.1e} columns {V.shape[1]}")
            if length <= flat * abs(value) / np.sqrt(self.worth.size):
                return V, value, True
            if time.perf_counter() > deadline:
                return V, value, False
            move, model = self._newton(V, worth, g, reach)
            W = self._on(V + move)
            CW = np.asarray(self.C @ W)
            less, noise = float(np.vdot(CW, W)), NOISE * abs(value)
            kept = (value - less + noise) / (model + noise)
            if kept < 0.25:
                reach *= 0.25
            elif kept > 0.75 and float(np.linalg.norm(move)) >= 0.99 * reach:
                reach *= 2.0
            if kept > 0.1:
                V, CV, value = W, CW, less
                worth = self._sums(CV, V)
        return V, value, True

    def _newton(self, V: Floats, worth: Floats, g: Floats, reach: float) -> tuple[Floats, float]:
        """Return a step by truncated conjugate gradients, and by how much its model falls."""
        length = float(np.linalg.norm(g))
        least = length * min(0.1, length * len(V) ** 0.5 / max(float(np.abs(worth).sum()), TINY))
        move, bent = np.zeros_like(V), np.zeros_like(V)
        left, d = g.copy(), -g
        square, along = length**2, 0.0
        for _ in range(PRODUCTS):
            Hd = 2.0 * (self.C @ d - worth[:, None] * d)
            Hd -= self._sums(Hd, V)[:, None] * V
            curve, across, own = (
                float(np.vdot(d, Hd)),
                float(np.vdot(move, d)),
                float(np.vdot(d, d)),
            )
            step = square / curve if curve > 0.0 else np.inf
            if curve <= 0.0 or along + 2.0 * step * across + step**2 * own >= reach**2:
                step = (np.sqrt(across**2 + own * max(reach**2 - along, 0.0)) - across) / own
                move, bent = move + step * d, bent + step * Hd
                break
            move, bent = move + step * d, bent + step * Hd
            along += 2.0 * step * across + step**2 * own
            left = left + step * Hd
            before, square = square, float(np.vdot(left, left))
            if np.sqrt(square) <= least:
                break
            d = square / before * d - left
        return move, -float(np.vdot(g, move)) - 0.5 * float(np.vdot(move, bent))

    def _pair(
        self, V: Floats, value: float, tolerance: float, *, ended: bool
    ) -> tuple[Floats, Floats]:
        """Return columns and multipliers, both with some room inside the cones."""
        m = self.worth.size
        worth = np.bincount(self.sphere, np.einsum("ij,ij->i", self.C @ V, V), m)
        spare = ROOM * tolerance * abs(value)
        room = spare / m
        if not ended:  # eigenvalues that are below 0 where the gradient is not short
            least = least_of_krylov(self.C - sp.diags_array(worth[self.sphere]))
            room = max(room, -BEYOND * least)
        x = self.worth * (worth - room)
        alike = 1.0 / np.bincount(self.sphere, minlength=m)[self.sphere]
        central = float(self.C.diagonal() @ alike)
        share = min(0.5, spare / max(central - value, TINY))
        z, F = np.zeros(self.rows), self.size[:, None] * V
        middle = share * alike * self.size**2
        for c, lines in self.blocks:
            i, j = c.places
            Z = (1.0 - share) * (F[lines] @ F[lines].T)
            z[c.start : c.stop] = np.where(i == j, 1.0, c.root) * Z[i, j]
            z[np.arange(c.start, c.stop)[c.diagonal]] += middle[lines][i[i == j]]
        last = slice(self.size.size - self.half.size, None)
        z[self.half] = (1.0 - share) * np.square(F[last]).sum(axis=1) + middle[last]
        return x, z
