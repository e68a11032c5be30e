"""Rows that must be together, merged into units that choose a cluster as one row does, and kept apart from others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.linalg import splu

from optfair.errors import SolverFailure
from optfair.methods.fair_clustering.algorithms.apart_rows import ApartResult, solve_apart
from optfair.methods.fair_clustering.algorithms.costs import SeparableCost
from optfair.methods.fair_clustering.algorithms.mass_program import MassProgram
from optfair.methods.fair_clustering.algorithms.price_search import solve_mass_dual
from optfair.solution.conic_form import ConicForm

Floats = NDArray[np.float64]
Integers = NDArray[np.intp]

# Most masses of units that prices are sought of, and digits in which units are of one kind.
MASSES, DIGITS = 4_000, 12


class LinkedRows:
    r"""Units of rows that have the same fractions.

    Units of one kind have the same shares :math:`c_{tg}` of the groups in their weight, so the
    masses of kinds give those of groups, :math:`M_{gk} = \sum_t c_{tg} M'_{tk}`.

    Parameters
    ----------
    pairs : array (m, 2) of int
        Rows that must be together.
    groups, weights : arrays (n,)
        Group index and weight of each row.
    shape : (G, K)
        Numbers of groups and clusters.

    Raises
    ------
    SolverFailure
        Weights and groups of linked rows are of too many kinds, or a unit weighs nothing.
    """

    def __init__(
        self, pairs: Integers, groups: Integers, weights: Floats, shape: tuple[int, int]
    ) -> None:
        n, (G, self.clusters) = groups.size, shape
        graph = sp.coo_array((np.ones(len(pairs)), tuple(pairs.T)), shape=(n, n))
        count, unit = sp.csgraph.connected_components(graph, directed=False)
        self.unit, self.weights = np.asarray(unit, dtype=np.intp), weights
        self.heavy = np.asarray(np.bincount(unit, weights, count), dtype=float)
        if not self.heavy.all():
            raise SolverFailure("linked rows have no weight")
        self.merged: Any = sp.csr_array((np.ones(n), (unit, np.arange(n))), shape=(count, n))
        share = np.zeros((count, G))
        np.add.at(share, (self.unit, groups), weights)
        table = np.round(share / self.heavy[:, None], DIGITS)
        self.kinds, kind = np.unique(table, axis=0, return_inverse=True)
        self.kind = np.asarray(kind.ravel(), dtype=np.intp)
        if len(self.kinds) * self.clusters > MASSES:
            raise SolverFailure(f"units of linked rows are of {len(self.kinds)} kinds")

    def cost(self, cost: SeparableCost) -> SeparableCost:
        """Return the mean costs of the rows of units."""
        paid = np.asarray(self.merged @ (self.weights[:, None] * cost.matrix()))
        return SeparableCost("precomputed", paid / self.heavy[:, None])

    def program(self, rules: MassProgram) -> tuple[MassProgram, Any]:
        """Return the rules on the masses of kinds, and the matrix from its columns to theirs."""
        form, size = rules.form, len(self.kinds) * self.clusters
        to = sp.kron(self.kinds.T, sp.eye_array(self.clusters), format="coo")
        other = np.setdiff1d(np.arange(form.q.size), rules.masses.ravel())
        entries = (
            np.concatenate([to.data, np.ones(other.size)]),
            (
                np.concatenate([rules.masses.ravel()[to.row], other]),
                np.concatenate([to.col, size + np.arange(other.size)]),
            ),
        )
        lift = sp.csc_array(entries, shape=(form.q.size, size + other.size))
        made = ConicForm(
            sp.csc_array(lift.T @ form.P @ lift),
            np.asarray(lift.T @ form.q),
            form.offset,
            sp.csc_array(form.A @ lift),
            form.b,
            form.cones,
            {"masses": slice(0, size)},
        )
        masses = np.arange(size).reshape(len(self.kinds), self.clusters)
        shares = np.asarray(np.bincount(self.kind, self.heavy, len(self.kinds)), dtype=float)
        return MassProgram(made, masses, shares), lift

    def link_prices(self, apart: Any, needed: Floats) -> Floats:
        """Return prices of the pairs (m x K) that add up to what each row needs.

        Pairs that close a circle have price 0.

        Parameters
        ----------
        apart : sparse (m, n)
            First row of each pair less the second.
        needed : array (n, K)
            Sums to 0 over the rows of each unit.
        """
        m, n = apart.shape
        ends = np.sort(apart.indices.reshape(m, 2), axis=1).astype(np.int64)
        graph = sp.csr_array((np.ones(m), tuple(ends.T)), shape=(n, n))
        tree = sp.csgraph.minimum_spanning_tree(graph).tocoo()
        keys, edge = np.unique(ends[:, 0] * n + ends[:, 1], return_index=True)
        own = edge[np.searchsorted(keys, tree.row.astype(np.int64) * n + tree.col)]
        # one row of each unit follows from the others
        kept = np.setdiff1d(np.arange(n), np.unique(self.unit, return_index=True)[1])
        prices = np.zeros((m, needed.shape[1]))
        if kept.size:
            matrix = sp.csc_array(sp.csr_array(apart[own])[:, kept].T)
            prices[own] = splu(matrix).solve(needed[kept])
        return prices


def solve_linked(
    linked: LinkedRows,
    rules: MassProgram,
    cost: SeparableCost,
    apart: Integers,
    prices: Floats | None,
    **options: Any,
) -> ApartResult:
    """Minimise the cost of units under the rules by the mass-dual algorithm.

    See `solve_mass_dual`, and `solve_apart` for the pairs of rows that are kept ``apart``.
    """
    program, lift = linked.program(rules)
    feasible = program.feasible()
    if feasible is None:
        raise SolverFailure("no masses of linked rows obey the rules")
    stated = program, linked.cost(cost), linked.kind, linked.heavy
    options |= {"feasible": feasible, "prices": None if prices is None else linked.kinds @ prices}
    if apart.size:
        solved = solve_apart(*stated, linked.unit[apart], **options)
    else:
        plain = solve_mass_dual(*stated, **options)
        A = np.zeros((linked.heavy.size, linked.clusters))
        A[plain.rows, plain.clusters] = plain.fractions
        links = np.zeros((0, linked.clusters))
        solved = ApartResult(A, links, plain.y, plain.z, plain.status, plain.history)
    return replace(solved, fractions=solved.fractions[linked.unit], y=np.asarray(lift @ solved.y))
