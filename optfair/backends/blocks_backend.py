r"""Semidefinite programs by our own primal-dual interior-point method, behind the generic route.

.. math::
    \min_x\; q^T x \quad \text{s.t.} \quad b - Ax = s \in K, \qquad
    \max_z\; -b^T z \quad \text{s.t.} \quad A^T z = -q,\; z \in K^*

with K a product of points, half-lines and positive semidefinite cones. A step solves a system of
as many equations as there are columns, :math:`M_{ij} = \operatorname{tr}(A_i Z A_j S^{-1})`, and
costs a few products of matrices of the order of the blocks; a general cone solver factors a
matrix with a row for each *entry* of a block. Directions are those of Helmberg, Rendl,
Vanderbei, Wolkowicz (1996), Kojima, Shindoh, Hara (1997) and Monteiro (1997); steps are those of
Mehrotra, as in Borchers: CSDP, a C library for semidefinite programming (1999); how entries of M
are formed follows Fujisawa, Kojima, Nakata (1997). What `Spheres` reads is tried there first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from optfair.backends.cvxpy_backend import run_generic
from optfair.backends.isolation import one_thread
from optfair.backends.psd_block import (
    FACTOR,
    HELD,
    Block,
    Iterate,
    Normal,
    Orthogonal,
    Point,
    components,
    evident,
    moved_inside,
    norm,
)
from optfair.backends.request import Outcome, RawPoint, Request, SolverProfile
from optfair.backends.spheres import Spheres
from optfair.compile.conic_proof import shortfall
from optfair.numbers import Floats, Indices
from optfair.proofs.cones import Cone, ConeKind
from optfair.proofs.faces import GRID, Face, forced, on_face
from optfair.solution.conic_form import ConicForm
from optfair.solution.residuals import CLEAR

if TYPE_CHECKING:
    from optfair.compile.form import Compiled
    from optfair.core.problem import Problem


# Iterations without a better point, and without half the error where there is another way to go on.
PATIENCE, STALLED = 15, 4
# Operations of an orthogonal factorisation up to which it is used at once, and after rounding has
# stopped the normal equations.
CHEAP, DEAR = 3e7, 3e11
# Error above which, and share of the tolerance in residuals below which, rounding is not felt yet.
EARLY, EXACT = 1e-2, 1e-2
# Residuals, as a multiple of the tolerance, from which on a proof is tried.
NEAR = 500.0
# Steps to the center of a pair that falls short.
CENTERING = 3
# Pairs that are tried after the one that falls least short of a proof; one is better that falls
# short by this share of it.
TRIES, BETTER = 4, 0.9
# Seconds that a step takes at least, by the cubes of the orders of blocks (measured: three times that).
STEP = 5e-10
# Seconds that the proof of a pair takes, as a multiple of those of compiling; and the least share
# of the time that is left for the search.
VERIFIED, LEAST = 2.0, 0.1


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
    method = Method(q, sp.csc_array(A), b, cones)
    method.orthogonal = method.factored <= CHEAP
    fits = method.turns = method.factored <= DEAR and method.m * method.n <= 2 * HELD
    ended = method.run(tolerance, deadline, iterations, short, log)
    if (ended.status == "inaccurate" or method.lacking > 0.0) and fits and not method.orthogonal:
        method.orthogonal, lacking = True, method.lacking  # from where rounding was not felt yet
        again = method.run(tolerance, deadline, iterations, short, log)
        again = replace(again, iterations=ended.iterations + again.iterations)
        better = again.error <= ended.error or again.status not in ("inaccurate", "time_limit")
        if lacking > 0.0:  # what falls short of a proof is left for what falls short by less
            better = again.status == "optimal" and method.lacking < lacking
        return again if better else ended
    return ended


class Method:
    """The method on one program: its blocks, half-lines and free rows."""

    def __init__(self, q: Floats, A: Any, b: Floats, cones: Sequence[Cone]) -> None:
        self.m, self.n = A.shape
        # columns by their size, then objective and sides: residuals are relative to these
        size = np.sqrt(np.asarray(A.multiply(A).sum(axis=0)).ravel())
        self.unit = np.where(size > 0.0, size, 1.0)
        self.A = sp.csc_array(A @ sp.diags_array(1.0 / self.unit))
        self.side = max(norm(b), 1e-300)
        cost = q / self.unit
        self.cost = max(norm(cost), 1e-300)
        self.q, self.b = cost / self.cost, b / self.side
        self._split(cones)
        self.At = sp.csr_array(self.A.T)
        self.total = sum(k.n for k in self.blocks) + self.line.size
        self.orthogonal = self.turns = False  # which directions, and whether others may follow
        self.lacking = 0.0  # what the last run's pair falls short of a proof by
        self.early: Iterate | None = None
        self.factored = 2.0 * self.m * float(self.n) ** 2
        self.step = STEP * sum(float(k.n) ** 3 for k in self.blocks) + FACTOR * float(self.n) ** 3
        self.deadline = np.inf

    def in_time(self, seconds: float = 0.0) -> None:
        """Raise where there is no time for what takes so many seconds."""
        if time.perf_counter() + seconds > self.deadline:
            raise TimeoutError

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
                of = components(c.order, i, j, used[at])
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

    def point(self, v: Floats) -> Point:
        """Return the rows of a vector as matrices and half-lines."""
        return Point([k.matrix(v[k.rows]) for k in self.blocks], v[self.line])

    def vector(self, p: Point) -> Floats:
        """Return the way back."""
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
        self.deadline = deadline
        if time.perf_counter() + self.step > deadline:  # a start is as large as the blocks
            return Ended("time_limit", np.zeros(self.n), np.zeros(self.m), 0, np.inf)
        now = best = self._start() if self.early is None else self.early
        since, status, k, worse = 0, "inaccurate", 0, 0
        nearest, errors = (np.inf, now), [np.inf]
        for k in range(iterations):
            zv, sv = self._multipliers(now), self.vector(now.S)
            Ax, Az = self.A @ now.x, self.At @ zv
            rp, off = -self.q - Az, self.b - Ax - sv
            off_p, off_d = norm(off), norm(rp)
            primal, dual = float(self.q @ now.x), -float(self.b @ zv)
            mu = now.S.dot(now.Z) / self.total
            gap = max(abs(primal - dual), mu * self.total)
            size = max(abs(primal), abs(dual)) + 1.0 / max(self.side * self.cost, 1e-300)
            error = max(gap / size, 0.5 * off_p, 0.5 * off_d)
            now = replace(now, error=error)
            if log is not None:
                by = self.side * self.cost
                log(f"{k:3d} {primal * by: .9e} {dual * by: .9e} {off_p:.1e} {off_d:.1e} {mu:.1e}")
            since = 0 if error < best.error else since + 1
            if error > EARLY or max(off_p, off_d) <= EXACT * tolerance:
                self.early = now  # rounding is not felt yet
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
            if evident(norm(Az), dual, off_d > tolerance, off_p > tolerance):
                return self._ended("infeasible", now.x, zv / dual, k, error)
            if evident(norm(Ax + sv), -primal, off_p > tolerance, off_d > tolerance):
                return self._ended("unbounded", now.x / -primal, zv, k, error)
            begin = time.perf_counter()
            if begin + self.step > deadline:
                status = "time_limit"
                break
            errors.append(error)
            slow = error > 0.5 * errors[max(len(errors) - 1 - STALLED, 0)] or off_d > tolerance
            turns = slow and error < EARLY and self.turns and not self.orthogonal
            if turns or since > PATIENCE or not np.isfinite(error):
                break  # rounding stops the normal equations, or nothing gets better
            try:
                now = self._step(now, rp, off, mu)
                self.step = max(0.5 * self.step, time.perf_counter() - begin)
            except TimeoutError:
                status = "time_limit"
                break
            except (np.linalg.LinAlgError, ValueError) as e:
                if log is not None:
                    log(str(e))
                break
        if np.isfinite(nearest[0]):
            best, status, self.lacking = nearest[1], "optimal", nearest[0]
        return self._ended(status, best.x, self._multipliers(best), k, best.error)

    def _residuals(self, now: Iterate) -> tuple[Floats, Floats]:
        """Return what multipliers and slack miss their equations by."""
        rp = -self.q - self.At @ self._multipliers(now)
        return rp, self.b - self.A @ now.x - self.vector(now.S)

    def _pair(self, now: Iterate) -> tuple[Floats, Floats]:
        return now.x / self.unit * self.side, self._multipliers(now) * self.cost

    def _centered(
        self, short: Callable[[Floats, Floats], float], now: Iterate
    ) -> tuple[float, Iterate]:
        """Return what a pair falls short by, after steps that make its products alike.

        Far from the central path a small gap leaves large products off the diagonal.
        """
        best, lacking = now, short(*self._pair(now))
        for _ in range(CENTERING if lacking > 0.0 and self.orthogonal else 0):
            try:
                mu = now.S.dot(now.Z) / self.total
                now = self._step(now, *self._residuals(now), mu, centering=True)
            except (np.linalg.LinAlgError, ValueError, TimeoutError):
                break
            lack = short(*self._pair(now))
            if not lack < lacking:
                break
            more = lack < BETTER * lacking
            lacking, best = lack, replace(now, error=best.error)
            if lacking == 0.0 or not more:
                break
        return lacking, best

    def _multipliers(self, now: Iterate) -> Floats:
        z = self.vector(now.Z)
        z[self.zero] = now.w
        return z

    def _ended(self, status: str, x: Floats, z: Floats, k: int, error: float) -> Ended:
        return Ended(status, x / self.unit * self.side, z * self.cost, k, error)

    def _start(self) -> Iterate:
        """Return a start far out on the diagonal, as in CSDP, for data of size 1."""
        far = 10.0 * self.total
        far_z = 0.5 * far * float((1.0 + np.abs(self.q)).max(initial=1.0))
        far_s = 2.0 * far / np.sqrt(max(self.total, 1))
        S, Z = (
            Point([size * np.eye(k.n) for k in self.blocks], np.full(self.line.size, size))
            for size in (far_s, far_z)
        )
        return Iterate(np.inf, np.zeros(self.n), np.zeros(self.zero.size), S, Z)

    def _step(
        self, now: Iterate, rp: Floats, off: Floats, mu: float, *, centering: bool = False
    ) -> Iterate:
        """Go one step: predict, then correct; or to the center."""
        move = (Orthogonal if self.orthogonal else Normal)(self, now, rp, off)
        if centering:
            dx, dw, dS, dZ = move.direction(mu, None)
            return self._moved(now, off, move, dx, dw, dS, dZ, 0.95)
        dx, dw, dS, dZ = move.direction(0.0, None)
        a_s, a_z = min(1.0, move.length_s(dS)), min(1.0, move.length_z(dZ))
        after = move.S.plus(a_s, dS).dot(move.Z.plus(a_z, dZ)) / self.total
        power = max(1.0, 3.0 * min(a_s, a_z) ** 2) if mu > 1e-6 else 1.0
        sigma = max(min(1.0, max(after / max(mu, np.finfo(float).tiny), 0.0) ** power), 1e-6)
        dx, dw, dS, dZ = move.direction(sigma * mu, (dZ, dS))
        return self._moved(now, off, move, dx, dw, dS, dZ, 0.9 + 0.09 * min(a_s, a_z))

    def _moved(
        self,
        now: Iterate,
        off: Floats,
        move: Normal | Orthogonal,
        dx: Floats,
        dw: Floats,
        dS: Point,
        dZ: Point,
        close: float,
    ) -> Iterate:
        """Return the pair after a move, some way before the boundary."""
        a_s = min(1.0, close * move.length_s(dS))
        a_z = min(1.0, close * move.length_z(dZ))
        S, a_s = moved_inside(now.S, a_s, self.point(off - self.A @ dx))
        Z, a_z = moved_inside(now.Z, a_z, move.raised(dZ))
        return Iterate(np.inf, now.x + a_s * dx, now.w + a_z * dw, S, Z)


# Share of the tolerance by which multipliers may miss their cones, which what is bounded pays for;
# and that a pair may take where there is none that takes half of it.
PAID, ALL = 0.2, 0.9
# Relative rounding of entries that are multiples of the root of 2.
ULPS = 4.0 * np.finfo(float).eps


@dataclass(frozen=True, eq=False)
class Beside:
    r"""The dual of a program whose matrices are variables: a column for each other multiplier.

    Where :math:`x_C` occurs in one block only, as :math:`b_k - D x_C \succeq 0` with D diagonal,
    the multipliers of the block follow from the others, :math:`z_k = -D^{-1}(q_C + A_{oC}^T z_o)`,
    and the program in :math:`z_o` has as many columns as there are rows outside such blocks.
    """

    form: ConicForm  # the dual: entries off the diagonal are multiples of the root of 2
    rows: Indices  # of the program, whose multipliers are the columns here
    block: Indices  # rows of its blocks, in the order of the first rows here
    column: Indices  # the column of each
    entry: Floats  # D
    side: Floats  # b_k
    loose: Indices  # columns outside blocks
    size: tuple[int, int]

    @classmethod
    def of(cls, form: ConicForm) -> Beside | None:
        """Return the dual where it has fewer columns, else None."""
        q, A, b, cones = form.q, form.A, form.b, form.cones
        m, n = A.shape
        by_row = sp.csr_array(A)
        psd = [c for c in cones if c.kind == "psd"]
        inside = ~(form.equal | form.nonnegative)
        block, other = np.flatnonzero(inside), np.flatnonzero(~inside)
        if other.size >= n or not (np.diff(by_row.indptr)[block] == 1).all():
            return None
        at = by_row.indptr[block]
        column, entry = by_row.indices[at].astype(np.int64), by_row.data[at]
        least = float(np.finfo(float).tiny)  # the inverse of smaller ones is no float
        if np.unique(column).size < column.size or not (np.abs(entry) >= least).all():
            return None
        loose = np.setdiff1d(np.arange(n), column)
        across = sp.csr_array(by_row[other].T)  # (n, o)
        unit = sp.diags_array(1.0 / entry)
        signs = -sp.eye_array(other.size, format="csr")[np.flatnonzero(form.nonnegative[other])]
        rows = sp.vstack([unit @ across[column], signs, across[loose]])
        places, start = [], 0
        for c in psd:
            places.append(replace(c, start=start, stop=start + c.stop - c.start))
            start += c.stop - c.start
        rest: tuple[tuple[ConeKind, int], ...]
        rest = (("nonneg", signs.shape[0]), ("zero", loose.size))
        for kind, count in rest:
            if count:
                places.append(Cone(kind, start, start + count))
                start += count
        factor = np.ones(start)
        for c in places:
            if c.kind == "psd":
                factor[c.start : c.stop] = np.where(c.diagonal, 1.0, c.root)
        rows = sp.csc_array(rows)
        rows.data = _near(rows.data, factor[rows.indices])
        sides = np.concatenate([-q[column] / entry, np.zeros(signs.shape[0]), -q[loose]])
        costs, none = (
            b[other] - across[column].T @ (b[block] / entry),
            sp.csc_array((other.size,) * 2),
        )
        own = ConicForm(none, costs, 0.0, rows, _near(sides, factor), tuple(places))
        return cls(own, other, block, column, entry, b[block], loose, (m, n))

    def paid(self, tolerance: float, y: Floats) -> float:
        """Return a shift of all blocks that is paid for by a share of the tolerance."""
        order = sum(c.order for c in self.form.cones if c.kind == "psd")
        return PAID * tolerance * abs(float(self.form.q @ y)) / order + 1e-300

    def back(self, y: Floats, w: Floats, *, ray: bool = False) -> tuple[Floats, Floats]:
        """Return the pair of the program itself; of rays without its constants."""
        m, n = self.size
        count, last = self.block.size, self.form.b.size - self.loose.size
        x, z = np.zeros(n), np.zeros(m)
        x[self.column] = ((0.0 if ray else self.side) - w[:count]) / self.entry
        x[self.loose] = -w[last:]
        z[self.rows] = y
        z[self.block] = (0.0 if ray else self.form.b[:count]) - (self.form.A @ y)[:count]
        return x, z

    def ended(self, end: Ended) -> Ended:
        """Return an end in terms of the program itself."""
        swapped = {"infeasible": "unbounded", "unbounded": "infeasible"}
        x, z = self.back(end.x, end.z, ray=end.status in swapped)
        return replace(end, status=swapped.get(end.status, end.status), x=x, z=z)


def _near(entries: Floats, factors: Floats) -> Floats:
    """Return entries that are nearly multiples of their factors on a grid as such."""
    whole = np.round(entries / factors * GRID) / GRID * factors
    return np.where(np.abs(whole - entries) <= ULPS * np.abs(entries), whole, entries)


def _on_face(
    form: ConicForm,
    face: Face,
    point: Callable[[Floats], Floats],
    short: Callable[..., float],
    deadline: float,
    **options: Any,
) -> Ended | None:
    """Return the pair that is solved for on a face, with a point for one there; None unproved."""
    own, root = face.stated
    used = np.flatnonzero(np.diff(own.A.indptr))

    def whole(y: Floats, w: Floats) -> tuple[Floats, Floats]:
        x = np.zeros(form.q.size)
        x[used] = y
        return point(x), face.whole(w * root)

    def lacking(y: Floats, w: Floats) -> float:
        return short(form, *whole(y, w))

    program = own.q[used], own.A[:, used], own.b, own.cones
    ended = interior_point(*program, deadline=deadline, short=lacking, **options)
    x, z = whole(ended.x, ended.z)
    solved = ended.status in ("optimal", "inaccurate")
    good = solved and short(form, x, z, ALL) == 0.0
    return replace(ended, status="optimal", x=x, z=z) if good else None


def _nearer(
    form: ConicForm,
    ended: Ended,
    short: Callable[..., float],
    gap: float,
    deadline: float,
    **options: Any,
) -> Ended:
    r"""Return a pair with a point nearer to the origin, where that is proved to be as good.

    Where the optimum is not attained, points on the central path are far out, and a bound that holds
    for :math:`|x| \le R` says nothing of points as large. With the box
    :math:`|x_j| \le R / 1000` the program has an optimum, for which these multipliers prove more.
    """
    r = form.residuals(ended.x, ended.z)
    if r.unpaid is None or r.unpaid.slope == 0.0 or form.P.nnz:
        return ended
    spare = 0.4 * gap * max(form.unit, abs(r.objective - form.offset))
    most, n = spare / r.unpaid.slope / CLEAR, form.q.size
    if not max(1.0, r.unpaid.natural) <= most < r.unpaid.size:
        return ended
    box = sp.eye_array(n, format="csc") / most
    b = np.concatenate([form.b, np.ones(2 * n)])
    cones = (*form.cones, Cone("nonneg", form.b.size, b.size))
    A = sp.csc_array(sp.vstack([form.A, box, -box]))
    near = interior_point(form.q, A, b, cones, deadline=deadline, **options)
    good = short(form, near.x, ended.z, ALL) == 0.0
    return replace(ended, status="optimal", x=near.x) if good else ended


def run(problem: Problem, profile: SolverProfile, request: Request) -> Outcome:
    """Solve the compiled form."""

    def short(form: ConicForm, x: Floats, z: Floats, share: float = 0.5) -> float:
        asked, more = request.tolerance, max(share, ALL)
        # what is proved with more of it will do where nothing comes nearer
        enough = shortfall(problem, form, x, z, asked, more) + (more - share) * asked
        return min(enough, shortfall(problem, form, x, z, asked, share))

    def call(compiled: Compiled, scale: float, options: dict[str, Any], verbose: bool) -> RawPoint:
        form, rows, columns = compiled.form.congruent or (compiled.form, 1.0, 1.0)
        left, begin = options.pop("time_limit", np.inf), time.perf_counter()
        options["log"] = log = print if verbose else None
        beside, end = Beside.of(form), begin + left
        ways: list[tuple[ConicForm, Callable[..., tuple[Floats, Floats]], Any]]
        ways = [(form, lambda x, z: (x, z), None)]
        if beside is not None:
            ways.append((beside.form, beside.back, partial(beside.paid, request.tolerance)))
        for own, back, paid in ways:
            if (known := forced(own, paid)) is not None:

                def lacks(
                    _: ConicForm, y: Floats, w: Floats, s: float = 0.5, to: Any = back
                ) -> float:
                    x, z = to(y, w)
                    return short(form, x, z, s)

                if (on := _on_face(own, *known, lacks, end, **options)) is not None:
                    x, z = back(on.x, on.z)
                    return RawPoint(on.status, x * columns, z * rows)
        stated, back, _ = ways[-1]
        program = stated.q, stated.A, stated.b, stated.cones
        pair: Any = None
        if (spheres := Spheres.of(*program)) is not None:
            spare = VERIFIED * (begin - request.started)  # so long it takes to look at a pair
            until = begin + max(LEAST * left, min(0.5 * left, left - spare))
            for near in spheres.pairs(request.tolerance, until, log):
                x, z = back(*near)
                pair = x * columns, z * rows
                if short(form, x, z) == 0.0:
                    return RawPoint("optimal", *pair)
            if time.perf_counter() + STEP * spheres.cubes > begin + left:
                return RawPoint("time_limit", *pair)  # not a step can be made

        proved, looked = None, False

        def lacking(x: Floats, z: Floats) -> float:
            nonlocal proved, looked
            x, z = back(x, z)
            lack = short(form, x, z)
            if 0.0 < lack < np.inf and not looked and (face := on_face(form, z)) is not None:
                proved = _on_face(form, face, lambda _: x, short, begin + left, **options)
                looked = True
            return lack if proved is None else 0.0

        ended = interior_point(*program, deadline=begin + left, short=lacking, **options)
        if ended.status == "time_limit" and ended.iterations == 0:
            return RawPoint(ended.status, *(pair or (None, None)))  # not a step was made
        if proved is not None:
            return RawPoint(proved.status, proved.x * columns, proved.z * rows)
        ended = ended if beside is None else beside.ended(ended)
        if ended.status in ("optimal", "inaccurate") and short(form, ended.x, ended.z) > 0.0:
            face, x = on_face(form, ended.z), ended.x
            if face is not None:
                ended = _on_face(form, face, lambda _: x, short, begin + left, **options) or ended
            if short(form, ended.x, ended.z) > 0.0:
                ended = _nearer(form, ended, short, request.tolerance, begin + left, **options)
        return RawPoint(ended.status, ended.x * columns, ended.z * rows)

    with one_thread():
        return run_generic(problem, profile, request, call, quadratic=False)
