"""Labels that obey the rules: whole rows are assigned, through whole numbers of rows per group and cluster."""

from __future__ import annotations

import time

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.backends.linear_program import solve_linear_program
from optfair.methods.fair_clustering.algorithms.costs import CostRows
from optfair.methods.fair_clustering.algorithms.count_tree import CountTree, Labelling
from optfair.methods.fair_clustering.algorithms.mass_program import MassProgram, row_scale
from optfair.methods.fair_clustering.algorithms.price_search import PriceSearch
from optfair.methods.fair_clustering.algorithms.pricing import (
    box_for,
    price,
    spread,
)
from optfair.proofs.cones import Cone
from optfair.solution.conic_form import ConicForm

Floats = NDArray[np.float64]
Integers = NDArray[np.intp]


def whole_rows(groups: Integers, weights: Floats, count: int) -> tuple[Floats, Floats] | None:
    """Return the weight of a row in each group and how many there are (G,).

    None where rows of a group weigh differently; rows of weight 0 do not count.
    """
    held = weights > 0.0
    groups, weights = groups[held], weights[held]
    rows = np.bincount(groups, minlength=count).astype(float)
    least, most = np.full(count, np.inf), np.zeros(count)
    np.minimum.at(least, groups, weights)
    np.maximum.at(most, groups, weights)
    if not rows.all() or (most - least > 1e-9 * most).any():
        return None
    return np.bincount(groups, weights, count) / rows, rows


class WholeCounts:
    r"""Whole numbers of rows :math:`N_{gk}` whose masses :math:`w_g N_{gk}` obey the rules.

    Parameters
    ----------
    program : MassProgram
        Polyhedral rules.
    unit, counts : arrays (G,)
        Weight of a row in each group, and how many there are; see `whole_rows`.
    """

    def __init__(self, program: MassProgram, unit: Floats, counts: Floats) -> None:
        self.program, self.unit, self.counts = program, unit, counts

    def impossible(
        self, whole: NDArray[np.bool_] | None = None, time_limit: float = np.inf
    ) -> bool:
        """Whether branching ends without counts, whole in some groups or in all, that obey."""
        cost, matrix, low, high = self._rules(0)
        answer = solve_linear_program(
            np.zeros(cost.size),
            matrix,
            low,
            high,
            self._lower(0),
            np.full(cost.size, np.inf),
            tolerance=1e-9,
            time_limit=time_limit,
            integer=self._integer(cost.size, whole),
        )
        return answer.status == "infeasible"

    def _rules(self, more: int) -> tuple[Floats, sp.csc_array, Floats, Floats]:
        """Return costs, rows and sides of the rules in (counts, auxiliaries, more columns)."""
        program, form = self.program, self.program.form
        G, K = program.masses.shape
        unit = np.ones(form.q.size)
        unit[program.masses] = self.unit[:, None]
        A = sp.csc_array(form.A @ sp.diags_array(unit))
        scale = row_scale(A)
        simplex = sp.csc_array(
            (np.ones(G * K), (np.repeat(np.arange(G), K), program.masses.ravel())),
            shape=(G, form.q.size),
        )
        rows = sp.vstack([sp.diags_array(scale) @ A, simplex])
        matrix = sp.hstack([rows, sp.csc_array((rows.shape[0], more))], format="csc")
        high = form.b * scale
        low = np.full(high.size, -np.inf)
        for c in form.cones:
            if c.kind == "zero":
                low[c.start : c.stop] = high[c.start : c.stop]
        cost = np.concatenate([form.q * unit / float(self.unit.mean()), np.zeros(more)])
        return cost, matrix, np.concatenate([low, self.counts]), np.concatenate([high, self.counts])

    def _lower(self, more: int) -> Floats:
        lower = np.zeros(self.program.form.q.size + more)
        free = np.ones(self.program.form.q.size, dtype=bool)
        free[self.program.masses] = False
        lower[: free.size][free] = -np.inf
        return lower

    def _integer(self, size: int, whole: NDArray[np.bool_] | None = None) -> NDArray[np.bool_]:
        integer = np.zeros(size, dtype=bool)
        groups = np.ones(self.unit.size, dtype=bool) if whole is None else whole
        integer[self.program.masses[groups].ravel()] = True
        return integer


class IntegerSearch(WholeCounts):
    r"""Minimise over whole numbers of rows :math:`N_{gk}`, which fix masses :math:`w_g N_{gk}`.

    For fixed masses the rows' problem is a transportation problem, whose vertices assign whole
    rows. So a labelling that obeys the rules is a choice of G·K integers.

    Parameters
    ----------
    program : MassProgram
        Polyhedral rules.
    costs : CostRows
        The rows.
    unit, counts : arrays (G,)
        Weight of a row in each group, and how many there are; see `whole_rows`.
    prices, bound : array (G, K), float
        Prices of the soft optimum, and the bound that they prove.
    """

    def __init__(
        self,
        program: MassProgram,
        costs: CostRows,
        unit: Floats,
        counts: Floats,
        prices: Floats,
        bound: float,
    ) -> None:
        super().__init__(program, unit, counts)
        self.costs, self.prices, self.bound = costs, prices, bound
        self.pricing = price(costs, prices)

    def first(
        self, masses: Floats, whole: NDArray[np.bool_] | None = None, time_limit: float = np.inf
    ) -> Floats | None:
        """Return counts that obey the rules near given masses, None where there are none.

        Parameters
        ----------
        masses : array (G, K)
            Of the soft optimum.
        whole : array (G,) of bool, optional
            Groups whose counts are to be whole; all by default.
        """
        G, K = self.program.masses.shape
        box = box_for(self.costs, self.pricing, np.full((G, K), 2.0))
        slope = np.stack([box.down, box.up])
        finite = slope[np.isfinite(slope)]
        typical = float(finite.mean()) if finite.size and finite.mean() > 0.0 else 1.0
        slope = np.where(np.isfinite(slope), slope / typical, 1e3) + 1e-3
        weight = self.unit[:, None] / self.unit.mean()
        cost, matrix, low, high = self._rules(2 * G * K)
        # N - up + down = masses in rows
        deviation = sp.hstack(
            [self._counts(), -sp.eye_array(G * K), sp.eye_array(G * K)], format="csc"
        )
        target = (masses / self.unit[:, None]).ravel()
        cost[-2 * G * K :] = np.concatenate(
            [(slope[0] * weight).ravel(), (slope[1] * weight).ravel()]
        )
        answer = solve_linear_program(
            cost,
            sp.vstack([matrix, deviation]),
            np.concatenate([low, target]),
            np.concatenate([high, target]),
            self._lower(2 * G * K),
            np.full(cost.size, np.inf),
            tolerance=1e-9,
            time_limit=time_limit,
            integer=self._integer(cost.size, whole),
            gap=0.02 * float(np.abs(cost).max(initial=0.0)),
        )
        if not answer.x.size:
            return None
        return np.asarray(answer.x[self.program.masses])

    def labelled(self, counts: Floats, deadline: float = np.inf) -> Labelling | None:
        """Return the cheapest labels with given counts."""
        masses = np.round(counts) * self.unit[:, None]
        masses *= self.program.shares[:, None] / masses.sum(axis=1, keepdims=True)
        search = PriceSearch(_fixed(self.program, masses), self.costs, 1e-9, deadline)
        search.run(self.prices)
        best, costs = search.candidate, self.costs
        if best is None:
            return None
        rows, clusters, fractions = spread(costs, best.pricing, best.free, best.flow)
        order = np.lexsort((fractions, rows))
        last = order[np.diff(rows[order], append=-1) != 0]
        labels = np.empty(costs.size, dtype=np.intp)
        labels[rows[last]] = clusters[last]
        weightless = np.flatnonzero(costs.weights == 0.0)
        labels[weightless] = self.pricing.best[weightless]
        if not np.array_equal(self._counted(labels), np.round(counts)):
            return None
        prices = search.program.prices(search.y, search.z)
        return Labelling(labels, self.cost(labels), self.bound, prices)

    def cost(self, labels: Integers) -> float:
        """Return the mean cost of labels."""
        total = 0.0
        for _, start, stop, block in self.costs.blocks():
            own = block[labels[start:stop], np.arange(stop - start)]
            total += float(self.costs.weights[start:stop] @ own)
        return total

    def _counted(self, labels: Integers) -> Floats:
        G, K = self.program.masses.shape
        held = self.costs.weights > 0.0
        index = self.costs.groups[held] * K + labels[held]
        return np.bincount(index, minlength=G * K).reshape(G, K).astype(float)

    def best(self, masses: Floats, gap: float, time_limit: float) -> Labelling | None:
        """Return labels and a bound that differ by the relative gap, or by more when time is up.

        None where no labels obey the rules. A dive into the counts finds the first labels; where
        it does not, those are taken whose counts are near the masses of the soft optimum.
        """
        end = time.perf_counter() + time_limit
        tree = CountTree(
            self.program, self.costs, self.unit, self.counts, self.prices, self.labelled
        )
        labelling = tree.run(None, gap, end) if tree.fits and time_limit > 0.0 else None
        if labelling is not None:
            return labelling
        counts = self.first(masses, time_limit=max(time_limit, 1.0))
        labelling = None if counts is None else self.labelled(counts)
        return tree.run(labelling, gap, end) if tree.fits and time_limit > 0.0 else labelling

    def _counts(self) -> sp.csc_array:
        at = self.program.masses.ravel()
        entries = (np.ones(at.size), (np.arange(at.size), at))
        return sp.csc_array(entries, shape=(at.size, self.program.form.q.size))


def _fixed(program: MassProgram, masses: Floats) -> MassProgram:
    """Return the program whose only rule is that the masses are these."""
    G, K = masses.shape
    empty = sp.csc_array((G * K, G * K))
    A = sp.csc_array(sp.eye_array(G * K))
    columns = {"masses": slice(0, G * K)}
    cones = (Cone("zero", 0, G * K),)
    form = ConicForm(empty, np.zeros(G * K), 0.0, A, masses.ravel(), cones, columns)
    return MassProgram(form, np.arange(G * K).reshape(G, K), program.shares)
