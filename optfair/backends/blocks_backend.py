"""Semidefinite programs on their blocks: our own interior-point method behind the generic route."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.backends.generic import run_generic
from optfair.backends.interior_point import Ended, interior_point
from optfair.backends.request import RawPoint
from optfair.numbers import Floats
from optfair.proofs.cones import Cone, ConeKind
from optfair.proofs.digits import central_pair
from optfair.proofs.faces import on_face
from optfair.solution.conic_form import ConicForm
from optfair.solution.residuals import CLEAR

if TYPE_CHECKING:
    from optfair.backends.profile import SolverProfile
    from optfair.backends.request import Outcome, Request
    from optfair.compile.form import Compiled
    from optfair.core.problem import Problem

Indices = NDArray[np.int64]

# Gap of a pair in many digits, as a share of the tolerance.
CENTRAL = 0.3


@dataclass(frozen=True, eq=False)
class Beside:
    r"""The dual of a program whose matrices are variables: a column for each other multiplier.

    Where :math:`x_C` occurs in one block only, as :math:`b_k - D x_C \succeq 0` with D diagonal,
    the multipliers of the block follow from the others, :math:`z_k = -D^{-1}(q_C + A_{oC}^T z_o)`,
    and the program in :math:`z_o` has as many columns as there are rows outside such blocks.
    """

    q: Floats
    A: Any
    b: Floats
    cones: tuple[Cone, ...]
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
        inside = np.zeros(m, dtype=bool)
        for c in psd:
            inside[c.start : c.stop] = True
        block, other = np.flatnonzero(inside), np.flatnonzero(~inside)
        if other.size >= n or not (np.diff(by_row.indptr)[block] == 1).all():
            return None
        at = by_row.indptr[block]
        column, entry = by_row.indices[at].astype(np.int64), by_row.data[at]
        if np.unique(column).size < column.size or not (entry != 0.0).all():
            return None
        loose = np.setdiff1d(np.arange(n), column)
        across = sp.csr_array(by_row[other].T)  # (n, o)
        unit = sp.diags_array(1.0 / entry)
        line = np.zeros(m, dtype=bool)
        for c in cones:
            line[c.start : c.stop] = c.kind == "nonneg"
        signs = -sp.eye_array(other.size, format="csr")[np.flatnonzero(line[other])]
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
        return cls(
            b[other] - across[column].T @ (b[block] / entry),
            sp.csc_array(rows),
            np.concatenate([-q[column] / entry, np.zeros(signs.shape[0]), -q[loose]]),
            tuple(places),
            other,
            block,
            column,
            entry,
            b[block],
            loose,
            (m, n),
        )

    def back(self, y: Floats, w: Floats, *, ray: bool = False) -> tuple[Floats, Floats]:
        """Return the pair of the program itself; of rays without its constants."""
        m, n = self.size
        count, last = self.block.size, self.b.size - self.loose.size
        x, z = np.zeros(n), np.zeros(m)
        x[self.column] = ((0.0 if ray else self.side) - w[:count]) / self.entry
        x[self.loose] = -w[last:]
        z[self.rows] = y
        z[self.block] = (0.0 if ray else self.b[:count]) - (self.A @ y)[:count]
        return x, z

    def ended(self, end: Ended) -> Ended:
        """Return an end in terms of the program itself."""
        swapped = {"infeasible": "unbounded", "unbounded": "infeasible"}
        x, z = self.back(end.x, end.z, ray=end.status in swapped)
        return replace(end, status=swapped.get(end.status, end.status), x=x, z=z)


def _on_face(
    form: ConicForm,
    ended: Ended,
    short: Callable[[ConicForm, Floats, Floats], float],
    deadline: float,
    **options: Any,
) -> Ended:
    """Return the pair with multipliers that were solved for on their face, where these prove it."""
    face = on_face(form, ended.z) if form.P.nnz == 0 else None
    if face is None:
        return ended
    own = face.form
    root = np.ones(own.b.size)  # back to rows whose multipliers are multiplied by the root of 2
    for c in own.cones:
        if c.kind == "psd" and c.root == 1.0:
            root[c.start : c.stop][~c.diagonal] = 0.5**0.5
    used = np.flatnonzero(np.diff(own.A.indptr))
    cones = tuple(replace(c, root=2.0**0.5) for c in own.cones)

    def lacking(x: Floats, w: Floats) -> float:
        return short(form, ended.x, face.whole(w * root))

    A = sp.csc_array(sp.diags_array(root) @ own.A[:, used])
    more = interior_point(
        own.q[used], A, own.b * root, cones, deadline=deadline, short=lacking, **options
    )
    z = face.whole(more.z * root)
    good = more.status == "optimal" and short(form, ended.x, z) == 0.0
    return replace(ended, status="optimal", z=z) if good else ended


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
    good = short(form, near.x, ended.z, 0.9) == 0.0
    return replace(ended, status="optimal", x=near.x) if good else ended


def run(problem: Problem, profile: SolverProfile, request: Request) -> Outcome:
    """Solve the compiled form."""

    def short(form: ConicForm, x: Floats, z: Floats, share: float = 0.5) -> float:
        """Return by what a pair falls short of half the tolerance; the rest is for named terms."""
        r, half = form.residuals(x, z), share * request.tolerance
        size = max(form.unit, abs(r.objective - form.offset))
        gap = abs(r.objective - r.bound) / size
        worst = max(gap, r.primal, r.rows)
        if worst > half or not np.isfinite(worst):
            return np.inf
        if r.unpaid is None:
            return 0.0
        far = CLEAR * max(1.0, r.unpaid.size, r.unpaid.natural)
        if r.unpaid.radius((half - gap) * size) >= far:
            return 0.0
        loose = r.complementarity > 0.05 * request.tolerance**0.5
        return worst + r.unpaid.here / size + (r.complementarity if loose else 0.0)

    def call(compiled: Compiled, scale: float, options: dict[str, Any], log: bool) -> RawPoint:
        form, rows, columns = compiled.form.congruent or (compiled.form, 1.0, 1.0)
        left, begin = options.pop("time_limit", np.inf), time.perf_counter()
        beside = Beside.of(form)
        stated = form if beside is None else beside

        def lacking(x: Floats, z: Floats) -> float:
            return short(form, x, z) if beside is None else short(form, *beside.back(x, z))

        ended = interior_point(
            stated.q,
            stated.A,
            stated.b,
            stated.cones,
            deadline=begin + left,
            short=lacking,
            log=print if log else None,
            **options,
        )
        if ended.status == "time_limit" and ended.iterations == 0:
            return RawPoint(ended.status, None, None)  # not a step was made
        ended = ended if beside is None else beside.ended(ended)
        if ended.status in ("optimal", "inaccurate") and short(form, ended.x, ended.z) > 0.0:
            ended = _on_face(form, ended, short, begin + left, **options)
            if short(form, ended.x, ended.z) > 0.0:
                ended = _nearer(form, ended, short, request.tolerance, begin + left, **options)
            if short(form, ended.x, ended.z) > 0.0:
                pair = central_pair(form, CENTRAL * request.tolerance, begin + left)
                if pair is not None and short(form, *pair) == 0.0:
                    return RawPoint("optimal", pair[0] * columns, pair[1] * rows)
        return RawPoint(ended.status, ended.x * columns, ended.z * rows)

    return run_generic(problem, profile, request, call, quadratic=False)
