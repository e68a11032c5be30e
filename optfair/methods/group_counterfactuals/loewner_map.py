"""Route of the structure ``loewner-box``: operator splitting in the eigenbasis of the group, with a proof."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import scipy.linalg
import scipy.optimize
from numpy.typing import NDArray

from optfair.backends.request import Outcome, Request, SolverProfile, stages
from optfair.core.certificate import DualCheck, drift
from optfair.core.expressions import Values
from optfair.errors import SolverFailure
from optfair.numbers import Floats
from optfair.proofs.cones import Cone
from optfair.proofs.definiteness import definiteness
from optfair.proofs.rounding import gamma, loss

if TYPE_CHECKING:
    from optfair.core.problem import Problem
    from optfair.methods.group_counterfactuals.affine_maps import PSDMap

# Steps at most, and between checks after the first.
STEPS, EVERY, FIRST = 3_000, 10, 3
# Steps after which a gap that is small for the size of the group is enough.
PATIENT = 400
OVER = 1.6
# Rows that a check adds, and times that the step size may be balanced, by this ratio of residuals.
ADDED, BALANCED, APART = 8, 12, 8.0
# Share of the tolerance that the gap of the method itself may take.
SHARE = 0.3


@dataclass(frozen=True, eq=False)
class Split:
    """Where the method ended, in the units it was called with.

    Attributes
    ----------
    matrix : array (d, d)
        Symmetric, between the bounds.
    shift : float
        How far the mean goes along the unit vector w.
    rows, prices : array
        Members with a price, and their prices.
    force : array (d, d)
        Multiplier of both bounds: its positive part of the upper, its negative one of the lower.
    gap : float
        Cost less bound.
    steps : int
    """

    matrix: Floats
    shift: float
    rows: NDArray[np.int64]
    prices: Floats
    force: Floats
    gap: float
    steps: int


def split_map(
    covariance: Floats,
    centered: Floats,
    w: Floats,
    short: float,
    low: float,
    high: float,
    *,
    enough: float,
    deadline: float,
) -> Split:
    r"""Minimise :math:`s^2 + \operatorname{tr}((A - I) \Sigma (A - I))` over maps of a group.

    .. math::
        s + w^T A b_i \ge \tau \;\forall i, \qquad l I \preceq A \preceq u I, \qquad \|w\| = 1 .

    In the eigenbasis of Σ the cost is a sum of squares of single entries, so that a step of the
    alternating direction method of multipliers (Boyd et al. 2011) is entry by entry, with a small
    program for the prices of the rows at hand, and one eigendecomposition for the bounds. Each
    check has a feasible map, from the clipped matrix, and a bound from its prices.

    Parameters
    ----------
    covariance : array (d, d)
        Σ, positive definite.
    centered : array (n, d)
        Members minus their mean.
    w : array (d,)
        Unit vector.
    short : float
        τ.
    low, high : float
        l, u; u may be infinite.
    enough : float
        Gap to stop at, relative to the cost; in the end to the trace of Σ where that is more.
    deadline : float
        ``time.perf_counter()`` to stop at.
    """
    sizes, Q = np.linalg.eigh(covariance)
    own, v = centered @ Q, Q.T @ w
    eye, L = np.eye(v.size), sizes[:, None] + sizes
    rho, unit = 2.0 * float(np.median(L)), float(sizes.sum())
    Z, U = np.clip(1.0, low, high) * eye, np.zeros_like(L)
    rows = [int(np.argmin(own @ (Z @ v)))]
    y, left = np.zeros(1), BALANCED
    best: tuple[float, Floats, float] = (np.inf, Z, 0.0)
    bound: tuple[float, NDArray[np.int64], Floats, Floats] = (-np.inf, np.zeros(0, int), y, U)
    R = _row_matrices(own[rows], v)
    system = _system(R, L, rho)
    k = 0

    def late() -> bool:
        return time.perf_counter() > deadline

    for k in range(1, STEPS + 1):
        start = (L * eye + rho * (Z - U)) / (L + rho)
        y = _prices(system, short - np.tensordot(R, start, 2), y)
        A = start + np.tensordot(y, R, 1) / (L + rho)
        before, ahead = Z, OVER * A + (1.0 - OVER) * Z
        values, vectors = np.linalg.eigh(ahead + U)
        Z = (vectors * np.clip(values, low, high)) @ vectors.T
        U = (vectors * (values - np.clip(values, low, high))) @ vectors.T
        if k > FIRST and k % EVERY:
            continue
        reach = own @ (Z @ v)
        s = max(short - float(reach.min()), 0.0)
        cost = s * s + 0.5 * float((L * np.square(Z - eye)).sum())
        best = min(best, (cost, Z, s), key=lambda point: point[0])
        proved = _bound(L, rho * U, R, y, short, low, high)
        if proved > bound[0]:
            bound = (proved, np.array(rows), y, rho * U)
        # by the cost itself, and where that takes long by the size of the group
        gap = best[0] - bound[0]
        if gap <= enough * (best[0] if k < PATIENT else max(best[0], unit)) or late():
            break
        missing = short - 0.5 * float(y.sum()) - own @ (A @ v)
        worst = [int(i) for i in np.argsort(-missing)[:ADDED] if missing[i] > 0.0 and i not in rows]
        apart, moved = float(np.linalg.norm(A - Z)), float(np.linalg.norm(Z - before))
        factor = 1.0
        if k > FIRST and left and not worst:
            factor = 2.0 if apart > APART * moved else 0.5 if moved > APART * apart else 1.0
        if worst:
            rows += worst
            y = np.concatenate([y, np.zeros(len(worst))])
            R = _row_matrices(own[rows], v)
        if factor != 1.0:
            rho, U, left = rho * factor, U / factor, left - 1
        if worst or factor != 1.0:
            system = _system(R, L, rho)
    _, Z, s = best
    _, at, y, force = bound
    return Split(Q @ Z @ Q.T, s, at, y, Q @ force @ Q.T, best[0] - bound[0], k)


def _row_matrices(members: Floats, v: Floats) -> Floats:
    """Return the symmetric parts of v bᵀ."""
    outer = v[None, :, None] * members[:, None, :]
    return np.asarray(0.5 * (outer + outer.transpose(0, 2, 1)))


def _system(R: Floats, L: Floats, rho: float) -> tuple[Floats, Floats]:
    """Return what prices do to the rows, and its Cholesky factor."""
    flat = R.reshape(len(R), -1)
    H = (flat / (L + rho).ravel()) @ flat.T + 0.5
    H += 1e-14 * np.trace(H) * np.eye(len(H))
    return H, np.asarray(np.linalg.cholesky(H))


def _prices(system: tuple[Floats, Floats], side: Floats, y: Floats) -> Floats:
    """Return argmin ½ yᵀHy - cᵀy over y >= 0, by the rows that had a price where these do."""
    H, root = system
    used = np.flatnonzero(y > 0.0)
    if used.size:
        prices = np.zeros(y.size)
        prices[used] = np.linalg.solve(H[np.ix_(used, used)], side[used])
        slack = H @ prices - side
        if prices.min() >= 0.0 and slack.min() >= -1e-12 * (1.0 + float(np.abs(side).max())):
            return prices
    inner = scipy.linalg.solve_triangular(root, side, lower=True)
    return np.asarray(scipy.optimize.nnls(root.T, inner, maxiter=50 * len(H))[0])


def _bound(
    L: Floats, force: Floats, R: Floats, y: Floats, short: float, low: float, high: float
) -> float:
    """Return the Lagrangian bound in floats: it says when to stop."""
    values, vectors = np.linalg.eigh(force)
    up, down = np.maximum(values, 0.0), np.maximum(-values, 0.0)
    if not np.isfinite(high):
        force, up = -(vectors * down) @ vectors.T, np.zeros_like(up)
    D = force - np.tensordot(y, R, 1)
    above = high * float(up.sum()) if np.isfinite(high) else 0.0
    total = float(y.sum())
    edges = float(np.trace(D)) - above + low * float(down.sum())
    return edges - 0.5 * float((np.square(D) / L).sum()) + short * total - 0.25 * total**2


@dataclass(frozen=True, eq=False)
class LoewnerProof:
    r"""Bound from prices y of the members and multipliers of the bounds on the matrix.

    With :math:`D = \Lambda_u - \Lambda_l - \tfrac12 (w \beta^T + \beta w^T)`, :math:`\beta = \sum_i
    y_i (x_i - \mu)`, costs c of every feature, :math:`E = A - I` and any :math:`E_0`,

    .. math::
        c \operatorname{tr}(E \Sigma E) + \langle D, E \rangle \ge
        c \operatorname{tr}(E_0 \Sigma E_0) + \langle D, E_0 \rangle
        - \frac{\|c (\Sigma E_0 + E_0 \Sigma) + D\|^2}{4 c\, \lambda_{\min}(\Sigma)},

    as the left side is strongly convex; every sum is charged for its rounding, and the least
    eigenvalue is proved by a Cholesky factorisation.
    """

    problem: PSDMap
    values: Mapping[str, Floats]
    multipliers: Mapping[str, Floats]
    source: str = "duality"

    def check(self, values: Values, multipliers: Mapping[str, Any]) -> DualCheck:
        """Recompute the bound; named numbers are compared with those that prove it."""
        p, own = self.problem, self.multipliers
        apart = max(drift(values, self.values), drift(multipliers, own))
        w, d = p.normal, p.normal.size
        c, root = float(p.feature_costs[0]), p.moments.root
        centered: Floats = p.data["centered"]
        y = np.maximum(np.asarray(own["classification"], dtype=float), 0.0)
        at = np.flatnonzero(y)
        beta, total = y[at] @ centered[at], float(y.sum())
        upper, lower = (_inside(own.get(f"loewner {side}"), d) for side in ("upper", "lower"))
        D = upper - lower - 0.5 * (np.outer(w, beta) + np.outer(beta, w))
        size = np.outer(np.abs(w), y[at] @ np.abs(centered[at]))
        size = np.abs(upper) + np.abs(lower) + 0.5 * (size + size.T)
        sigma, absolute = root @ root.T, np.abs(root) @ np.abs(root).T
        least = _least(sigma, float(gamma(root.shape[1] + 2.0) * absolute.sum(axis=1).max()))
        if not least > 0.0:
            return DualCheck(-np.inf, np.inf, consistency=apart)
        sizes, Q = np.linalg.eigh(sigma)
        E = -(Q @ ((Q.T @ D @ Q) / (c * (sizes[:, None] + sizes))) @ Q.T)
        E = 0.5 * (E + E.T)
        G = c * (sigma @ E + E @ sigma) + D
        rounding = c * (absolute @ np.abs(E) + np.abs(E) @ absolute) + size
        off = float(np.linalg.norm(G)) + float(gamma(4.0 * d + at.size + 16.0)) * float(
            np.linalg.norm(rounding)
        )
        paid = off * off / (4.0 * c * least) * (1.0 + 1e-9)
        bent = c * float(np.square(E @ root).sum())
        ahead, back = p.level - float(w @ p.moments.mean), float(w @ w) * total**2 / (4.0 * c)
        edge = (0.0 if p.data["K"] is None else p.data["K"]) * float(np.trace(upper))
        floor = 0.0 if p.data["k"] is None else float(np.trace(lower)) / p.data["k"]
        bound = bent + float((D * (E + np.eye(d))).sum()) + ahead * total - back - edge + floor
        parts = bent + float((size * (np.abs(E) + np.eye(d))).sum()) + back + abs(edge) + floor
        parts += (abs(p.level) + float(np.abs(w) @ np.abs(p.moments.mean))) * total
        bound -= paid + loss(
            d * d + d + at.size, parts + c * float((np.abs(E) @ np.abs(root)).max()) ** 2
        )
        here = np.asarray(values["matrix"], dtype=float) - np.eye(d)
        turned = c * (sigma @ here + here @ sigma) + D
        unit = 1.0 + float(np.abs(D).max())
        return DualCheck(
            bound=bound,
            dual=float(np.abs(turned).max()) / unit,
            consistency=apart,
            unit=p.objective_unit,
            apart=True,
        )


def _inside(matrix: Any, d: int) -> Floats:
    """Return a matrix that is proved to be positive semidefinite, near a given one."""
    if matrix is None:
        return np.zeros((d, d))
    M = np.asarray(matrix, dtype=float)
    M = 0.5 * (M + M.T)
    cone = Cone("psd", 0, d * (d + 1) // 2, order=d)
    i, j = cone.places
    entries = M[i, j] * np.where(i == j, 1.0, np.sqrt(2.0))
    lift = float((cone.dual_point(entries) - entries)[cone.diagonal].max(initial=0.0))
    return np.asarray(M + lift * np.eye(d))


def _least(sigma: Floats, error: float) -> float:
    """Return a proved lower bound on the least eigenvalue, 0 without proof."""
    half = 0.5 * float(np.linalg.eigvalsh(sigma)[0])
    if not half > 0.0 or definiteness(sigma - half * np.eye(len(sigma))).shift != 0.0:
        return 0.0
    rounding = 4.0 * float(gamma(2.0)) * float(np.abs(sigma).sum(axis=1).max())
    return half - error - rounding


def run_loewner_map(problem: Problem, profile: SolverProfile, request: Request) -> Outcome:
    """Split, in units of the group, and prove the result in those that were declared."""
    p = cast("PSDMap", problem)
    request.refuse_options(profile)
    begin = time.perf_counter()
    w, c = p.normal, float(p.feature_costs[0])
    length, spread = float(np.linalg.norm(w)), float(np.sqrt(p.variances.mean()))
    unit = c * spread**2
    K, k = p.data["K"], p.data["k"]
    short = (p.level - float(w @ p.moments.mean)) / (length * spread)
    compiled_at = time.perf_counter()
    split = split_map(
        p.moments.covariance / spread**2,
        p.data["centered"] / spread,
        w / length,
        short,
        0.0 if k is None else 1.0 / k,
        np.inf if K is None else K,
        enough=SHARE * request.tolerance,
        deadline=request.deadline,
    )
    solved_at = time.perf_counter()
    values = {"mean": p.moments.mean + (split.shift * spread / length) * w, "matrix": split.matrix}
    values["matrix"] = 0.5 * (split.matrix + split.matrix.T)
    y = np.zeros(len(p.data["centered"]))
    y[split.rows] = split.prices * (c * spread / length)
    sizes, vectors = np.linalg.eigh(split.force * unit)
    multipliers = {"classification": y}
    for side, part in (("upper", sizes), ("lower", -sizes)):
        if f"loewner {side}" in p.constraints:
            half = vectors * np.sqrt(np.maximum(part, 0.0))
            multipliers[f"loewner {side}"] = half @ half.T
    for array in (*values.values(), *multipliers.values()):
        array.flags.writeable = False
    late = time.perf_counter() > request.deadline
    if split.steps == STEPS and not late:
        raise SolverFailure(
            "the splitting has stalled", f"a gap of {split.gap:.1e} after {split.steps} steps"
        )
    seconds = stages(begin, compiled_at, solved_at)
    proof = LoewnerProof(p, values, multipliers)
    return Outcome("time_limit" if late else "optimal", values, multipliers, proof, seconds)
