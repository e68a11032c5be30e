"""The projection of responsibilities on rules of their masses, through the prices of the masses."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import solveh_banded
from scipy.sparse.csgraph import reverse_cuthill_mckee

from optfair.backends.cone_program import solve_cone_program
from optfair.methods.fair_clustering.algorithms.mass_program import Block, MassProgram, stacked
from optfair.methods.fair_clustering.algorithms.pricing import LogRows, MassOracle, MassPass, Round
from optfair.methods.fair_clustering.algorithms.rules_by_need import solve_by_need
from optfair.numbers import Floats, Indices
from optfair.proofs.cones import Cone

# One step of the prices: the rules against a quadratic model of the rows, in a box of prices.


# Least damping of the equations' Newton matrix, relative to its trace. Equations up to which it is
# held in full.
RANK, FULL = 1e-14, 64


@dataclass(frozen=True, eq=False)
class PriceStep:
    """Masses, auxiliaries and multipliers of the model.

    Attributes
    ----------
    y, z : arrays
        Masses and auxiliaries, and the multipliers of the rules.
    inside : bool
        Whether the box of prices was not active: the step is Newton's.
    """

    y: Floats
    z: Floats
    inside: bool


def price_step(
    program: MassProgram,
    point: MassPass,
    prices: Floats,
    radius: float,
    z: Floats | None,
    time_limit: float = np.inf,
) -> PriceStep | None:
    r"""Maximise the dual with the rows' part replaced by its quadratic model, None if that fails.

    .. math::
        \min_{M, d, s}\; h(M) - \langle\hat\Lambda, M\rangle + \tfrac12 d^T H d + r \|s\|_1
        \quad\text{s.t.}\quad M = \hat M - H d + s,\; \text{rules}(M),\; M 1 = \pi,\; s \text{ free}

    The multiplier of the definition of M is the step of the prices, and r bounds it: the dual
    of a slack is a box. So the model has a solution however far the masses are from the rules.
    Signs of M are left out: masses of responsibilities have them anyway, and their multipliers
    are no part of the prices, which they would leave undetermined where a rule forces a 0.

    Parameters
    ----------
    program : MassProgram
        The rules.
    point : MassPass
        Masses and curvature at the current prices.
    prices : array (G, K)
        Current prices.
    radius : float
        Half the side of the box.
    z : array or None
        Multipliers of the rules whose prices are the current ones, where they are known; of
        inequalities about these.
    time_limit : float
        Seconds.
    """
    if program.only_equations:
        return _equations(program, point, radius, z)
    deadline = time.perf_counter() + time_limit

    def solve(rules: MassProgram) -> PriceStep | None:
        # without rules there is nothing to price
        if not rules.form.b.size and rules.only_equations and np.abs(prices).max() <= radius:
            return _equations(rules, point, radius, None)
        return _model(rules, point, prices, radius, max(deadline - time.perf_counter(), 1e-3))

    return solve_by_need(program, solve, point.masses, z)


def _blocks(point: MassPass) -> Any:
    """Return the curvature of the groups as one matrix."""
    curved = np.asarray(point.curvature)
    G, K = curved.shape[:2]
    rows = np.repeat(np.arange(G * K).reshape(G, K), K, axis=0)  # blocks are symmetric
    return sp.csc_array((curved.ravel(), rows.ravel(), K * np.arange(G * K + 1)))


def _equations(
    program: MassProgram, point: MassPass, radius: float, z: Floats | None
) -> PriceStep | None:
    """Newton's step where all rules are equations: a linear system, no solver.

    The prices are linear in z there, and the dual is smooth in z.
    """
    form = program.form
    z = np.zeros(form.b.size) if z is None else z
    y = np.zeros(form.q.size)
    y[program.masses] = point.masses
    if not form.b.size:
        return PriceStep(y, z, True)
    B = program.own_rows
    if len(form.b) <= FULL:
        G, K = program.masses.shape
        own = B.toarray().reshape(-1, G, K).transpose(1, 0, 2)
        half = (own @ np.asarray(point.curvature)).transpose(1, 0, 2).reshape(B.shape)
        newton = _Damped(half @ B.T)
    else:
        newton = _Damped(sp.csr_array(B @ _blocks(point) @ B.T))
    # equations may follow from others, and rows that are all but hard have no curvature
    damping, inside = newton.trace * RANK, True
    left = form.A @ y - form.b
    while True:
        step = newton.solved(damping, left)
        moved = float(np.abs(B.T @ step).max())
        if moved <= radius:
            return PriceStep(y, z + step, inside)
        # where nothing curves, a step is as long as its damping is small
        inside, damping = False, max(16.0, moved / radius) * damping


class _Damped:
    """A positive semidefinite matrix that gets something on its diagonal, sparse ones in a narrow band."""

    def __init__(self, matrix: Any) -> None:
        n = matrix.shape[0]
        self.trace = max(float(matrix.trace()), np.finfo(float).tiny)
        if isinstance(matrix, np.ndarray):
            self.order = np.arange(n)
            row, column = np.triu_indices(n)
            data, offset = matrix[row, column], column - row
        else:
            self.order = reverse_cuthill_mckee(matrix, symmetric_mode=True)
            entries = sp.coo_array(matrix[self.order][:, self.order])
            upper = entries.col >= entries.row
            column, data = entries.col[upper].astype(np.intp), entries.data[upper]
            offset = column - entries.row[upper]
        width = int(offset.max(initial=0))
        self.band = np.zeros((width + 1, n))
        self.band[width - offset, column] = data

    def solved(self, damping: float, right: Floats) -> Floats:
        """Return the solution, with more damping where rounding leaves no positive matrix."""
        band, result = self.band.copy(), np.zeros(right.size)
        while np.isfinite(damping):
            band[-1] = self.band[-1] + damping
            try:
                result[self.order] = solveh_banded(band, right[self.order], check_finite=False)
                break
            except np.linalg.LinAlgError:
                damping *= 16.0
        return result


def _model(
    program: MassProgram, point: MassPass, prices: Floats, radius: float, time_limit: float
) -> PriceStep | None:
    """Solve the model as a cone program in (y, d, s+, s-), rows of a group in group fractions."""
    form = program.form
    G, K = program.masses.shape
    gk, ny = G * K, form.q.size
    size, slacks = ny + 3 * gk, 2 * gk
    unit = np.repeat(program.shares, K)  # small groups count as much as large ones
    position, own = program.masses.ravel(), np.arange(gk)
    row, column = np.repeat(own, K), np.repeat(own.reshape(G, K), K, axis=0).ravel()
    curved, ones = np.asarray(point.curvature).ravel(), np.ones(gk)
    definition = Block(
        np.concatenate([own, row, own, own]),
        np.concatenate([position, ny + column, ny + gk + own, ny + slacks + own]),
        np.concatenate([1.0 / unit, curved / unit[row], -ones, ones]),
        gk,
    )
    simplex, shares = program.simplex, program.shares
    simplex = simplex._replace(value=simplex.value / shares[simplex.row])
    signs = Block(np.arange(slacks), ny + gk + np.arange(slacks), -np.ones(slacks), slacks)
    quadratic = Block(row, ny + column, curved, gk + slacks)
    q = np.zeros(size)
    q[:ny] = form.q
    q[position] -= prices.ravel()
    q[ny + gk :] = radius * np.tile(unit, 2)
    equal = gk + G
    shift = equal + slacks
    cones = (
        Cone("zero", 0, equal),
        Cone("nonneg", equal, shift),
        *(
            Cone(c.kind, c.start + shift, c.stop + shift, c.order, c.upper, c.power)
            for c in form.cones
        ),
    )
    result = solve_cone_program(
        stacked((Block.of(form.P), quadratic), size),
        q,
        stacked((definition, simplex, signs, program.rules[0]), size),
        np.concatenate([point.masses.ravel() / unit, np.ones(G), np.zeros(slacks), form.b]),
        cones,
        time_limit=time_limit,
    )
    if result.status != "optimal":
        return None
    slack = result.x[ny + gk :].max(initial=0.0)
    return PriceStep(result.x[:ny], result.z[shift:], bool(slack <= 1e-9))


# The projection of responsibilities on rules of their masses, through the prices of the masses.


logger = logging.getLogger("optfair")

STEPS, FEW_STEPS = 200, 30
# Box of the first step in nats: beyond a few, the curvature says little.
RADIUS, WIDEST, NARROWEST = 4.0, 1e6, 1e-12
# Shares of the gain the model promised below and above which the box shrinks or grows.
POOR, GOOD = 1e-3, 0.5
# Steps without a smaller distance after which only rounding is left.
PATIENCE = 4
# Fall of the distance, below this one, at which a rough search ends: what is left are lone rows.
SLOW, LONE = 0.9, 3e-3
# Distance at which a search has failed, that at which softer rows are near enough, the factor from
# one temperature to the next, and so many of these at most.
LOOSE, SOFT, COOLED, TEMPERATURES = 1e-8, 1e-3, 4.0, 24
# Relative size of a gain of the bound that the cone program's own accuracy hides.
ROUNDING = 1e-11


@dataclass(frozen=True, eq=False)
class EntropicProjection:
    r"""Prices and bound found.

    Attributes
    ----------
    prices : array (G, K)
        Λ: the responsibilities of any row are softmax of its log densities less Λ of its group.
    value : float
        Dual value :math:`-F(\Lambda) + \min_M\{h(M) - \langle\Lambda, M\rangle\}`, a lower bound;
        for log responsibilities (whose exponentials sum to 1 in each row) on the divergence.
    masses : array (G, K)
        Masses of the responsibilities at these prices.
    y, z : arrays
        Masses and auxiliaries of the rules, and their multipliers: ``program.prices(y, z)`` = Λ.
    distance : float
        Largest distance of the masses from ones that satisfy the rules, as a fraction of the
        group.
    status : str
        optimal, stalled, time_limit or interrupted.
    history : list of Round
        One for each step: all rows and arcs, ``slack`` the distance, ``gap`` that of the
        responsibilities at these prices, which the rules may still exclude.
    """

    prices: Floats
    value: float
    masses: Floats
    y: Floats
    z: Floats
    distance: float
    status: str
    history: list[Round] = field(default_factory=list)


def project(
    log_prob: Floats,
    labels: Indices,
    weights: Floats,
    program: MassProgram,
    *,
    prices: Floats | None = None,
    tolerance: float = 1e-10,
    deadline: float = np.inf,
    report: Callable[[Round], None] | None = None,
) -> EntropicProjection:
    r"""Project responsibilities on rules of their group masses, for rows in memory.

    .. math::
        \min_R\; \sum_{ik} w_i R_{ik} (\log R_{ik} - \ell_{ik}) + h(M(R))
        \quad\text{s.t.}\quad R 1 = 1,\; \text{rules on } M

    Parameters
    ----------
    log_prob : array (n, K)
        Log joint densities or log responsibilities ℓ.
    labels, weights : arrays (n,)
        Group index and weight (total 1) of each row.
    program : MassProgram
        Rules and mass objective.
    prices : array (G, K), optional
        Prices to start from, e.g. those of the previous call.
    tolerance, deadline, report
        As of `project_masses`.
    """
    rows = LogRows(log_prob, labels, weights, program.shares.size)
    return project_masses(
        rows,
        program,
        prices=prices,
        tolerance=tolerance,
        deadline=deadline,
        report=report,
        size=labels.size,
    )


def project_masses(
    oracle: MassOracle,
    program: MassProgram,
    *,
    prices: Floats | None = None,
    tolerance: float = 1e-10,
    deadline: float = np.inf,
    report: Callable[[Round], None] | None = None,
    size: int = 0,
    rough: bool = False,
    z: Floats | None = None,
) -> EntropicProjection:
    r"""Project responsibilities through an oracle that makes the passes over the rows.

    Newton's method on the G·K prices, in a box of prices that grows and shrinks with the
    success of the steps. The dual

    .. math:: q(\Lambda) = -F(\Lambda) + \min_M \{h(M) - \langle\Lambda, M\rangle : \text{rules}\}

    is smooth in its first part and the rules' own cone program in the second; each step replaces
    F by its quadratic model and keeps the rules as they are.

    Parameters
    ----------
    oracle : callable
        (prices (G, K), whether the curvature is wanted) -> `MassPass` over all rows.
    program : MassProgram
        Rules and mass objective.
    prices : array (G, K), optional
        Prices to start from; zero by default.
    tolerance : float
        Distance of the masses from ones that satisfy the rules, as a fraction of the group, at
        which the search ends.
    deadline : float
        ``time.perf_counter()`` value after which no new pass starts.
    report : callable, optional
        Called after each step.
    size : int
        Number of rows, for the report.
    rough : bool
        End where the masses are that near, though the prices may still be far: of clusters that
        hold next to nothing they are. So do 30 steps.
    z : array, optional
        Multipliers of the rules at about these prices: they say which rules have prices.
    """
    search = _Search(oracle, program, tolerance, deadline, report, size)
    search.rough, search.z = rough, z
    try:
        status = search.run(np.zeros(program.masses.shape) if prices is None else prices)
        if status == "stalled" and not rough and search.distance > LOOSE:
            search, status = _cooled(search)
    except KeyboardInterrupt:
        if search.best is None:
            raise
        status = "interrupted"
    return search.result(status)


def _cooled(stalled: _Search) -> tuple[_Search, str]:
    r"""Search again from the prices of softer rows; return how, or as it was where that is no nearer.

    Rows that are all but hard have no curvature. At the temperature T of :math:`\ell / T` they
    are soft, and the prices over T those of the program over T.
    """
    tempered, as_it_was = getattr(stalled.oracle, "tempered", None), (stalled, "stalled")
    if tempered is None:
        return as_it_was
    program, form = stalled.program, stalled.program.form
    prices, temperature, hot = np.zeros(program.masses.shape), 1.0, False
    for _ in range(2 * TEMPERATURES):
        temperature *= 1.0 / COOLED if hot else COOLED
        last = hot and temperature == 1.0
        own = replace(program, form=replace(form, P=form.P / temperature, q=form.q / temperature))
        search = _Search(
            stalled.oracle if last else tempered(temperature),
            program if last else own,
            stalled.tolerance if last else LOOSE,
            stalled.deadline,
            stalled.report if last else None,
            stalled.size,
        )
        status = search.run(prices / temperature)
        if status == "time_limit" or search.best is None:
            return as_it_was
        if last:
            return (search, status) if search.distance < stalled.distance else as_it_was
        hot = hot or search.distance <= SOFT
        prices = search.best.prices * temperature if hot else prices
    return as_it_was


@dataclass(frozen=True, eq=False)
class _Point:
    """Prices with their multipliers, the pass at them and the bound they prove."""

    y: Floats
    z: Floats
    prices: Floats
    mass: MassPass
    bound: float


class _Search:
    def __init__(
        self,
        oracle: MassOracle,
        program: MassProgram,
        tolerance: float,
        deadline: float,
        report: Callable[[Round], None] | None,
        size: int,
    ) -> None:
        self.oracle, self.program = oracle, program
        self.tolerance, self.deadline, self.report, self.size = tolerance, deadline, report, size
        self.best: _Point | None = None
        self.rough, self.promised = False, np.inf
        self.z: Floats | None = None
        self.distance = np.inf
        self.history: list[Round] = []

    def run(self, prices: Floats) -> str:
        """Step until the masses satisfy the rules; return optimal, stalled or time_limit."""
        prices, z = self._first(prices)
        mass = self.oracle(prices, True)
        radius, quiet = RADIUS, 0
        for _ in range(FEW_STEPS if self.rough else STEPS):
            left = self.deadline - time.perf_counter()
            if left <= 0.0 and self.best is not None:
                return "time_limit"
            step = price_step(self.program, mass, prices, radius, z, max(left, 1e-3))
            if step is None:
                return "stalled"
            fresh = self._point(step)
            distance = self._distance(fresh, step)
            ratio = self._ratio(fresh, mass, prices, distance)
            if ratio < POOR:
                radius = min(radius, float(np.abs(fresh.prices - prices).max())) / 4.0
                quiet += 1
                if radius < NARROWEST or (quiet > PATIENCE and self.distance < 1e-6):
                    return "stalled"
                continue
            quiet = quiet + 1 if distance > self.distance / 2.0 and self.distance < 1e-6 else 0
            slow = self.rough and SLOW * self.distance < distance <= LONE
            self.best, self.distance = fresh, distance
            prices, mass, z = fresh.prices, fresh.mass, fresh.z
            self._record()
            if self.rough and self.promised <= self.tolerance**2:  # of single rows, or of none
                return "optimal"
            if distance <= self.tolerance and (step.inside or self.rough):
                return "optimal"
            if quiet > PATIENCE or slow:
                return "stalled"
            if ratio > GOOD and not step.inside:
                radius = min(4.0 * radius, WIDEST)
        return "stalled"

    def _first(self, prices: Floats) -> tuple[Floats, Floats | None]:
        """Return (prices, their multipliers) where rules are equations: they go on from there."""
        if not self.program.only_equations or not prices.any():
            return prices, None if self.program.only_equations else self.z
        z = self.program.multipliers(prices)
        return self.program.prices(np.zeros(self.program.form.q.size), z), z

    def _point(self, step: PriceStep) -> _Point:
        prices = self.program.prices(step.y, step.z)
        mass = self.oracle(prices, True)
        bound = self.program.rule_bound(step.y, step.z) - mass.value
        return _Point(step.y, step.z, prices, mass, bound)

    def _ratio(self, fresh: _Point, mass: MassPass, prices: Floats, distance: float) -> float:
        """Return the gain of the bound over what the model promised; 1 before there is a bound."""
        if self.best is None:
            return 1.0
        change = fresh.prices - prices
        curved = float(np.einsum("gk,gkl,gl->", change, np.asarray(mass.curvature), change))
        model = mass.value - float((mass.masses * change).sum()) + 0.5 * curved
        promised = self.program.rule_bound(fresh.y, fresh.z) - model - self.best.bound
        self.promised, gained = promised, fresh.bound - self.best.bound
        noise = ROUNDING * (1.0 + abs(fresh.bound) + abs(fresh.mass.value))
        if abs(promised) <= noise:  # differences of bounds say nothing any more
            return 1.0 if distance < self.distance else 0.0
        return gained / promised if promised > 0.0 else 0.0

    def _distance(self, fresh: _Point, step: PriceStep) -> float:
        """Return how far the masses are from those of the rules, in fractions of groups."""
        apart = fresh.mass.masses - step.y[self.program.masses]
        if self.program.only_equations:
            y = step.y.copy()
            y[self.program.masses] = fresh.mass.masses
            return float(np.abs(self.program.form.slack(y)).max(initial=0.0))
        return float(np.abs(apart / self.program.shares[:, None]).max())

    def _record(self) -> None:
        best = self.best
        if best is None:
            return
        y = best.y.copy()
        y[self.program.masses] = best.mass.masses
        inner = float((best.prices * best.mass.masses).sum())
        objective = self.program.form.objective(y) - best.mass.value - inner
        gap = abs(objective - best.bound) / max(1.0, abs(objective))
        arcs = self.size * best.prices.shape[1]
        entry = Round(self.size, arcs, best.bound, self.distance, gap)
        self.history.append(entry)
        logger.debug("entropic projection %s", entry)
        if self.report is not None:
            self.report(entry)

    def result(self, status: str) -> EntropicProjection:
        """Return the best point."""
        best = self.best
        if best is None:  # no model was solved: the rules without a price prove nothing
            form = self.program.form
            y, z = np.zeros(form.q.size), np.zeros(form.b.size)
            prices = self.program.prices(y, z)
            best = _Point(y, z, prices, self.oracle(prices, False), -np.inf)
        return EntropicProjection(
            best.prices,
            best.bound,
            best.mass.masses,
            best.y,
            best.z,
            self.distance,
            status,
            self.history,
        )
