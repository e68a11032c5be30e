"""Assignments under rules on costs: barred arcs have a price, and so have the costs of groups."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from optfair.backends.linear_program import solve_linear_program
from optfair.errors import SolverFailure
from optfair.methods.fair_clustering.algorithms.costs import Charge, SeparableCost
from optfair.methods.fair_clustering.algorithms.descent import Assigned, Flow, moved_centers
from optfair.methods.fair_clustering.algorithms.linked_rows import LinkedRows, solve_linked
from optfair.methods.fair_clustering.algorithms.mass_program import MassProgram, PriceTrail
from optfair.methods.fair_clustering.algorithms.price_search import (
    CURVED,
    POLYHEDRAL,
    MassResult,
    solve_mass_dual,
)
from optfair.numbers import Floats, Indices

# Price of a barred arc, in K times the largest cost; weight on barred arcs that is rounding.
PENALTY, SPILL = 4.0, 1e-9
# Price of a missed budget while centers move, and where the centers are final.
OVERDRAFT, HARD_OVERDRAFT = 1e3, 1e6
# Assignments that prices of groups are found from; part of the way to the master's prices, and how
# near these are, as a share of the largest, where they are asked for themselves.
ROUNDS, PART, NEARBY = 300, 0.5, 0.1
# Prices that prove so much of what was gained are near enough while centers move.
GAINED = 0.3
# Least part of a group's share in its price: what costs nothing is assigned anyhow.
WHISPER = 1e-2
# What an assignment costs beside its groups is rounding, as a share of the largest of a group.
ROUNDED = 1e-12
# Halvings of a step that leaves rows out of reach.
HALVINGS = 30


@dataclass(frozen=True, eq=False)
class Demands:
    """What is asked of costs, besides rules on masses.

    Parameters
    ----------
    charge : Charge
        Barred arcs.
    upper : array (G,), optional
        Largest mean cost of each group, infinite where there is none.
    worst : bool
        Whether the largest mean cost of a group is least, not the mean cost.
    """

    charge: Charge = field(default_factory=Charge)
    upper: Floats | None = None
    worst: bool = False

    @property
    def bars(self) -> bool:
        """Whether some arcs are barred."""
        return self.charge.limits is not None or self.charge.barred is not None

    @property
    def by_group(self) -> bool:
        """Whether costs of groups have prices."""
        return self.worst or self.upper is not None

    @property
    def budgets(self) -> tuple[Floats, Indices]:
        """Budgets, and the groups that have one."""
        upper = np.zeros(0) if self.upper is None else self.upper
        capped = np.flatnonzero(np.isfinite(upper))
        return upper[capped], capped

    @property
    def of_costs(self) -> bool:
        """Whether anything is asked of costs."""
        return self.bars or self.by_group


@dataclass(frozen=True, eq=False)
class Point:
    """What prices of groups lead to: mean costs of groups, what else it costs, and itself."""

    costs: Floats
    rest: float
    held: Any


@dataclass(frozen=True, eq=False)
class ChargedAnswer:
    """A convex combination of points, and the prices that bound it.

    Attributes
    ----------
    parts : list of (weight, point)
    duals : array (2, G)
        Prices θ of the largest mean cost (total 1, or 0 for the mean), and ν of the budgets.
    value, bound : float
    missed : float
        Largest mean cost beyond a budget.
    held : object
        What the point of the best bound holds.
    """

    parts: list[tuple[float, Point]]
    duals: Floats
    value: float
    bound: float
    missed: float
    held: Any


def factors_of(duals: Floats, shares: Floats, worst: bool) -> Floats:
    r"""Return what costs are multiplied by: :math:`(\theta_g + \nu_g) / \pi_g`, or 1 + ν_g/π_g.

    A few units in the last place less, so that the prices stay dual feasible: costs are not
    negative.
    """
    first = duals[0] if worst else shares
    return np.asarray((first + duals[1]) / shares * (1.0 - 1e-15))


def weighed(
    oracle: Callable[[Floats], tuple[float, Point]],
    points: list[Point],
    shares: Floats,
    demands: Demands,
    duals: Floats | None,
    *,
    overdraft: float,
    tolerance: float,
    deadline: float,
    above: float = -np.inf,
) -> ChargedAnswer:
    r"""Minimise h + max_g b_g, or h + π'b, over the convex hull of points, with b ≤ u.

    .. math::
        \max_{\theta, \nu \ge 0}\; \min_x\; \Big\{h(x) +
        \textstyle\sum_g (\theta_g + \nu_g) b_g(x)\Big\} - \nu^T u, \qquad 1^T \theta = 1

    by cutting planes: a small linear program over the points found so far (Dantzig and Wolfe)
    has the next prices as its multipliers. The prices asked for lie between those and the best
    so far.

    Parameters
    ----------
    oracle : callable
        factors of the costs (G,) -> (lower bound, point).
    points : list of Point
        To begin with; may be empty.
    overdraft : float
        Price of a missed budget.
    above : float
        A value that is known: a gap of ``GAINED`` of what lies below it is enough, and a bound
        that lies above it.
    """
    upper, capped = demands.budgets
    best = np.stack([shares * demands.worst, np.zeros(shares.size)]) if duals is None else duals
    query, bound, held = best, -np.inf, None
    room = 1.0 if duals is None else tolerance
    points = list(points)
    for _ in range(ROUNDS):
        asked = query.copy()
        if demands.worst:  # no group is for nothing
            part, whole = min(WHISPER, 0.1 * room), float(asked[0].sum())
            of_groups = asked[0] / whole if 0.0 < whole < np.inf else shares
            asked[0] = (1.0 - part) * of_groups + part * shares
        low, point = oracle(factors_of(asked, shares, demands.worst))
        low -= float(asked[1][capped] @ upper)
        points.append(point)
        if low > bound or held is None:
            bound, best, held = max(low, bound), asked, point.held
        lam, fresh, value, missed = _master(points, shares, demands, overdraft)
        room = max(0.0, value - bound) / (abs(value) or 1.0)
        gained = (above - value) / (abs(value) or 1.0)
        worse = -np.inf < above < bound - tolerance * abs(bound)
        if worse or room <= max(tolerance, GAINED * gained) or time.perf_counter() > deadline:
            break
        # few points may all say that one group is for nothing
        near = np.abs(fresh - best).max() <= NEARBY * np.abs(best).max()
        query = fresh if room < 1e-3 and near else best + PART * (fresh - best)
    used = [(float(v), p) for v, p in zip(lam, points, strict=True) if v > 1e-12]
    return ChargedAnswer(used, best, value, bound, missed, held)


@dataclass(frozen=True, eq=False)
class GroupMoments:
    """What groups cost under an assignment, at any centers, from its sums; squared distances.

    Attributes
    ----------
    masses : array (G, K)
    sums : array (G, K, d)
        Σ w_i A_ik x_i of each group in each cluster.
    costs : array (G,)
        Mean costs of groups at ``centers``.
    centers : array (K, d)
    shares : array (G,)
    """

    masses: Floats
    sums: Floats
    costs: Floats
    centers: Floats
    shares: Floats

    @cached_property
    def means(self) -> Floats:
        """Means of each group in each cluster (G, K, d)."""
        return self.sums / np.where(self.masses > 0.0, self.masses, 1.0)[:, :, None]

    @cached_property
    def scatter(self) -> Floats:
        """What groups cost at their own means (G,)."""
        return self.costs - self._apart(self.centers)

    def _apart(self, centers: Floats) -> Floats:
        far = np.square(self.means - centers).sum(axis=2)
        return np.asarray((self.masses * far).sum(axis=1) / self.shares)

    def costs_at(self, centers: Floats) -> Floats:
        """Return the mean costs of groups at centers."""
        return self.scatter + self._apart(centers)

    def best_centers(
        self, demands: Demands, rest: float, duals: Floats, overdraft: float
    ) -> Floats:
        """Return the centers of least objective for the assignment: means weighted by group.

        Parameters
        ----------
        demands : Demands
        rest : float
            What the masses cost.
        duals : array (2, G)
            Prices of groups to start from.
        overdraft : float
            Price of a missed budget.
        """

        def best(factors: Floats) -> tuple[float, Point]:
            of = factors[:, None] * self.masses
            total = of.sum(axis=0)
            sums = np.einsum("gk,gkd->kd", of, self.means)
            moved = sums / np.where(total > 0.0, total, 1.0)[:, None]
            moved = np.where(total[:, None] > 0.0, moved, self.centers)
            costs = self.costs_at(moved)
            return float(factors * self.shares @ costs) + rest, Point(costs, rest, moved)

        here = [Point(self.costs_at(self.centers), rest, self.centers)]
        mixture = weighed(
            best,
            here,
            self.shares,
            demands,
            duals,
            overdraft=overdraft,
            tolerance=1e-9,
            deadline=np.inf,
            above=_master(here, self.shares, demands, overdraft)[2],
        )
        return np.asarray(sum(v * p.held for v, p in mixture.parts))


def _master(
    points: list[Point], shares: Floats, demands: Demands, overdraft: float
) -> tuple[Floats, Floats, float, float]:
    """Return weights of the points, prices, value and the largest missed budget."""
    (upper, capped), worst = demands.budgets, demands.worst
    costs = np.stack([p.costs for p in points], axis=1)
    rest = np.array([p.rest for p in points])
    T, G, C = len(points), shares.size, capped.size
    unit = float(costs.max()) or 1.0
    costs = costs / unit
    rest[np.abs(rest) <= ROUNDED * unit] = 0.0  # where masses cost nothing, what sums leave
    tops = np.hstack([costs, np.zeros((G, C)), -np.ones((G, 1))])[: G * worst]
    caps = np.hstack([costs[capped], -np.eye(C), np.zeros((C, 1))])
    whole = np.concatenate([np.ones(T), np.zeros(C + 1)])[None]
    cost = np.concatenate(
        [rest / unit + (0.0 if worst else shares @ costs), np.full(C, overdraft), [float(worst)]]
    )
    high = np.concatenate([np.zeros(len(tops)), upper / unit, [1.0]])
    low = np.concatenate([np.full(len(tops) + C, -np.inf), [1.0]])
    answer = solve_linear_program(
        cost,
        sp.csc_array(np.vstack([tops, caps, whole])),
        low,
        high,
        np.zeros(cost.size),
        np.full(cost.size, np.inf),
        tolerance=1e-10,
    )
    if answer.status != "optimal":
        raise SolverFailure("prices of groups were not found", answer.status, "rescale the columns")
    duals = np.zeros((2, G))
    duals[0, : len(tops)] = np.maximum(-answer.prices[: len(tops)], 0.0)
    duals[1, capped] = np.maximum(-answer.prices[len(tops) : len(tops) + C], 0.0)
    lam = np.maximum(answer.x[:T], 0.0)
    missed = float(answer.x[T : T + C].max(initial=0.0)) * unit
    return lam / lam.sum(), duals, float(cost @ answer.x) * unit, missed


@dataclass(frozen=True, eq=False)
class ChargedFlow(Flow):
    """A flow, the multipliers that bound it, and what it paid.

    Attributes
    ----------
    result : MassResult
        At the best prices, for its multipliers of the rules.
    duals : array (2, G)
        See `ChargedAnswer`.
    penalty : float
        Price of a barred arc.
    spilled, missed : float
        Weight on barred arcs; largest mean cost of a group beyond its budget.
    status : str
    rest : float
        What the masses cost.
    parts : list of Point
        What it is a mixture of.
    """

    result: MassResult
    duals: Floats
    penalty: float
    spilled: float
    missed: float
    status: str
    rest: float
    parts: list[Point]


class ChargedRows:
    """Assignments and centers of rows in memory under rules on costs; as `HeldRows`.

    Parameters
    ----------
    program, cost, groups, weights, unit, prices
        As in `HeldRows`.
    demands : Demands
    feasible : array
        Masses that obey the rules.
    tolerance : float
        Relative gap of prices of groups.
    deadline : float
        ``time.perf_counter()`` value after which the incumbent is returned.
    overdraft : float
        Price of a missed budget.
    duals : array (2, G), optional
        Prices of groups to start from; see `ChargedAnswer`.
    links : (LinkedRows, array (m, 2)), optional
        Units of rows that are together, and pairs that are kept apart.
    """

    def __init__(
        self,
        program: MassProgram,
        cost: SeparableCost,
        groups: Indices,
        weights: Floats,
        unit: float,
        demands: Demands,
        feasible: Floats,
        prices: Floats | None = None,
        *,
        tolerance: float = 1e-6,
        deadline: float = np.inf,
        overdraft: float = OVERDRAFT,
        duals: Floats | None = None,
        links: tuple[LinkedRows, Indices] | None = None,
    ) -> None:
        self.program, self.cost, self.groups, self.weights = program, cost, groups, weights
        self.unit, self.demands, self.feasible, self.prices = unit, demands, feasible, prices
        self.tolerance, self.deadline, self.overdraft = tolerance, deadline, overdraft
        self.duals, self.links, self.above = duals, links, -np.inf
        self.trail = PriceTrail(program)
        aim = POLYHEDRAL if program.polyhedral else CURVED
        self.aim = min(aim, 0.4 * tolerance)

    def assign(
        self, centers: Floats, before: Assigned[Flow] | None, left: float
    ) -> Assigned[Flow] | None:
        """Return the optimal assignment at given centers, from the prices and flow before."""
        cost = replace(self.cost, centers=centers)
        if np.isfinite(left):
            self.deadline = time.perf_counter() + left
        self.above = -np.inf if before is None else before.objective
        flow, objective, bound = self.solved(cost, before.answer if before else None)
        gap = max(0.0, objective - bound) / max(self.unit, abs(objective))
        out = flow.spilled > SPILL and flow.status == "optimal"
        return Assigned(objective, gap, "out of reach" if out else flow.status, centers, flow)

    def solved(self, cost: SeparableCost, before: Any = None) -> tuple[ChargedFlow, float, float]:
        """Return the flow at the costs given, its objective and its bound."""
        largest = PENALTY * cost.clusters * _largest(cost) if self.demands.bars else 0.0
        for more in (1.0, 1e2, 1e4):
            result = self._at_penalty(cost, more * largest, before)
            if result[0].spilled <= SPILL or result[0].status != "optimal":
                break
        return result

    def _at_penalty(
        self, cost: SeparableCost, penalty: float, before: Any
    ) -> tuple[ChargedFlow, float, float]:
        demands, shares = self.demands, self.program.shares
        prices = self.prices if before is None else before.prices
        status = "optimal"

        def assigned(factors: Floats | None) -> tuple[float, Point]:
            nonlocal prices, status
            charge = replace(
                demands.charge,
                factors=None if factors is None else factors[self.groups],
                penalty=penalty,
            )
            near = prices if factors is None else self.trail.at(factors)
            result = self._priced(replace(cost, charge=charge), prices if near is None else near)
            prices = self.program.prices(result.y, result.z)
            if factors is not None and np.isfinite(result.bound):
                self.trail.add(factors, prices)
            if result.status in ("time_limit", "interrupted"):
                status = result.status
            own = self._costs(cost, result.rows, result.clusters, result.fractions)
            factor = np.ones(shares.size) if factors is None else factors
            known = np.isfinite(result.objective)
            rest = result.objective - float(factor * shares @ own) if known else 0.0
            return result.bound, Point(own, rest, result)

        if demands.by_group:
            # all that the mixture before was made of, at what it costs now
            known = [] if before is None else before.parts
            start = []
            for p in known:
                own = self._costs(cost, p.held.rows, p.held.clusters, p.held.fractions)
                start.append(replace(p, costs=own))
            mixture = weighed(
                assigned,
                start,
                shares,
                demands,
                self.duals if before is None else before.duals,
                overdraft=self.overdraft,
                tolerance=self.tolerance,
                deadline=self.deadline,
                above=self.above,
            )
        else:
            bound, point = assigned(None)
            value = float(shares @ point.costs) + point.rest
            none = np.zeros((2, shares.size))
            mixture = ChargedAnswer([(1.0, point)], none, value, bound, 0.0, point.held)
        return self._mixed(cost, penalty, mixture, status)

    def _priced(self, cost: SeparableCost, prices: Floats | None) -> MassResult:
        """Return the assignment of least charged cost."""
        limits: Any = {"tolerance": self.aim, "deadline": self.deadline}
        if self.links is None:
            stated = self.program, cost, self.groups, self.weights
            return solve_mass_dual(*stated, feasible=self.feasible, prices=prices, **limits)
        linked, apart = self.links
        answer = solve_linked(linked, self.program, cost, apart, prices, **limits)
        rows, clusters = np.nonzero(answer.fractions)
        return MassResult(
            *(rows, clusters, answer.fractions[rows, clusters], answer.y, answer.z),
            *(answer.status, answer.objective, answer.bound, answer.history, answer.links),
        )

    def _mixed(
        self, cost: SeparableCost, penalty: float, mixture: ChargedAnswer, status: str
    ) -> tuple[ChargedFlow, float, float]:
        K = cost.clusters
        keys = np.concatenate([p.held.rows * K + p.held.clusters for _, p in mixture.parts])
        amounts = np.concatenate([v * p.held.fractions for v, p in mixture.parts])
        keys, index = np.unique(keys, return_inverse=True)
        fractions = np.asarray(np.bincount(index, amounts), dtype=float)
        rows, clusters = np.divmod(keys, K)
        keep = fractions > 1e-12
        rows, clusters, fractions = rows[keep], clusters[keep], fractions[keep]
        fractions /= np.bincount(rows, fractions, cost.rows)[rows]
        spilled = 0.0
        if penalty:
            barred = replace(cost, charge=self.demands.charge).barred()[clusters, rows]
            spilled = float((self.weights[rows] * fractions) @ barred)
            if spilled <= SPILL:  # rounding of the linear programs
                rows, clusters, fractions = rows[~barred], clusters[~barred], fractions[~barred]
                fractions = fractions / np.bincount(rows, fractions, cost.rows)[rows]
        result = _result(mixture.held)
        if not self.program.form.P.nnz:  # what rules are held to has the masses of the mixture
            y = np.sum([v * _result(p.held).y for v, p in mixture.parts], axis=0)
            result = replace(result, y=y)
        flow = ChargedFlow(
            rows,
            clusters,
            fractions,
            self.program.prices(result.y, result.z),
            result,
            mixture.duals,
            penalty,
            spilled,
            mixture.missed,
            status,
            float(sum(v * p.rest for v, p in mixture.parts)),
            [p for _, p in mixture.parts],
        )
        return flow, mixture.value, mixture.bound

    def _costs(
        self, cost: SeparableCost, rows: Indices, clusters: Indices, fractions: Floats
    ) -> Floats:
        shares = self.program.shares
        paid = self.weights[rows] * fractions * cost.paired(rows, clusters)
        return np.asarray(np.bincount(self.groups[rows], paid, shares.size) / shares)

    def move(self, step: Assigned[Flow]) -> tuple[Floats, list[int]]:
        """Return better centers of an assignment, and the clusters that were empty.

        The best ones for the prices of groups; where rows have a reach, as far that way as all
        stay within.
        """
        flow: Any = step.answer
        if not self.demands.by_group:
            centers, empty = moved_centers(self.cost, self.weights, step.centers, flow)
        else:
            centers, empty = self._weighed_centers(step.centers, flow), []
        limits = self.demands.charge.limits
        if limits is None:
            return centers, empty
        held = self.weights[flow.rows] > 0.0
        rows, clusters, K = flow.rows[held], flow.clusters[held], len(centers)
        share, way = np.ones(K), centers - step.centers
        for halving in range(HALVINGS + 1):
            here = replace(self.cost, centers=step.centers + share[:, None] * way)
            out = here.paired(rows, clusters) > limits[rows]
            if not out.any():
                break
            share[np.unique(clusters[out])] *= 0.5 if halving < HALVINGS - 1 else 0.0
            if self.demands.by_group:  # groups pay in all clusters: these move together
                share[:] = share.min()
        return step.centers + share[:, None] * way, empty

    def _weighed_centers(self, centers: Floats, flow: Any) -> Floats:
        G, K = self.program.shares.size, len(centers)
        held = self.weights[flow.rows] * flow.fractions
        key = self.groups[flow.rows] * K + flow.clusters
        gather = sp.csr_array((held, (key, flow.rows)), shape=(G * K, self.cost.rows))
        mass = np.asarray(np.bincount(key, held, G * K), dtype=float).reshape(G, K)
        sums = np.asarray(gather @ self.cost.points).reshape(G, K, -1)
        cost = replace(self.cost, centers=centers)
        paid = self._costs(cost, flow.rows, flow.clusters, flow.fractions)
        moments = GroupMoments(mass, sums, paid, centers, self.program.shares)
        return moments.best_centers(self.demands, flow.rest, flow.duals, self.overdraft)


def _result(held: Any) -> MassResult:
    """Return the prices and masses behind an assignment."""
    result: MassResult = held if isinstance(held, MassResult) else held.result
    return result


def _largest(cost: SeparableCost, chunk: int = 65_536) -> float:
    parts = range(0, cost.rows, chunk)
    return max(float(np.abs(cost.columns(slice(i, i + chunk))).max()) for i in parts) or 1.0
