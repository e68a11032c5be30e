"""Where an alternation starts: near its end, from passes in which rows choose softly."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from optfair.backends.cone_program import solve_cone_program
from optfair.methods.fair_clustering.algorithms.costs import CostRows, typical_margin
from optfair.methods.fair_clustering.algorithms.descent import REACH
from optfair.methods.fair_clustering.algorithms.mass_program import Block, MassProgram, stacked
from optfair.methods.fair_clustering.algorithms.price_search import (
    LEAST_LOG,
    SmoothedRows,
    smoothed_prices,
    thinned,
)
from optfair.methods.fair_clustering.algorithms.pricing import MassPass
from optfair.proofs.cones import Cone
from optfair.rows.sources import Summed

Floats = NDArray[np.float64]
Integers = NDArray[np.intp]

# Rows from which it pays; rows per block of a pass.
FEWEST, BLOCK = 2_000, 4_096
# Rows that are multiplied by many others at a time: products of more are slower by far.
TILE = 15
# Temperatures in typical margins, and the relative fall of the objective at which each is left,
# or the passes; of rows that a sample went before, and the part of its mean's way that a center
# goes there.
LADDER = ((0.1, 1e-5, 120), (0.03, 3e-6, 60), (0.01, 1e-6, 200))
FINAL, FURTHER = ((0.01, 1e-6, 200),), 1.8
# The same where a search compares where centers lead: those of a swap, at prices that are nearly right,
# and those of a start, without prices.
TRIED = ((0.1, 1e-4, 8), (0.03, 1e-4, 8), (0.01, 1e-4, 12))
LOOKED = ((0.1, 1e-4, 40), *TRIED[1:])
# Distance of masses from the rules, in parts of a typical cluster, at which centers move: at
# temperature 1, and at most. So many rows choose softly, and masses must be nearer than theirs.
NEAR, NEAREST = 20.0, 0.5
# Damping of the prices' Newton steps, as a share of masses: first and least at temperature 1, most.
FIRST, LEAST, MOST = 0.5, 0.1, 10.0
# Passes that bring masses no nearer, after which centers move all the same: masses of lone rows
# follow no curvature, and wait for exact assignments.
PATIENCE = 4
# Moves that bring centers no nearer to their means, after which they no longer go beyond these; after
# as many more a temperature is left.
SWINGS = 24
# Rows that the first prices are made from.
STARTERS = 4_000
# Accuracy of a step of the prices.
STEP = 1e-8

# Moves of the centers whose steps go by the curvature of a pass before, where it is most of a pass: from
# so many clusters on.
STALE, MANY = 2, 16


@dataclass(frozen=True, eq=False)
class SmoothedStart:
    """Centers (K, d), prices (G, K), passes, how often centers moved, and whether Ctrl-C ended it.

    The value is that of the last temperature, near the optimum at these centers; infinite where
    masses are far from the rules, as it says nothing then.
    """

    centers: Floats
    prices: Floats
    moves: int
    value: float
    passes: int
    interrupted: bool = False


def smoothed_start(
    program: MassProgram,
    costs: CostRows,
    *,
    tol: float,
    max_iter: int,
    prices: Floats | None = None,
    brief: bool = False,
    fewest: int | None = None,
    deadline: float = np.inf,
) -> SmoothedStart | None:
    """Return where `soft_descent` leads on rows in memory, from the centers of their costs.

    None where rows are too few, there are no rules, or a step fails.

    Parameters
    ----------
    program : MassProgram
        The rules.
    costs : CostRows
        Rows, metric "sqeuclidean", at the centers to start from.
    prices : array (G, K), optional
        Prices that are nearly right: a short way on is enough.
    brief : bool
        Whether nothing is needed but how low centers lead, within some thousandths.
    fewest : int, optional
        Rows from which it pays.
    tol, max_iter, deadline
        As of `soft_descent`.
    """
    if costs.size < (fewest or FEWEST) or max_iter < 2 or not program.form.b.size:
        return None
    ladder, nothing = TRIED, np.zeros(program.masses.shape)
    if prices is None and brief:
        ladder, prices = LOOKED, nothing
    elif prices is None:
        ladder, few = LADDER, thinned(costs, STARTERS)
        near = smoothed_prices(
            program, few, lambda tau: SmoothedRows(few, tau), few.size, nothing, deadline=deadline
        )
        prices = None if near is None else near[0]
    if prices is None:
        return None
    X, w = costs.cost.points[costs.rows], costs.weights
    scale = Scale.of(X, w)
    return soft_descent(
        program,
        SoftRows(X, costs.groups, w, scale).at,
        scale,
        costs.cost.centers,
        prices,
        typical_margin(costs),
        ladder,
        tol=tol,
        max_iter=max_iter,
        deadline=deadline,
    )


@dataclass(frozen=True, eq=False)
class Scale:
    """Middle of rows and the size of their deviations: what makes them fit single precision."""

    middle: Floats
    unit: float

    @classmethod
    def of(cls, X: Floats, weights: Floats) -> Scale:
        """Return the scale of rows."""
        middle = weights @ X / weights.sum()
        spread = float(weights @ np.square(X - middle).sum(axis=1) / weights.sum())
        return cls(middle, float(np.sqrt(spread)) or 1.0)


@dataclass(frozen=True, eq=False)
class SoftSums(Summed):
    """Value, masses and curvature over τ, and Σ w R x of each cluster (K, d), about the middle."""

    mass: MassPass
    sums: Floats


#: (centers, prices, τ), in the unit of the rows -> sums over all rows
SoftOracle = Callable[[Floats, Floats, float, bool], SoftSums]


class SoftRows:
    """Rows about a middle, in a unit and in single precision.

    Parameters
    ----------
    X : array (n, d)
    groups : array (n,) of int
        Groups of the rows, which are ordered by them.
    weights : array (n,)
    scale : Scale
    """

    def __init__(self, X: Floats, groups: Integers, weights: Floats, scale: Scale) -> None:
        self.weights, root = weights, np.sqrt(weights).astype(np.float32)
        self.across = np.ones((X.shape[1] + 1, len(X)), dtype=np.float32)
        own = self.across[:-1]
        np.subtract(X.T, scale.middle[:, None], out=own, casting="same_kind")
        own *= np.float32(1.0 / scale.unit)
        self.size = float(np.einsum("ij,ij->j", own, own) @ weights)
        self.root = root
        present, first = np.unique(groups, return_index=True)
        self.pieces = [
            (int(g), start, min(start + BLOCK, stop))
            for g, own, stop in zip(present, first, [*first[1:].tolist(), len(X)], strict=True)
            for start in range(int(own), stop, BLOCK)
        ]

    def at(self, centers: Floats, prices: Floats, tau: float, curved: bool = True) -> SoftSums:
        """Return the sums at given centers and prices, if asked for without their curvature."""
        (G, K), d = prices.shape, centers.shape[1]
        value, size = -self.size / tau, K + d + 1
        products, room = np.zeros((G, K, size)), np.empty(size * BLOCK, dtype=np.float32)
        tiles = [slice(first, min(first + TILE, K)) for first in range(0, K, TILE)]
        norms, maps = np.square(centers).sum(axis=1), np.empty((G, K, d + 1), dtype=np.float32)
        maps[:, :, :-1], maps[:, :, -1] = 2.0 / tau * centers, (norms + prices) / -tau
        logs = np.empty(self.weights.size)
        for g, start, stop in self.pieces:
            both = room[: size * (stop - start)].reshape(size, -1)
            S = both[:K]
            for tile in tiles:
                np.matmul(maps[g, tile], self.across[:, start:stop], out=S[tile])
            top = S.max(axis=0)
            S -= top
            np.maximum(S, np.float32(LEAST_LOG), out=S)
            np.exp(S, out=S)
            total = S.sum(axis=0)
            logs[start:stop] = top + np.log(total)
            S *= self.root[start:stop] / total
            np.multiply(self.across[:, start:stop], self.root[start:stop], out=both[K:])
            for tile in tiles:
                # one more across: products of rows by themselves take another way, a slow one
                for first in range(tile.start if curved else K, size, TILE + 1):
                    others = slice(first, first + TILE + 1)
                    products[g, tile, others] += S[tile] @ both[others].T
        value += float(self.weights @ logs)
        sums, upper = products[:, :, K:], np.triu(products[:, :, :K])
        masses, diagonal = sums[:, :, -1].copy(), np.arange(K)
        curvature = -upper - np.triu(upper, 1).transpose(0, 2, 1)
        curvature[:, diagonal, diagonal] += masses
        return SoftSums(
            MassPass(value, masses, curvature if curved else None), sums[:, :, :-1].sum(axis=0)
        )


def soft_descent(
    program: MassProgram,
    oracle: SoftOracle,
    scale: Scale,
    centers: Floats,
    prices: Floats,
    margin: float,
    ladder: tuple[tuple[float, float, int], ...],
    *,
    tol: float,
    max_iter: int,
    reach: float = REACH,
    deadline: float = np.inf,
) -> SmoothedStart | None:
    r"""Return centers and prices near those of an alternation of exact assignments and means.

    .. math::
        \min_\mu \max_\Lambda\; -\tau \sum_i w_i \log \sum_k e^{-(\|x_i - \mu_k\|^2 +
        \Lambda_{g_i k})/\tau} + \min_M \{h(M) - \langle\Lambda, M\rangle : \text{rules}\}

    at low temperatures τ. One pass gives masses, their curvature and means: prices take a
    damped Newton step, and centers move beyond their means, in the same pass where masses are near
    the rules. Passes are in single precision, as nothing is proved here. Ctrl-C ends it with what
    it has. None where a step fails.

    Parameters
    ----------
    program : MassProgram
        The rules.
    oracle : callable
        Makes the passes, in the unit of ``scale``.
    scale : Scale
    centers, prices : arrays (K, d), (G, K)
        Where to start.
    margin : float
        Typical margin between a row's two cheapest clusters.
    ladder : tuple of (temperature in margins, relative fall that ends it, most passes)
    tol : float
        Relative fall of the objective at which the alternation will end.
    max_iter : int
        Moves of the centers.
    reach : float
        Part of its mean's way that a center goes.
    deadline : float
        ``time.perf_counter()`` value.
    """
    if not margin > 0.0:
        return None
    search = _Search(program, oracle, scale, centers, prices, max_iter, reach, deadline)
    interrupted, unit = False, scale.unit
    try:
        for share, fall, most in ladder:
            if time.perf_counter() > deadline:
                break
            if not search.descend(margin, share, max(tol, fall), most):
                return None
    except KeyboardInterrupt:
        interrupted = True
    return SmoothedStart(
        search.centers * unit + scale.middle,
        search.prices * unit**2,
        search.moves,
        np.inf if search.apart else search.value * unit**2,
        search.passes,
        interrupted,
    )


class _Search:
    """Prices and centers as they move, in the unit of the rows."""

    def __init__(
        self,
        program: MassProgram,
        oracle: SoftOracle,
        scale: Scale,
        centers: Floats,
        prices: Floats,
        most: int,
        reach: float,
        deadline: float,
    ) -> None:
        self.program, self.oracle, self.unit = program, oracle, scale.unit**2
        self.centers = (centers - scale.middle) / scale.unit
        self.prices = prices / self.unit
        self.most, self.reach, self.deadline = most, reach, deadline
        self.moves, self.passes, self.value, self.apart = 0, 0, np.inf, True
        self.curvature, self.stale = np.zeros(0), 0

    def descend(self, margin: float, share: float, fall: float, passes: int) -> bool:
        """Move prices and centers at one temperature until the objective falls by so little."""
        tau, hot, y, z = self._at(share * margin)
        damping = FIRST * share
        mass, sums = self._pass(self.prices, tau)
        most, near = self.passes + passes, min(NEAR * share, NEAREST) / self.prices.shape[1]
        most_apart = near
        least, resting, reach, shortest, swings = np.inf, 0, self.reach, np.inf, 0
        while self.passes < most and self.moves < self.most:
            if time.perf_counter() > self.deadline:
                return True
            if z is not None:
                self.value = tau * (hot.rule_bound(y, z) - mass.value)
            step = self._step(hot, mass, z, tau, damping)
            if step is None:
                return False
            y_new, z_new, distance = step
            self.apart = distance > most_apart
            prices = hot.prices(y_new, z_new) * tau
            resting, least = (0, distance) if distance < 0.9 * least else (resting + 1, least)
            if resting == PATIENCE:
                near = max(near, 1.1 * distance)
            if distance > near:
                ahead, beyond = self._pass(prices, tau)
                reached = tau * (hot.rule_bound(y_new, z_new) - ahead.value)
                if z is not None and reached <= self.value:
                    damping *= 5.0  # further than the curvature reaches
                    if damping > MOST:
                        return True
                    continue
                mass, sums, damping = ahead, beyond, max(damping / 3.0, LEAST * share)
            else:
                own = mass.masses.sum(axis=0)[:, None]
                means = np.where(own > 1e-9, sums / np.maximum(own, 1e-12), self.centers)
                fell = float((own * np.square(means - self.centers)).sum())
                cost = -(mass.value * tau + float((self.prices * mass.masses).sum()))
                self.centers = self.centers + reach * (means - self.centers)
                swings, shortest = (0, fell) if fell < 0.9 * shortest else (swings + 1, shortest)
                ended = swings == SWINGS and reach == 1.0
                if swings == SWINGS:
                    reach, swings = 1.0, 0
                self.moves, resting, least = self.moves + 1, 0, np.inf
            known = z is not None
            y, z, self.prices = y_new, z_new, prices
            if distance <= near:
                if ended or (known and fell <= fall * abs(cost)):
                    return True
                damping = max(damping / 2.0, LEAST * share)
                curved = self.stale >= STALE or len(self.centers) < MANY
                mass, sums = self._pass(self.prices, tau, curved)
        return True

    def _at(self, temperature: float) -> tuple[float, MassProgram, Floats, Floats | None]:
        """Return τ, the program in its unit, and masses and multipliers to begin with."""
        tau, hot = temperature / self.unit, self.program.heated(temperature)
        return tau, hot, np.zeros(hot.form.q.size), self._multipliers(hot, tau)

    def _pass(self, prices: Floats, tau: float, curved: bool = True) -> tuple[MassPass, Floats]:
        self.passes += 1
        soft = self.oracle(self.centers, prices, tau, curved)
        if soft.mass.curvature is not None:
            self.curvature, self.stale = soft.mass.curvature, 0
        else:
            self.stale += 1
        return soft.mass, soft.sums

    def _multipliers(self, hot: MassProgram, tau: float) -> Floats | None:
        """Return multipliers of equations whose prices are the nearest to those at hand."""
        if not hot.only_equations:
            return None
        z = hot.multipliers(self.prices / tau)
        self.prices = hot.prices(np.zeros(hot.form.q.size), z) * tau
        return z

    def _step(
        self, hot: MassProgram, mass: MassPass, z: Floats | None, tau: float, damping: float
    ) -> tuple[Floats, Floats, float] | None:
        """Return masses and multipliers of a damped step, and how far masses are from the rules."""
        G, K = mass.masses.shape
        own = np.maximum(mass.masses, hot.shares[:, None] / K)
        curved = self.curvature + damping * own[:, :, None] * np.eye(K)
        form = hot.form
        if z is None or not hot.only_equations:
            solved = self._solved(hot, mass.masses, curved, tau)
            if solved is None:
                return None
            apart = mass.masses - solved[0][hot.masses]
            return *solved, float(np.abs(apart / hot.shares[:, None]).max())
        y = np.zeros(form.q.size)
        y[hot.masses] = mass.masses
        B, groups = hot.own_rows, np.arange(G)  # of few masses each
        of_groups = np.zeros((G, K, G, K))
        of_groups[groups, :, groups, :] = curved
        newton = B @ (B @ of_groups.reshape(G * K, G * K)).T
        newton[np.diag_indices(len(newton))] += 1e-9 * np.trace(newton)
        left = form.A @ y - form.b
        return y, z + np.linalg.solve(newton, left), float(np.abs(left).max())

    def _solved(
        self, hot: MassProgram, masses: Floats, curved: Floats, tau: float
    ) -> tuple[Floats, Floats] | None:
        """Return masses and multipliers of a damped step under any rules, from a cone program.

        Curvature that is damped has an inverse, so the masses are all that it needs.
        """
        form, (G, K) = hot.form, masses.shape
        inverse = np.asarray(np.linalg.inv(curved), dtype=float)
        inverse = 0.5 * (inverse + inverse.transpose(0, 2, 1))
        q, own = form.q.copy(), hot.masses
        q[own] -= self.prices / tau + (inverse @ masses[:, :, None])[:, :, 0]
        row, column = np.repeat(own, K), np.repeat(own, K, axis=0).ravel()
        quadratic = Block(row, column, inverse.ravel(), form.q.size)
        simplex, shares = hot.simplex, hot.shares
        cones = tuple(replace(c, start=c.start + G, stop=c.stop + G) for c in form.cones)
        result = solve_cone_program(
            form.P + stacked((quadratic,), form.q.size),
            q,
            stacked((simplex, hot.rules[0]), form.q.size),
            np.concatenate([shares, form.b]),
            (Cone("zero", 0, G), *cones),
            tolerance=STEP,
        )
        return (result.x, result.z[G:]) if result.status == "optimal" else None
