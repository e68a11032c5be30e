"""The small cone program in the group masses: min h(M) over the rules."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.linalg import splu

from optfair.backends.cone_program import solve_cone_program
from optfair.backends.linear_program import row_scale, solve_linear_program
from optfair.methods.fair_clustering.algorithms.rules_by_need import (
    Point,
    RuleParts,
    solve_by_need,
)
from optfair.numbers import Floats
from optfair.proofs.bounds import LowerBound, lower_bound
from optfair.proofs.cones import Cone
from optfair.proofs.rounding import gamma, loss
from optfair.solution.conic_form import ConicForm

# Damping of equations that depend on each other, as a share of their squares.
DEPENDENT = 1e-13


class Block(NamedTuple):
    """Rows of a sparse matrix, as triplets: cheap to stack, so masters are quick to write."""

    row: NDArray[np.intp]
    column: NDArray[np.intp]
    value: Floats
    height: int

    @classmethod
    def of(cls, matrix: Any) -> Block:
        """Return the triplets of a sparse matrix."""
        entries = sp.coo_array(matrix)
        row, column = (index.astype(np.intp) for index in (entries.row, entries.col))
        return cls(row, column, entries.data, matrix.shape[0])


def stacked(blocks: tuple[Block, ...], width: int) -> Any:
    """Return the blocks under one another, by columns."""
    starts = np.cumsum([0, *(b.height for b in blocks)])
    row = np.concatenate([b.row + start for b, start in zip(blocks, starts[:-1], strict=True)])
    entries = (
        np.concatenate([b.value for b in blocks]),
        (row, np.concatenate([b.column for b in blocks])),
    )
    return sp.csc_array(entries, shape=(int(starts[-1]), width))


@dataclass(frozen=True, eq=False)
class MassProgram:
    """min h(M) subject to the rules, in the cone form of the rules alone.

    Any M >= 0 with row sums ``shares`` that satisfies the rules belongs to an assignment
    (give every row of a group the same fractions), so feasibility is decided here.

    Parameters
    ----------
    form : ConicForm
        Compiled rules and mass objective in y = (masses, auxiliaries).
    masses : array (G, K) of int
        Position of each mass in y.
    shares : array (G,)
        Weight share of each group.
    """

    form: ConicForm
    masses: NDArray[np.intp]
    shares: Floats

    @property
    def polyhedral(self) -> bool:
        """Whether linear programming is enough."""
        return self.form.polyhedral

    def prices(self, y: Floats, z: Floats) -> Floats:
        """Return Λ (G x K): the derivative of the Lagrangian in the masses."""
        return np.asarray(self._gradient(y, z)[self.masses])

    def _gradient(self, y: Floats, z: Floats) -> Floats:
        form = self.form
        curved = form.P @ y if form.P.nnz else 0.0
        return np.asarray(curved + form.q + self._columns @ z)

    @cached_property
    def _columns(self) -> Any:
        return sp.csr_array(self.form.A.T)

    @property
    def only_equations(self) -> bool:
        """Whether all rules are equations in the masses alone, with a linear objective."""
        form = self.form
        zero = all(c.kind == "zero" for c in form.cones)
        return zero and form.P.nnz == 0 and form.q.size == self.masses.size

    def multipliers(self, prices: Floats) -> Floats:
        """Return the multipliers of rules, all equations, whose prices are the nearest.

        A constant in all prices of a group changes nothing, and counts for nothing.
        """
        rows, factor = self._nearest
        own = (prices - self.form.q[self.masses]).ravel()
        return np.asarray(factor.solve(rows @ own)[: self.form.b.size])

    @cached_property
    def own_rows(self) -> Any:
        """What the rules say of masses, in the order of their prices."""
        return sp.csr_array(self.form.A)[:, self.masses.ravel()]

    def heated(self, temperature: float) -> MassProgram:
        """Return the same rules, with the objective in units of a temperature."""
        # what is known of the rules alone
        same = ["own_rows", "_columns", "simplex_rows", "simplex", "rules", "parts"]
        if self.only_equations:
            same.append("_nearest")
        costs = {"P": self.form.P / temperature, "q": self.form.q / temperature}
        hot = replace(self, form=replace(self.form, **costs))
        vars(hot).update((name, getattr(self, name)) for name in same)
        return hot

    @cached_property
    def _nearest(self) -> tuple[Any, Any]:
        simplex = self.simplex_rows[:, self.masses.ravel()]
        rows = sp.csr_array(sp.vstack([self.own_rows, simplex]))
        normal = sp.csc_array(rows @ rows.T)
        # equations may depend on each other
        damped = np.maximum(DEPENDENT * normal.diagonal(), np.finfo(float).tiny)
        return rows, splu(sp.csc_array(normal + sp.diags_array(damped)))

    def possible(self, prices: Floats) -> Floats:
        """Return the nearest prices that multipliers have, where rules are equations."""
        if not self.only_equations:
            return prices
        return self.prices(np.zeros(self.form.q.size), self.multipliers(prices))

    def stationarity(self, y: Floats, z: Floats) -> float:
        """Return the largest derivative of the Lagrangian in an auxiliary variable."""
        gradient = self._gradient(y, z)
        gradient[self.masses] = 0.0
        return float(np.abs(gradient).max(initial=0.0))

    def proved_bound(
        self, y: Floats, z: Floats, prices: Floats, limits: tuple[Floats, Floats] | None = None
    ) -> LowerBound:
        """Return what the rules prove at given prices, in exact arithmetic.

        The masses are charged for what their derivative leaves over, between 0 and the share of
        their group or between limits on all columns; so are the auxiliary columns, by the bounds
        that the rules put on them.
        """
        if limits is not None and self.polyhedral:
            own = np.where(self.form.equal, z, np.maximum(z, 0.0))
            value = self.bound_within(own, prices, limits)
            if np.isfinite(value):
                return LowerBound(value)
        q = self.form.q.copy()
        q[self.masses] -= prices
        G, K = self.masses.shape
        A, cones = self._boxed
        if limits is None:
            low, most = np.zeros(G * K), np.repeat(self.shares, K) * (1.0 + 1e-12)
        else:
            low, most = (v[self.masses].ravel() for v in limits)
        b = np.concatenate([self.form.b, most, -low])
        whole = ConicForm(self.form.P, q, self.form.offset, A, b, cones, self.form.columns)
        return lower_bound(whole, y, np.concatenate([z, np.zeros(2 * G * K)]))

    def bound_within(self, z: Floats, prices: Floats, limits: tuple[Floats, Floats]) -> float:
        """Return what multipliers of linear rules prove within limits; -inf where one is needed."""
        form, n = self.form, self.form.q.size
        q, size = form.q.copy(), np.abs(form.q)
        q[self.masses] -= prices
        size[self.masses] += np.abs(prices)
        left = q + form.A.T @ z
        off = gamma(form.b.size + 4.0) * (size + self._sizes.T @ np.abs(z)) + 1e-300
        slopes = left - off, left + off
        with np.errstate(invalid="ignore"):
            ends = [np.where(v == 0.0, 0.0, r * v) for r in slopes for v in limits]
        paid = np.minimum.reduce(ends)
        if not np.isfinite(paid).all():
            return -np.inf
        value = form.offset - float(z @ form.b) + float(paid.sum())
        total = abs(form.offset) + float(np.abs(z) @ np.abs(form.b)) + float(np.abs(paid).sum())
        return value - loss(n + form.b.size, total)

    @cached_property
    def _sizes(self) -> Any:
        return abs(self.form.A)

    @cached_property
    def _boxed(self) -> tuple[Any, tuple[Cone, ...]]:
        """The rules with rows for the limits of the masses, and their cones."""
        m, size, own = self.form.b.size, self.masses.size, self.equations[0]
        blocks = Block.of(self.form.A), own, own._replace(value=-own.value)
        cones = (*self.form.cones, Cone("nonneg", m, m + 2 * size))
        return stacked(blocks, self.form.q.size), cones

    def rule_bound(self, y: Floats, z: Floats) -> float:
        """Return the Lagrangian value of the rules alone at prices ``prices(y, z)``."""
        return self.form.dual_objective(y, z)

    @cached_property
    def simplex_rows(self) -> Any:
        """The rows of M1 = shares in the y variables."""
        G, K = self.masses.shape
        entries = (np.ones(G * K), (np.repeat(np.arange(G), K), self.masses.ravel()))
        return sp.csr_array(entries, shape=(G, self.form.q.size))

    @cached_property
    def simplex(self) -> Block:
        """`simplex_rows` as triplets."""
        return Block.of(self.simplex_rows)

    @cached_property
    def rules(self) -> tuple[Block, Block, Floats]:
        """The rules as triplets, as they are and with every row's largest entry 1; the factors."""
        scale = row_scale(self.form.A)
        plain = Block.of(self.form.A)
        return plain, plain._replace(value=plain.value * scale[plain.row]), scale

    @cached_property
    def parts(self) -> RuleParts | None:
        """The rules in parts that are left out until they are needed; None where there are few."""
        return RuleParts.of(self)

    @cached_property
    def equations(self) -> tuple[Block, Block]:
        """The masses themselves, and their sums over clusters, as triplets."""
        position = self.masses.ravel()
        own = Block(np.arange(position.size), position, np.ones(position.size), position.size)
        return own, self.simplex

    @cached_property
    def columns(self) -> Any:
        """`equations`, and the rules with every row's largest entry 1, by columns."""
        return stacked((*self.equations, self.rules[1]), self.form.q.size)

    def feasible(self, cost: Floats | float = 0.0) -> Floats | None:
        """Return a feasible y, or None when the rules exclude each other.

        It has the least ``cost`` of masses (G, K) where the rules are linear.
        """
        if all(c.kind in ("zero", "nonneg") for c in self.form.cones):
            even = np.repeat(self.shares[:, None], self.masses.shape[1], axis=1)
            point = solve_by_need(
                self, lambda rules: rules._cheapest(cost), even / self.masses.shape[1]
            )
            return None if point is None else point.y
        closed = self.closed()
        conic = solve_cone_program(
            closed.P, closed.q, closed.A, closed.b, closed.cones, tolerance=1e-9
        )
        return conic.x if conic.status == "optimal" else None

    def _cheapest(self, cost: Floats | float) -> Point | None:
        """Return the feasible y of least cost of masses, of linear rules, with their multipliers."""
        form, size = self.form, self.form.q.size
        lower, unit, paid = np.full(size, -np.inf), np.ones(size), np.zeros(size)
        # masses in shares of their group, which may be a tiny one
        unit[self.masses] = self.shares[:, None]
        lower[self.masses], paid[self.masses] = 0.0, cost
        free = np.where(form.equal, form.b, -np.inf)
        result = solve_linear_program(
            paid,
            sp.vstack([form.A, self.simplex_rows]),
            np.concatenate([free, self.shares]),
            np.concatenate([form.b, self.shares]),
            lower,
            np.full(size, np.inf),
            tolerance=1e-10,
            units=unit,
        )
        if result.status != "optimal":
            return None
        return Point(result.x, -result.prices[: form.b.size])

    def closed(self) -> ConicForm:
        """Return the rules together with M >= 0 and M1 = shares, without an objective."""
        form, size = self.form, self.form.q.size
        G, K = self.masses.shape
        m = form.b.size
        positive = sp.csr_array(
            (-np.ones(G * K), (np.arange(G * K), self.masses.ravel())), shape=(G * K, size)
        )
        return ConicForm(
            sp.csc_array((size, size)),
            np.zeros(size),
            0.0,
            sp.csc_array(sp.vstack([form.A, self.simplex_rows, positive])),
            np.concatenate([form.b, self.shares, np.zeros(G * K)]),
            (*form.cones, Cone("zero", m, m + G), Cone("nonneg", m + G, m + G + G * K)),
        )

    def farkas_vector(self) -> Floats | None:
        """Return a vector that proves `closed` infeasible, None if none was found."""
        closed = self.closed()
        result = solve_cone_program(closed.P, closed.q, closed.A, closed.b, closed.cones)
        return result.z if result.status == "infeasible" else None


# Prices of masses where costs of groups have factors: those found say where others are.

# Directions that are not told apart, and how far beyond what was found a forecast may go. Factors
# so much smaller than the largest say nothing: what a group costs hardly counts there.
ALIKE, BEYOND, FAINT = 1e-2, 1.0, 1e-6


class PriceTrail:
    r"""Prices :math:`\Lambda` found at factors f of the costs of groups.

    A row's choice depends on :math:`D_{ik} + \Lambda_{gk} / f_g`, so it is these quotients that change
    little, and nearly linearly, with f.

    Parameters
    ----------
    program : MassProgram
        The rules, that prices must be possible under.
    """

    def __init__(self, program: MassProgram) -> None:
        self.program = program
        self.known: list[tuple[Floats, Floats]] = []

    def add(self, factors: Floats, prices: Floats) -> None:
        """Keep prices; as many as tell the factors of all groups apart."""
        if factors.min() <= FAINT * factors.max() or not np.isfinite(prices).all():
            return
        self.known = [*self.known, (factors, prices / factors[:, None])][-(factors.size + 1) :]

    def at(self, factors: Floats) -> Floats | None:
        """Return prices near those at other factors, None where nothing is known."""
        if not self.known:
            return None
        apart = [float(np.abs(f - factors).max()) for f, _ in reversed(self.known)]
        order = np.argsort(apart, kind="stable")  # the nearest first, of those the last
        where, quotients = (np.stack(e)[::-1][order] for e in zip(*self.known, strict=True))
        first, unit = where[0], float(where.max())
        ways, way = (where[1:] - first) / unit, (factors - first) / unit
        shares = np.linalg.lstsq(ways.T, way, rcond=ALIKE)[0]
        shares *= min(1.0, BEYOND / max(float(np.abs(shares).sum()), BEYOND))
        there = quotients[0] + np.tensordot(shares, quotients[1:] - quotients[0], axes=1)
        possible: Floats = self.program.possible(there * factors[:, None])
        return possible
