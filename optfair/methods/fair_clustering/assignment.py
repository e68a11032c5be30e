"""The fair assignment problem: rows to clusters, with rules on the masses of groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Self

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.core.certificate import BEYOND
from optfair.core.composition import Rule
from optfair.core.expressions import Values
from optfair.core.labels import Axis
from optfair.core.problem import Declaration, Problem
from optfair.core.problem_class import LP, Evidence, Structure
from optfair.core.term import ConstraintTerm, ObjectiveTerm
from optfair.errors import DataError, DeclarationError, kind_of
from optfair.library.instance import dataset_rows, named_centers
from optfair.methods.fair_clustering.algorithms.charged_rows import Demands
from optfair.methods.fair_clustering.algorithms.costs import Charge, SeparableCost
from optfair.methods.fair_clustering.cost_rules import (
    CostTerm,
    group_costs,
    refuse_negative,
    stated_group_costs,
)
from optfair.methods.fair_clustering.links import LinkTerm, check_links
from optfair.methods.fair_clustering.metrics import gathered_masses
from optfair.methods.fair_clustering.rules import PerfectFairness
from optfair.numbers import (
    Floats,
    check_matrix,
    check_number,
    check_text,
    check_weights,
    checked,
    encode_groups,
    floats,
    whole,
)
from optfair.rows.frames import check_row_order

# The terms that fractions of rows and the masses of groups have in common.


def mass_terms(
    fractions: Any, masses: Any, groups: NDArray[np.intp], weights: Floats, symbol: str
) -> tuple[ConstraintTerm, ConstraintTerm, ConstraintTerm]:
    """Return ``row sum``, ``nonnegativity`` and ``mass definition``, built when asked for.

    Parameters
    ----------
    fractions, masses : cvxpy.Variable
        (n, K) fractions of rows and (G, K) masses of groups.
    groups, weights : arrays (n,)
        Group index and weight of each row.
    symbol : str
        What the fractions are called in print.
    """
    n, K = fractions.shape
    G = masses.shape[0]
    name = fractions.name()

    def gathering() -> Any:
        return sp.csr_array((weights, (groups, np.arange(n))), shape=(G, n))

    def row_violation(v: Values) -> Floats:
        return np.asarray(np.abs(np.asarray(v[name]).sum(axis=1) - 1.0), dtype=float)

    def mass_violation(v: Values) -> Floats:
        apart = gathered_masses(np.asarray(v[name]), groups, weights, G) - v["masses"]
        return np.asarray(np.abs(apart), dtype=float)

    def term(label: str, scope: set[str], where: str, **rest: Any) -> ConstraintTerm:
        return ConstraintTerm(label, frozenset(scope), Evidence(label, "affine", where, LP), **rest)

    return (
        term(
            "row sum",
            {name},
            "Zero",
            build=lambda: cp.sum(fractions, axis=1) == 1,
            violation=row_violation,
            shape=(n,),
            scale=1.0,
            latex=rf"\textstyle\sum_k {symbol}_{{ik}} = 1",
        ),
        term(
            "nonnegativity",
            {name},
            "Nonpositive",
            build=lambda: fractions >= 0,
            violation=lambda v: np.maximum(-np.asarray(v[name]), 0.0),
            shape=(n, K),
            latex=rf"{symbol}_{{ik}} \ge 0",
        ),
        term(
            "mass definition",
            {name, "masses"},
            "Zero",
            build=lambda: gathering() @ fractions == masses,
            violation=mass_violation,
            shape=(G, K),
            latex=rf"M_{{gk}} = \textstyle\sum_{{i \in g}} w_i {symbol}_{{ik}}",
        ),
    )


# Problems on rows that belong to groups.


def _named(fairness: Any) -> dict[Any, Any]:
    return dict(fairness) if isinstance(fairness, Mapping) else {"fairness": fairness}


def each_rule(fairness: Any) -> Iterator[tuple[Any, Any]]:
    """Yield (name, rule) of what was given: a rule, several, or rules by name."""
    for name, given in _named(fairness).items():
        for rule in given if isinstance(given, (list, tuple)) else [given]:
            yield name, rule


class GroupedRows(Problem):
    """Problem whose data name a group for each row, declared with a rule of fairness.

    Models put ``groups``, ``group_names`` and ``shares`` into their data, as `encode_groups`
    returns them.
    """

    @property
    def group_names(self) -> NDArray[Any]:
        """Sorted group labels."""
        return np.asarray(self.data["group_names"])

    def model_axes(self) -> Mapping[str, Any]:
        """Return the groups, of what has a row for each."""
        shapes = {k: t.shape for k, t in self.constraints.items()}
        if "masses" in self.variables:
            shapes["masses"] = self.variables["masses"].shape
        groups, G = Axis("group", tuple(self.group_names.tolist())), self.group_names.size
        own = (
            k for k, n in shapes.items() if len(n) == 2 and n[0] == G != len(self.data["groups"])
        )
        return dict.fromkeys(own, (groups, None))

    @property
    def shares(self) -> Floats:
        """Weight share of each group."""
        return np.asarray(self.data["shares"])

    def _add_fairness(self, fairness: Any, example: str) -> None:
        """Bind what was given with the declaration: a rule, several, or rules by name."""
        if fairness is None:
            return
        for name, rule in each_rule(fairness):
            if not isinstance(name, str):
                raise DeclarationError(
                    f"the rule name {name!r} is no string", remedy="name it in words"
                )
            if not isinstance(rule, Rule):
                raise DeclarationError(
                    f"{name} is {kind_of(rule)}, not a rule",
                    remedy=f"give a rule such as optfair.{example}, a list or dict of rules,"
                    " or None and add constraints after",
                )
        bound = self.with_constraints(_named(fairness))
        self._set(constraints=bound.constraints, _bound=bound.rules)


# The fair assignment problem: rows to clusters, with rules on the masses of groups.

# Rows whose costs say what size a cost has.
SAMPLED = 1_000


class FairAssignment(GroupedRows):
    r"""Assign rows to clusters at least cost, with a fair share of every group in each.

    .. math::
        \min_{A, M}\; \sum_{i,k} w_i A_{ik} D_{ik}
        \quad\text{s.t.}\quad A \ge 0,\; A 1 = 1,\;
        M_{gk} = \sum_{i \in g} w_i A_{ik},\; \text{rules on } M

    With ``goal="group"`` the largest mean cost of a group is least instead,
    :math:`\max_g \sum_{i \in g, k} w_i A_{ik} D_{ik} / \pi_g`.

    Class: LP, and whatever class the rules on the masses have.

    With perfect fairness and two groups this is the Kantorovich problem of fair clustering
    via alignment in (n0 + n1) K instead of n0 n1 variables, with the same optimum; see
    `factor_coupling`. It holds for any number of groups and any cost.

    Parameters
    ----------
    X : array-like or DataFrame (n, d), optional
        Rows. Give ``X`` and ``centers``, or ``costs``.
    groups : array-like (n,), or DataFrame or dict with a column for each attribute
        Group label of each row; at least two groups. Several attributes make a group of each
        set of values that occurs, ``sex=female, race=black``; rules compare all these, or
        some attributes (``on=``).
    centers : array-like (K, d), optional
        Cluster centers.
    costs : array-like (n, K), optional
        Cost of each row in each cluster, in place of ``X`` and ``centers``.
    sample_weight : array-like (n,), optional
        Non-negative weights; rescaled to sum 1. Equal by default.
    metric : {"sqeuclidean", "l1", "lp"}
        Cost between row and center: sum of squared, absolute or p-th power differences.
    p : float
        Power of metric "lp".
    fairness : Rule, list of rules, dict of rules by name, or None
        Bound under the name ``fairness``, or the names given; perfect fairness by default, None
        for plain assignment.
    goal : {"mean", "group"}
        Least mean cost, or least largest mean cost of a group (socially fair k-means).

    Attributes
    ----------
    variables : ``assignment`` (n, K) fractions, ``masses`` (G, K) weight shares
    group_names, shares : arrays (G,)
        Sorted labels and their weight shares.

    Raises
    ------
    DataError
        NaN or infinite entries, lengths that do not fit, one group, an empty group, K > n.
    DeclarationError
        Unknown metric, a rule that cannot hold.

    Examples
    --------
    >>> import numpy as np
    >>> import optfair as of
    >>> X = np.array([[0.0], [1.0], [2.0], [10.0]])
    >>> p = of.FairAssignment(X, groups=["a", "a", "b", "b"], centers=[[0.0], [10.0]])
    >>> p.problem_class
    LP
    >>> s = p.solve()
    >>> float(s.objective), s.solver
    (21.25, 'mass-dual')

    References
    ----------
    Kim, Lee, Park, Kim: Fair Clustering via Alignment, ICML 2025, eq. (4), in factored form.
    Bera et al.: Fair Algorithms for Clustering, NeurIPS 2019 (proportional bounds).
    Ghadiri, Samadi, Vempala: Socially Fair k-Means Clustering, FAccT 2021.
    """

    title = "FairAssignment"
    structures: ClassVar[tuple[Structure, ...]] = (
        Structure(
            "mass-assignment",
            ("cost", "row sum", "nonnegativity", "mass definition"),
            frozenset({"masses"}),
            "a rule on the masses",
        ),
    )

    @checked(centers=floats, metric=check_text, p=check_number, goal=check_text)
    def __init__(
        self,
        X: Any = None,
        *,
        groups: Any,
        centers: Any = None,
        costs: Any = None,
        sample_weight: Any = None,
        metric: str = "sqeuclidean",
        p: float = 2.0,
        fairness: Any = PerfectFairness(),  # noqa: B008 - a frozen value
        goal: str = "mean",
    ) -> None:
        if goal not in ("mean", "group"):
            raise DeclarationError(f"unknown goal {goal!r}", remedy='give "mean" or "group"')
        check_row_order(X=X, costs=costs, groups=groups, sample_weight=sample_weight)
        cost = declared_cost(X, centers, costs, metric, p)
        if goal == "group":
            refuse_negative(cost, 'goal="group"')
        n, K = cost.rows, cost.clusters
        if n < K:
            raise DataError(f"{K} clusters for {n} rows", remedy="ask for at most as many as rows")
        weights = check_weights(sample_weight, n)
        index, names, shares = encode_groups(groups, n, weights)
        super().__init__(
            {
                "cost": cost,
                "weights": weights,
                "groups": index,
                "group_names": names,
                "shares": shares,
                "goal": goal,
            }
        )
        refuse_beyond(self)
        self._add_fairness(fairness, "balance(0.4)")

    movable = MappingProxyType({"centers": ""})

    @property
    def centers(self) -> Floats | None:
        """Centers (K, d), none of a problem declared from costs."""
        return None if self.cost.metric == "precomputed" else self.cost.centers

    def with_data(self, **changed: Any) -> FairAssignment:
        """Return this problem with other centers."""
        return self.with_centers(changed["centers"])

    @property
    def demands(self) -> Demands:
        """What the goal and rules on costs ask of costs, for the mass-dual algorithm."""
        terms = [t for t in self.constraints.values() if isinstance(t, CostTerm)]
        limits = [t.charge.limits for t in terms if t.charge.limits is not None]
        barred = [t.charge.barred for t in terms if t.charge.barred is not None]
        upper = [t.upper for t in terms if t.upper is not None]
        charge = Charge(
            limits=np.min(limits, axis=0) if limits else None,
            barred=np.any(barred, axis=0) if barred else None,
        )
        most = np.min(upper, axis=0) if upper else None
        return Demands(charge, most, self.data["goal"] == "group")

    def with_constraints(self, constraints: Mapping[str, Any] | None = None, **named: Any) -> Self:
        """Return this problem with further constraints; see `Problem.with_constraints`.

        Raises
        ------
        DeclarationError
            Also links between rows that exclude each other, in whatever order they come.
        """
        made = super().with_constraints(constraints, **named)
        check_links(made.constraints, made.cost)
        return made

    def structure_refusal(self, name: str) -> str:
        """Return why a structure does not stand; the mass-dual algorithm prices rules on costs.

        It merges rows that must be together and prices links between others.
        """
        if name != "mass-assignment":
            return super().structure_refusal(name)
        plain = self.charged(self.cost)
        kept = {k: t for k, t in plain.constraints.items() if k not in self.links}
        plain = plain._child(constraints=MappingProxyType(kept))
        return Problem.structure_refusal(plain, name)

    @property
    def links(self) -> dict[str, LinkTerm]:
        """Terms that link rows to others, by name."""
        return {k: t for k, t in self.constraints.items() if isinstance(t, LinkTerm)}

    def charged(self, cost: SeparableCost, goal: str = "mean") -> FairAssignment:
        """Return the problem without rules on costs, at the costs and with the goal given."""
        kept = {k: t for k, t in self.constraints.items() if not isinstance(t, CostTerm)}
        # prices are of other costs, and of another goal
        other = {"cost": cost, "goal": goal, **dict.fromkeys(("prices", "duals", "known"))}
        data = MappingProxyType({**self.data, **other})
        child = self._child(data=data, constraints=MappingProxyType(kept))
        objective = {**self.objective, "cost": child._cost_term(cost, self["assignment"])}
        return child._child(objective=MappingProxyType(objective))

    @property
    def cost(self) -> SeparableCost:
        """Costs of rows in clusters."""
        cost: SeparableCost = self.data["cost"]
        return cost

    @property
    def objective_unit(self) -> float:
        """Mean cost of some rows over all clusters, at most 1: gaps mean the same in any units."""
        unit: float | None = self.__dict__.get("_unit")
        if unit is None:
            unit = min(1.0, typical_cost(self)) or 1.0
            self._set(_unit=unit)
        return unit

    def declare(self) -> Declaration:
        """Declare variables and the model's own terms; nothing of size n is built."""
        n, K, G = self.cost.rows, self.cost.clusters, self.shares.size
        w, groups = self.data["weights"], self.data["groups"]
        A, M = cp.Variable((n, K), name="assignment"), cp.Variable((G, K), name="masses")

        return Declaration(
            variables={"assignment": A, "masses": M},
            objective=(self._cost_term(self.cost, A),),
            constraints=mass_terms(A, M, groups, w, "A"),
        )

    def _cost_term(self, cost: SeparableCost, A: Any) -> ObjectiveTerm:
        w = self.data["weights"]
        if self.data["goal"] == "group":
            unit = float(np.exp2(np.round(np.log2(self.objective_unit))))
            return ObjectiveTerm(
                "cost",
                frozenset({"assignment"}),
                Evidence("cost", "convex", "minimize", LP),
                build=lambda: unit * cp.max(stated_group_costs(self, cost, unit)),
                latex=r"\max_g \textstyle\sum_{i \in g, k} w_i A_{ik} D_{ik} / \pi_g",
                value=lambda v: float(group_costs(self, cost, np.asarray(v["assignment"])).max()),
            )
        return ObjectiveTerm(
            "cost",
            frozenset({"assignment"}),
            Evidence("cost", "affine", "minimize", LP),
            build=lambda: cp.sum(cp.multiply(w[:, None] * cost.matrix(), A)),
            latex=r"\textstyle\sum_{i,k} w_i A_{ik} D_{ik}",
            value=lambda v: cost.mean(w, np.asarray(v["assignment"])),
        )

    def with_centers(
        self,
        centers: Any,
        *,
        prices: Floats | None = None,
        duals: Floats | None = None,
        known: Any = None,
    ) -> FairAssignment:
        """Return this problem with other centers; rules, groups and weights stay.

        Parameters
        ----------
        centers : array-like (K, d)
            As many centers as before.
        prices : array (G, K), optional
            Multipliers of ``mass definition`` where a search for them starts.
        duals : array (2, G), optional
            Prices of the largest mean cost of a group and of budgets, to start from likewise.
        known : MassResult, optional
            Where a search ended: it is gone on with if that is no optimum.
        """
        old = self.cost
        if old.metric == "precomputed":
            raise DeclarationError(
                "this problem was declared from costs, it has no centers",
                remedy="declare it from X and centers",
            )
        new = check_matrix(centers, "centers", columns=old.points.shape[1])
        if new.shape != old.centers.shape:
            raise DataError(
                f"{new.shape[0]} centers for {old.clusters} clusters",
                remedy="give as many centers as before",
            )
        cost = SeparableCost(old.metric, old.points, new, old.p)
        objective = {**self.objective, "cost": self._cost_term(cost, self["assignment"])}
        terms = {
            k: t.at(cost) if isinstance(t, CostTerm) else t for k, t in self.constraints.items()
        }
        start = {"prices": prices, "duals": duals, "known": known}
        return self._child(
            data=MappingProxyType({**self.data, "cost": cost, **start}),
            objective=MappingProxyType(objective),
            constraints=MappingProxyType(terms),
        )


def typical_cost(problem: GroupedRows) -> float:
    """Return the mean absolute cost of some rows over all clusters."""
    cost: SeparableCost = problem.data["cost"]
    step = max(1, cost.rows // SAMPLED)
    return float(np.abs(cost.columns(slice(None, None, step))).mean())


def refuse_beyond(problem: GroupedRows) -> None:
    """Raise where costs are so large that no optimum would be taken for one."""
    if (size := typical_cost(problem)) >= BEYOND:
        raise DataError(
            f"rows cost about {size:.1e} in a cluster",
            f"numbers from {BEYOND:.0e} on count as no optimum",
            "state rows or costs in larger units, as X / 1e6, or standardize the columns",
        )


def cluster_count(value: Any, most: int, what: str, places: str) -> int:
    """Return a number of clusters or centers, at most that of the places for them."""
    if not whole(value) or not 1 <= value <= most:
        raise DataError(
            f"{what}={value!r} is not a number of {what.removeprefix('n_')}",
            f"there are {most} {places}",
            f"give an integer from 1 to {most}",
        )
    return int(value)


def declared_cost(
    X: Any, centers: Any, costs: Any, metric: str, p: float, what: str = "centers"
) -> SeparableCost:
    """Return the costs of rows at centers, from either of the two ways to state them."""
    if (costs is None) == (X is None):
        raise DeclarationError(
            "give rows X with centers, or a cost matrix, and not both",
            remedy="FairAssignment(X, groups=, centers=) or FairAssignment(costs=, groups=)",
        )
    if costs is not None:
        if centers is not None:
            raise DeclarationError("centers are not used with costs", remedy="leave centers out")
        return SeparableCost("precomputed", check_matrix(costs, "costs"))
    if centers is None:
        raise DeclarationError("centers are missing", remedy="give centers (K x d), or costs")
    if metric == "precomputed":
        raise DeclarationError(
            "metric 'precomputed' needs costs", remedy="FairAssignment(costs=, groups=)"
        )
    points = check_matrix(X, "X")
    return SeparableCost(metric, points, check_matrix(centers, what, columns=points.shape[1]), p)


# From a [data] table, and the smallest problem.


def assignment_arguments(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `FairAssignment`.

    With ``dataset``, X, groups and centers come from a data set; any other entry is an
    argument as it stands. ``fairness = "none"`` leaves the default rule out.
    """
    arguments = dict(data)
    if "dataset" in data:
        X, labels, centers = dataset_rows(arguments)
        arguments |= {"X": X, "groups": labels, "centers": named_centers(centers, X)}
    return _without_rule(arguments)


def bound_arguments(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `FairKMeansBound`: as of `FairAssignment`, but no centers."""
    arguments = dict(data)
    if "dataset" in data:
        X, labels, _ = dataset_rows(arguments, centers=False)
        arguments |= {"X": X, "groups": labels}
    return _without_rule(arguments)


def _without_rule(arguments: dict[str, Any]) -> dict[str, Any]:
    if arguments.get("fairness") == "none":
        arguments["fairness"] = None
    return arguments


def small_assignment() -> FairAssignment:
    """Return a problem with the structure ``mass-assignment``: three rows, two clusters."""
    rows = [[0.0], [1.0], [3.0]]
    return FairAssignment(rows, groups=[0, 1, 0], centers=rows[:2])
