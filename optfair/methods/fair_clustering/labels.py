"""Labels of whole rows that obey the rules of a fair assignment, with what is proved of them."""

from __future__ import annotations

import operator
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from optfair.core.certificate import PROVED, Grade, reported
from optfair.core.expressions import Values
from optfair.core.solution import Solution, check_solution
from optfair.errors import DeclarationError, kind_of
from optfair.methods.fair_clustering.algorithms.costs import CostRows, SeparableCost
from optfair.methods.fair_clustering.algorithms.count_tree import IntegerSearch, Labelling
from optfair.methods.fair_clustering.algorithms.integer_masses import (
    CountedRows,
    SettledRows,
    settled,
    whole_rows,
    wide_box,
)
from optfair.methods.fair_clustering.algorithms.linked_rows import linked_parts
from optfair.methods.fair_clustering.algorithms.open_rows import OpenRows, PricedRows
from optfair.methods.fair_clustering.algorithms.price_search import solve_mass_dual
from optfair.methods.fair_clustering.algorithms.pricing import Box, label_masses
from optfair.methods.fair_clustering.assignment import FairAssignment
from optfair.methods.fair_clustering.cost_rules import CostTerm
from optfair.methods.fair_clustering.links import pairs_of
from optfair.methods.fair_clustering.mass_rules import compile_rules
from optfair.methods.fair_clustering.whole_rules import check_labelled, unreachable
from optfair.numbers import (
    Floats,
    Indices,
    check_number,
)
from optfair.proofs.rounding import loss

# Relative violation of a rule that is rounding.
ROUNDING = 1e-9
# Relative gap that labels are sought with, and wall seconds of branching on them, at most.
GAP, HARD_SECONDS = 1e-5, 10.0
# How many times as many rows are open in the next try, if that has as many times as long.
WIDER = 4


@dataclass(frozen=True, eq=False)
class HardLabels:
    """Labels of whole rows.

    Attributes
    ----------
    labels : array (n,) of int
        Cluster of each row.
    objective : float
        Their mean cost; with ``goal="group"`` the largest of a group.
    bound : float
        No labels that obey the rules cost less at these centers.
    gap : float
        Relative difference of the two; 0 also where labels that miss a rule cost less than the bound.
    soft_gap : float
        Relative difference to the bound of the soft assignment, recomputed from the rows.
    grade : Grade
        What the bound rests on: the cases of the branching, each proved, or the soft assignment.
    cases : int
        Cases that prove the bound; 0 where it is that of the soft assignment.
    violation : float
        Largest relative violation of a rule by the labels. 0 of rules on masses where rows of a group
        weigh the same, else at most about the largest weight in a group over the group's; of rules on
        costs what whole rows leave over; 0.5 where rows share a cluster that cannot.
    missed : str
        Name of the rule that is missed most; empty where none is.
    exact : bool
        Whether the rules hold.
    masses : array (G, K)
        Weight share of each group under each label.
    """

    labels: NDArray[np.intp] = field(repr=False)
    objective: float
    bound: float
    gap: float
    soft_gap: float
    grade: Grade
    cases: int
    violation: float
    missed: str
    exact: bool
    masses: Floats = field(repr=False)


def hard_labels(
    solution: Solution, *, gap: float = GAP, time_limit: float = HARD_SECONDS
) -> HardLabels:
    r"""Return labels that obey the rules which a soft assignment obeys, and their gap.

    .. math::
        \min_{N \in \mathbb{Z}^{G \times K}}\; \sum_g w_g T_g(N_g)
        \quad\text{s.t.}\quad M_{gk} = w_g N_{gk} \text{ obeys the rules},\;
        N_g 1 = n_g

    where :math:`T_g` is the cost of transporting the rows of a group to clusters of given sizes.
    Class: MILP in G·K integers, where rows of a group weigh the same: vertices of a
    transportation problem assign whole rows. The soft assignment is its relaxation. Counts are
    branched on, and every case is bounded by prices in exact arithmetic; a dive into the branches
    finds the first labels. The bound is of labels that miss no rule by more than rounding, as
    ``exact`` says it.

    Where weights differ within a group, or rules are on costs or links, numbers of rows do not settle
    what the rules say. The largest fraction of each split row is then taken, of which there are at
    most K-1 in a group and one more for each such rule, besides links; and these rows, with those
    next to a boundary, are chosen anew by a mixed-integer program. The bound is that of fractions.
    Where the program has no solution the rules are missed by as little as it finds: ``violation``
    and ``missed`` say by how much, and which. No label is a barred arc, and linked rows stay together.

    Parameters
    ----------
    solution : Solution
        Of a `FairAssignment` with linear rules on the masses, rules on costs, and links.
    gap : float
        Relative gap at which branching ends.
    time_limit : float
        Wall seconds of branching; labels are made whatever it is.

    Returns
    -------
    HardLabels

    Raises
    ------
    DeclarationError
        Another problem; rules that are not linear.
    DataError
        No labels of whole rows obey the rules, with the groups whose number of rows forbids it.

    Examples
    --------
    >>> import optfair as of
    >>> from optfair.methods.fair_clustering.labels import hard_labels
    >>> X, sex = of.datasets.load("german_credit").numeric("sex", standardize=True)
    >>> p = of.FairAssignment(X, groups=sex, centers=X[:5], fairness=of.max_gap(0.05))
    >>> whole = hard_labels(p.solve())
    >>> whole.exact, whole.gap <= 1e-3
    (True, True)

    References
    ----------
    Bera et al.: Fair Algorithms for Clustering, NeurIPS 2019 (rounding).
    """
    begin = time.perf_counter()
    p = check_solution(solution).problem
    if not isinstance(p, FairAssignment) or "mass definition" not in solution.multipliers:
        raise DeclarationError(
            f"labels are made of a solved FairAssignment, this is {kind_of(p)}",
            remedy="solve a FairAssignment with rules on the masses",
        )
    gap = check_number(gap, "gap", least=0.0)
    limit = check_number(time_limit, "time_limit", least=0.0)
    check_labelled(p)
    w, groups, G = p.data["weights"], p.data["groups"], p.shares.size
    if whole_rows(groups, w, G) is None or p.demands.of_costs or p.links:
        return _rounded(p, solution, gap, begin + limit)
    prices = np.asarray(solution.multipliers["mass definition"], dtype=float)
    costs = CostRows(p.cost, groups, w)
    nothing = np.zeros((costs.size, 0)), np.zeros((costs.clusters, 0))

    def within(box: Box) -> SoftLabels:
        every = [
            settled(
                block,
                costs.groups[start:stop],
                costs.weights[start:stop],
                prices,
                box,
                p.cost.rounding,
                (nothing[0][start:stop], nothing[1]),
            )
            for _, start, stop, block in costs.blocks()
        ]
        counted = CountedRows(reduce(operator.add, every), prices, box, p.shares, p.cost.rounding)
        return SoftLabels(counted, prices, solution["masses"], solution.bound, solution.grade)

    def left() -> float:
        return max(limit - (time.perf_counter() - begin), 0.0)

    whole = within(wide_box(costs, prices, costs.size)).sought(p, gap, left())
    if whole is None:  # the counts that obey are far from the masses of fractions: any row may move
        everywhere = np.full(prices.shape, np.inf)
        whole = within(Box(everywhere, everywhere)).whole(p, gap, left())
    labels = np.empty(costs.size, dtype=np.intp)
    labels[costs.rows] = whole.labels
    return replace(whole, labels=labels)


def _rounded(p: FairAssignment, solution: Solution, gap: float, deadline: float) -> HardLabels:
    """Return labels of whole rows where their numbers do not settle what the rules say.

    The rows that are split or near a boundary are chosen anew; more of them while there is time.
    """
    w, groups, A = p.data["weights"], p.data["groups"], np.asarray(solution["assignment"])
    units = linked_parts(pairs_of(p, True), len(A))
    labels = A.argmax(axis=1)[np.unique(units, return_index=True)[1]][units]
    # where costs of groups have prices, in units of the costs themselves
    factors = getattr(solution.proof, "factors", np.ones(1))
    prices = np.asarray(solution.multipliers["mass definition"], dtype=float) / factors[:, None]
    priced = PricedRows(A, p.cost, groups, w, prices, p.demands, units, pairs_of(p, False))

    def described(labels: Indices) -> HardLabels:
        masses = label_masses(labels, groups, w, prices.shape)
        whole = {"assignment": np.eye(len(masses.T))[labels]}
        made = Labelling(labels, p.objective["cost"].value(whole), solution.bound, prices)
        beside = whole if p.demands.of_costs or p.links else {}
        return _described(p, made, {"masses": masses, **beside}, (solution.bound, solution.grade))

    return _chosen(p, labels, priced.opened, described, gap, deadline)


def _chosen(
    p: FairAssignment,
    labels: Indices,
    opened: Callable[[Indices, int], OpenRows],
    described: Callable[[Indices], HardLabels],
    gap: float,
    deadline: float,
) -> HardLabels:
    """Return labels with those of open rows chosen anew, and of more of them while there is time.

    Parameters
    ----------
    p : FairAssignment
    labels : array of int
        To begin with.
    opened : callable
        (labels, how many times as many) -> open rows.
    described : callable
        labels -> what is said of them.
    gap, deadline : float
    """
    program, before = compile_rules(p).program, 0
    best, wider, spent = described(labels), 1, 0.0
    while (best.gap > gap or not best.exact) and time.perf_counter() + WIDER * spent < deadline:
        begin, rows = time.perf_counter(), opened(labels, wider)
        if rows.at.size == before:  # there are no more
            break
        room = gap * abs(best.objective)
        made = rows.chosen(program, labels, best.masses, room, deadline)
        if (this := described(made)) and (this.violation, this.objective) < (
            best.violation,
            best.objective,
        ):
            best, labels = this, made
        before, wider, spent = rows.at.size, WIDER * wider, time.perf_counter() - begin
    return best


@dataclass(frozen=True, eq=False)
class SoftLabels:
    """A soft assignment of counted rows: what labels are made of.

    Attributes
    ----------
    rows : CountedRows
    prices, masses : arrays (G, K)
        Its prices and masses.
    bound, grade : float, Grade
        What is proved of it.
    labels : array of int
        Largest fractions of the counted rows; none where they were not looked for.
    fractions : array (rows, K)
        Of the counted rows, likewise.
    """

    rows: CountedRows
    prices: Floats
    masses: Floats
    bound: float
    grade: Grade
    labels: NDArray[np.intp] = field(default_factory=lambda: np.zeros(0, dtype=np.intp))
    fractions: Floats = field(default_factory=lambda: np.zeros((0, 0)))

    def whole(self, p: FairAssignment, gap: float, time_limit: float) -> HardLabels:
        """Return labels of all rows that obey the rules of a problem; see `hard_labels`."""
        labels = self.sought(p, gap, time_limit)
        if labels is None:
            raise unreachable(p, self._search(p))
        return labels

    def sought(self, p: FairAssignment, gap: float, time_limit: float) -> HardLabels | None:
        """Return such labels, None where none are found."""
        if not self.rows.equal:
            return self._repaired(p, time.perf_counter() + time_limit)
        masses = np.asarray(self.masses, dtype=float)
        best = self._search(p).best(masses, gap, time_limit)
        return None if best is None else self._all(p, best)

    def _search(self, p: FairAssignment) -> IntegerSearch:
        return IntegerSearch(compile_rules(p).program, self.rows, self.prices, self.bound)

    def largest(self, p: FairAssignment) -> HardLabels:
        """Return the labels of the largest fractions."""
        cost = self.rows.cost(self.labels)
        return self._all(p, Labelling(self.labels, cost, self.bound, self.prices))

    def _repaired(self, p: FairAssignment, deadline: float) -> HardLabels:
        counted, A = self.rows, self.fractions
        at, costs = np.flatnonzero(counted.costs.rows < counted.rows.at.size), counted.costs
        own, w = costs.groups[at], costs.weights[at]
        paid = SeparableCost("precomputed", counted.stated[0].points[costs.rows[at]])

        def described(labels: Indices) -> HardLabels:
            made = Labelling(labels, counted.cost(labels), self.bound, self.prices)
            return self._all(p, made)

        alone, none = np.arange(at.size), np.zeros((0, 2), dtype=np.intp)
        priced = PricedRows(A[at], paid, own, w, self.prices, p.demands, alone, none)

        def opened(labels: Indices, wider: int) -> OpenRows:
            rows = priced.opened(labels[at], wider)
            return replace(rows, at=at[rows.at])

        return _chosen(p, self.labels, opened, described, GAP, deadline)

    def _weighed(self, labels: Indices) -> Floats:
        costs = self.rows.costs
        return label_masses(labels, costs.groups, costs.weights, self.masses.shape)

    def _all(self, p: FairAssignment, labelling: Labelling) -> HardLabels:
        masses = self._weighed(labelling.labels)
        soft = self.bound, self.grade
        every = replace(labelling, labels=self.rows.whole(labelling.labels))
        return _described(p, every, {"masses": masses}, soft)


# Passes over all rows in which prices of labels are sought.
PASSES = 8


def passed_labels(
    p: FairAssignment, sweep: Callable[[Floats, Box], SettledRows], prices: Floats, rows: int
) -> SoftLabels:
    """Return the soft assignment of rows that are read in passes, with its largest fractions.

    Parameters
    ----------
    p : FairAssignment
        Rules, and costs of a sample.
    sweep : callable
        (prices, box) -> all rows, settled by them.
    prices : array (G, K)
        Prices near the optimum.
    rows : int
        Number of all rows.
    """
    rules = compile_rules(p)
    program, rounding = rules.program, p.cost.rounding
    few = CostRows(p.cost, p.data["groups"], p.data["weights"])
    for _ in range(PASSES):
        box = wide_box(few, prices, rows)
        counted = CountedRows(sweep(prices, box), prices, box, p.shares, rounding)
        optimum = solve_mass_dual(program, *counted.stated, feasible=rules.feasible, prices=prices)
        prices = program.prices(optimum.y, optimum.z)
        D = counted.stated[0].points
        stayed = D[optimum.rows, optimum.clusters] == 0.0
        if stayed[optimum.rows >= counted.rows.at.size].all():
            break
    rest = program.proved_bound(optimum.y, optimum.z, prices)
    paid, size = counted.proved(prices)
    bound = paid + rest.value - loss(rows, size + abs(paid) + abs(rest.value))
    A = np.zeros(D.shape)
    A[optimum.rows, optimum.clusters] = optimum.fractions
    grade = PROVED if rest.unpaid is None else reported("mass-dual")
    labels = counted.kept(A.argmax(axis=1)[counted.costs.rows])
    masses, fractions = optimum.y[program.masses], A[counted.costs.rows]
    return SoftLabels(counted, prices, masses, bound, grade, np.asarray(labels), fractions)


def _missed(p: FairAssignment, values: Values) -> tuple[float, str]:
    """Return by how much labels miss a rule, relative to its side, and which; 0 up to rounding."""
    worst, name = ROUNDING, ""
    for key, t in p.constraints.items():
        if t.scope <= values.keys():
            unit = p.objective_unit if isinstance(t, CostTerm) else 1.0
            if (violation := t.violations(values, unit)[0]) > worst:
                worst, name = violation, key
    return (float(worst), name) if name else (0.0, "")


def _described(
    p: FairAssignment, labelling: Labelling, values: Values, soft: tuple[float, Grade]
) -> HardLabels:
    violation, missed = _missed(p, values)
    unit = abs(labelling.objective) or 1.0
    return HardLabels(
        labelling.labels,
        labelling.objective,
        labelling.bound,
        max(0.0, labelling.objective - labelling.bound) / unit,
        max(0.0, labelling.objective - soft[0]) / unit,
        PROVED if labelling.cases else soft[1],
        labelling.cases,
        violation,
        missed,
        not missed,
        np.asarray(values["masses"]),
    )
