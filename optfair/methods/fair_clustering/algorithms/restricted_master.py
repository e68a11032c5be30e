"""The restricted master: the small program of the masses with few arcs, exact in a box of prices."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from optfair.backends.cone_program import solve_cone_program
from optfair.backends.linear_program import solve_linear_program
from optfair.methods.fair_clustering.algorithms.costs import price_unit
from optfair.methods.fair_clustering.algorithms.mass_program import Block, MassProgram, stacked
from optfair.methods.fair_clustering.algorithms.rules_by_need import solve_by_need
from optfair.numbers import Floats, Indices
from optfair.proofs.cones import Cone

# Masses of linear programs that are presolved; row weights of a group, to those of all, that need a
# unit of their own.
PRESOLVED, LIGHT = 120, 1e-3


@dataclass(frozen=True, eq=False)
class Arcs:
    """Arcs of the rows that are still free; identical rows are one class.

    Parameters
    ----------
    row : array (a,)
        Class of each arc, 0 .. R-1, in non-decreasing order.
    cluster : array (a,)
        Cluster of each arc.
    regret : array (a,)
        Reduced cost of the arc over the cheapest arc of its class.
    group : array (R,)
        Group of each class.
    weight : array (R,)
        Total weight of each class.
    fixed : array (G, K)
        Masses of all the rows that are not free.
    """

    row: Indices
    cluster: Indices
    regret: Floats
    group: Indices
    weight: Floats
    fixed: Floats


@dataclass(frozen=True, eq=False)
class MasterResult:
    """Outcome of a restricted master.

    Attributes
    ----------
    status : str
        optimal, infeasible, time_limit or failed.
    flow : array (a,)
        Weight on each arc.
    y, z : arrays
        Masses and auxiliaries, and the multipliers of the rules.
    slack : array (G, K)
        Weight by which masses miss the definition. All zero: the box of prices is not
        active, so the master's prices are optimal for the whole problem.
    """

    status: str
    flow: Floats
    y: Floats
    z: Floats
    slack: Floats


def solve_master(
    program: MassProgram,
    arcs: Arcs,
    prices: Floats,
    box: tuple[Floats, Floats] | None,
    time_limit: float = np.inf,
    masses: Floats | None = None,
    tolerance: float = 1e-10,
    z: Floats | None = None,
) -> MasterResult:
    r"""Maximise the dual bound over a box of prices around ``prices``.

    .. math::
        \min\; \sum_a r_a f_a + h(M) - \langle\hat\Lambda, M\rangle
              + \langle d, s^+\rangle + \langle u, s^-\rangle
        \quad\text{s.t.}\quad M = F + \sum_a f_a + s^+ - s^-,\;\; \text{rules}(M),\;\;
        M \ge 0,\; M 1 = \pi

    with regrets r, fixed masses F and slack s ≥ 0. The dual of s is the box
    :math:`-d \le \Lambda - \hat\Lambda \le u`. If every arc with regret at most
    :math:`d_{gk} + u_{g,best}` is present, no other arc can become cheapest in the box, so
    the master is exact there. Weights and costs are scaled, so that the numbers the solver
    sees are O(1) in any units.

    Parameters
    ----------
    box : (down, up) arrays (G, K), optional
        Largest decrease and increase of each price; without it every arc must be present.
    masses : array (G, K), optional
        Fix the masses instead of the rules and return a basic (sparse) flow.
    tolerance : float
        Feasibility tolerance of the linear program, on rows scaled to largest entry 1.
    z : array, optional
        Multipliers near the optimal ones: of many rules, those with a price are looked at first.
    """
    deadline = time.perf_counter() + time_limit

    def solve(rules: MassProgram) -> MasterResult:
        model = RestrictedMaster(rules, arcs, prices, box, masses)
        left = max(deadline - time.perf_counter(), 1e-3)
        if masses is not None or program.polyhedral:
            return model.solve_linear(left, tolerance)
        return model.solve_conic(left)

    if masses is not None:
        return solve(program)
    base = _cheapest_of_classes(arcs)[0]
    cell = arcs.group[arcs.row[base]] * prices.shape[1] + arcs.cluster[base]
    near = arcs.fixed + np.bincount(cell, arcs.weight, prices.size).reshape(prices.shape)
    return solve_by_need(program, solve, near, z)


class RestrictedMaster:
    """Columns: y (masses, auxiliaries), arcs, s+, s- (none without a box)."""

    def __init__(
        self,
        program: MassProgram,
        arcs: Arcs,
        prices: Floats,
        box: tuple[Floats, Floats] | None,
        masses: Floats | None,
    ) -> None:
        self.program, self.arcs = program, arcs
        G, K = program.masses.shape
        form = program.form
        self.ny, self.na, self.gk = form.q.size, arcs.row.size, G * K
        # a side of the box that is infinite has no slack
        down, up = (b.ravel() for b in box) if box else (np.full(self.gk, np.inf),) * 2
        falls, rises = np.flatnonzero(np.isfinite(down)), np.flatnonzero(np.isfinite(up))
        signs = np.repeat([-1.0, 1.0], [falls.size, rises.size])
        self.sides = np.concatenate([falls, rises]), signs
        # masses in mean row weights keep the linear program near 0/1; curved cones cannot be
        # rescaled by a solver, so there masses stay what they are, shares of 1
        linear = masses is not None or program.polyhedral
        self.unit = float(arcs.weight.mean()) if linear and arcs.weight.size else 1.0
        # flow = class weight * fraction
        self.size_of = arcs.weight[arcs.row]
        self.size = self.ny + self.na + falls.size + rises.size
        # y = origin + unit * η: the fixed masses are taken out before scaling
        self.origin = np.zeros(self.ny)
        self.origin[program.masses] = arcs.fixed
        gradient = form.P @ self.origin + form.q
        gradient[program.masses] -= prices
        cost = np.concatenate(
            [gradient, arcs.regret * self.size_of / self.unit, down[falls], up[rises]]
        )
        self.price_unit = price_unit(arcs.regret if linear else cost, 0.25 if linear else 1.0)
        self.cost = cost / self.price_unit
        self.cell = arcs.group[arcs.row] * K + arcs.cluster
        of_groups = (program.shares - self.origin[program.masses].sum(axis=1)) / self.unit
        self.equal = np.concatenate([np.zeros(self.gk), of_groups, np.ones(arcs.weight.size)])
        if masses is not None:
            # the last cluster of each group follows from the others: M1 = shares
            keep = program.masses[:, :-1].ravel()
            self.rules = Block(np.arange(keep.size), keep, np.ones(keep.size), keep.size)
            self.right = (masses[:, :-1].ravel() - self.origin[keep]) / self.unit
            self.cones: tuple[Cone, ...] = (Cone("zero", 0, keep.size),)
            self.scale = np.ones(keep.size)
        else:
            plain, even, scale = program.rules
            # shares of tiny groups make rule coefficients large: scale rows, or rounding looks
            # like infeasibility; the rows of a curved cone belong together
            self.rules, self.scale = (even, scale) if linear else (plain, np.ones(scale.size))
            self.right = (form.b - form.A @ self.origin) / self.unit * self.scale
            self.cones = form.cones

    def equations(self) -> tuple[Block, Block, Block]:
        """Return the mass definition, the sums of groups and those of classes over all columns.

        The definition is η - Σ flow - s+ + s- = 0; each class is spread over its arcs.
        """
        (own, simplex), arcs, at = self.program.equations, self.arcs, self.ny + np.arange(self.na)
        sides, signs = self.sides
        definition = Block(
            np.concatenate([own.row, self.cell, sides]),
            np.concatenate([own.column, at, np.arange(self.ny + self.na, self.size)]),
            np.concatenate([own.value, -self.size_of / self.unit, signs]),
            self.gk,
        )
        return definition, simplex, Block(arcs.row, at, np.ones(self.na), arcs.weight.size)

    def _finish(self, status: str, v: Floats, z: Floats) -> MasterResult:
        if status != "optimal":
            return MasterResult(status, np.zeros(0), np.zeros(0), np.zeros(0), np.zeros(0))
        flow = np.maximum(v[self.ny : self.ny + self.na], 0.0) * self.size_of
        missed = np.maximum(v[self.ny + self.na :], 0.0) * self.unit
        slack = np.asarray(np.bincount(self.sides[0], missed, self.gk), dtype=float)
        y = self.origin + v[: self.ny] * self.unit
        return MasterResult(
            status, flow, y, z * self.price_unit, slack.reshape(self.program.masses.shape)
        )

    def solve_linear(self, time_limit: float, tolerance: float) -> MasterResult:
        """Return what linear programming finds.

        The cheapest arc of a class takes what its others leave. These carry at most 1 together,
        a bound where there is one, so few rows are left, and where nothing moves is a basis to
        start from. With few masses a presolve takes longer than the rest; many are worth it.
        """
        arcs, m, fixed = self.arcs, self.right.size, self.gk + self.program.shares.size
        base, others = _cheapest_of_classes(arcs)
        own = arcs.row[others]
        alone = np.bincount(own, minlength=arcs.weight.size)[own] == 1
        classes, together = np.unique(own[~alone], return_inverse=True)
        size = self.size_of[others] / self.unit
        index = np.full((others.size, 3), -1)
        index[:, 0], index[:, 1] = self.cell[others], self.cell[base[own]]
        index[~alone, 2] = fixed + m + together
        entries, held = np.stack([-size, size, np.ones(size.size)], axis=1), index >= 0
        sides, signs = self.sides
        masses = self._columns_of_masses()
        lengths = [np.diff(masses.indptr), held.sum(axis=1), np.ones(sides.size, dtype=int)]
        start = np.append(0, np.cumsum(np.concatenate(lengths)))
        rows: Any = sp.csc_array(
            (
                np.concatenate([masses.data, entries[held], signs]),
                np.concatenate([masses.indices, index[held], sides]),
                start,
            ),
            shape=(fixed + m + classes.size, start.size - 1),
        )
        right, low, most = self.right, np.full(m, -np.inf), np.ones(classes.size)
        linked = self.rules.column >= self.ny
        if linked.any():  # rules on arcs themselves, of which the cheapest are not columns
            at = fixed + self.rules.row[linked], self.rules.column[linked] - self.ny
            on_arcs = sp.csc_array((self.rules.value[linked], at), shape=(rows.shape[0], self.na))
            of_arcs = on_arcs[:, others] - on_arcs[:, base[own]]
            none = (sp.csc_array((rows.shape[0], n)) for n in (self.ny, sides.size))
            rows = rows + sp.hstack([next(none), of_arcs, next(none)], format="csc")
            right = right - on_arcs[:, base].sum(axis=1)[fixed : fixed + m]
        for c in self.cones:
            if c.kind == "zero":
                low[c.start : c.stop] = right[c.start : c.stop]
        moved = slice(self.ny, self.ny + others.size)
        lower, upper = np.zeros(start.size - 1), np.full(start.size - 1, np.inf)
        lower[: self.ny] = -np.inf
        lower[self.program.masses] = -arcs.fixed / self.unit
        upper[moved][alone] = 1.0
        equal, cost = self.equal[:fixed].copy(), self.cost[self.ny :]
        equal[: self.gk] += np.bincount(self.cell[base], self.size_of[base] / self.unit, self.gk)
        result = solve_linear_program(
            np.concatenate([self.cost[: self.ny], cost[others] - cost[base[own]], cost[self.na :]]),
            rows,
            np.concatenate([equal, low, -np.inf * most]),
            np.concatenate([equal, right, most]),
            lower,
            upper,
            tolerance=tolerance,
            time_limit=time_limit,
            presolve=self.gk > PRESOLVED,
            units=self._units(start.size - 1),
        )
        z = -result.prices[fixed : fixed + m] * self.scale if m else np.zeros(0)
        v = np.zeros(self.size)
        if result.status == "optimal":
            x = result.x
            v[: self.ny], v[self.ny + self.na :] = x[: self.ny], x[moved.stop :]
            v[self.ny + others] = x[moved]
            v[self.ny + base] = 1.0 - np.bincount(own, x[moved], base.size)
        return self._finish(result.status, v, z)

    def _units(self, columns: int) -> Floats | None:
        """Return a unit of each column where groups weigh next to nothing; None where none does.

        In row weights of all, what these rows move is below a solver's tolerance.
        """
        arcs, (G, K) = self.arcs, self.program.masses.shape
        count = np.bincount(arcs.group, minlength=G)
        own = np.bincount(arcs.group, arcs.weight, G) / np.maximum(count, 1)
        light = np.where(count > 0, own, self.program.shares) / self.unit
        if light.min() >= LIGHT:
            return None
        units, light = np.ones(columns), np.where(light < LIGHT, light, 1.0)
        units[self.program.masses] = light[:, None]
        units[columns - self.sides[0].size :] = light[self.sides[0] // K]
        return units

    def _columns_of_masses(self) -> Any:
        """Return the columns of masses and auxiliaries, without the rows of classes."""
        if self.rules is self.program.rules[1]:
            return self.program.columns
        row, column, value, height = self.rules
        of_masses = column < self.ny
        own = Block(row[of_masses], column[of_masses], value[of_masses], height)
        return stacked((*self.program.equations, own), self.ny)

    def solve_conic(self, time_limit: float) -> MasterResult:
        """Return what a conic solver finds."""
        equal, m = self.equal.size, self.right.size
        positive = np.concatenate([self.program.masses.ravel(), np.arange(self.ny, self.size)])
        bounds = Block(np.arange(positive.size), positive, -np.ones(positive.size), positive.size)
        floor = np.concatenate([self.arcs.fixed.ravel() / self.unit, np.zeros(self.size - self.ny)])
        # columns are centred on the cheapest arcs' masses; P acts on y only
        P = sp.block_diag(
            [
                self.program.form.P * (self.unit / self.price_unit),
                sp.csc_array((self.size - self.ny,) * 2),
            ],
            format="csc",
        )
        shift = equal + positive.size
        cones = (
            Cone("zero", 0, equal),
            Cone("nonneg", equal, shift),
            *(
                Cone(c.kind, c.start + shift, c.stop + shift, c.order, c.upper, c.power)
                for c in self.cones
            ),
        )
        result = solve_cone_program(
            P,
            self.cost,
            stacked((*self.equations(), bounds, self.rules), self.size),
            np.concatenate([self.equal, floor, self.right]),
            cones,
            time_limit=time_limit,
        )
        return self._finish(result.status, result.x, result.z[-m:] if m else np.zeros(0))


def _cheapest_of_classes(arcs: Arcs) -> tuple[Indices, Indices]:
    """Return the first of the cheapest arcs of each class, and all others."""
    first = np.flatnonzero(np.diff(arcs.row, prepend=-1))
    if not first.size:
        return first, first
    least = np.minimum.reduceat(arcs.regret, first)
    cheapest = np.flatnonzero(arcs.regret == least[arcs.row])
    base = cheapest[np.diff(arcs.row[cheapest], prepend=-1) > 0]
    return base, np.delete(np.arange(arcs.row.size), base)
