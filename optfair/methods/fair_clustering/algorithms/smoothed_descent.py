"""Centers near a fair clustering from rows that choose softly: what the first iterations of a fit need."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from optfair.methods.fair_clustering.algorithms.costs import CostRows
from optfair.methods.fair_clustering.algorithms.entropic_projection import (
    only_equations,
    price_step,
)
from optfair.methods.fair_clustering.algorithms.log_rows import MassPass
from optfair.methods.fair_clustering.algorithms.mass_program import MassProgram
from optfair.methods.fair_clustering.algorithms.smoothed_prices import (
    SmoothedRows,
    smoothed_prices,
    thinned,
    typical_margin,
)

Floats = NDArray[np.float64]

# Rows from which it pays; rows per block of a pass; passes at most.
FEWEST, BLOCK, PASSES = 2_000, 4_096, 200
# Temperatures in typical margins, and the relative fall of the objective at which each is left.
LADDER = ((0.1, 1e-5), (0.03, 3e-6))
# Distance of masses from the rules, in fractions of groups, at which centers move.
NEAR = 0.02
# Part of its mean's way that a center goes beyond it; the same in the exact iterations after.
REACH = 1.5
# Damping of the prices' Newton steps, as a share of masses: first, least and most.
FIRST, LEAST, MOST = 0.05, 0.01, 10.0
# Rows that the first prices are made from.
STARTERS = 4_000
# A box of prices that is none: damping bounds the steps.
WIDE = 1e3


@dataclass(frozen=True, eq=False)
class SmoothedStart:
    """Centers (K, d), prices (G, K), and the number of times that centers moved."""

    centers: Floats
    prices: Floats
    moves: int


def smoothed_descent(
    program: MassProgram,
    costs: CostRows,
    *,
    tol: float,
    max_iter: int,
    deadline: float = np.inf,
) -> SmoothedStart | None:
    r"""Return centers and prices near those of an alternation of exact assignments and means.

    .. math::
        \min_\mu \max_\Lambda\; -\tau \sum_i w_i \log \sum_k e^{-(\|x_i - \mu_k\|^2 +
        \Lambda_{g_i k})/\tau} + \min_M \{h(M) - \langle\Lambda, M\rangle : \text{rules}\}

    at two low temperatures τ. One pass gives masses, their curvature and means: prices take a
    damped Newton step, and centers move beyond their means, in the same pass where masses are near
    the rules. Passes are in single precision, as nothing is proved here. None where rows are too
    few, there are no rules, or their step fails.

    Parameters
    ----------
    program : MassProgram
        The rules.
    costs : CostRows
        Rows, metric "sqeuclidean", at the centers to start from.
    tol : float
        Relative fall of the objective at which the alternation will end.
    max_iter : int
        Moves of the centers.
    deadline : float
        ``time.perf_counter()`` value.
    """
    if costs.size < FEWEST or max_iter < 2 or not program.form.b.size:
        return None
    margin = typical_margin(costs)
    few = thinned(costs, STARTERS)
    nothing = np.zeros(program.masses.shape)
    prices = smoothed_prices(
        program, few, lambda tau: SmoothedRows(few, tau), few.size, nothing, deadline=deadline
    )
    if prices is None or not margin > 0.0:
        return None
    search = _Search(program, _Rows(costs), prices, min(max_iter, PASSES), deadline)
    for share, fall in LADDER:
        if not search.descend(share * margin, max(tol, fall)):
            return None
    rows = search.rows
    return SmoothedStart(
        search.centers * rows.unit + rows.middle, search.prices * rows.unit**2, search.moves
    )


class _Rows:
    """Rows about their mean, in their own unit and single precision, ordered by group."""

    def __init__(self, costs: CostRows) -> None:
        X, w = costs.cost.points[costs.rows], costs.weights
        self.weights, self.middle = w, w @ X
        X = X - self.middle
        self.unit = float(np.sqrt(w @ np.square(X).sum(axis=1))) or 1.0
        X /= self.unit
        self.size = float(w @ np.square(X).sum(axis=1))
        root = np.sqrt(w)
        self.root = root.astype(np.float32)
        self.across = np.ones((X.shape[1] + 1, len(X)), dtype=np.float32)
        self.across[:-1] = X.T
        self.along = np.ascontiguousarray((self.across * root).T, dtype=np.float32)
        self.pieces = [
            (g, int(start), min(int(start) + BLOCK, int(own[-1]) + 1))
            for g in range(costs.group_count)
            if (own := costs.members(g)).size
            for start in range(int(own[0]), int(own[-1]) + 1, BLOCK)
        ]
        self.begin = (costs.cost.centers - self.middle) / self.unit

    def at(self, centers: Floats, prices: Floats, tau: float) -> tuple[MassPass, Floats]:
        """Return value, masses and curvature over τ, and Σ w R x of each cluster."""
        (G, K), d = prices.shape, centers.shape[1]
        value, sums = -self.size / tau, np.zeros((G, K, d + 1))
        curved = np.zeros((G, K, K))
        norms = np.square(centers).sum(axis=1)
        for g, start, stop in self.pieces:
            map_ = np.hstack([2.0 * centers, -(norms + prices[g])[:, None]]) / tau
            S = map_.astype(np.float32) @ self.across[:, start:stop]
            top = S.max(axis=0)
            S -= top
            np.exp(S, out=S)
            total = S.sum(axis=0)
            value += float(self.weights[start:stop] @ (top + np.log(total)))
            S *= self.root[start:stop] / total
            sums[g] += S @ self.along[start:stop]
            curved[g] -= S @ S.T
        masses = sums[:, :, -1].copy()
        diagonal = np.arange(K)
        curved[:, diagonal, diagonal] += masses
        return MassPass(value, masses, curved), sums[:, :, :-1].sum(axis=0)


class _Search:
    """Prices and centers as they move, in the unit of the rows."""

    def __init__(
        self, program: MassProgram, rows: _Rows, prices: Floats, most: int, deadline: float
    ) -> None:
        self.program, self.rows, self.centers = program, rows, rows.begin
        self.prices = prices / rows.unit**2
        self.most, self.deadline, self.moves, self.passes = most, deadline, 0, 0
        form, at = program.form, program.masses.ravel()
        self.equations = form.A.toarray()[:, at] if only_equations(program) else None

    def descend(self, temperature: float, fall: float) -> bool:
        """Move prices and centers at one temperature until the objective falls by so little."""
        unit = self.rows.unit**2
        tau, form = temperature / unit, self.program.form
        hot = replace(
            self.program, form=replace(form, P=form.P / temperature, q=form.q / temperature)
        )
        damping, z, y = FIRST, self._multipliers(hot, tau), np.zeros(form.q.size)
        found, sums = self._pass(self.prices, tau)
        while self.passes < PASSES and self.moves < self.most:
            if time.perf_counter() > self.deadline:
                return True
            step = self._step(hot, found, z, tau, damping)
            if step is None:
                return False
            y_new, z_new, distance = step
            prices = hot.prices(y_new, z_new) * tau
            if distance > NEAR:
                ahead, beyond = self._pass(prices, tau)
                before = None if z is None else hot.rule_bound(y, z) - found.value
                if before is not None and hot.rule_bound(y_new, z_new) - ahead.value <= before:
                    damping *= 5.0  # further than the curvature reaches
                    if damping > MOST:
                        return True
                    continue
                found, sums, damping = ahead, beyond, max(damping / 3.0, LEAST)
            else:
                own = found.masses.sum(axis=0)[:, None]
                means = np.where(own > 1e-9, sums / np.maximum(own, 1e-12), self.centers)
                fell = float((own * np.square(means - self.centers)).sum())
                cost = -(found.value * tau + float((self.prices * found.masses).sum()))
                self.centers = self.centers + REACH * (means - self.centers)
                self.moves += 1
            y, z, self.prices = y_new, z_new, prices
            if distance <= NEAR:
                if fell <= fall * abs(cost):
                    return True
                damping = max(damping / 2.0, LEAST)
                found, sums = self._pass(self.prices, tau)
        return True

    def _pass(self, prices: Floats, tau: float) -> tuple[MassPass, Floats]:
        self.passes += 1
        return self.rows.at(self.centers, prices, tau)

    def _multipliers(self, hot: MassProgram, tau: float) -> Floats | None:
        """Return multipliers of equations whose prices are the nearest to those at hand."""
        if self.equations is None:
            return None
        form = hot.form
        own = self.prices / tau - form.q[hot.masses]
        z = np.asarray(np.linalg.lstsq(self.equations.T, own.ravel(), rcond=None)[0])
        self.prices = hot.prices(np.zeros(form.q.size), z) * tau
        return z

    def _step(
        self, hot: MassProgram, found: MassPass, z: Floats | None, tau: float, damping: float
    ) -> tuple[Floats, Floats, float] | None:
        """Return masses and multipliers of a damped step, and how far masses are from the rules."""
        G, K = found.masses.shape
        own = np.maximum(found.masses, hot.shares[:, None] / K)
        curved = np.asarray(found.curvature) + damping * own[:, :, None] * np.eye(K)
        form = hot.form
        if self.equations is None or z is None:
            held = MassPass(found.value, found.masses, curved)
            step = price_step(hot, held, self.prices / tau, WIDE, z)
            if step is None:
                return None
            apart = (found.masses - step.y[hot.masses]) / hot.shares[:, None]
            return step.y, step.z, float(np.abs(apart).max())
        y = np.zeros(form.q.size)
        y[hot.masses] = found.masses
        B = self.equations
        half = np.einsum("rgk,gkl->rgl", B.reshape(-1, G, K), curved).reshape(len(B), -1)
        newton = half @ B.T
        newton[np.diag_indices(len(B))] += 1e-9 * np.trace(newton)
        left = form.A @ y - form.b
        return y, z + np.linalg.solve(newton, left), float(np.abs(left).max())
