"""Alternation of fair assignment and centers."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.core.solution import Solution, check_solution
from optfair.errors import DeclarationError, SolverFailure
from optfair.methods.fair_clustering.algorithms.costs import SeparableCost
from optfair.methods.fair_clustering.assignment import FairAssignment
from optfair.numbers import (
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

__all__ = [
    "CENTERS",
    "Alternation",
    "alternate",
    "best_centers",
]


# Best centers of given clusters, where they have a closed form.

Floats = NDArray[np.float64]


def best_centers(metric: str, X: Floats, weights: Floats) -> Floats:
    r"""Return the centers of least cost.

    .. math:: \mu_k \in \arg\min_\mu \textstyle\sum_i v_{ik}\, D(x_i, \mu)

    Parameters
    ----------
    metric : {"sqeuclidean", "l1"}
        A key of ``CENTERS``: weighted means, or weighted medians of each column (the lower
        one where an interval is optimal).
    X : array (n, d)
        Rows.
    weights : array (n, K)
        Weight v of each row in each cluster; every column has a positive sum.

    Returns
    -------
    array (K, d)

    Examples
    --------
    >>> import numpy as np
    >>> X, v = np.array([[0.0], [1.0], [9.0]]), np.ones((3, 1))
    >>> best_centers("l1", X, v).item(), round(best_centers("sqeuclidean", X, v).item(), 3)
    (1.0, 3.333)
    """
    return CENTERS[metric](X, weights)


def _means(X: Floats, weights: Floats) -> Floats:
    return np.asarray((weights.T @ X) / weights.sum(axis=0)[:, None])


def _medians(X: Floats, weights: Floats) -> Floats:
    medians = np.empty((weights.shape[1], X.shape[1]))
    for j, column in enumerate(X.T):
        order = np.argsort(column, kind="stable")
        below = np.cumsum(weights[order], axis=0)
        medians[:, j] = column[order[(below < 0.5 * below[-1]).sum(axis=0)]]
    return medians


CENTERS: dict[str, Callable[[Floats, Floats], Floats]] = {"sqeuclidean": _means, "l1": _medians}


# Alternation of fair assignment and centers.

# Weight share below which a cluster counts as empty: fractions there are a solver's rounding.
EMPTY = 1e-9


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
    begin = time.perf_counter()
    slack = 2.0 * float(options.get("tolerance", 1e-7))
    kept: list[Solution] = []  # the last one; only numbers are kept of the others
    history: list[float] = []
    gaps: list[float] = []
    reseeded: list[tuple[int, int]] = []
    status = ""
    with step_progress(verbose) as report:
        while not status:
            left = None if time_limit is None else time_limit - (time.perf_counter() - begin)
            best = kept[-1] if kept else None
            try:
                solution = _assigned(problem, solver, best, warm_start, left, verbose, options)
            except (KeyboardInterrupt, _OutOfTimeError) as e:
                if best is None:
                    raise
                status = "time_limit" if isinstance(e, _OutOfTimeError) else "interrupted"
                break
            if solution.status.termination in ("time_limit", "interrupted"):
                status = solution.status.termination
            if best is not None:
                fell = best.objective - solution.objective
                if not status:
                    _check_rise(fell, best, slack)
                if fell <= tol * abs(best.objective):
                    status = status or "converged"
                if fell < 0:  # by less than the tolerance, or cut short: the previous one is better
                    break
            kept[:] = [solution]
            history.append(solution.objective)
            gaps.append(solution.gap)
            report(len(history), solution)
            try:
                if callback is not None:
                    callback(len(history), solution)
            except KeyboardInterrupt:
                status = "interrupted"
            if len(history) == max_iter:
                status = status or "max_iter"
            if not status:
                problem, empty = _next(problem, _fractions(solution))
                reseeded += [(len(history), k) for k in empty]
    return _finished(kept[-1], history, gaps, reseeded, status, begin)


class _OutOfTimeError(SolverFailure):
    """No time is left for another assignment."""


def _assigned(
    problem: FairAssignment,
    solver: str | None,
    best: Solution | None,
    warm_start: Solution | None,
    left: float | None,
    verbose: int,
    options: dict[str, Any],
) -> Solution:
    out = _OutOfTimeError("the time limit is too short for one assignment", remedy="give more")
    if best is not None and left is not None and left <= 0:
        raise out
    begin = time.perf_counter()
    try:
        return problem.solve(
            solver,
            warm_start=best or warm_start,
            time_limit=left,
            verbose=max(0, verbose - 1),
            **options,
        )
    except SolverFailure:
        if left is not None and time.perf_counter() - begin >= left:
            raise out from None
        raise


def _check(problem: FairAssignment, max_iter: int, tol: float) -> None:
    if not isinstance(problem, FairAssignment):
        raise DeclarationError(
            f"alternate works on a FairAssignment, not on a {type(problem).__name__}",
            remedy="declare optfair.FairAssignment(X, groups=, centers=)",
        )
    if problem.cost.metric not in CENTERS:
        raise DeclarationError(
            f"the best center of metric {problem.cost.metric!r} has no closed form",
            f"it has for {' and '.join(CENTERS)}",
            "declare the problem from X and centers with one of those",
        )
    if int(max_iter) != max_iter or max_iter < 1:
        raise DeclarationError(f"max_iter={max_iter!r} is not a positive integer", remedy="correct")
    if not 0 <= tol < 1:
        raise DeclarationError(f"tol={tol!r} is outside [0, 1)", remedy="give e.g. 1e-6")


def _check_rise(fell: float, best: Solution, slack: float) -> None:
    if fell < -slack * max(best.problem.objective_unit, abs(best.objective)):
        raise SolverFailure(
            "the objective rose although both steps are exact",
            f"from {best.objective:.10g} to {best.objective - fell:.10g}",
            "ask for a smaller tolerance, or another solver",
        )


def _fractions(solution: Solution) -> Floats:
    return np.asarray(solution["assignment"], dtype=float)


def _next(problem: FairAssignment, fractions: Floats) -> tuple[FairAssignment, list[int]]:
    """Return the problem at the best centers of its assignment, and the reseeded clusters."""
    cost, w = problem.cost, problem.data["weights"]
    weighted = w[:, None] * fractions
    weight = weighted.sum(axis=0)
    centers = cost.centers.copy()
    held = weight > 0.0
    centers[held] = best_centers(cost.metric, cost.points, weighted[:, held])
    empty = np.flatnonzero(weight <= EMPTY).tolist()
    reseeded: list[int] = []
    if empty:
        spent = np.einsum("ki,ik->i", cost.columns(slice(None)), fractions) * (w > 0)
        total = float(w @ spent)
        for row in np.argsort(-spent, kind="stable"):
            if len(reseeded) == len(empty) or spent[row] <= 0:
                break
            k, point = empty[len(reseeded)], cost.points[row]
            if (centers == point).all(axis=1).any():
                continue
            # what little the cluster holds must not cost anything at the new center
            moved = SeparableCost(cost.metric, cost.points[weighted[:, k] > 0], point[None], cost.p)
            held_there = weighted[weighted[:, k] > 0, k]
            if float(moved.columns(slice(None))[0] @ held_there) <= EMPTY * total:
                centers[k] = point
                reseeded.append(k)
            else:
                empty.remove(k)
    return problem.with_centers(centers), reseeded


def _finished(
    solution: Solution,
    history: list[float],
    gaps: list[float],
    reseeded: list[tuple[int, int]],
    status: str,
    begin: float,
) -> Alternation:
    problem, fractions = solution.problem, _fractions(solution)
    weight = problem.data["weights"] @ fractions
    return Alternation(
        solution=solution,
        centers=problem.data["cost"].centers.copy(),
        labels=fractions.argmax(axis=1),
        history=tuple(history),
        gaps=tuple(gaps),
        status=status,
        empty=tuple(int(k) for k in np.flatnonzero(weight <= EMPTY)),
        reseeded=tuple(reseeded),
        seconds=time.perf_counter() - begin,
    )
