"""The small cone program in the group masses: min h(M) over the rules a user composed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.backends.cone_program import solve_cone_program
from optfair.backends.linear_program import solve_linear_program
from optfair.proofs.bounds import LowerBound, lower_bound
from optfair.proofs.cones import Cone
from optfair.solution.conic_form import ConicForm

Floats = NDArray[np.float64]

__all__ = ["Block", "MassProgram", "row_scale", "stacked"]


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
        gradient = self.form.P @ y + self.form.q + self.form.A.T @ z
        return np.asarray(gradient[self.masses])

    def stationarity(self, y: Floats, z: Floats) -> float:
        """Return the largest derivative of the Lagrangian in an auxiliary variable."""
        gradient = self.form.P @ y + self.form.q + self.form.A.T @ z
        gradient[self.masses] = 0.0
        return float(np.abs(gradient).max(initial=0.0))

    def proved_bound(self, y: Floats, z: Floats, prices: Floats) -> LowerBound:
        """Return what the rules prove at given prices, in exact arithmetic.

        The masses are charged for what their derivative leaves over, which is at most the share
        of their group; so are the auxiliary columns, by the bounds that the rules put on them.
        """
        q = self.form.q.copy()
        q[self.masses] -= prices
        n = q.size
        G, K = self.masses.shape
        at = self.masses.ravel()
        box = sp.csr_array((np.ones(G * K), (np.arange(G * K), at)), shape=(G * K, n))
        m = self.form.b.size
        cones = (*self.form.cones, Cone("nonneg", m, m + 2 * G * K))
        A = sp.csc_array(sp.vstack([self.form.A, box, -box]))
        shares = np.repeat(self.shares, K) * (1.0 + 1e-12)
        b = np.concatenate([self.form.b, shares, np.zeros(G * K)])
        whole = ConicForm(self.form.P, q, self.form.offset, A, b, cones, self.form.columns)
        return lower_bound(whole, y, np.concatenate([z, np.zeros(2 * G * K)]))

    def rule_bound(self, y: Floats, z: Floats) -> float:
        """Return the Lagrangian value of the rules alone at prices ``prices(y, z)``."""
        return self.form.dual_objective(y, z)

    def simplex_rows(self) -> tuple[Any, Floats]:
        """Return (rows, right-hand sides) of M1 = shares in the y variables."""
        G, K = self.masses.shape
        entries = (np.ones(G * K), (np.repeat(np.arange(G), K), self.masses.ravel()))
        return sp.csr_array(entries, shape=(G, self.form.q.size)), self.shares

    @cached_property
    def simplex(self) -> tuple[Block, Floats]:
        """`simplex_rows` as triplets."""
        rows, shares = self.simplex_rows()
        return Block.of(rows), shares

    @cached_property
    def rules(self) -> tuple[Block, Block, Floats]:
        """The rules as triplets, as they are and with every row's largest entry 1; the factors."""
        scale = row_scale(self.form.A)
        plain = Block.of(self.form.A)
        return plain, plain._replace(value=plain.value * scale[plain.row]), scale

    def feasible(self, time_limit: float = np.inf) -> Floats | None:
        """Return a feasible y, or None when the rules exclude each other."""
        form, size = self.form, self.form.q.size
        simplex, shares = self.simplex_rows()
        if all(c.kind in ("zero", "nonneg") for c in form.cones):
            lower = np.full(size, -np.inf)
            lower[self.masses] = 0.0
            scale = row_scale(form.A)
            right = form.b * scale
            free = np.full(form.b.size, -np.inf)
            for c in form.cones:
                if c.kind == "zero":
                    free[c.start : c.stop] = right[c.start : c.stop]
            result = solve_linear_program(
                np.zeros(size),
                sp.vstack([form.A * scale[:, None], simplex]),
                np.concatenate([free, shares]),
                np.concatenate([right, shares]),
                lower,
                np.full(size, np.inf),
                tolerance=1e-10,
                time_limit=time_limit,
            )
            return result.x if result.status == "optimal" else None
        closed = self.closed()
        conic = solve_cone_program(
            closed.P,
            closed.q,
            closed.A,
            closed.b,
            closed.cones,
            tolerance=1e-9,
            time_limit=time_limit,
        )
        return conic.x if conic.status == "optimal" else None

    def closed(self) -> ConicForm:
        """Return the rules together with M >= 0 and M1 = shares, without an objective."""
        form, size = self.form, self.form.q.size
        G, K = self.masses.shape
        m = form.b.size
        simplex, shares = self.simplex_rows()
        positive = sp.csr_array(
            (-np.ones(G * K), (np.arange(G * K), self.masses.ravel())), shape=(G * K, size)
        )
        return ConicForm(
            sp.csc_array((size, size)),
            np.zeros(size),
            0.0,
            sp.csc_array(sp.vstack([form.A, simplex, positive])),
            np.concatenate([form.b, shares, np.zeros(G * K)]),
            (*form.cones, Cone("zero", m, m + G), Cone("nonneg", m + G, m + G + G * K)),
        )

    def farkas_vector(self) -> Floats | None:
        """Return a vector that proves `closed` infeasible, None if none was found."""
        closed = self.closed()
        result = solve_cone_program(closed.P, closed.q, closed.A, closed.b, closed.cones)
        return result.z if result.status == "infeasible" else None


def row_scale(matrix: Any) -> Floats:
    """Return the factors that bring the largest entry of every row to 1."""
    if matrix.shape[0] == 0:
        return np.ones(0)
    largest = np.asarray(abs(sp.csr_array(matrix)).max(axis=1).todense()).ravel()
    return np.asarray(1.0 / np.where(largest > 0.0, largest, 1.0))
