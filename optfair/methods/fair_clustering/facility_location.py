"""Fair facility location: which sites to open, and who goes where, with rules on the masses of groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from optfair.core.adopt import declaration
from optfair.core.composition import Rule, model_goal
from optfair.core.problem import Declaration
from optfair.core.solution import Solution, check_solution
from optfair.core.term import within
from optfair.errors import DataError, DeclarationError
from optfair.methods.fair_clustering.algorithms.costs import SeparableCost
from optfair.methods.fair_clustering.assignment import (
    GroupedRows,
    cluster_count,
    declared_cost,
    each_rule,
    mass_terms,
    refuse_beyond,
)
from optfair.methods.fair_clustering.margins import finite_vector
from optfair.methods.fair_clustering.rules import ClusterShare, PerfectFairness
from optfair.numbers import (
    Floats,
    check_flag,
    check_number,
    check_text,
    check_weights,
    checked,
    encode_groups,
    floats,
)
from optfair.rows.frames import check_row_order

# What is least: the mean cost of the rows, the largest, or the largest of a site a row uses.
GOALS = ("median", "center", "bottleneck")
# Terms of a bottleneck beside those of every goal.
LEVELS = ("within radius", "nested levels")


class FairFacilityLocation(GroupedRows):
    r"""Open some of m sites and assign rows to them, with a fair share of every group in each.

    .. math::
        \min_{y, A, M}\; \sum_{i,j} w_i A_{ij} D_{ij} + \sum_j f_j y_j
        \quad\text{s.t.}\quad A \ge 0,\; A 1 = 1,\; A_{ij} \le y_j,\; y \in \{0, 1\}^m, \\
        \textstyle\sum_j y_j \le p,\; \sum_i w_i A_{ij} \le c_j y_j,\;
        M_{gj} = \sum_{i \in g} w_i A_{ij},\; \text{rules on } M

    With ``goal="center"`` the largest cost of a row takes the place of the mean,
    :math:`\min r + f^T y` with :math:`\sum_j A_{ij} D_{ij} \le r` for every row of positive weight.
    With ``goal="bottleneck"`` it is the k-center radius: the largest cost of a site that a row uses
    at all, :math:`A_{ij} > 0 \Rightarrow D_{ij} \le r`. It is one of the costs
    :math:`\rho_0 < \dots < \rho_T`, from the largest cost of a row at its nearest site on:

    .. math::
        r = \rho_0 + \sum_t (\rho_t - \rho_{t-1}) z_t,\; 1 \ge z_1 \ge \dots \ge z_T,\;
        z \in \{0, 1\}^T,\; A_{ij} \le z_t \text{ where } D_{ij} = \rho_t

    Both agree where rows are whole. See `located_sites` for the bottleneck of many rows.

    A rule that limits what each cluster holds, as `max_gap` or upper bounds of `cluster_share`,
    limits a site by that times :math:`y_j`: one that is half open has half the room.

    Class: MILP, where the rules are linear. What a solver says of the bound is its word;
    ``certificate.prove()`` closes the tree with proved bounds.

    Parameters
    ----------
    X : array-like or DataFrame (n, d), optional
        Rows. Give ``X``, or ``costs``.
    groups : array-like (n,), or DataFrame or dict with a column for each attribute
        As in `FairAssignment`.
    sites : array-like (m, d), optional
        Where centers may stand; the rows themselves by default.
    costs : array-like (n, m), optional
        Cost of each row at each site, in place of ``X`` and ``sites``.
    n_centers : int, optional
        Most sites that are opened: p-median or p-center. All may be, by default.
    opening_costs : float or array-like (m,), optional
        Cost of opening a site, in units of ``costs``; 0 by default.
    capacities : float or array-like (m,), optional
        Largest weight a site takes, in units of ``sample_weight`` (rows, by default).
    goal : {"median", "center", "bottleneck"}
        Least mean cost, least largest cost of a row, or least radius that all parts of rows obey.
    whole : bool
        Whether a row goes to one site as a whole.
    metric, p, sample_weight, fairness
        As in `FairAssignment`. A rule must hold for sites that stay closed, too, where all
        masses are 0: all but lower bounds of `cluster_share` do.

    Attributes
    ----------
    variables : ``assignment`` (n, m), ``masses`` (G, m), ``open`` (m,), and ``radius`` of a center,
        ``levels`` (T,) of a bottleneck
    group_names, shares : arrays (G,)
        Sorted labels and their weight shares.

    Raises
    ------
    DataError
        As `FairAssignment`; a number of centers out of range, capacities that do not hold the rows.
    DeclarationError
        Unknown goal or metric, a rule that cannot hold for so many open sites.

    Examples
    --------
    >>> import optfair as of
    >>> X = [[0.0], [1.0], [2.0], [9.0], [10.0], [11.0]]
    >>> groups = ["a", "b", "a", "b", "a", "b"]
    >>> p = of.fair_clustering.FairFacilityLocation(
    ...     X, groups=groups, n_centers=2, metric="l1", fairness=of.max_gap(0.4)
    ... )
    >>> p.problem_class
    MILP
    >>> s = p.solve()
    >>> p.opened(s).tolist(), round(float(s.objective), 6)
    ([1, 4], 0.666667)
    >>> bool(s.certificate.prove().verify())
    True

    References
    ----------
    Cornuejols, Nemhauser, Wolsey: The Uncapacitated Facility Location Problem, in: Discrete
    Location Theory, Wiley 1990 (the disaggregated rows :math:`A_{ij} \le y_j`).
    Chierichetti, Kumar, Lattanzi, Vassilvitskii: Fair Clustering Through Fairlets, NeurIPS 2017.
    """

    title = "FairFacilityLocation"

    @checked(
        sites=floats,
        metric=check_text,
        p=check_number,
        goal=check_text,
        whole=check_flag,
    )
    def __init__(
        self,
        X: Any = None,
        *,
        groups: Any,
        sites: Any = None,
        costs: Any = None,
        n_centers: int | None = None,
        opening_costs: Any = None,
        capacities: Any = None,
        goal: str = "median",
        whole: bool = False,
        sample_weight: Any = None,
        metric: str = "sqeuclidean",
        p: float = 2.0,
        fairness: Any = PerfectFairness(),  # noqa: B008 - a frozen value
    ) -> None:
        if goal not in GOALS:
            raise DeclarationError(
                f"unknown goal {goal!r}",
                remedy='give "median" (the mean cost), "center" or "bottleneck"',
            )
        check_row_order(X=X, costs=costs, groups=groups, sample_weight=sample_weight)
        cost = declared_cost(X, X if sites is None else sites, costs, metric, p, "sites")
        n, m = cost.rows, cost.clusters
        weights = check_weights(sample_weight, n)
        index, names, shares = encode_groups(groups, n, weights)
        total = float(n if sample_weight is None else floats(sample_weight, "sample_weight").sum())
        most = m if n_centers is None else cluster_count(n_centers, m, "n_centers", "sites")
        opening = (
            np.zeros(m) if opening_costs is None else _sizes(opening_costs, m, "opening_costs")
        )
        room = None if capacities is None else _sizes(capacities, m, "capacities") / total
        if room is not None and np.sort(room)[m - most :].sum() < 1.0 - 1e-12:
            raise DataError(
                "the capacities do not hold the rows",
                f"the {most} largest sum to {np.sort(room)[m - most :].sum() * total:g},"
                f" the rows weigh {total:g}",
                "raise them, or open more sites",
            )
        if room is not None and whole and weights.max() > room.max() * (1.0 + 1e-12):
            i = int(weights.argmax())
            raise DataError(
                f"no site has the capacity for row {i}, which is to stay whole",
                f"it weighs {weights[i] * total:g}, the largest capacity is {room.max() * total:g}",
                "raise that, or leave whole=True out: rows are then split",
            )
        super().__init__(
            {
                "cost": cost,
                "weights": weights,
                "groups": index,
                "group_names": names,
                "shares": shares,
                "n_centers": most,
                "opening_costs": opening,
                "capacities": room,
                "goal": goal,
                "whole": whole,
            }
        )
        refuse_beyond(self)
        self._add_fairness(fairness, "balance(0.4)")
        for _, rule in () if fairness is None else each_rule(fairness):
            if isinstance(rule, ClusterShare):
                _check_share(rule, m, most)

    def declare(self) -> Declaration:
        """Declare which sites are open, who goes where, and the masses of groups."""
        cost: SeparableCost = self.data["cost"]
        w, groups, opening = (self.data[k] for k in ("weights", "groups", "opening_costs"))
        n, m, G = cost.rows, cost.clusters, self.shares.size
        D, room = cost.matrix(), self.data["capacities"]
        A, M = cp.Variable((n, m), name="assignment"), cp.Variable((G, m), name="masses")
        y = cp.Variable(m, name="open")
        goals: dict[str, Any] = {}
        terms: dict[str, Any] = {
            "open sites": np.ones((n, 1)) @ cp.reshape(y, (1, m), order="F") >= A,
            "at most open": y <= 1,
        }
        if self.data["goal"] == "median":
            goals["cost"] = cp.sum(cp.multiply(w[:, None] * D, A))
        elif self.data["goal"] == "bottleneck":
            rho = self.radii()
            z = cp.Variable(max(rho.size - 1, 1), name="levels")
            goals["radius"] = rho[0] + (np.diff(rho) if rho.size > 1 else np.zeros(1)) @ z
            i, j = np.nonzero((rho[0] < D) & (w > 0)[:, None])
            terms["within radius"] = A[i, j] <= z[np.searchsorted(rho, D[i, j]) - 1]
            terms["nested levels"] = cp.diff(cp.hstack([1.0, z])) <= 0
        else:
            goals["radius"] = r = cp.Variable(name="radius")
            terms["within radius"] = (
                cp.sum(cp.multiply(D[w > 0], A[np.flatnonzero(w > 0)]), axis=1) <= r
            )
        if opening.any():
            goals["opening"] = opening @ y
        if self.data["n_centers"] < m:
            terms["number of centers"] = cp.sum(y) <= self.data["n_centers"]
        if room is not None:
            terms["capacity"] = cp.sum(M, axis=0) <= cp.multiply(room, y)
        words = {
            "cost": r"\textstyle\sum_{ij} w_i A_{ij} D_{ij}",
            "radius": "r",
            "opening": r"\textstyle\sum_j f_j y_j",
            "open sites": r"A_{ij} \le y_j",
            "at most open": r"y_j \le 1",
            "within radius": r"\textstyle\sum_j A_{ij} D_{ij} \le r",
            "number of centers": r"\textstyle\sum_j y_j \le p",
            "capacity": r"\textstyle\sum_g M_{gj} \le c_j y_j",
        }
        if self.data["goal"] == "bottleneck":
            words |= {
                "radius": r"\textstyle\rho_0 + \sum_t (\rho_t - \rho_{t-1}) z_t",
                "within radius": r"A_{ij} \le z_{t(i,j)}",
                "nested levels": r"z_1 \le 1,\; z_{t+1} \le z_t",
            }
        integers = {"open"} | ({"assignment"} if self.data["whole"] else set())
        integers |= {"levels"} if self.data["goal"] == "bottleneck" else set()
        said = [{k: (v, words[k]) for k, v in parts.items()} for parts in (goals, terms)]
        rest = declaration("minimize", *said, integers=frozenset(integers))
        return replace(
            rest,
            variables={"assignment": A, "masses": M, **rest.variables},
            constraints=(*mass_terms(A, M, groups, w, "A"), *rest.constraints),
        )

    @property
    def objective_unit(self) -> float:
        """Mean cost over all sites, at most 1: gaps mean the same in any units."""
        return min(1.0, float(np.abs(self.data["cost"].matrix()).mean())) or 1.0

    def with_constraints(self, constraints: Mapping[str, Any] | None = None, **named: Any) -> Self:
        """Return this problem with further constraints; see `Problem.with_constraints`."""
        made = super().with_constraints(constraints, **named)
        words = {
            k: replace(t, latex=rf"{t.formula}\, y_k")
            for k, t in made.constraints.items()
            if k not in self.constraints
            and "open" in t.scope
            and any(within(k, label) for label in made.rules)
        }
        return made.with_terms(made.objective, {**made.constraints, **words}) if words else made

    def moves_sides(self, rule: Rule, field: str) -> bool:
        """Limits of sites are factors of what is open."""
        return False

    def radii(self) -> Floats:
        """Return the costs that a bottleneck may be, sorted.

        No radius is below the largest cost of a row of positive weight at its nearest site.
        """
        D = self.data["cost"].matrix()[self.data["weights"] > 0]
        return np.unique(D[D.min(axis=1).max() <= D])

    def beyond(self, radius: float) -> FairFacilityLocation:
        r"""Return the problem of the least weight that must go farther than a radius.

        .. math:: \min \sum_{i,j} w_i A_{ij} [D_{ij} > r]

        A bottleneck is at most r where this is 0, and above r where a bound of it is positive.

        Parameters
        ----------
        radius : float
            In units of the costs.
        """
        w, m = self.data["weights"], self.data["cost"].clusters
        barred = np.asarray(self.data["cost"].matrix() > radius, dtype=float)
        weight = cp.sum(cp.multiply(w[:, None] * barred, self["assignment"]))
        latex = r"\textstyle\sum_{ij} w_i A_{ij} [D_{ij} > r]"
        objective = model_goal("cost", weight, latex, "minimize")
        constraints = {k: t for k, t in self.constraints.items() if k not in LEVELS}
        left = self.with_terms({"cost": objective}, constraints)
        variables = {k: v for k, v in self.variables.items() if k != "levels"}
        cost = SeparableCost("precomputed", barred)
        changed = {"cost": cost, "goal": "median", "opening_costs": np.zeros(m)}
        left._set(
            data={**self.data, **changed},
            variables=variables,
            integers=self.integers - {"levels"},
            _names={v.id: name for name, v in variables.items()},
        )
        return left

    @checked(solution=check_solution)
    def opened(self, solution: Solution) -> NDArray[np.intp]:
        """Return the sites that a solution opens, in the order of ``sites``.

        Parameters
        ----------
        solution : Solution
            Of this problem, or of one composed from it.

        Returns
        -------
        array of int
        """
        return np.flatnonzero(np.asarray(solution["open"]) > 0.5)


def _check_share(rule: ClusterShare, sites: int, most: int) -> None:
    """Refuse bounds of shares that no ``most`` of the sites can obey while the others are empty."""
    low, high = rule.limits(sites)
    largest, held = np.sort(high)[sites - most :].sum(), int((low > 0.0).sum())
    if largest < 1.0 - 1e-12:
        raise DeclarationError(
            f"{rule!r} does not hold with {most} open sites",
            f"their largest shares sum to {largest:g}, the rows to 1",
            "raise the upper bounds, or open more sites",
        )
    if held > most:
        raise DeclarationError(
            f"{rule!r} does not hold with {most} open sites",
            f"{held} sites must hold rows, and those that stay closed hold none",
            "leave the lower bounds out, or open more sites",
        )


def _sizes(value: Any, count: int, what: str) -> Floats:
    sizes = finite_vector(value, count, what)
    if (sizes < 0).any():
        at = int(np.argmin(sizes))
        raise DataError(
            f"{what} has a negative entry", f"{sizes[at]:g} at {at}", "give numbers from 0 on"
        )
    return sizes
