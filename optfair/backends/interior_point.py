r"""Semidefinite programs by a primal-dual interior-point method on small dense blocks.

.. math::
    \min_x\; q^T x \quad \text{s.t.} \quad b - Ax = s \in K, \qquad
    \max_z\; -b^T z \quad \text{s.t.} \quad A^T z = -q,\; z \in K^*

with K a product of points, half-lines and positive semidefinite cones. A step solves a system of
as many equations as there are columns, :math:`M_{ij} = \operatorname{tr}(A_i Z A_j S^{-1})`, and
costs a few products of matrices of the order of the blocks; a general cone solver factors a
matrix with a row for each *entry* of a block. Directions are those of Helmberg, Rendl,
Vanderbei, Wolkowicz (1996), Kojima, Shindoh, Hara (1997) and Monteiro (1997); steps are those of
Mehrotra, as in Borchers: CSDP, a C library for semidefinite programming (1999); how entries of M
are formed follows Fujisawa, Kojima, Nakata (1997).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.linalg as sl
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.backends.psd_block import HELD, Block
from optfair.numbers import Floats
from optfair.proofs.cones import Cone

Indices = NDArray[np.int64]

# Iterations without a better point after which it has ended.
PATIENCE = 15
# Operations of an orthogonal factorisation up to which it is used at once, and after rounding has
# stopped the normal equations.
CHEAP, DEAR = 3e7, 3e11
# Residuals above which rounding is not felt: orthogonal factors go on from there.
EARLY = 1e-2
# Residuals, as a multiple of the tolerance, from which on a proof is tried.
NEAR = 500.0
# Steps to the center of a pair that falls short.
CENTERING = 3
# Pairs that are tried after the one that falls least short of a proof; one is better that falls
# short by this share of it.
TRIES, BETTER = 4, 0.9
# Seconds that a step takes at least, by the cubes of the orders of blocks (measured: three times that).
STEP = 5e-10
# Residual of a certificate that no point, or no bound, exists; the rest is for its proof.
EVIDENT = 1e-8


@dataclass(frozen=True, eq=False)
class Ended:
    """Where the method ended, and on what word.

    Attributes
    ----------
    status : str
        optimal, inaccurate, time_limit, infeasible, unbounded.
    x, z : array
        The best pair; z is a Farkas vector when infeasible, x a ray when unbounded.
    iterations : int
    error : float
        Largest relative residual of the pair.
    """

    status: str
    x: Floats
    z: Floats
    iterations: int
    error: float


@dataclass(eq=False)
class _Point:
    """Slack and multipliers: one matrix per block, and the half-lines."""

    blocks: list[Floats]
    line: Floats

    def plus(self, step: float, other: _Point) -> _Point:
        pairs = zip(self.blocks, other.blocks, strict=True)
        return _Point([a + step * b for a, b in pairs], self.line + step * other.line)

    def dot(self, other: _Point) -> float:
        pairs = zip(self.blocks, other.blocks, strict=True)
        return float(sum(np.vdot(a, b) for a, b in pairs) + self.line @ other.line)


def interior_point(
    q: Floats,
    A: Any,
    b: Floats,
    cones: Sequence[Cone],
    *,
    tolerance: float = 1e-9,
    deadline: float = np.inf,
    iterations: int = 150,
    short: Callable[[Floats, Floats], float] | None = None,
    log: Callable[[str], None] | None = None,
) -> Ended:
    """Solve a program whose cones are zero, nonneg and psd.

    Parameters
    ----------
    q, A, b, cones
        The program.
    tolerance : float
        Relative residuals and gap to stop at.
    deadline : float
        ``time.perf_counter()`` to stop at.
    iterations : int
        At most so many.
    short : callable, optional
        Says of a pair that is near enough what it falls short of a proof by; with 0 it ends. Where
        the optimum is not attained, or no multipliers are inside their cones, pairs further on
        prove less: then it ends with the one that falls least short.
    log : callable, optional
        Gets a line for each iteration.
    """
    method = _Method(q, sp.csc_array(A), b, cones)
    method.orthogonal = method.factored <= CHEAP
    ended = method.run(tolerance, deadline, iterations, short, log)
    fits = method.factored <= DEAR and method.m * method.n <= HELD
    if ended.status == "inaccurate" and fits and not method.orthogonal:
        method.orthogonal = True  # from where rounding was not felt yet
        again = method.run(tolerance, deadline, iterations, short, log)
        again = replace(again, iterations=ended.iterations + again.iterations)
        return ended if again.status == "inaccurate" and ended.error < again.error else again
    return ended


def _components(n: int, i: Indices, j: Indices, used: NDArray[np.bool_]) -> Indices:
    graph = sp.coo_array((np.ones(int(used.sum())), (i[used], j[used])), shape=(n, n))
    return np.asarray(sp.csgraph.connected_components(graph, directed=False)[1], dtype=np.int64)


class _Method:
    def __init__(self, q: Floats, A: Any, b: Floats, cones: Sequence[Cone]) -> None:
        self.m, self.n = A.shape
        # columns by their size, then objective and sides: residuals are relative to these
        size = np.sqrt(np.asarray(A.multiply(A).sum(axis=0)).ravel())
        self.unit = np.where(size > 0.0, size, 1.0)
        self.A = sp.csc_array(A @ sp.diags_array(1.0 / self.unit))
        self.side = max(_norm(b), 1e-300)
        cost = q / self.unit
        self.cost = max(_norm(cost), 1e-300)
        self.q, self.b = cost / self.cost, b / self.side
        self._split(cones)
        self.At = sp.csr_array(self.A.T)
        self.total = sum(k.n for k in self.blocks) + self.line.size
        self.orthogonal = False
        self.early: _Iterate | None = None
        self.factored = 2.0 * self.m * float(self.n) ** 2
        self.step = STEP * sum(float(k.n) ** 3 for k in self.blocks)

    def _split(self, cones: Sequence[Cone]) -> None:
        """Take blocks apart where nothing ties their rows together."""
        rows = sp.csr_array(self.A)
        used = (np.diff(rows.indptr) > 0) | (self.b != 0.0)
        zero, line = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        self.blocks: list[Block] = []
        for c in cones:
            at = np.arange(c.start, c.stop)
            if c.kind == "zero":
                zero.append(at)
            elif c.kind == "nonneg":
                line.append(at)
            else:
                i, j = (np.asarray(p, dtype=np.int64) for p in c.places)
                of = _components(c.order, i, j, used[at])
                rank = np.zeros(c.order, dtype=np.int64)
                order = np.argsort(of, kind="stable")
                sizes = np.bincount(of)
                first = np.concatenate([[0], np.cumsum(sizes)])[:-1]
                rank[order] = np.arange(c.order) - np.repeat(first, sizes)
                inside = of[i] == of[j]
                single = inside & (sizes[of[i]] == 1)
                line.append(at[single])
                for k in np.flatnonzero(sizes > 1):
                    own = inside & (of[i] == k)
                    self.blocks.append(Block(int(sizes[k]), at[own], rank[i[own]], rank[j[own]]))
        self.zero, self.line = np.concatenate(zero), np.concatenate(line)
        self.E = sp.csr_array(rows[self.zero])
        self.L = sp.csr_array(rows[self.line])
        for block in self.blocks:
            block.prepare(rows)

    def point(self, v: Floats) -> _Point:
        return _Point([k.matrix(v[k.rows]) for k in self.blocks], v[self.line])

    def vector(self, p: _Point) -> Floats:
        v = np.zeros(self.m)
        v[self.line] = p.line
        for block, matrix in zip(self.blocks, p.blocks, strict=True):
            v[block.rows] = block.entries(matrix)
        return v

    def run(
        self,
        tolerance: float,
        deadline: float,
        iterations: int,
        short: Callable[[Floats, Floats], float] | None,
        log: Callable[[str], None] | None,
    ) -> Ended:
        """Go on until the residuals are small, or nothing gets better."""
        now = best = self._start() if self.early is None else self.early
        since, status, k, worse = 0, "inaccurate", 0, 0
        nearest = (np.inf, now)
        for k in range(iterations):
            zv, sv = self._multipliers(now), self.vector(now.S)
            Ax, Az = self.A @ now.x, self.At @ zv
            rp, off = -self.q - Az, self.b - Ax - sv
            off_p, off_d = _norm(off), _norm(rp)
            primal, dual = float(self.q @ now.x), -float(self.b @ zv)
            mu = now.S.dot(now.Z) / self.total
            gap = max(abs(primal - dual), mu * self.total)
            size = max(abs(primal), abs(dual)) + 1.0 / max(self.side * self.cost, 1e-300)
            error = max(gap / size, 0.5 * off_p, 0.5 * off_d)
            now = replace(now, error=error)
            if log is not None:
                values = (
                    f"{primal * self.side * self.cost: .9e} {dual * self.side * self.cost: .9e}"
                )
                log(f"{k:3d} {values} {off_p:.1e} {off_d:.1e} {mu:.1e}")
            since = 0 if error < best.error else since + 1
            if error > EARLY:
                self.early = now
            best = now if error < best.error else best
            if short is not None and error <= NEAR * tolerance:
                worse += 1
                lacking, now = self._centered(short, now)
                if lacking < nearest[0]:
                    worse = 0 if lacking < BETTER * nearest[0] else worse
                    nearest = (lacking, now)
                if lacking == 0.0 or (worse >= TRIES and np.isfinite(nearest[0])):
                    break
            if error <= tolerance:
                status = "optimal"
                break
            if _evident(_norm(Az), dual, off_d > tolerance, off_p > tolerance):
                return self._ended("infeasible", now.x, zv / dual, k, error)
            if _evident(_norm(Ax + sv), -primal, off_p > tolerance, off_d > tolerance):
                return self._ended("unbounded", now.x / -primal, zv, k, error)
            begin = time.perf_counter()
            if begin + self.step > deadline:
                status = "time_limit"
                break
            if since > PATIENCE or not np.isfinite(error):
                break
            try:
                now = self._step(now, rp, off, mu)
                self.step = max(0.5 * self.step, time.perf_counter() - begin)
            except (np.linalg.LinAlgError, ValueError) as e:
                if log is not None:
                    log(str(e))
                break
        if np.isfinite(nearest[0]):
            best, status = nearest[1], "optimal"
        return self._ended(status, best.x, self._multipliers(best), k, best.error)

    def _residuals(self, now: _Iterate) -> tuple[Floats, Floats]:
        """Return what multipliers and slack miss their equations by."""
        rp = -self.q - self.At @ self._multipliers(now)
        return rp, self.b - self.A @ now.x - self.vector(now.S)

    def _pair(self, now: _Iterate) -> tuple[Floats, Floats]:
        return now.x / self.unit * self.side, self._multipliers(now) * self.cost

    def _centered(
        self, short: Callable[[Floats, Floats], float], now: _Iterate
    ) -> tuple[float, _Iterate]:
        """Return what a pair falls short by, after steps that make its products alike.

        Far from the central path a small gap leaves large products off the diagonal.
        """
        best, lacking = now, short(*self._pair(now))
        for _ in range(CENTERING if lacking > 0.0 and self.orthogonal else 0):
            try:
                mu = now.S.dot(now.Z) / self.total
                now = self._step(now, *self._residuals(now), mu, centering=True)
            except (np.linalg.LinAlgError, ValueError):
                break
            lack = short(*self._pair(now))
            if not lack < lacking:
                break
            more = lack < BETTER * lacking
            lacking, best = lack, replace(now, error=best.error)
            if lacking == 0.0 or not more:
                break
        return lacking, best

    def _multipliers(self, now: _Iterate) -> Floats:
        z = self.vector(now.Z)
        z[self.zero] = now.w
        return z

    def _ended(self, status: str, x: Floats, z: Floats, k: int, error: float) -> Ended:
        return Ended(status, x / self.unit * self.side, z * self.cost, k, error)

    def _start(self) -> _Iterate:
        """Return a start far out on the diagonal, as in CSDP, for data of size 1."""
        far = 10.0 * self.total
        far_z = 0.5 * far * float((1.0 + np.abs(self.q)).max(initial=1.0))
        far_s = 2.0 * far / np.sqrt(max(self.total, 1))
        S, Z = (
            _Point([size * np.eye(k.n) for k in self.blocks], np.full(self.line.size, size))
            for size in (far_s, far_z)
        )
        return _Iterate(np.inf, np.zeros(self.n), np.zeros(self.zero.size), S, Z)

    def _step(
        self, now: _Iterate, rp: Floats, off: Floats, mu: float, *, centering: bool = False
    ) -> _Iterate:
        """Go one step: predict, then correct; or to the center."""
        move = (_Orthogonal if self.orthogonal else _Normal)(self, now, rp, off)
        if centering:
            dx, dw, dS, dZ = move.direction(mu, None)
            return self._moved(now, off, move, dx, dw, dS, dZ, 0.95)
        dx, dw, dS, dZ = move.direction(0.0, None)
        a_s, a_z = min(1.0, move.length_s(dS)), min(1.0, move.length_z(dZ))
        after = move.S.plus(a_s, dS).dot(move.Z.plus(a_z, dZ)) / self.total
        power = max(1.0, 3.0 * min(a_s, a_z) ** 2) if mu > 1e-6 else 1.0
        sigma = max(min(1.0, max(after / mu, 0.0) ** power), 1e-6)
        dx, dw, dS, dZ = move.direction(sigma * mu, (dZ, dS))
        return self._moved(now, off, move, dx, dw, dS, dZ, 0.9 + 0.09 * min(a_s, a_z))

    def _moved(
        self,
        now: _Iterate,
        off: Floats,
        move: _Normal | _Orthogonal,
        dx: Floats,
        dw: Floats,
        dS: _Point,
        dZ: _Point,
        close: float,
    ) -> _Iterate:
        """Return the pair after a move, some way before the boundary."""
        a_s = min(1.0, close * move.length_s(dS))
        a_z = min(1.0, close * move.length_z(dZ))
        S, a_s = _inside(now.S, a_s, self.point(off - self.A @ dx))
        Z, a_z = _inside(now.Z, a_z, move.raised(dZ))
        return _Iterate(np.inf, now.x + a_s * dx, now.w + a_z * dw, S, Z)


@dataclass(frozen=True, eq=False)
class _Iterate:
    """A pair with its error."""

    error: float
    x: Floats
    w: Floats
    S: _Point
    Z: _Point


class _Normal:
    """Directions from normal equations: cheap, as accurate as M is well conditioned."""

    def __init__(self, method: _Method, now: _Iterate, rp: Floats, off: Floats) -> None:
        self.method, self.S, self.Z, self.rp, self.off = method, now.S, now.Z, rp, off
        self.roots = [_inverse_root(s) for s in now.S.blocks]
        self.roots_z = [_inverse_root(z) for z in now.Z.blocks]
        self.inverse = _Point([r.T @ r for r in self.roots], 1.0 / now.S.line)
        self._factor()
        self.fixed = self._between(self.Z, method.point(off))

    def _between(self, left: _Point, middle: _Point) -> _Point:
        """Return the symmetric part of left · middle · S⁻¹."""
        triples = zip(left.blocks, middle.blocks, self.inverse.blocks, strict=True)
        blocks = [_symmetric(a @ (d @ i)) for a, d, i in triples]
        return _Point(blocks, left.line * middle.line * self.inverse.line)

    def direction(
        self, target: float, second: tuple[_Point, _Point] | None
    ) -> tuple[Floats, Floats, _Point, _Point]:
        """Return the moves of x, of prices of equations, of S and of Z."""
        method = self.method
        back = self.Z.plus(-target, self.inverse).plus(1.0, self.fixed)
        if second is not None:
            back = back.plus(1.0, self._between(*second))
        dx, dw = self._solved(self.rp + method.At @ method.vector(back), self.off[method.zero])
        moved = method.A @ dx
        dZ = self._between(self.Z, method.point(moved)).plus(-1.0, back)
        return dx, dw, method.point(self.off - moved), dZ

    def length_s(self, d: _Point) -> float:
        """Return how far the slack can go."""
        return _length(self.S, d, self.roots)

    def length_z(self, d: _Point) -> float:
        """Return how far the multipliers can go."""
        return _length(self.Z, d, self.roots_z)

    def raised(self, d: _Point) -> _Point:
        """Return a move of Z in its own units."""
        return d

    def _factor(self) -> None:
        method = self.method
        M = np.zeros((method.n, method.n))
        blocks = zip(method.blocks, self.Z.blocks, self.inverse.blocks, strict=True)
        for block, z, i in blocks:
            block.add_to(M, z, i)
        if method.line.size:
            own = sp.diags_array(self.Z.line * self.inverse.line)
            M += (method.L.T @ own @ method.L).toarray()
        self.rho = 0.0
        if method.zero.size:
            # adding ρEᵀE moves no solution, and columns that only equations tie get a pivot
            self.rho = max(float(np.abs(np.diag(M)).max(initial=0.0)), 1e-300)
            M += (method.E.T @ method.E).toarray() * self.rho
        self.M, self.root = M, _cholesky(M)
        if method.zero.size:
            self.across = sl.cho_solve(self.root, method.E.toarray().T, check_finite=False)
            self.second = _cholesky(method.E @ self.across)

    def _solved(self, h: Floats, e: Floats) -> tuple[Floats, Floats]:
        """Return dx and dw of (M + ρEᵀE) dx + Eᵀdw = h + ρEᵀe, E dx = e."""
        E = self.method.E
        h = h + self.rho * (E.T @ e) if e.size else h
        dx, dw = np.zeros(h.size), np.zeros(e.size)
        for _ in range(3):  # the first and two refinements
            left = h - self.M @ dx - (E.T @ dw if e.size else 0.0)
            more = sl.cho_solve(self.root, left, check_finite=False)
            if e.size:
                price = sl.cho_solve(self.second, E @ (dx + more) - e, check_finite=False)
                dw, more = dw + price, more - self.across @ price
            dx = dx + more
        return dx, dw


class _Orthogonal:
    """Directions in the scaling of Nesterov and Todd, by orthogonal factors.

    With :math:`G^{-1} S G^{-T} = G^T Z G = D` diagonal, B the scaled columns, the system is one
    of least squares, and its condition the root of that of :math:`B^T B`: multipliers meet their
    equations to the last digits where `_Normal` loses them all.
    """

    def __init__(self, method: _Method, now: _Iterate, rp: Floats, off: Floats) -> None:
        self.method, self.off = method, off
        self.to: list[Floats] = []  # G⁻¹
        sizes = []
        for s, z in zip(now.S.blocks, now.Z.blocks, strict=True):
            upper = _root(z).T
            u, size, _ = sl.svd(upper @ _root(s), check_finite=False)
            self.to.append((u.T @ upper) / np.sqrt(size)[:, None])
            sizes.append(size)
        self.sizes, self.line = sizes, np.sqrt(now.Z.line * now.S.line)
        self.ratio = np.sqrt(now.Z.line / now.S.line)
        self.S = self.Z = _Point([np.diag(size) for size in sizes], self.line)
        B = np.zeros((method.m, method.n), order="F")
        for block, to in zip(method.blocks, self.to, strict=True):
            B[np.ix_(block.rows, block.columns)] = block.scaled(to)
        B[method.line] = method.L.toarray() * self.ratio[:, None]
        E = method.E.toarray()
        # equations among the rows move no solution
        B[method.zero] = E
        self.Q, self.T = sl.qr(B, mode="economic", overwrite_a=True, check_finite=False)
        if not np.abs(np.diag(self.T)).min(initial=np.inf) > 0.0:
            raise np.linalg.LinAlgError("columns depend on each other")
        self.F = self._triangular(E.T, transposed=True) if E.size else np.zeros((method.n, 0))
        self.rp = self._triangular(rp, transposed=True)
        inside = method.point(off)
        triples = zip(self.to, inside.blocks, strict=True)
        self.inside = _Point([t @ r @ t.T for t, r in triples], inside.line * self.ratio)

    def _triangular(self, h: Floats, *, transposed: bool = False) -> Floats:
        solved = sl.solve_triangular(self.T, h, trans=1 if transposed else 0, check_finite=False)
        return np.asarray(solved)

    def direction(
        self, target: float, second: tuple[_Point, _Point] | None
    ) -> tuple[Floats, Floats, _Point, _Point]:
        """Return the moves of x, of prices of equations, of S and of Z, these two scaled."""
        method, blocks = self.method, []
        line = target - self.line**2
        for k, size in enumerate(self.sizes):
            side = 2.0 * np.diag(target - size**2)
            if second is not None:
                side -= 2.0 * _symmetric(second[0].blocks[k] @ second[1].blocks[k])
            blocks.append(side / (size[:, None] + size))
        if second is not None:
            line = line - second[0].line * second[1].line
        both = _Point(blocks, line / self.line)  # what the moves of S and Z add up to
        c = method.vector(both.plus(-1.0, self.inside))
        equal = self.off[method.zero]
        c[method.zero] = -equal
        y = self.rp - self.Q.T @ c
        dw: Floats = np.zeros(equal.size)
        if equal.size:
            dw = np.asarray(np.linalg.solve(self.F.T @ self.F, self.F.T @ y - equal), dtype=float)
            y = y - self.F @ dw
        dZ = method.point(c + self.Q @ y)
        return self._triangular(y), dw, both.plus(-1.0, dZ), dZ

    def length_s(self, d: _Point) -> float:
        """Return how far the slack can go."""
        return _length(self.S, d, [np.diag(size**-0.5) for size in self.sizes])

    length_z = length_s

    def raised(self, d: _Point) -> _Point:
        """Return a move of Z in its own units."""
        blocks = [t.T @ m @ t for t, m in zip(self.to, d.blocks, strict=True)]
        return _Point(blocks, d.line * self.ratio)


def _cholesky(M: Floats) -> Any:
    """Factor, with as little on the diagonal as lets it complete."""
    size = float(np.abs(np.diag(M)).max(initial=0.0))
    if not np.isfinite(size):
        raise np.linalg.LinAlgError("the system has left the range of floats")
    own = np.abs(np.diag(M))
    for more in (0.0, 1e-15, 1e-13, 1e-11, 1e-9):
        try:
            raised = M + np.diag(more * np.maximum(own, 1e-3 * size)) if more else M
            return sl.cho_factor(raised, lower=True, check_finite=False)
        except np.linalg.LinAlgError:
            continue
    raise np.linalg.LinAlgError("the system is singular")


def _evident(size: float, value: float, off: bool, other_off: bool) -> bool:
    """Whether a vector improves for ever: it is as good as 0 where its value is 1.

    Where its own equations hold, a large value alone may be that of an optimum, so it must be
    beyond any, and the other side's equations must not hold.
    """
    return value > 0.0 and (
        (off and size <= EVIDENT * value) or (other_off and size <= EVIDENT**2 * value)
    )


def _norm(v: Floats) -> float:
    return float(np.linalg.norm(v))


def _symmetric(a: Floats) -> Floats:
    return np.asarray(0.5 * (a + a.T))


def _root(M: Floats) -> Floats:
    """Return the lower Cholesky factor."""
    return np.asarray(sl.cholesky(M, lower=True, check_finite=False))


def _inverse_root(s: Floats) -> Floats:
    """Return the inverse of the lower Cholesky factor."""
    inverse, fault = sl.lapack.dtrtri(_root(s), lower=1)
    if fault:
        raise np.linalg.LinAlgError("a block is singular")
    return np.asarray(np.tril(inverse))


def _length(p: _Point, d: _Point, roots: Sequence[Floats]) -> float:
    """Return how far a point can go in a direction before it leaves the cone."""
    least = 0.0
    if p.line.size:
        least = float((d.line / p.line).min())
    for root, step in zip(roots, d.blocks, strict=True):
        least = min(least, _least(root @ step @ root.T))
    return 1.0 / -least if least < 0.0 else np.inf


def _least(M: Floats) -> float:
    """Return the least eigenvalue."""
    own = _symmetric(M)
    return float(sl.eigvalsh(own, subset_by_index=[0, 0], check_finite=False)[0])


def _inside(p: _Point, step: float, d: _Point) -> tuple[_Point, float]:
    """Go so far, or less where rounding would leave the cone."""
    for _ in range(30):
        moved = p.plus(step, d)
        if not (moved.line > 0.0).all():
            step *= 0.8
            continue
        try:
            for block in moved.blocks:
                _root(block)
        except np.linalg.LinAlgError:
            step *= 0.8
            continue
        return moved, step
    raise np.linalg.LinAlgError("no step stays inside")
