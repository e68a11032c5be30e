"""A global lower bound on fair k-means, and how far a clustering may be from the best one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np

from optfair.compile.conic_proof import RescaledProof, times
from optfair.core.adopt import declaration
from optfair.core.composition import Rule, rows_term
from optfair.core.problem import Declaration, Problem
from optfair.core.solution import Solution, check_solution
from optfair.core.term import ObjectiveTerm
from optfair.errors import DataError, DeclarationError, kind_of
from optfair.methods.fair_clustering.algorithms.partition_relaxation import hull_sides
from optfair.methods.fair_clustering.assignment import GroupedRows, cluster_count
from optfair.methods.fair_clustering.certified_labels import MOST_COUNTS, allowed_counts
from optfair.methods.fair_clustering.rules import (
    AdditiveGap,
    Balance,
    ClusterShare,
    MaxGap,
    PerfectFairness,
    Proportion,
    is_on_each_cluster,
    pair_differences,
)
from optfair.numbers import (
    Floats,
    Indices,
    check_choice,
    check_matrix,
    check_number,
    check_weights,
    checked,
    encode_groups,
)
from optfair.rows.frames import check_row_order

# Solve a problem whose objective is in large or small units as one with an objective near 1.


def solve_rescaled(
    problem: Problem, divided: Problem, unit: float, solve: Callable[[Problem], Solution]
) -> Solution:
    """Solve a problem with its objective divided by a power of two, and return to its units.

    Parameters
    ----------
    problem : Problem
        What the solution is of.
    divided : Problem
        A copy of it; its objective is replaced.
    unit : float
        A power of two, so that no digit changes.
    solve : callable
        Solves the divided problem.
    """
    objective = {name: _divided(term, unit) for name, term in problem.objective.items()}
    solution = solve(divided.with_terms(objective, problem.constraints))
    return replace(
        solution,
        problem=problem,
        objective=solution.objective * unit,
        bound=solution.bound * unit,
        unit=solution.unit * unit,
        multipliers=times(solution.multipliers, unit),
        proof=None if solution.proof is None else RescaledProof(problem, solution.proof, unit),
    )


def _divided(term: ObjectiveTerm, unit: float) -> ObjectiveTerm:
    return replace(
        term, build=lambda: term.build() / unit, value=lambda values: term.value(values) / unit
    )


# A global lower bound on fair k-means: the semidefinite relaxation of Peng and Wei, with rules.


# Rules that hold for averages of clusters when they hold for the clusters; and those that compare
# them with constants, which do where each row has a whole cluster.
CARRIED = (PerfectFairness, Balance, Proportion, AdditiveGap)
WHOLE = (MaxGap, ClusterShare)


class FairKMeansBound(GroupedRows):
    r"""Bound the cost of every fair k-means clustering, whatever its centers.

    .. math::
        \min_{S, M}\; \sum_i w_i \|x_i - \bar x\|^2
        - \sum_{i,j} \sqrt{w_i w_j}\, S_{ij} (x_i - \bar x)^T (x_j - \bar x)
        \quad\text{s.t.}\quad S \succeq 0,\; S \ge 0,\; S \sqrt w = \sqrt w,\;
        \operatorname{tr} S \le K, \\
        M_{gi} = \sqrt{w_i} \textstyle\sum_{j \in g} \sqrt{w_j}\, S_{ij},\; \text{rules on } M

    Class: SDP.

    A soft assignment A of masses :math:`m_k = \sum_i w_i A_{ik}` gives the feasible
    :math:`S_{ij} = \sqrt{w_i w_j} \sum_k A_{ik} A_{jk} / m_k`. There the objective, which the row
    sums make :math:`\tfrac12 \sum_{ij} \sqrt{w_i w_j} S_{ij} \|x_i - x_j\|^2`, is its cost
    :math:`\sum_{ik} w_i A_{ik} \|x_i - \mu_k\|^2` at the best centers, the means. So the optimum
    is a bound for hard and soft clusterings with at most K clusters, over all centers; see
    `optimality_gap`. The trace of a hard clustering is its number of clusters, that of a soft
    one is smaller: an equality would cut off soft clusterings that are fair.

    The relaxation knows the masses of the clusters through n averages of them only:
    :math:`M = M^{\text{clusters}} T` with :math:`T_{ki} = w_i A_{ik} / m_k \ge 0,\; T 1 = 1`. Rules
    that survive this carry over: `perfect_fairness`, `balance` and `proportion`, linear and
    homogeneous in each column, and `additive_gap`, which sums a norm of the columns. `max_gap`
    and `cluster_share` compare a column with a constant and do not.

    With ``labels="hard"`` the bound is for labels of whole rows, which obey more: with
    :math:`Z_{ij} = S_{ij} / \sqrt{w_i w_j}`, 1 over the mass of a cluster for two of its rows and 0
    for rows of two clusters,

    .. math:: Z_{ij} + Z_{il} \le Z_{ii} + Z_{jl}, \qquad
        |M_{gi}/\pi_g - M_{hi}/\pi_h| \le \varepsilon\, S_{ii}, \qquad
        l\, S_{ii} \le w_i \le u\, S_{ii}

    hold, the last two under `max_gap` and `cluster_share`. Where rows weigh the same, sizes and
    compositions of clusters that a rule allows are counted, and :math:`(S_{ii}, M_{gi}/w_i)` lies in
    the hull of :math:`(1/|C|, |C \cap g|/|C|)` over these clusters C. The
    :math:`n (n-1) (n-2) / 2` triangles are generated. This bound is often the optimum, where that of
    fractions is percents below.

    `solve` measures the objective in units of the rows' mean squared distance from their mean,
    ``objective_unit`` (a power of 4 near it), so rows may be in any units.

    Fractions may cost less than labels of whole rows; `certified_kmeans` finds the best of these for
    up to some hundred rows, by branching, with its proof.

    With the default solver n = 20, 30, 50 and 80 rows take about 0.05, 0.2, 2 and 25 s. Equal
    rows of one group may be given once with their summed weight: the bound is the same.

    Parameters
    ----------
    X : array-like or DataFrame (n, d)
        Rows; the cost is the squared distance.
    groups : array-like (n,)
        Group label of each row; at least two groups.
    n_clusters : int
        Largest number of clusters K.
    fairness : Rule or None
        Rule under the name ``fairness``; None bounds plain k-means.
    sample_weight : array-like (n,), optional
        Non-negative weights; rescaled to sum 1. Equal by default. Rows of weight 0 are left
        out.
    labels : {"soft", "hard"}
        Whether fractions of rows are bounded too.

    Attributes
    ----------
    variables : ``projection`` (n, n) symmetric, ``masses`` (G, n) weight shares
        S is the orthogonal projection on the (scaled) indicators of a hard clustering's
        clusters; ``masses[:, i]`` is :math:`w_i` times the average composition of the
        clusters of row i.
    group_names, shares : arrays (G,)
        Sorted labels and their weight shares.

    Raises
    ------
    DataError
        NaN or infinite entries, lengths that do not fit, one group, an empty group, K > n.
    DeclarationError
        A rule that cannot hold, or that does not carry over to the relaxation.

    Examples
    --------
    >>> import optfair as of
    >>> from optfair.methods.fair_clustering.bound import FairKMeansBound
    >>> from optfair.methods.fair_clustering.bound import optimality_gap
    >>> X, groups = [[0.0], [1.0], [10.0], [11.0]], ["a", "a", "b", "b"]
    >>> plain = FairKMeansBound(X, groups=groups, n_clusters=2, fairness=None).solve()
    >>> plain.problem.problem_class, round(plain.bound, 5)  # two pairs
    (SDP, 0.25)
    >>> fair = FairKMeansBound(X, groups=groups, n_clusters=2).solve()
    >>> round(fair.bound, 5)  # rows 0 and 2, and rows 1 and 3: no fair clustering is cheaper
    25.0
    >>> round(optimality_gap([0, 1, 0, 1], fair), 5)
    0.0

    References
    ----------
    Peng, Wei: Approximating K-means-type Clustering via Semidefinite Programming, SIAM
    Journal on Optimization 18 (2007).
    """

    title = "FairKMeansBound"

    def __init__(
        self,
        X: Any,
        *,
        groups: Any,
        n_clusters: int,
        fairness: Rule | None = PerfectFairness(),  # noqa: B008 - a frozen value
        sample_weight: Any = None,
        labels: str = "soft",
    ) -> None:
        check_choice(labels, "labels", ("soft", "hard"))
        check_row_order(X=X, groups=groups, sample_weight=sample_weight)
        points = check_matrix(X, "X")
        weights = check_weights(sample_weight, points.shape[0])
        index, names, shares = encode_groups(groups, points.shape[0], weights)
        kept = weights > 0
        super().__init__(
            {
                "points": points[kept],
                "weights": weights[kept],
                "groups": index[kept],
                "group_names": names,
                "shares": shares,
                "n_clusters": cluster_count(
                    n_clusters, int(kept.sum()), "n_clusters", "rows of positive weight"
                ),
                "kept": kept,
                "labels": labels,
            }
        )
        self._add_fairness(fairness, "balance(0.4)")

    @property
    def objective_unit(self) -> float:
        """Power of 4 near the rows' mean squared distance from their mean; 1 where that is 0."""
        unit: float | None = self.__dict__.get("_unit")
        if unit is None:
            w, X = self.data["weights"], self.data["points"]
            spread = float(w @ np.square(X - w @ X).sum(axis=1))
            unit = float(4.0 ** np.round(0.5 * np.log2(spread))) if spread > 0 else 1.0
            self._set(_unit=unit)
        return unit

    def solve(self, solver: str | None = None, **options: Any) -> Solution:
        """Solve with the objective in its unit, and return to that of the rows.

        Solvers, and the residuals that results are held to, know 1 as a size: in the units of
        the rows large costs leave large residuals, and small ones none.

        Parameters
        ----------
        solver : str, optional
            As in `optfair.solve`, as are further keywords.
        **options
            Options of `optfair.solve`.

        Returns
        -------
        Solution
            Objective, bound and multipliers in the units of the rows, squared.
        """
        earlier = options.get("warm_start")
        if isinstance(earlier, Solution) and isinstance(earlier.proof, RescaledProof):
            options["warm_start"] = replace(earlier, proof=earlier.proof.divided)
        return solve_rescaled(
            self,
            self._child(_unit=1.0),
            self.objective_unit,
            lambda divided: Problem.solve(divided, solver, **options),
        )

    def declare(self) -> Declaration:
        """Declare the projection, the averaged masses and the relaxation's own terms."""
        w, X = self.data["weights"], self.data["points"]
        v, n, G, K = np.sqrt(w), w.size, self.shares.size, self.data["n_clusters"]
        S = cp.Variable((n, n), name="projection", symmetric=True)
        M = cp.Variable((G, n), name="masses")
        # inner products and not distances: a diagonal of zeros is ill scaled for solvers
        scaled = v[:, None] * (X - w @ X)
        generated = []
        if self.data["labels"] == "hard" and n > 2:
            i, j, other = _triangles(n)
            Z = w.mean() / np.outer(v, v)

            def entries(a: Indices, b: Indices) -> Any:
                return cp.multiply(Z[a, b], S[a, b])

            def triangles(some: Indices) -> Any:
                a, b, c = i[some], j[some], other[some]
                return entries(a, b) + entries(a, c) <= entries(a, a) + entries(b, c)

            latex = r"Z_{ij} + Z_{il} \le Z_{ii} + Z_{jl}, \; Z_{ij} = S_{ij} / \sqrt{w_i w_j}"
            generated.append(rows_term("triangle", triangles, i.size, latex))
        relaxation = declaration(
            "minimize",
            {
                "cost": (
                    np.square(scaled).sum() - cp.sum(cp.multiply(scaled @ scaled.T, S)),
                    r"\textstyle\sum_i w_i \|x_i - \bar x\|^2"
                    r" - \sum_{ij} \sqrt{w_i w_j} S_{ij} (x_i - \bar x)^T (x_j - \bar x)",
                )
            },
            {
                "row sum": (S @ v == v, r"S \sqrt w = \sqrt w"),
                "cluster count": (cp.trace(S) <= K, r"\operatorname{tr} S \le K"),
                # S is symmetric and its diagonal is not negative when it is semidefinite
                "nonnegativity": (S[np.triu_indices(n, 1)] >= 0, r"S_{ij} \ge 0"),
                "semidefinite": (S >> 0, r"S \succeq 0"),
                "mass definition": (
                    cp.multiply(self._members() @ S, v[None, :]) == M,
                    r"M_{gi} = \sqrt{w_i} \textstyle\sum_{j \in g} \sqrt{w_j} S_{ij}",
                ),
            },
        )
        return replace(relaxation, constraints=(*relaxation.constraints, *generated))

    def _members(self) -> Floats:
        """Return the square roots of the weights of each group's rows (G x n)."""
        v, groups = np.sqrt(self.data["weights"]), self.data["groups"]
        return np.asarray(v * (groups == np.arange(self.shares.size)[:, None]))

    def bound_parts(self, name: str, item: Any) -> dict[str, Any]:
        """Return constraints by term name; rules that do not carry over are refused."""
        if not isinstance(item, Rule):
            return super().bound_parts(name, item)
        if self.data["labels"] == "soft":
            if not isinstance(item, CARRIED):
                raise _not_carried(item, self.data["n_clusters"])
            return super().bound_parts(name, item)
        if not isinstance(item, CARRIED + WHOLE):
            raise _not_carried(item, self.data["n_clusters"])
        S, w = self.variables["projection"], self.data["weights"]
        own = cp.diag(S)
        if isinstance(item, MaxGap):
            apart, pairs = pair_differences(self, item)
            parts = {name: cp.abs(apart) <= item.eps * np.ones((pairs, 1)) @ own[None, :]}
        elif isinstance(item, ClusterShare):
            K = self.data["n_clusters"]
            low, high = item.limits(K)
            parts = {f"{name}.lower": low.min() * own <= w, f"{name}.upper": high.max() * own >= w}
        else:
            parts = super().bound_parts(name, item)
        clusters = self._clusters(item)
        if clusters is not None:
            normals, offsets = clusters
            share = cp.multiply(self.variables["masses"][:-1], 1.0 / w[None, :])
            parts[f"{name}.clusters"] = normals @ cp.vstack([own[None, :], share]) <= offsets[
                :, None
            ] * np.ones(w.size)
        return parts

    def _clusters(self, rule: Rule) -> tuple[Floats, Floats] | None:
        """Return sides of the hull of what clusters may be: 1 over their rows, and shares of groups.

        None where rows weigh differently, the rule is not on each cluster, or no two differ.
        """
        w, groups = self.data["weights"], self.data["groups"]
        many = np.prod(np.bincount(groups) + 1.0) > MOST_COUNTS
        K = self.data["n_clusters"]
        if not is_on_each_cluster(rule, K) or np.ptp(w) > 0.0 or many:
            return None
        counts, _ = allowed_counts(self.group_names[groups], groups, K, rule)
        if len(counts) < 2:
            return None
        size = counts.sum(axis=1, keepdims=True)
        return hull_sides(np.hstack([1.0 / size, counts[:, :-1] / size]))

    def lift(self, assignment: Any) -> dict[str, Floats]:
        """Return the point of the relaxation that a clustering gives.

        The declared objective there is the cost of the clustering at its best centers.

        Parameters
        ----------
        assignment : array-like (n,) of int, or (n, K)
            Labels, or fractions of each row.

        Returns
        -------
        dict
            ``projection`` and ``masses``, whose constraints hold as far as the clustering
            obeys the rules.

        Raises
        ------
        DataError
            An array of another shape or type.
        """
        A = _fractions(assignment, self.data["kept"].size)[self.data["kept"]]
        v = np.sqrt(self.data["weights"])
        U = v[:, None] * A
        masses = v @ U
        filled = masses > 0
        root = U[:, filled] / np.sqrt(masses[filled])
        S = root @ root.T
        return {"projection": S, "masses": (self._members() @ S) * v}


def _triangles(n: int) -> tuple[Indices, Indices, Indices]:
    """Return every row with every pair of others."""
    first, second = np.triu_indices(n, 1)
    row = np.arange(n)[:, None]
    at, pair = np.nonzero((row != first) & (row != second))
    return at, first[pair], second[pair]


def _fractions(assignment: Any, rows: int) -> Floats:
    """Return fractions (n, K) of labels or fractions; rounding below 0 is cut off."""
    given = np.asarray(assignment)
    if given.shape == (rows,) and given.dtype.kind in "iu":
        return np.asarray(given[:, None] == np.unique(given), dtype=float)
    if given.ndim == 2 and given.shape[0] == rows:
        return np.maximum(check_matrix(given, "clustering"), 0.0)
    raise DataError(
        "clustering is neither labels nor fractions of the rows",
        f"shape {given.shape}, type {given.dtype}, for {rows} rows",
        "give one integer label per row, or an array of rows x clusters",
    )


def _not_carried(rule: Rule, n_clusters: int) -> DeclarationError:
    """Say why a rule on clusters is no rule on their averages, and what is."""
    remedy = "leave it out"
    if isinstance(rule, MaxGap):
        remedy = f"give additive_gap({min(2.0, n_clusters * rule.eps):g}), which follows from it"
    whole = ", or bound labels of whole rows: labels='hard'" * isinstance(rule, WHOLE)
    return DeclarationError(
        f"{type(rule).__name__} does not carry over to the relaxation",
        "the relaxation knows weighted averages of the clusters' masses; a comparison with a"
        " constant can hold for every cluster and fail for them",
        f"{remedy}: the bound is then lower, but valid{whole}",
    )


# How far a clustering may be from the best one, by a bound over all centers.


@checked(bound=check_solution, tolerance=check_number)
def optimality_gap(clustering: Any, bound: Solution, *, tolerance: float = 1e-6) -> float:
    r"""Return how far a clustering may be from the best one, as a share of its cost.

    .. math:: (\text{cost} - \text{bound}) / \text{cost}

    Proved: no clustering that obeys the rules of the bound, hard or soft, with any centers,
    costs less than the bound. Part of the gap may be the relaxation's own.

    Parameters
    ----------
    clustering : array-like (n,) of int, or (n, K), FairKMeans, or float
        Labels, fractions or a fitted estimator: the assignment is checked against the rules
        and costed at its best centers. Or the cost alone, the weighted mean of squared
        distances; nothing can be checked then. Where only the soft assignment obeys the
        rules, it is that one's cost.
    bound : Solution
        Solution of a `FairKMeansBound`; only its dual side is used.
    tolerance : float
        Relative violation that counts as rounding, and how far below the bound a cost may be,
        relative to the bound or the rows' mean squared distance from their mean.

    Returns
    -------
    float
        Between 0 and 1.

    Raises
    ------
    DeclarationError
        A solution of another problem, or one that does not prove its bound.
    DataError
        A clustering that breaks a constraint of the bound, or a cost below it.

    Examples
    --------
    >>> import optfair as of
    >>> from optfair.methods.fair_clustering.bound import FairKMeansBound
    >>> from optfair.methods.fair_clustering.bound import optimality_gap
    >>> X, groups = [[0.0], [1.0], [10.0], [11.0]], ["a", "a", "b", "b"]
    >>> bound = FairKMeansBound(X, groups=groups, n_clusters=2).solve()
    >>> round(optimality_gap([0, 1, 1, 0], bound), 3), round(optimality_gap(50.0, bound), 3)
    (0.01, 0.5)
    """
    lowest = _proved(bound, tolerance)
    whole = bound.problem.data["labels"] == "hard"
    given = getattr(clustering, "labels_" if whole else "soft_assignment_", clustering)
    cost = _cost(given, bound.problem, tolerance)
    if cost < lowest - tolerance * max(bound.problem.objective_unit, lowest):
        raise DataError(
            f"cost {cost:.10g} is below the bound",
            f"no clustering that obeys the rules costs less than {lowest:.10g}",
            "take both from the same rows, weights, number of clusters, squared distances and"
            " rules; hard labels may break a rule that the soft assignment obeys",
        )
    return max(0.0, cost - lowest) / cost if cost > 0 else 0.0


def _proved(bound: Solution, tolerance: float) -> float:
    """Return the bound that a solution proves; costs are never negative."""
    if not isinstance(bound, Solution) or not isinstance(bound.problem, FairKMeansBound):
        given = bound.problem if isinstance(bound, Solution) else bound
        raise DeclarationError(
            f"the bound is {kind_of(given)}, not a solution of a FairKMeansBound",
            remedy="give FairKMeansBound(X, groups=, n_clusters=).solve()",
        )
    residuals = bound.residuals()
    # a stop before the optimum, or loose multipliers, leave a weaker bound, but a bound
    grade = residuals.grade(tolerance)
    if not grade.sound or not residuals.consistency <= 1e-12:
        raise DeclarationError(
            "this solution does not prove its bound",
            f"it is {grade}; its multipliers differ from the proof's by {residuals.consistency:.1e}"
            if bound.proof
            else "it has no proof, as when loaded",
            "solve the problem again",
        )
    return max(0.0, bound.bound)


def _cost(clustering: Any, problem: Any, tolerance: float) -> float:
    """Return the cost that was given, or that of a clustering which the bound covers."""
    if np.ndim(clustering) == 0:
        return check_number(clustering, "cost")
    point = problem.lift(clustering)
    off = {name: t.relative_violation(point) for name, t in problem.constraints.items()}
    worst = max(off, key=lambda name: off[name])
    if not off[worst] <= tolerance:
        raise DataError(
            f"the clustering breaks {worst!r} by {off[worst]:.1e}",
            "the bound is for clusterings that obey every constraint of its problem",
            "give the soft assignment, or a bound declared with the rule that it obeys",
        )
    return float(problem.objective_value(point))
