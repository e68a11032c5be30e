"""Cone programs from arrays: by clarabel, which only this file talks to, and by a method of 32 digits."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import clarabel
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.numbers import Floats
from optfair.proofs.cones import Cone, largest_entry
from optfair.proofs.effort import seconds_left
from optfair.proofs.rounding import DoubleDouble
from optfair.solution.units import equilibrium

if TYPE_CHECKING:
    from optfair.solution.conic_form import ConicForm


@dataclass(frozen=True)
class ConeProgramResult:
    """Outcome of one cone program: status, primal x and multipliers z."""

    status: str
    x: Floats
    z: Floats
    iterations: int


_STATUS = {
    "Solved": "optimal",
    "AlmostSolved": "optimal",
    "InsufficientProgress": "optimal",
    "PrimalInfeasible": "infeasible",
    "AlmostPrimalInfeasible": "infeasible",
    "DualInfeasible": "unbounded",
    "AlmostDualInfeasible": "unbounded",
}


def solve_cone_program(
    P: Any,
    q: Floats,
    A: Any,
    b: Floats,
    cones: tuple[Cone, ...],
    *,
    tolerance: float = 1e-11,
    time_limit: float = np.inf,
    scattered: bool = False,
) -> ConeProgramResult:
    """Minimise ½xᵀPx + qᵀx subject to b - Ax in the cones.

    The tolerance is asked for, not promised: callers verify what comes back, so a stop for
    lack of progress is handed on as a candidate rather than thrown away. Rows that are
    ``scattered``, each on a few variables with no pattern, are factored entry by entry: the
    default looks for dense blocks, and takes up to four times as long where there are none.
    A program that is solved for a proof stops with it.
    """
    time_limit = min(time_limit, seconds_left())
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.max_threads = 1
    if scattered:
        settings.direct_solve_method = "qdldl"
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = tolerance
    if np.isfinite(time_limit):
        settings.time_limit = max(time_limit, 1e-3)
    blocks = [_cone(c) for c in cones]
    solver = clarabel.DefaultSolver(_upper(P), q, sp.csc_matrix(A), b, blocks, settings)
    try:
        result = solver.solve()
    except BaseException as e:  # a panic of its library is no Exception
        if type(e).__name__ != "PanicException":
            raise
        return ConeProgramResult("failed", np.zeros(q.size), np.zeros(b.size), 0)
    status = _STATUS.get(str(result.status), "failed")
    return ConeProgramResult(status, np.array(result.x), np.array(result.z), int(result.iterations))


def _upper(P: Any) -> Any:
    """Return the upper triangle, which Clarabel reads."""
    columns = sp.csc_matrix(P)
    entry = np.repeat(np.arange(columns.shape[1]), np.diff(columns.indptr))
    kept = columns.indices <= entry
    ends = np.append(0, np.cumsum(np.bincount(entry[kept], minlength=columns.shape[1])))
    return sp.csc_matrix((columns.data[kept], columns.indices[kept], ends), shape=columns.shape)


def _cone(cone: Cone) -> Any:
    size = cone.stop - cone.start
    if cone.kind == "zero":
        return clarabel.ZeroConeT(size)
    if cone.kind == "nonneg":
        return clarabel.NonnegativeConeT(size)
    if cone.kind == "soc":
        return clarabel.SecondOrderConeT(size)
    if cone.kind == "psd":
        return clarabel.PSDTriangleConeT(cone.order)
    if cone.kind == "exp":
        return clarabel.ExponentialConeT()
    return clarabel.PowerConeT(cone.power)


def solve_form(
    form: ConicForm, unit: float, *, tolerance: float, time_limit: float, scattered: bool = False
) -> ConeProgramResult:
    """Solve a compiled program with its costs times a unit.

    Where that ends with a claim that there is no optimum it is solved again, in units in which the
    largest entries of rows and columns are near 1, then right-hand sides as well: absolute
    residuals mislead a solver there.
    """
    begin = time.perf_counter()

    def solved(near: ConicForm, unit: float, left: float) -> ConeProgramResult:
        raw = solve_cone_program(
            near.P * unit,
            near.q * unit,
            near.A,
            near.b,
            near.cones,
            tolerance=tolerance,
            time_limit=left,
            scattered=scattered,
        )
        return replace(raw, z=raw.z / unit)

    raw = solved(form, unit, time_limit)
    for sides in (False, True):
        left = time_limit - (time.perf_counter() - begin)
        if raw.status not in ("infeasible", "unbounded") or left <= 0.0:
            break
        rows, columns = equilibrium(form, sides=sides)
        near = form.in_units(rows, columns)
        again = solved(near, near.cost_scale("largest"), left)
        if again.status == "optimal":
            return replace(again, x=again.x * columns, z=again.z * rows)
    return raw  # the claim stands


# Share of the way to the boundary that a step goes at most, and the least reduction it aims for.
NEARLY, LEAST = 0.9, 1e-6
# Whole steps at one gap after which a pair is central; steps in all; rounds of smaller gaps, and by how much.
SETTLED, ITERATIONS, FINER = 2, 120, 1e-3
# Steps in a row of which none brings what is left down by a tenth, after which it is given up.
PATIENCE = 12
# Residual, and pivot of equations that follow from others, as shares of the largest.
NOTHING, DEPENDENT = 1e-22, 3e-30
# Size of the first slacks and multipliers, in sizes of the data.
START = 10.0
# Operations of a step up to which programs are small.
SMALL = 2.5e7


class _Matrices:
    """A positive semidefinite block: S, Z and the matrices of the columns."""

    def __init__(self, cone: Cone, A: Floats) -> None:
        self.rows, self.degree = np.arange(cone.start, cone.stop), cone.order
        self.places = cone.places
        self.weight = DoubleDouble(np.ones(self.rows.size))
        off = np.flatnonzero(~cone.diagonal)
        self.weight[off] = DoubleDouble(np.full(off.size, 2.0)).root()
        self.one = DoubleDouble(np.where(cone.diagonal, 1.0, 0.0))
        self.columns = np.flatnonzero(A[self.rows].any(axis=0))
        self.A = self.matrix(DoubleDouble(A[self.rows][:, self.columns].T))

    def matrix(self, v: DoubleDouble) -> DoubleDouble:
        i, j = self.places
        M = DoubleDouble(np.zeros((*v.shape[:-1], self.degree, self.degree)))
        M[..., i, j] = M[..., j, i] = v / self.weight
        return M

    def entries(self, M: DoubleDouble) -> DoubleDouble:
        i, j = self.places
        return (M[..., i, j] + M[..., j, i]) * self.weight * 0.5

    def prepare(self, s: DoubleDouble, z: DoubleDouble) -> None:
        self.Z = self.matrix(z)
        self.roots = inverse_root(self.matrix(s)), inverse_root(self.Z)
        self.inverted = self.roots[0].T @ self.roots[0]

    def weighed(self) -> DoubleDouble:
        """Return the products of the columns by what a step of s changes z."""
        k, n = self.columns.size, self.degree
        wide = self.inverted @ self.A.each(lambda a: a.transpose(1, 0, 2)).reshape(n, k * n)
        turned = wide.each(lambda a: a.reshape(n, k, n).transpose(1, 0, 2).reshape(k * n, n))
        own = (turned @ self.Z).reshape(k, n, n)
        return self.A.reshape(k, n * n) @ ((own + own.T) * 0.5).reshape(k, n * n).T

    def changed(self, ds: DoubleDouble) -> DoubleDouble:
        return self.entries(self.inverted @ self.matrix(ds) @ self.Z)

    def inverse(self) -> DoubleDouble:
        return self.entries(self.inverted)

    def second_order(self, ds: DoubleDouble, dz: DoubleDouble) -> DoubleDouble:
        return self.entries(self.inverted @ self.matrix(ds) @ self.matrix(dz))

    def rate(self, d: DoubleDouble, which: int) -> float:
        """Return the reciprocal of how far it goes until the boundary is reached."""
        M = (self.roots[which] @ self.matrix(d) @ self.roots[which].T).high
        return -float(np.linalg.eigvalsh(0.5 * (M + M.T))[0])


class _HalfLines:
    """Half-lines: s and z entry by entry."""

    def __init__(self, rows: NDArray[Any], A: Floats) -> None:
        self.rows, self.degree, self.one = rows, rows.size, DoubleDouble(np.ones(rows.size))
        self.columns = np.flatnonzero(A[rows].any(axis=0))
        self.A = DoubleDouble(A[rows][:, self.columns])

    def prepare(self, s: DoubleDouble, z: DoubleDouble) -> None:
        if min(s.high.min(), z.high.min()) <= 0.0:
            raise np.linalg.LinAlgError("an entry is not positive")
        self.pair = s, z

    def weighed(self) -> DoubleDouble:
        return self.A.T @ (self.A * (self.pair[1] / self.pair[0]).reshape(-1, 1))

    def changed(self, ds: DoubleDouble) -> DoubleDouble:
        return ds * self.pair[1] / self.pair[0]

    def inverse(self) -> DoubleDouble:
        return self.one / self.pair[0]

    def second_order(self, ds: DoubleDouble, dz: DoubleDouble) -> DoubleDouble:
        return ds * dz / self.pair[0]

    def rate(self, d: DoubleDouble, which: int) -> float:
        return float((-d.high / self.pair[which].high).max())


class _Lorentz:
    """Second-order cones of one size, by the scaling of Nesterov and Todd."""

    def __init__(self, cones: list[Cone], A: Floats) -> None:
        places = np.array([np.arange(c.start, c.stop) for c in cones])
        self.rows, self.degree, self.shape = places.ravel(), len(cones), places.shape
        one = np.zeros(self.shape)
        one[:, 0] = 1.0
        self.one = DoubleDouble(one.ravel())
        self.columns = np.flatnonzero(A[self.rows].any(axis=0))
        self.A = DoubleDouble(A[self.rows][:, self.columns].reshape(*self.shape, -1))

    def turned(self, v: DoubleDouble) -> DoubleDouble:
        """Return (head, -tail)."""
        v = v.each(np.copy)
        v[:, 1:] = -v[:, 1:]
        return v

    def product(self, v: DoubleDouble, w: DoubleDouble) -> DoubleDouble:
        """Return head by head minus tail by tail, a column."""
        return (v * self.turned(w)).sum(1).reshape(-1, 1)

    def prepare(self, s: DoubleDouble, z: DoubleDouble) -> None:
        self.pair = s.reshape(*self.shape), z.reshape(*self.shape)
        squares = [self.product(v, v) for v in self.pair]
        heads = [v[:, 0] for v in self.pair]
        if min(m.high.min() for m in (*heads, *squares)) <= 0.0:
            raise np.linalg.LinAlgError("a vector is not in the cone")
        a, b = (v / d.root() for v, d in zip(self.pair, squares, strict=True))
        cosine = (a * b).sum(1).reshape(-1, 1) + DoubleDouble(1.0)
        self.mean = (self.turned(a) + b) / ((cosine * 0.5).root() * 2.0)
        self.square, self.scale = squares[0], (squares[1] / squares[0]).root()

    def weighed(self) -> DoubleDouble:
        (count, size), n = self.shape, self.columns.size
        own = (self.A * self.mean.reshape(count, size, 1)).sum(1)
        head, tail = self.A[:, 0], self.A[:, 1:].reshape(count * (size - 1), n)
        wide = self.scale.each(lambda part: np.repeat(part, size - 1, axis=0))
        return (
            own.T @ (own * (self.scale * 2.0))
            - head.T @ (head * self.scale)
            + tail.T @ (tail * wide)
        )

    def changed(self, ds: DoubleDouble) -> DoubleDouble:
        d = ds.reshape(*self.shape)
        along = (self.mean * d).sum(1).reshape(-1, 1) * 2.0
        return ((self.mean * along - self.turned(d)) * self.scale).reshape(-1)

    def inverse(self) -> DoubleDouble:
        return (self.turned(self.pair[0]) / self.square).reshape(-1)

    def second_order(self, ds: DoubleDouble, dz: DoubleDouble) -> DoubleDouble:
        return DoubleDouble(np.zeros(self.rows.size))

    def rate(self, d: DoubleDouble, which: int) -> float:
        v, d = self.pair[which], d.reshape(*self.shape)
        a, b, c = (self.product(*pair).high for pair in ((d, d), (v, d), (v, v)))
        return float(((np.sqrt(np.maximum(b * b - a * c, 0.0)) - b) / c).max())


_Part = _Matrices | _HalfLines | _Lorentz


def has_few_numbers(form: ConicForm) -> bool:
    """Whether a step in 32 digits takes no more than about a second."""
    n, equations = float(form.q.size), float(np.count_nonzero(form.equal))
    work = n**2 * (n + form.b.size) + equations**2 * (n + equations)
    work += sum(n * c.order**2 * (40.0 + c.order) for c in form.cones if c.kind == "psd")
    return work <= SMALL


def _parts(form: ConicForm, A: Floats) -> list[_Part]:
    """Return half-lines, second-order cones and matrices; none where there are others."""
    if not {c.kind for c in form.cones} <= {"zero", "nonneg", "soc", "psd"}:
        return []
    parts: list[_Part] = [_Matrices(c, A) for c in form.cones if c.kind == "psd"]
    if form.nonnegative.any():
        parts.append(_HalfLines(np.flatnonzero(form.nonnegative), A))
    by_size: dict[int, list[Cone]] = {}
    for c in form.cones:
        if c.kind == "soc":
            by_size.setdefault(c.stop - c.start, []).append(c)
    return parts + [_Lorentz(own, A) for own in by_size.values()]


def central_pair(
    form: ConicForm,
    share: float,
    deadline: float = np.inf,
    enough: Callable[[Floats, Floats], bool] | None = None,
    log: Callable[[str], None] | None = None,
) -> tuple[Floats, Floats] | None:
    r"""Return a pair near :math:`S Z = \mu I` whose gap is a share of the objective.

    A primal-dual interior-point method in numbers of 32 digits, for programs whose points on the
    central path are so far out, or whose systems are so near singular, that floats carry no digit of
    it. Directions are those of Helmberg, Rendl, Vanderbei and Wolkowicz for matrices and of Nesterov
    and Todd for vectors, steps those of Mehrotra; :math:`\mu` goes no further than it is asked to,
    so what is rounded at the end lies inside the cones.

    Parameters
    ----------
    form : ConicForm
        Points, half-lines, second-order cones and matrices; few numbers.
    share : float
        Gap over objective.
    deadline : float
        ``time.perf_counter()`` to stop at.
    enough : callable, optional
        Whether a pair will do; where it will not, smaller gaps follow as long as there are digits.
    log : callable, optional
        Takes a line for each step.

    Returns
    -------
    (x, z) or None
        Rounded, the last that was central; None where there is none, or the program is not of this kind.
    """
    if not has_few_numbers(form):
        return None
    rows, columns = equilibrium(form)
    near = form.in_units(rows, columns)
    A, scale = near.A.toarray(), near.cost_scale("largest")
    parts = _parts(near, A)
    if not (parts or near.equal.all()) or not 0.0 < scale < math.inf:
        return None
    unit = 2.0 ** round(math.log2(scale))
    P, q, b = (DoubleDouble(v) for v in (near.P.toarray() * unit, near.q * unit, near.b))
    system = _System(parts, P, A, np.flatnonzero(near.equal))
    total = max(1, sum(p.degree for p in parts))
    start = START * max(1.0, largest_entry(near.b), largest_entry(q.high))
    x, s, z = (DoubleDouble(np.zeros(k)) for k in (q.shape[0], b.shape[0], b.shape[0]))
    for p in parts:
        s[p.rows] = z[p.rows] = p.one * start
    lengths, settled, finer, pair, best, since = (0.0, 0.0), 0, 1.0, None, np.inf, 0
    # numbers out of range, or an iterate that leaves the cones by rounding, end it
    with np.errstate(all="ignore"), contextlib.suppress(np.linalg.LinAlgError):
        for iteration in range(ITERATIONS):
            system.prepare(s, z)
            mu = (s * z).sum().high.item() / total
            Px = P @ x
            short, rest = b - system.A @ x - s, -(Px + q + system.A.T @ z)
            value = ((q + Px * 0.5) * x).sum().high.item()
            goal = finer * share * max(form.unit * unit, abs(value)) / total
            off = max(largest_entry(short.high), largest_entry(rest.high))
            if log is not None:
                log(
                    f"{iteration:4d}  {value / unit:.12e}  gap {mu * total / unit:.1e}  off {off:.1e}"
                )
            settled = settled + 1 if min(lengths) == 1.0 else 0
            if (
                settled >= SETTLED
                and mu < 2.0 * goal
                and off <= NOTHING * (1.0 + largest_entry(z.high))
            ):
                pair = x.high * columns, z.high * rows / unit
                if enough is None or enough(*pair):
                    return pair
                settled, finer = 0, finer * FINER
                goal *= FINER
            left = max(off, mu)  # both shrink at every step but near the end
            best, since = (left, 0) if left < 0.9 * best else (best, since + 1)
            if since > PATIENCE or time.perf_counter() > deadline or not np.isfinite(left):
                break
            ds, dz = system.step(s, z, short, rest, 0.0)[1:]
            a, c = system.lengths(ds, dz)
            after = ((s + ds * a) * (z + dz * c)).sum().high.item() / total
            aim = max(
                LEAST, min(1.0, max(after, 0.0) / (mu or 1.0)) ** 3, 0.3 if min(a, c) < 0.1 else 0.0
            )
            dx, ds, dz = system.step(s, z, short, rest, max(goal, aim * mu), (ds, dz))
            a, c = lengths = system.lengths(ds, dz)
            x, s, z = x + dx * a, s + ds * a, z + dz * c
    return pair


class _System:
    """The equations of a step, and how far it goes."""

    def __init__(self, parts: list[_Part], P: DoubleDouble, A: Floats, equal: NDArray[Any]) -> None:
        self.parts, self.P, self.A, self.equal = parts, P, DoubleDouble(A), equal
        self.E = self.A[equal]
        self.squares = self.E.T @ self.E
        self.joint = bool(P.high.any())

    def prepare(self, s: DoubleDouble, z: DoubleDouble) -> None:
        H = self.P.each(np.copy)
        for p in self.parts:
            p.prepare(s[p.rows], z[p.rows])
            at = np.ix_(p.columns, p.columns)
            H[at] = H[at] + p.weighed()
        self.H, self.more = H, 1.0
        if self.equal.size:  # equations are also weighed, where nothing else is
            sizes = [largest_entry(np.diag(M.high)) for M in (H, self.squares)]
            there = all(0.0 < v < math.inf for v in sizes)
            self.more = 2.0 ** round(math.log2(sizes[0] / sizes[1])) if there else 1.0
            H = H + self.squares * self.more
        self.root = inverse_root(H, DEPENDENT)
        if self.equal.size:
            self.across = self.root @ self.E.T
            self.inner = inverse_root(self.across.T @ self.across, DEPENDENT)

    def solve(self, right: DoubleDouble, side: DoubleDouble) -> tuple[DoubleDouble, DoubleDouble]:
        """Return dx, dy with H dx + E'dy = right and E dx = side."""
        if not self.equal.size:
            return self.root.T @ (self.root @ right), side
        half = self.root @ (right + self.E.T @ (side * self.more))
        dy = self.inner.T @ (self.inner @ (self.across.T @ half - side))
        return self.root.T @ (half - self.across @ dy), dy

    def step(
        self,
        s: DoubleDouble,
        z: DoubleDouble,
        short: DoubleDouble,
        rest: DoubleDouble,
        mu: float,
        before: tuple[DoubleDouble, DoubleDouble] | None = None,
    ) -> tuple[DoubleDouble, DoubleDouble, DoubleDouble]:
        """Return the move of x, s and z to where the products are mu."""
        own = []
        for p in self.parts:
            aim = p.inverse() * mu - z[p.rows]
            if before is not None:
                aim = aim - p.second_order(*(d[p.rows] for d in before))
            own.append(aim)
        change = DoubleDouble(np.zeros(z.shape))
        for p, aim in zip(self.parts, own, strict=True):
            change[p.rows] = aim - p.changed(short[p.rows])
        right, side = rest - self.A.T @ change, short[self.equal]
        dx, dy = self.solve(right, side)
        again = right - self.H @ dx
        more = self.solve(again - self.E.T @ dy if self.equal.size else again, side - self.E @ dx)
        dx, dy = dx + more[0], dy + more[1]
        ds, dz = short - self.A @ dx, DoubleDouble(np.zeros(z.shape))
        ds[self.equal] = DoubleDouble(np.zeros(self.equal.size))
        for p, aim in zip(self.parts, own, strict=True):
            dz[p.rows] = aim - p.changed(ds[p.rows])
        dz[self.equal] = dy
        return dx, ds, dz

    def lengths(self, ds: DoubleDouble, dz: DoubleDouble) -> tuple[float, float]:
        """Return how far slacks and multipliers go, at most once and short of the boundary."""
        both = list(enumerate((ds, dz)))
        most = (max((p.rate(d[p.rows], k) for p in self.parts), default=0.0) for k, d in both)
        a, c = (min(1.0, NEARLY / rate) if rate > 0.0 else 1.0 for rate in most)
        return (min(a, c),) * 2 if self.joint else (a, c)


def inverse_root(M: DoubleDouble, least: float = 0.0) -> DoubleDouble:
    """Return the inverse of the lower Cholesky factor.

    Lines whose pivots are no more than a share of their entry are left out, as lines of zeros;
    LinAlgError where there are any and the share is 0.
    """
    L, n, floor = M.each(np.copy), M.shape[0], least * np.diag(M.high)
    X = DoubleDouble(np.eye(n))
    for k in range(n):
        if not L.high[k, k] > floor[k]:
            if least == 0.0:
                raise np.linalg.LinAlgError("a pivot is not positive")
            X[k] = DoubleDouble(np.zeros(n))
            continue
        below = slice(k + 1, n)
        pivot = L[k, k].root()
        X[k] = X[k] / pivot
        own = (L[below, k] / pivot).reshape(-1, 1)
        X[below] = X[below] - own * X[k].reshape(1, -1)
        L[below, below] = L[below, below] - own * own.T
    return X


# Iterations in which what is left should be halved, once it is within so many times what was asked.
STALLED, NEAR = 3, 10.0


class Stoppable:
    """A solver for CVXPY's interface that is asked at every iteration whether it should go on.

    It does not where somebody stops it, nor at the end where it comes no nearer: what was asked of
    it is far below what a solution is held to. It has the methods that CVXPY's interface calls on a
    solver it finds in its cache: the one place where the object can be reached before it solves.

    Parameters
    ----------
    cones : object
        CVXPY's sizes of the cones.
    before : Stoppable, optional
        What solved other numbers of the same pattern: its memory is taken over.
    """

    def __init__(self, cones: Any, before: Stoppable | None = None) -> None:
        from cvxpy.reductions.solvers.conic_solvers.clarabel_conif import dims_to_solver_cones

        self._cones = dims_to_solver_cones(cones)
        self._solver: Any = None if before is None else before._solver
        self._stopped, self._left = False, list[float]()

    def stop(self) -> None:
        """End at the next iteration."""
        self._stopped = True

    def is_data_update_allowed(self) -> bool:
        """Whether `update` may be called."""
        return True

    def get_settings(self) -> Any:
        """Return the settings of the last solve, or those of no solve."""
        return clarabel.DefaultSettings() if self._solver is None else self._solver.get_settings()

    def update(self, *, P: Any, q: Any, A: Any, b: Any, settings: Any) -> None:
        """Take numbers: in the place of the last ones where the pattern is the same."""
        if self._solver is not None and self._solver.is_data_update_allowed():
            try:
                self._solver.update(P=P, q=q, A=A, b=b, settings=settings)
                return
            except Exception:  # another pattern; its errors have no tree
                self._solver = None
        self._solver = clarabel.DefaultSolver(P, q, A, b, self._cones, settings)

    def solve(self) -> Any:
        """Return the solver's own result, of the last iterate where it was stopped."""
        settings = self._solver.get_settings()
        gaps, feasibility = (settings.tol_gap_abs, settings.tol_gap_rel), settings.tol_feas

        def ended(info: Any) -> bool:
            if not info.step_length > 0.0:  # it begins, or tries the last step in another way
                return self._stopped
            gap = min(info.gap_abs / gaps[0], info.gap_rel / gaps[1])
            self._left.append(max(gap, info.res_primal / feasibility, info.res_dual / feasibility))
            return self._stopped or self.stalled

        self._left.clear()
        self._solver.set_termination_callback(ended)
        try:
            result = self._solver.solve()
        finally:
            self._solver.unset_termination_callback()
        if self._stopped or not self.stalled or str(result.status) != "CallbackTerminated":
            return result
        named = {k: getattr(result, k) for k in dir(result) if not k.startswith("_")}
        return SimpleNamespace(**named | {"status": "AlmostSolved"})

    @property
    def stalled(self) -> bool:
        """Whether the last iterations came no nearer to what was asked, and are near it."""
        before, last = self._left[:-STALLED], self._left[-STALLED:]
        return bool(before) and 0.5 * min(before) < min(last) and last[-1] <= NEAR
