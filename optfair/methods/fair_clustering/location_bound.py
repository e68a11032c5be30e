"""The Lagrangian of a facility location: bounds at prices of rows and masses, and assignments to given sites."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.backends.linear_program import HeldProgram, row_scale, solve_linear_program
from optfair.errors import SolverFailure
from optfair.methods.fair_clustering.algorithms.costs import Charge, SeparableCost
from optfair.methods.fair_clustering.algorithms.integer_masses import CountRules
from optfair.methods.fair_clustering.algorithms.mass_program import MassProgram
from optfair.methods.fair_clustering.algorithms.price_search import solve_mass_dual
from optfair.methods.fair_clustering.facility_location import FairFacilityLocation
from optfair.methods.fair_clustering.mass_rules import compile_rules, on_masses, rule_variables
from optfair.methods.fair_clustering.metrics import gathered_masses
from optfair.numbers import Floats, Indices
from optfair.proofs.rounding import gamma, loss

# Price of a closed site, in the largest cost; fractions of sites that are none.
CLOSED, FRACTION = 8.0, 1e-6
# Relative violation of a rule that is rounding.
ROUNDING = 1e-8
# How deep auxiliaries of rules rest on each other.
DEEP = 8


@dataclass(frozen=True, eq=False)
class SitePrices:
    """Prices that bound every choice of sites.

    Attributes
    ----------
    rows, masses : arrays (n,), (G, m)
        Prices u of rows and Λ of masses.
    rules, shares : arrays (r,), (G,)
        Multipliers of the rules, and of the shares of groups.
    """

    rows: Floats
    masses: Floats
    rules: Floats
    shares: Floats


@dataclass(frozen=True, eq=False)
class SiteWorths:
    """What prices prove: a constant, and what every open site adds to it.

    Attributes
    ----------
    constant : float
        Rounded down.
    added : array (m,)
        Rounded down.
    most : int
        Sites that may be open.
    """

    constant: float
    added: Floats
    most: int

    def least(self, opened: Indices, closed: Indices) -> float:
        """Return a bound of all choices with some sites open and some closed; infinite without any."""
        free = np.ones(self.added.size, dtype=bool)
        free[opened] = free[closed] = False
        left = self.most - opened.size
        others = np.sort(self.added[free])
        if left < 0 or (not opened.size and not others.size):
            return np.inf
        chosen = others[: min(left, int((others < 0.0).sum()))]
        if not opened.size and not chosen.size:
            chosen = others[:1]  # some site is open in every choice
        value = self.constant + float(self.added[opened].sum()) + float(chosen.sum())
        return value - loss(self.most, abs(self.constant) + self.most * np.abs(self.added).max())


class Lagrangian:
    r"""The Lagrangian of a facility location, and assignments to given sites.

    Rules are :math:`A x \le b + R y`, where masses and auxiliaries of the rules are x and R is the
    room that open sites give.
    """

    def __init__(self, p: FairFacilityLocation) -> None:
        rules = compile_rules(p)
        self.program: MassProgram = rules.program
        self.feasible, self.room = rules.feasible, rules.room
        #: sides of the rules where no site is open
        self.sides: Floats = self.program.form.b - self.room.maximum(0.0).sum(axis=1)
        self.w, self.groups, self.shares = (p.data[k] for k in ("weights", "groups", "shares"))
        self.D = p.data["cost"].matrix()
        self.n, self.m = self.D.shape
        self.charges = p.data["opening_costs"]
        self.opening = self.charges + rules.opening
        names = rule_variables(p)
        self.penalties = [t for t in p.objective.values() if on_masses(t, names)]
        rows = [t for t in p.constraints.values() if on_masses(t, names)]
        self.of_open = [t for t in rows if "open" in t.scope]
        self.most = p.data["n_centers"]
        self.rounding = p.data["cost"].rounding
        self.typical = float(np.abs(self.D).mean()) or 1.0

    @cached_property
    def limits(self) -> tuple[Floats, Floats] | None:
        """Limits of masses and auxiliaries, None where these have none."""
        G = self.shares.size
        rules = CountRules(self.program, np.ones(G), self.shares * (1.0 + 1e-12), whole=False)
        if rules.root is None:
            return None
        low, high = rules.root
        high = self._least_needed(low, high)
        return (low, high) if np.isfinite(low).all() and np.isfinite(high).all() else None

    def _least_needed(self, low: Floats, high: Floats) -> Floats:
        """Return limits from above of the least auxiliaries, where less of them is never worse.

        That is so where none earns anything, and each row asks one of them at most to be large.
        """
        form, own = self.program.form, np.ones(high.size, dtype=bool)
        own[self.program.masses] = False
        i, j, a = sp.find(form.A)
        asks = own[j] & (a < 0.0)
        alone = np.bincount(i[asks], minlength=form.b.size).max(initial=0) <= 1
        sides = self.sides + self.room.minimum(0.0).sum(axis=1)
        if not alone or own[j[form.equal[i]]].any() or (form.q[own] < 0.0).any():
            return high
        for _ in range(DEEP):
            part = np.where(asks, 0.0, a * np.where(a > 0.0, high[j], low[j]))
            size = np.bincount(i, np.abs(part), form.b.size) + np.abs(sides)
            total = np.bincount(i, part, form.b.size) - sides + 1e-12 * size
            needed = np.full(high.size, -np.inf)
            np.maximum.at(needed, j[asks], total[i[asks]] / -a[asks])
            high = np.where(own & np.isfinite(needed), np.minimum(high, needed), high)
        return high

    def worths(self, prices: SitePrices) -> SiteWorths | None:
        """Return what prices prove of all sites, None where auxiliaries of the rules have no limits."""
        form = self.program.form
        given = (prices.rows, prices.masses, prices.rules, prices.shares)
        if self.limits is None or not all(np.isfinite(v).all() for v in given):
            return None
        z = np.where(form.nonnegative, np.maximum(prices.rules, 0.0), prices.rules)
        left = self.program.prices(np.zeros(form.q.size), z)
        wanted = prices.masses + prices.shares[:, None]
        capped = np.minimum(wanted, left)
        rules = self.program.bound_within(z, capped, self.limits)
        room = self.room.T @ z
        saved = self._saved(prices.rows, prices.masses)[0]
        added = self.opening - saved - room - self.shares @ (wanted - capped)
        sizes = np.abs(prices.rows)[:, None] + np.abs(self.D) + np.abs(prices.masses)[self.groups]
        priced = np.abs(wanted) + np.abs(capped) + np.abs(prices.masses)
        priced += np.abs(prices.shares)[:, None]
        each = self.w @ sizes + np.abs(self.opening) + np.abs(room) + self.shares @ priced
        off = gamma(self.n + form.b.size + 64.0) + self.rounding
        size = float(self.w @ np.abs(prices.rows)) + float(np.abs(room).sum())
        size += float(self.shares @ priced.max(axis=1))
        value = float(self.w @ prices.rows) + float(prices.shares @ self.shares)
        value += float(z @ (form.b - self.sides))
        return SiteWorths(
            value + rules - off * (size + abs(rules)),
            added - 1e-12 * (self.shares @ (wanted - capped)) - off * each,
            self.most,
        )

    def exact_prices(self, sites: Indices, lam: Floats, z: Floats) -> SitePrices:
        """Return all prices of an assignment to given sites, from those of its masses and rules."""
        left = self.program.prices(np.zeros(self.program.form.q.size), z)
        rows = (self.D[:, sites] + lam[self.groups][:, sites]).min(axis=1)
        return SitePrices(rows, lam, z, (left - lam)[:, sites].min(axis=1))

    def spread_out(self) -> Indices:
        """Return sites chosen one after the other, each for the most it saves."""
        near = np.full(self.n, np.inf)
        chosen: list[int] = []
        for _ in range(self.most):
            saved = self.w @ np.minimum(self.D, near[:, None]) + self.opening
            j = int(np.argmin(saved))
            if chosen and saved[j] >= self.w @ near:
                break
            chosen.append(j)
            near = np.minimum(near, self.D[:, j])
        return np.array(chosen)

    def likely(self, fractions: Floats) -> Indices:
        """Return the sites that are open most, of those that cost something at least half open."""
        order = np.argsort(-fractions, kind="stable")[: self.most]
        held = fractions[order] > (0.5 if self.opening.any() else FRACTION)
        held[0] = True
        return np.sort(order[held])

    def assigned(self, sites: Indices) -> tuple[float, Floats, SitePrices] | None:
        """Return cost, fractions and prices of the best assignment, None without one."""
        closed = ~np.isin(np.arange(self.m), sites)
        penalty = CLOSED * sites.size * float(np.abs(self.D).max() or 1.0)
        barred = np.broadcast_to(closed, self.D.shape)
        result = solve_mass_dual(
            self.program,
            SeparableCost("precomputed", self.D, charge=Charge(barred=barred, penalty=penalty)),
            self.groups,
            self.w,
            feasible=self.feasible,
        )
        A = np.zeros(self.D.shape)
        A[result.rows, result.clusters] = result.fractions
        if float(self.w @ A[:, closed].sum(axis=1)) > 1e-9:
            return None
        A[:, closed] = 0.0
        A /= A.sum(axis=1, keepdims=True)
        masses = gathered_masses(A, self.groups, self.w, self.shares.size)
        value = float(self.w @ (self.D * A).sum(axis=1)) + float(self.charges[sites].sum())
        values = {"masses": masses, "open": (~closed).astype(float)}
        if any(t.relative_violation(values) > ROUNDING for t in self.of_open):
            return None
        value += sum(t.number(values) for t in self.penalties)
        prices = self.program.prices(result.y, result.z)
        prices[:, closed] = 0.0
        return value, A, self.exact_prices(sites, prices, result.z)

    def step(self, u: Floats, lam: Floats) -> tuple[float, Floats, Floats, Floats]:
        """Return the value, what is open of sites, how often rows are served and by how much masses differ."""
        saved, served = self._saved(u, lam)
        cost, unit = self._joint_costs(saved, lam)
        held = self._held
        held.set_costs(np.arange(cost.size), cost / unit)
        answer = held.solve(np.zeros(0, dtype=np.intp), np.zeros(0), np.zeros(0))
        if answer.status != "optimal":
            raise SolverFailure("the rules' linear program failed", answer.status, "rescale costs")
        x = answer.x * self._joint_units
        y, masses = np.clip(x[-self.m :], 0.0, 1.0), x[self.program.masses]
        A = served * y
        own = gathered_masses(A, self.groups, self.w, self.shares.size)
        value = float(self.w @ u) + float(cost @ answer.x) + self.program.form.offset
        return value, y, A.sum(axis=1), own - masses

    def _saved(self, u: Floats, lam: Floats) -> tuple[Floats, NDArray[np.bool_]]:
        excess = u[:, None] - self.D - lam[self.groups]
        return self.w @ np.maximum(excess, 0.0), excess > 0.0

    @cached_property
    def _joint_units(self) -> Floats:
        units = np.ones(self.program.form.q.size + self.m)
        units[self.program.masses] = self.shares[:, None]
        return units

    @cached_property
    def _joint(self) -> tuple[Any, Floats, Floats, Floats, Floats, Floats]:
        """Rows of rules, masses and open sites together, their sides, and limits of columns."""
        form, (G, m) = self.program.form, self.program.masses.shape
        size = form.q.size
        cells = np.arange(G * m)
        of_masses = sp.csr_array(
            (np.ones(G * m), (cells, self.program.masses.ravel())), shape=(G * m, size)
        )
        of_sites = sp.csr_array((-np.repeat(self.shares, m), (cells, cells % m)), shape=(G * m, m))
        rows = sp.block_array(
            [
                [sp.csr_array(form.A), -self.room],
                [self.program.simplex_rows, None],
                [of_masses, of_sites],
                [None, sp.csr_array(np.ones((1, m)))],
            ],
            format="csr",
        )
        rows = rows @ sp.diags_array(self._joint_units)
        scale = row_scale(rows)
        low = np.concatenate([np.where(form.equal, self.sides, -np.inf), self.shares])
        low = np.concatenate([low, np.full(G * m, -np.inf), [1.0]]) * scale
        high = (
            np.concatenate([self.sides, self.shares, np.zeros(G * m), [float(self.most)]]) * scale
        )
        lower, upper = np.full(size + m, -np.inf), np.full(size + m, np.inf)
        lower[self.program.masses], lower[size:], upper[size:] = 0.0, 0.0, 1.0
        return sp.csc_array(sp.diags_array(scale) @ rows), low, high, lower, upper, scale

    @cached_property
    def _held(self) -> HeldProgram:
        *stated, _ = self._joint
        return HeldProgram(np.zeros(self._joint_units.size), *stated, tolerance=1e-9)

    def _joint_costs(self, saved: Floats, lam: Floats) -> tuple[Floats, float]:
        cost = np.concatenate([self.program.form.q, self.opening - saved])
        cost[self.program.masses] -= lam
        cost = cost * self._joint_units
        return cost, float(np.abs(cost).max()) or 1.0

    def completed(self, u: Floats, lam: Floats) -> SitePrices:
        """Return prices of rows and masses with the best multipliers of rules and shares."""
        cost, unit = self._joint_costs(self._saved(u, lam)[0], lam)
        *stated, scale = self._joint
        answer = solve_linear_program(cost / unit, *stated, tolerance=1e-9)
        if answer.status != "optimal":
            raise SolverFailure("the rules' linear program failed", answer.status, "rescale costs")
        duals = answer.prices * unit * scale
        r, G = self.program.form.b.size, self.shares.size
        return SitePrices(u, lam, -duals[:r], duals[r : r + G])

    def proved(self, u: Floats, lam: Floats) -> float:
        """Return a bound of all choices at given prices that holds in exact arithmetic."""
        worths, none = self.worths(self.completed(u, lam)), np.zeros(0, dtype=np.intp)
        return self._proved_apart(u, lam) if worths is None else worths.least(none, none)

    def _open(self, net: Floats) -> NDArray[np.bool_]:
        order = np.argsort(net, kind="stable")[: self.most]
        y = np.zeros(self.m, dtype=bool)
        y[order[net[order] < 0.0]] = True
        y[order[0]] = True  # some site is open in every choice
        return y

    @cached_property
    def _rows(self) -> tuple[Any, Floats, Floats, Floats]:
        form = self.program.form
        scale = row_scale(form.A)
        simplex, shares = self.program.simplex_rows, self.program.shares
        high = form.b * scale
        low = np.where(form.equal, high, -np.inf)
        rows = sp.vstack([form.A * scale[:, None], simplex], format="csc")
        return rows, np.concatenate([low, shares]), np.concatenate([high, shares]), scale

    def _rest(self, lam: Floats) -> tuple[float, Floats, Floats, Floats, Floats]:
        """Return min {h(M) - <Λ, M>}, its masses, all of y, and the multipliers of rules and shares."""
        form, at = self.program.form, self.program.masses
        cost = form.q.copy()
        cost[at] -= lam
        unit = float(np.abs(cost).max()) or 1.0
        rows, low, high, scale = self._rows
        lower = np.full(cost.size, -np.inf)
        lower[at] = 0.0
        answer = solve_linear_program(
            cost / unit, rows, low, high, lower, np.full(cost.size, np.inf), tolerance=1e-9
        )
        if answer.status != "optimal":
            raise SolverFailure("the rules' linear program failed", answer.status, "rescale costs")
        duals = answer.prices * unit
        z = -duals[: scale.size] * scale
        value = float(cost @ answer.x) + form.offset
        return value, answer.x[at], answer.x, z, duals[scale.size :]

    def _proved_apart(self, u: Floats, lam: Floats) -> float:
        """Return a bound in which rules know nothing of what is open."""
        net = self.opening - self._saved(u, lam)[0]
        y = self._open(net)
        _, _, x, z, level = self._rest(lam)
        z = np.where(self.program.form.nonnegative, np.maximum(z, 0.0), z)
        rules = self.program.proved_bound(x, z, lam + level[:, None])
        if rules.unpaid is not None:
            return -np.inf
        sizes = np.abs(u)[:, None] + np.abs(self.D) + np.abs(lam)[self.groups]
        # a row that is not served may be so but for rounding
        each = self.w @ sizes + np.abs(self.opening)
        size = float(self.w @ np.abs(u)) + self.most * float(each.max())
        size += float(self.shares @ (np.abs(level) + np.abs(lam).max(axis=1))) + abs(rules.value)
        value = float(self.w @ u) + float(net[y].sum()) + float(level @ self.shares) + rules.value
        return float(value - (gamma(self.n + self.m + 32.0) + self.rounding) * size)
