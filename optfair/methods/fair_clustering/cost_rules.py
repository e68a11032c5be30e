"""Rules on what rows cost and on pairs of rows: forbidden arcs, radii, costs of groups, links."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

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


def _needs_costs(problem: Any, rule: Rule) -> SeparableCost:
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
        cost = _needs_costs(problem, self)
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
        cost = _needs_costs(problem, self)
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
        cost = _needs_costs(problem, self)
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


@dataclass(frozen=True, eq=False, repr=False)
class LinkTerm(ConstraintTerm):
    """Links between rows: no rule on masses, and contradictions show before any solve.

    Attributes
    ----------
    pairs : array (m, 2)
        Rows that are linked.
    together : bool
        Whether they must be, or cannot be.
    apart : sparse (m, n)
        First row of each pair, plus or minus the second.
    """

    pairs: NDArray[np.intp] = field(default_factory=lambda: np.zeros((0, 2), dtype=np.intp))
    together: bool = True
    apart: Any = None


def check_links(constraints: Mapping[str, Any], cost: SeparableCost) -> None:
    """Raise on links that exclude each other, or leave rows no cluster.

    Raises
    ------
    DeclarationError
        Rows that must be linked and cannot be; linked rows whose barred arcs leave no cluster.
    """
    links = [t for t in constraints.values() if isinstance(t, LinkTerm)]
    if not links:
        return
    n = cost.rows
    both = np.concatenate(
        [np.zeros((0, 2), dtype=np.intp), *(t.pairs for t in links if t.together)]
    )
    graph = sp.coo_array((np.ones(len(both)), tuple(both.T)), shape=(n, n))
    parts, part = sp.csgraph.connected_components(graph, directed=False)
    for term in links:
        same = part[term.pairs[:, 0]] == part[term.pairs[:, 1]]
        clash = np.flatnonzero(same & (not term.together))
        if clash.size:
            i, j = term.pairs[clash[0]]
            raise DeclarationError(
                f"rows {i} and {j} must be linked and cannot be",
                f"{clash.size} pairs are in both, directly or through others",
                "take them out of one of the two",
            )
    for name, term in constraints.items():
        arcs = term.charge.barred if isinstance(term, CostTerm) else None
        if arcs is None:
            continue
        gathered = sp.csr_array((np.ones(n), (part, np.arange(n))), shape=(parts, n))
        free = (gathered @ arcs.astype(float) == 0.0).any(axis=1)
        stuck = np.flatnonzero(~free[part])
        if stuck.size:
            raise DeclarationError(
                f"rows that must be linked have no cluster, such as {stuck[:5].tolist()}",
                f"{name!r} bars every cluster to one of them or another",
                "take the link out, or allow a cluster to all of them",
            )


@dataclass(frozen=True, repr=False)
class _Links(Rule):
    pairs: Any

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.pairs)} pairs)"

    def rows(self, problem: Problem) -> NDArray[np.intp]:
        """Return the pairs (m, 2), checked."""
        n = _needs_costs(problem, self).rows
        pairs = np.asarray(check_table(self.pairs, "pairs"))
        if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu" or not len(pairs):
            raise DeclarationError(
                f"pairs are {pairs.dtype} of shape {pairs.shape}",
                remedy="give an array (m, 2) of row numbers",
            )
        if pairs.min() < 0 or pairs.max() >= n or (pairs[:, 0] == pairs[:, 1]).any():
            raise DeclarationError(
                "pairs name no two rows", f"there are {n} rows", "number them from 0 on"
            )
        return pairs.astype(np.intp)


def _incidence(pairs: NDArray[np.intp], rows: int, sign: float) -> sp.csr_array:
    """Return the first row of each pair plus ``sign`` times the second (m, n)."""
    m = len(pairs)
    signs, at = np.repeat([1.0, sign], m), np.tile(np.arange(m), 2)
    return sp.csr_array((signs, (at, pairs.T.ravel())), shape=(m, rows))


@dataclass(frozen=True, repr=False)
class MustLink(_Links):
    """Two rows have the same fractions in every cluster."""

    latex = r"A_{ik} = A_{jk}"

    def bind(self, problem: Problem) -> Any:
        """Return one equality per pair and cluster."""
        pairs, A = self.rows(problem), problem["assignment"]
        apart = _incidence(pairs, A.shape[0], -1.0)
        return LinkTerm(
            "must link",
            frozenset({"assignment"}),
            Evidence("must link", "affine", "Zero", LP),
            build=lambda: apart @ A == 0,
            violation=lambda v: np.abs(apart @ np.asarray(v["assignment"])),
            shape=(len(pairs), A.shape[1]),
            latex=self.latex,
            pairs=pairs,
            apart=apart,
        )


@dataclass(frozen=True, repr=False)
class CannotLink(_Links):
    """Two rows share no cluster, if they are whole."""

    latex = r"A_{ik} + A_{jk} \le 1"

    def bind(self, problem: Problem) -> Any:
        """Return one inequality per pair and cluster."""
        pairs, A = self.rows(problem), problem["assignment"]
        if A.shape[1] == 1:
            raise DeclarationError(
                "one cluster keeps no rows apart",
                f"{len(pairs)} pairs cannot be linked",
                "ask for at least two clusters",
            )
        both = _incidence(pairs, A.shape[0], 1.0)
        return LinkTerm(
            "cannot link",
            frozenset({"assignment"}),
            Evidence("cannot link", "affine", "Nonpositive", LP),
            build=lambda: both @ A <= 1,
            violation=lambda v: np.maximum(both @ np.asarray(v["assignment"]) - 1.0, 0.0),
            shape=(len(pairs), A.shape[1]),
            scale=1.0,
            latex=self.latex,
            pairs=pairs,
            together=False,
            apart=both,
        )

    def verdict(self, solution: Solution) -> Verdict:
        """Say which pairs share a cluster, by fractions or by labels."""
        A = np.asarray(solution["assignment"])
        pairs = self.rows(solution.problem)
        first, second = A[pairs[:, 0]], A[pairs[:, 1]]
        shared = np.minimum(first, second).sum(axis=1) > 1e-6
        same = first.argmax(axis=1) == second.argmax(axis=1)
        reasons = []
        if shared.any():
            reasons.append(
                f"{int(shared.sum())} of {len(pairs)} pairs share a cluster by fractions, such as"
                f" rows {pairs[np.argmax(shared)].tolist()}: half and half obeys the soft rule"
            )
        if same.any():
            reasons.append(f"{int(same.sum())} of {len(pairs)} pairs have the same label")
        return Verdict(not reasons, tuple(reasons))


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


def must_link(pairs: Any) -> MustLink:
    r"""Give both rows of each pair the same fractions.

    .. math:: A_{ik} = A_{jk} \quad \forall (i, j), k

    Class: LP. Rows that are linked, directly or through others, are merged where no other rule is on
    costs or single rows; a general solver gets m·K rows for m pairs otherwise.

    Parameters
    ----------
    pairs : array (m, 2) of int
        Numbers of rows.

    Returns
    -------
    MustLink

    Examples
    --------
    >>> import optfair as of
    >>> of.fair_clustering.must_link([[0, 1]])
    MustLink(1 pairs)
    """
    return MustLink(pairs)


def cannot_link(pairs: Any) -> CannotLink:
    r"""Keep the two rows of each pair apart.

    .. math:: A_{ik} + A_{jk} \le 1 \quad \forall (i, j), k

    Class: LP, and weak: half of both rows in each of two clusters obeys it. It says what it seems
    to say for whole rows, ``with_integrality("assignment")``; ``verdict(solution)`` of the rule
    names the pairs that share a cluster. Pairs have prices, under linear rules on masses and beside
    `must_link`; with other rules on costs or single rows a general solver gets m·K rows.

    Parameters
    ----------
    pairs : array (m, 2) of int
        Numbers of rows.

    Returns
    -------
    CannotLink

    Examples
    --------
    >>> import optfair as of
    >>> rule = of.fair_clustering.cannot_link([[0, 1]])
    >>> p = of.FairAssignment(
    ...     [[0.0], [0.1], [0.2], [5.0]], groups=list("abab"), centers=[[0.0], [5.0]], fairness=None
    ... ).with_constraints(apart=rule)
    >>> bool(rule.verdict(p.with_integrality("assignment").solve()))
    True
    """
    return CannotLink(pairs)


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
