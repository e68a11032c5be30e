"""Rules on what rows cost: forbidden arcs, radii, costs of groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from optfair.core.certificate import OTHER, Certificate, Verdict
from optfair.core.composition import Rule
from optfair.core.expressions import Values
from optfair.core.identity import same_program
from optfair.core.problem_class import LP, Evidence
from optfair.core.solution import Solution
from optfair.core.term import ConstraintTerm
from optfair.errors import DeclarationError, Infeasible, OptfairError, SolverFailure
from optfair.methods.fair_clustering.algorithms.costs import Charge, SeparableCost
from optfair.methods.fair_clustering.margins import finite_vector, group_vector
from optfair.numbers import Floats, check_table

if TYPE_CHECKING:
    from optfair.core.problem import Problem
    from optfair.methods.fair_clustering.algorithms.charged_rows import Demands
    from optfair.methods.fair_clustering.assignment import FairAssignment


def group_costs(problem: Any, cost: SeparableCost, assignment: Floats) -> Floats:
    """Return the mean cost of the rows of each group (G,)."""
    w, groups, shares = (problem.data[k] for k in ("weights", "groups", "shares"))
    paid = w * np.einsum("ki,ik->i", cost.columns(slice(None)), assignment)
    return np.asarray(np.bincount(groups, paid, shares.size) / shares)


def stated_group_costs(problem: Any, cost: SeparableCost, unit: float = 1.0) -> Any:
    """Return the mean cost of the rows of each group, in a unit, as a CVXPY expression (G,)."""
    w, groups, shares = (problem.data[k] for k in ("weights", "groups", "shares"))
    A = problem["assignment"]
    gather = sp.csr_array((w / shares[groups], (groups, np.arange(w.size))), (shares.size, w.size))
    return gather @ cp.sum(cp.multiply(cost.matrix() / unit, A), axis=1)


@dataclass(frozen=True, eq=False, repr=False)
class CostTerm(ConstraintTerm):
    """A constraint that the mass-dual algorithm obeys by what it charges.

    Attributes
    ----------
    charge : Charge
        Arcs it bars.
    upper : array (G,) or None
        Largest mean cost of each group, infinite where there is none.
    moved : callable
        cost -> this term where the centers are others.
    """

    charge: Charge = field(default_factory=Charge)
    upper: Floats | None = None
    moved: Callable[[SeparableCost], CostTerm] | None = None

    def at(self, cost: SeparableCost) -> CostTerm:
        """Return the term at other centers, under its own name."""
        if self.moved is None:
            return self
        kept = {k: getattr(self, k) for k in ("name", "evidence", "origin", "latex", "limit")}
        return replace(self.moved(cost), **kept)


def _bars(problem: Any, charge: Charge) -> Callable[[SeparableCost], CostTerm]:
    """Return the term: every row puts nothing on its barred arcs."""
    A = problem["assignment"]

    def term(cost: SeparableCost) -> CostTerm:
        charged = replace(cost, charge=charge)
        return CostTerm(
            "barred arcs",
            frozenset({"assignment"}),
            Evidence("barred arcs", "affine", "Nonpositive", LP),
            build=lambda: cp.sum(cp.multiply(charged.barred().T.astype(float), A), axis=1) <= 0,
            violation=lambda v: np.maximum(
                np.einsum("ki,ik->i", charged.barred(), np.asarray(v["assignment"])), 0.0
            ),
            shape=(cost.rows,),
            charge=charge,
            moved=term,
        )

    return term


def needs_costs(problem: Any, rule: Rule) -> SeparableCost:
    """Return the costs of a fair assignment; raise of any other problem."""
    if "assignment" not in problem.variables or not hasattr(problem, "with_centers"):
        raise DeclarationError(
            f"{type(rule).__name__} is a rule on a fair assignment",
            f"this problem has the variables {', '.join(problem.variables)}",
            "use it with FairAssignment or FairKMeans",
        )
    cost: SeparableCost = problem.data["cost"]
    return cost


@dataclass(frozen=True)
class Radius(Rule):
    """Every row is in clusters whose centers are near enough."""

    largest: Any
    latex = r"A_{ik} > 0 \Rightarrow D_{ik} \le r_i"

    def bind(self, problem: Problem) -> Any:
        """Return one row per row of the data."""
        cost = needs_costs(problem, self)
        limits = finite_vector(self.largest, cost.rows, "radius")
        if (limits < 0).any():
            raise DeclarationError("a radius is negative", remedy="give costs from 0 on")
        return _bars(problem, Charge(limits=limits))(cost)


@dataclass(frozen=True, repr=False)
class ForbiddenArcs(Rule):
    """Rows keep out of the clusters that are forbidden to them."""

    arcs: Any
    latex = r"A_{ik} = 0 \;\forall (i, k) \in F"

    def __repr__(self) -> str:
        return f"ForbiddenArcs({int(np.sum(self.arcs))} arcs)"

    def bind(self, problem: Problem) -> Any:
        """Return one row per row of the data."""
        cost = needs_costs(problem, self)
        arcs = np.asarray(check_table(self.arcs, "forbidden arcs"))
        if arcs.shape != (cost.rows, cost.clusters) or arcs.dtype != bool:
            raise DeclarationError(
                f"forbidden arcs are {arcs.dtype} of shape {arcs.shape}",
                remedy=f"give an array ({cost.rows}, {cost.clusters}) of bool: rows x clusters",
            )
        if (stuck := arcs.all(axis=1)).any():
            raise DeclarationError(
                f"every cluster is forbidden to {int(stuck.sum())} rows",
                f"row {int(np.argmax(stuck))} is one",
                "leave each row a cluster",
            )
        return _bars(problem, Charge(barred=arcs))(cost)


@dataclass(frozen=True)
class GroupCost(Rule):
    """The mean cost of the rows of a group has an upper bound."""

    upper: Any
    latex = r"\textstyle\sum_{i \in g, k} w_i A_{ik} D_{ik} \le u_g \pi_g"

    def bind(self, problem: Problem) -> Any:
        """Return one row per group that has a bound."""
        cost = needs_costs(problem, self)
        names = np.asarray(problem.data["group_names"]).tolist()
        upper = (
            group_vector(self.upper, names, "upper", np.inf)
            if isinstance(self.upper, Mapping)
            else finite_vector(self.upper, len(names), "upper")
        )
        if not (upper >= 0).all() or np.isinf(upper).all():
            raise DeclarationError(
                f"group_cost has the bounds {upper.tolist()}", remedy="give costs from 0 on"
            )
        refuse_negative(cost, "group_cost")
        some = np.flatnonzero(np.isfinite(upper))

        def over(v: Values, cost: SeparableCost) -> Floats:
            return np.maximum(group_costs(problem, cost, v["assignment"])[some] - upper[some], 0.0)

        def term(cost: SeparableCost) -> CostTerm:
            return CostTerm(
                "group cost",
                frozenset({"assignment"}),
                Evidence("group cost", "affine", "Nonpositive", LP),
                build=lambda: stated_group_costs(problem, cost)[some] <= upper[some],
                violation=lambda v: over(v, cost),
                shape=(some.size,),
                scale=upper[some],
                upper=upper,
                moved=term,
            )

        return term(cost)


def refuse_negative(cost: SeparableCost, what: str) -> None:
    """Raise where costs of groups may be negative: their prices would prove nothing."""
    if cost.metric == "precomputed" and (cost.points < 0).any():
        raise DeclarationError(
            f"{what} needs costs from 0 on",
            f"the smallest is {cost.points.min():g}",
            "add a constant to all costs of a row",
        )


def radius(largest: Any) -> Radius:
    r"""Rows may only be in clusters whose cost to them is at most ``largest``.

    .. math:: A_{ik} = 0 \quad \text{where } D_{ik} > r_i

    Class: LP. Individual fairness gives each row the distance to its ⌈n/K⌉-th neighbour; one
    number for all is the radius of a k-center. In `FairKMeans` a center moves only as far as its
    rows stay within reach, and the start must be one that reaches all rows.

    Parameters
    ----------
    largest : float or array (n,)
        In units of the costs: squared distances for metric "sqeuclidean".

    Returns
    -------
    Radius

    Examples
    --------
    >>> import optfair as of
    >>> of.fair_clustering.radius(4.0)
    Radius(largest=4.0)

    References
    ----------
    Jung, Kannan, Lutz: Service in Your Neighborhood, FORC 2020.
    """
    return Radius(largest)


def forbidden_arcs(arcs: Any) -> ForbiddenArcs:
    r"""Keep rows out of clusters.

    .. math:: A_{ik} = 0 \quad \forall (i, k) \in F

    Class: LP.

    Parameters
    ----------
    arcs : array (n, K) of bool
        Where no row may go.

    Returns
    -------
    ForbiddenArcs

    Examples
    --------
    >>> import optfair as of
    >>> of.fair_clustering.forbidden_arcs([[True, False], [False, False]])
    ForbiddenArcs(1 arcs)
    """
    return ForbiddenArcs(arcs)


def group_cost(upper: Any) -> GroupCost:
    r"""Bound the mean cost of the rows of each group.

    .. math:: \sum_{i \in g} \sum_k w_i A_{ik} D_{ik} \le u_g \pi_g

    Class: LP at fixed centers. ``goal="group"`` of `FairAssignment` and `FairKMeans` makes the
    largest of these means least instead.

    Parameters
    ----------
    upper : float, array (G,) or dict by group label
        Budgets, in units of the costs.

    Returns
    -------
    GroupCost

    Examples
    --------
    >>> import optfair as of
    >>> of.fair_clustering.group_cost({"female": 3.5})
    GroupCost(upper={'female': 3.5})

    References
    ----------
    Ghadiri, Samadi, Vempala: Socially Fair k-Means Clustering, FAccT 2021.
    """
    return GroupCost(upper)


# Rules on costs that no assignment keeps, proved by the least that breaks them.

# Relative excess over a budget that is the linear programs' rounding.
EXCESS = 1e-7


@dataclass(frozen=True, eq=False, repr=False)
class ExcessProof(Certificate):
    """Proof that rules on costs cannot hold: the least of what breaks them is above what is allowed."""

    problem: FairAssignment
    solution: Solution
    barred: bool
    of_objective = False

    @property
    def allowed(self) -> float:
        """What is allowed: nothing of barred arcs, a bound once."""
        return 0.0 if self.barred else 1.0

    def verify(self) -> Verdict:
        """Recompute the bound of the least excess."""
        try:
            least_problem = _excess(self.problem, barred=self.barred)
        except DeclarationError as e:
            return Verdict(False, (e.cause,))
        if not same_program(self.solution.problem, least_problem):
            return Verdict(False, (OTHER,))
        residuals = self.solution.residuals()
        ok = residuals.dual <= EXCESS and residuals.consistency <= 1e-12
        least = self.solution.bound
        grade = self.solution.grade
        if not grade.sound:
            return Verdict(False, (f"the least excess is {grade}",), grade)
        if ok and least > self.allowed:
            return Verdict(True, (), grade)
        return Verdict(False, (f"at least {least:.6g} is proved, {self.allowed:g} is allowed",))


def _excess(p: FairAssignment, *, barred: bool) -> FairAssignment:
    """Return the problem of the least weight on barred arcs, or least share of its bound a group costs."""
    demands: Demands = p.demands
    bars = replace(p.cost, charge=demands.charge).barred().T
    if barred:
        return p.charged(SeparableCost("precomputed", bars.astype(float)))
    upper = np.full(p.shares.size, np.inf) if demands.upper is None else demands.upper
    size = np.where(upper > 0.0, 1.0 / np.where(upper > 0.0, upper, 1.0), 1e6)
    scaled = p.cost.matrix() * np.where(np.isfinite(upper), size, 0.0)[p.data["groups"], None]
    least = p.charged(SeparableCost("precomputed", scaled), "group")
    return least.with_constraints(barred=forbidden_arcs(bars)) if demands.bars else least


def unreachable_costs(p: FairAssignment, *, barred: bool) -> OptfairError:
    """Prove that rules on costs cannot hold, by the least that breaks them."""
    names = [k for k, t in p.constraints.items() if isinstance(t, CostTerm)]
    proof = ExcessProof(p, _excess(p, barred=barred).solve(), barred)
    if barred and p.demands.upper is not None and not proof.verify():
        # barred arcs are used for the sake of budgets alone
        return unreachable_costs(p, barred=False)
    least = proof.solution.bound
    evidence = (
        f"at least {100 * least:.4g} % of the weight has to use barred arcs"
        if barred
        else f"some group costs at least {least:.6g} times its bound in every assignment"
    )
    others = [k for k, t in p.constraints.items() if t.scope <= {"masses"}]
    beside = f", beside {', '.join(map(repr, others))}" if others else ""
    which = f"{', '.join(map(repr, names))}{beside}"
    if not proof.verify():
        why = f"they are known to be exceeded by {proof.solution.objective:.3g} at most"
        return SolverFailure(f"no assignment was found that obeys {which}", why, "ask for highs")
    cause = f"rules on costs cannot hold at these centers: {which}"
    remedy, conflict = "allow more, or start from other centers", tuple(names)
    return Infeasible(cause, evidence, remedy, certificate=proof, conflict=conflict)
