"""Alternation of fair assignment and centers, and swaps of centers that lead out of a local optimum."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optfair.core.solution import Solution, check_solution
from optfair.errors import DeclarationError, SolverFailure
from optfair.methods.fair_clustering.algorithms.costs import CENTERS, SeparableCost, best_centers
from optfair.methods.fair_clustering.algorithms.descent import (
    EMPTY,
    Assigned,
    Descent,
    Flow,
    Integers,
    descend,
    moved_centers,
)
from optfair.methods.fair_clustering.assignment import FairAssignment
from optfair.numbers import (
    Floats,
    check_callable,
    check_count,
    check_level,
    check_number,
    check_seconds,
    check_text,
    checked,
    one_of,
)
from optfair.rows.restarts import step_progress

# Alternation of fair assignment and centers.


@dataclass(frozen=True, eq=False, repr=False)
class Alternation:
    """Where an alternation of assignment and centers stopped.

    Attributes
    ----------
    solution : Solution
        Last assignment, optimal for ``centers``, with its certificate.
    centers : array (K, d)
        Centers of the problem that ``solution`` solves.
    labels : array (n,) of int
        Cluster with the largest fraction of each row (hard).
    history : tuple of float
        Objective of each assignment (soft); never rises.
    gaps : tuple of float
        Certified relative gap of each assignment at its centers.
    status : {"converged", "max_iter", "time_limit", "interrupted"}
        Why it stopped.
    empty : tuple of int
        Clusters without weight in ``solution``.
    reseeded : tuple of (int, int)
        Iteration after which an empty cluster got a new center, and the cluster.
    seconds : float
        Wall time.
    """

    solution: Solution
    centers: Floats
    labels: NDArray[np.intp]
    history: tuple[float, ...]
    gaps: tuple[float, ...]
    status: str
    empty: tuple[int, ...]
    reseeded: tuple[tuple[int, int], ...]
    seconds: float

    @property
    def n_iter(self) -> int:
        """Number of assignments that were solved and kept."""
        return len(self.history)

    @property
    def problem(self) -> FairAssignment:
        """The assignment problem at the last centers."""
        problem = self.solution.problem
        if not isinstance(problem, FairAssignment):
            raise DeclarationError("the solution is not of a FairAssignment")
        return problem

    def __repr__(self) -> str:
        lines = [
            f"Alternation: {self.status} after {self.n_iter} iterations, {self.seconds:.2f} s",
            f"  objective  {self.history[0]:.10g} -> {self.history[-1]:.10g}",
            f"  last gap   {self.solution.gap:.1e}",
        ]
        if self.empty:
            lines.append(f"  empty      clusters {', '.join(map(str, self.empty))}")
        if self.reseeded:
            lines.append(f"  reseeded   {len(self.reseeded)} times")
        return "\n".join(lines)


@checked(
    problem=one_of(FairAssignment),
    max_iter=check_count,
    verbose=check_level,
    tol=check_number,
    solver=check_text,
    time_limit=check_seconds,
    warm_start=check_solution,
    callback=check_callable,
)
def alternate(
    problem: FairAssignment,
    *,
    max_iter: int = 50,
    tol: float = 1e-6,
    solver: str | None = None,
    warm_start: Solution | None = None,
    time_limit: float | None = None,
    verbose: int = 0,
    callback: Callable[[int, Solution], None] | None = None,
    **options: Any,
) -> Alternation:
    r"""Alternate the assignment problem with the best centers for its assignment.

    .. math::
        A^{t} \in \arg\min_A \{ f(A, \mu^{t}) : A \text{ obeys the problem's constraints} \},
        \qquad
        \mu_k^{t+1} \in \arg\min_\mu \textstyle\sum_i w_i A^{t}_{ik}\, D(x_i, \mu)

    A heuristic: the joint problem in A and μ is not convex. Each step is exact, the
    assignment with a certificate, so the objective never rises; the limit is only a point
    that neither step improves, and depends on the start. Without fairness it is Lloyd's
    algorithm.

    The best center is the weighted mean of metric "sqeuclidean" and the coordinatewise
    weighted median of "l1" (the lower one where an interval is optimal), weighted by the
    soft assignment. An empty cluster gets the row that costs most as its center, which
    changes nothing for the assignment at hand.

    Parameters
    ----------
    problem : FairAssignment
        With the centers to start from; its further constraints are obeyed in every step.
    max_iter : int
        Largest number of assignments to solve.
    tol : float
        Stop when the objective falls by at most this share of itself.
    solver : str, optional
        As in `optfair.solve`, as are further keywords.
    warm_start : Solution, optional
        Where the first assignment starts; it may be of other rows, with as many groups and
        clusters. Later ones start from the one before.
    time_limit : float, optional
        Wall seconds over all steps.
    verbose : {0, 1, 2}
        Silent; a status line; a line per iteration and the solver's progress.
    callback : callable, optional
        Called with the number of the iteration and its solution; a KeyboardInterrupt that it
        raises ends the alternation.
    **options
        Further options of `optfair.solve`, such as ``tolerance``.

    Returns
    -------
    Alternation

    Raises
    ------
    DeclarationError
        Another problem, a metric whose best center has no closed form, options out of range.
    SolverFailure
        An assignment that is worse than the previous one, beyond the solver's tolerance.

    Examples
    --------
    >>> import optfair as of
    >>> from optfair.methods.fair_clustering.alternation import alternate
    >>> X = [[0.0], [1.0], [2.0], [9.0], [10.0], [11.0]]
    >>> p = of.FairAssignment(X, groups=list("abaabb"), centers=[[0.0], [1.0]], fairness=None)
    >>> result = alternate(p)
    >>> result.centers.ravel().tolist(), result.labels.tolist()
    ([1.0, 10.0], [0, 0, 0, 1, 1, 1])

    References
    ----------
    Kim, Lee, Park, Kim: Fair Clustering via Alignment, ICML 2025, Algorithm 1.
    """
    _check(problem, max_iter, tol)

    def assign(
        centers: Floats, before: Assigned[Solution] | None, left: float
    ) -> Assigned[Solution] | None:
        begin = time.perf_counter()
        try:
            solution = problem.with_centers(centers).solve(
                solver,
                warm_start=warm_start if before is None else before.answer,
                time_limit=None if time_limit is None else left,
                verbose=max(0, verbose - 1),
                **options,
            )
        except SolverFailure:
            if time_limit is None or time.perf_counter() - begin < left:
                raise
            if before is None:
                raise SolverFailure(
                    "the time limit is too short for one assignment", remedy="give more"
                ) from None
            return None
        ended = solution.status.termination
        return Assigned(solution.objective, solution.gap, ended, centers, solution)

    with step_progress(verbose) as report:

        def shown(iteration: int, step: Assigned[Solution]) -> None:
            report(iteration, step.answer)
            if callback is not None:
                callback(iteration, step.answer)

        run = descend(
            problem.cost.centers,
            assign,
            _move,
            max_iter=max_iter,
            tol=tol,
            rise=2.0 * float(options.get("tolerance", 1e-7)),
            unit=problem.objective_unit,
            time_limit=time_limit,
            report=shown,
        )
    return _finished(run)


def _check(problem: FairAssignment, max_iter: int, tol: float) -> None:
    if problem.cost.metric not in CENTERS:
        raise DeclarationError(
            f"the best center of metric {problem.cost.metric!r} has no closed form",
            f"it has for {' and '.join(CENTERS)}",
            "declare the problem from X and centers with one of those",
        )
    if problem.demands.of_costs:
        raise DeclarationError(
            "alternate does not move centers under rules on costs",
            remedy="use FairKMeans, which does",
        )
    if not 0 <= tol < 1:
        raise DeclarationError(f"tol={tol!r} is outside [0, 1)", remedy="give e.g. 1e-6")


def _move(step: Assigned[Solution]) -> tuple[Floats, list[int]]:
    """Return the best centers of an assignment, and the clusters that were empty."""
    fractions = np.asarray(step.answer["assignment"], dtype=float)
    data = step.answer.problem.data
    rows, clusters = np.nonzero(fractions)
    prices = np.zeros((1, 1))
    flow = Flow(rows, clusters, fractions[rows, clusters], prices)
    return moved_centers(data["cost"], data["weights"], step.centers, flow)


def _finished(run: Descent[Solution]) -> Alternation:
    solution = run.best.answer
    fractions = np.asarray(solution["assignment"], dtype=float)
    weight = solution.problem.data["weights"] @ fractions
    return Alternation(
        solution=solution,
        centers=run.best.centers.copy(),
        labels=fractions.argmax(axis=1),
        history=run.history,
        gaps=run.gaps,
        status=run.status,
        empty=tuple(int(k) for k in np.flatnonzero(weight <= EMPTY)),
        reseeded=run.reseeded,
        seconds=run.seconds,
    )


# Swap moves between clusterings: clusters that are missed least are opened again elsewhere.

# Clusters among which those to close are chosen, and rows among which places to open are.
CLOSED, OPENED = 8, 16
# Swaps that are looked at one by one, and at most so many at a time; passes in which centers move at
# the prices of before. What looking at them takes, in assignments.
SINGLE, TOGETHER, PASSES, LOOK = 4, 4, 2, 1.0
# Assignments after which a clustering is judged, without soft choices. Relative fall of the objective
# that counts: less is the error of a trial.
TRIAL, CLEAR = 6, 1e-4
# Rows that regrets are estimated from, and places to open are drawn from.
LOOKED_AT = 20_000


class Tried(NamedTuple):
    """Where centers lead.

    Attributes
    ----------
    value : float
        Objective, or near it.
    centers : array (K, d)
    prices : array (G, K), or None before an assignment is made
    taken : float
        Assignments that take as long.
    soft : bool
        Whether rows chose softly.
    """

    value: float
    centers: Floats
    prices: Any
    taken: float
    soft: bool


def swapped(
    problem: FairAssignment,
    best: Tried,
    tried: Callable[[Floats, Floats], Tried],
    *,
    rng: np.random.Generator,
    budget: float,
    patience: float,
    deadline: float,
) -> float:
    r"""Improve a clustering by swaps until they fail, or a budget of assignments, or time, is spent.

    At given prices :math:`\sum_i w_i \min_k (D_{ik} + \Lambda_{g_i k})` is, but for a constant, a lower
    bound of the objective at any centers: of several swaps, and of several at a time, those of
    least bound are tried.

    Parameters
    ----------
    problem : FairAssignment
        Rows, groups and weights.
    best : Tried
        Where the search starts.
    tried : callable
        (centers, prices) -> `Tried`, of which the caller keeps the best.
    rng : Generator
    budget : float
        Assignments.
    patience : float
        Assignments after which swaps that fail end.
    deadline : float
        ``time.perf_counter()`` value.

    Returns
    -------
    float
        What is left of the budget.
    """
    together, until = TOGETHER, budget - patience
    while budget > max(0.0, until) and time.perf_counter() < deadline:
        swaps = _swaps(problem, best.centers, best.prices, rng, together)
        budget -= LOOK
        if not swaps:
            break
        worth, moved, prices = min(swaps, key=lambda swap: swap[0])
        if worth >= 0.0:
            continue
        trial = tried(moved, prices)
        budget -= trial.taken
        if trial.value < (1.0 - CLEAR) * best.value:
            together, until = min(TOGETHER, 2 * together), budget - patience
        elif trial.value >= best.value:
            together = max(1, together // 2)
        if trial.value < best.value:
            best = trial
    return budget


def _swaps(
    problem: FairAssignment,
    centers: Floats,
    prices: Floats,
    rng: np.random.Generator,
    together: int,
) -> list[tuple[float, Floats, Floats]]:
    """Return swaps: by how much their bound is above that of the centers, their centers and prices.

    A cluster that is opened has the prices of the one that its place belonged to.
    """
    cost, K = problem.cost, len(centers)
    step = max(1, cost.rows // LOOKED_AT)
    rows = np.arange(int(rng.integers(step)), cost.rows, step)
    w, groups, here = (
        problem.data["weights"][rows],
        problem.data["groups"][rows],
        np.arange(rows.size),
    )
    few = replace(cost, points=cost.points[rows])
    far = replace(few, centers=centers).columns(slice(None))
    reduced = far + prices[groups].T
    nearest = reduced.argmin(axis=0)
    low, chance = reduced[nearest, here], w * far[nearest, here]
    if K == 1 or not chance.sum() > 0.0:
        return []
    reduced[nearest, here] = np.inf
    second = reduced.min(axis=0)
    reduced[nearest, here] = low
    closed = np.argsort(np.bincount(nearest, w * (second - low), K))[:CLOSED]
    drawn = rng.choice(rows.size, OPENED, p=chance / chance.sum())
    places, own = few.points[drawn], prices[:, nearest[drawn]]
    near = replace(few, centers=places).columns(slice(None)) + own[groups].T
    ways = []
    for k in closed.tolist():
        left = np.where(nearest == k, second, low)
        ways += [(float(np.minimum(left, at) @ w), k, j) for j, at in enumerate(near)]
    ways.sort()
    apart: list[tuple[float, int, int]] = []  # clusters and places that are not near each other
    for way in ways:
        split = nearest[drawn[way[2]]]
        if len(apart) < together and all(
            way[1] != k and split != nearest[drawn[j]] for _, k, j in apart
        ):
            apart.append(way)
    sets = [[way] for way in ways[:SINGLE]] + [apart[:m] for m in range(2, len(apart) + 1)]
    swaps = []
    for chosen in sets:
        moved, priced, costs = centers.copy(), prices.copy(), reduced.copy()
        for _, k, j in chosen:
            moved[k], priced[:, k], costs[k] = places[j], own[:, j], near[j]
        _settle(few, w, groups, nearest, moved, priced, costs)
        swaps.append((float(w @ (costs.min(axis=0) - low)), moved, priced))
    return swaps


def _settle(
    few: SeparableCost,
    weights: Floats,
    groups: Integers,
    before: Integers,
    centers: Floats,
    prices: Floats,
    costs: Floats,
) -> None:
    """Move the centers of clusters that gain or lose rows, and their costs, at given prices."""
    K = len(centers)
    for _ in range(PASSES):
        now = costs.argmin(axis=0)
        other, changed = now != before, np.zeros(K, dtype=bool)
        changed[now[other]] = changed[before[other]] = True
        held = np.flatnonzero(changed & (np.bincount(now, weights, K) > 0.0))
        if not held.size:
            return
        some = np.flatnonzero(changed[now])
        of_cluster = (now[some, None] == held) * weights[some, None]
        centers[held] = best_centers(few.metric, few.points[some], of_cluster)
        at = replace(few, centers=centers[held]).columns(slice(None))
        costs[held], before = at + prices[:, held][groups].T, now
