"""One start of fair k-means: the centers it begins with, exact alternation, or the printed algorithm judged by the exact one."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.core.solution import Solution
from optfair.errors import DataError, DeclarationError, nearest
from optfair.methods.fair_clustering.algorithms.charged_rows import ChargedRows
from optfair.methods.fair_clustering.algorithms.costs import CostRows
from optfair.methods.fair_clustering.algorithms.descent import (
    REACH,
    Assigned,
    Descent,
    Flow,
    HeldRows,
    SmoothedStart,
    descend,
    smoothed_descent,
)
from optfair.methods.fair_clustering.alignment import printed_alignment
from optfair.methods.fair_clustering.alternation import alternate, swapped
from optfair.methods.fair_clustering.assignment import FairAssignment
from optfair.methods.fair_clustering.mass_rules import compile_rules
from optfair.methods.fair_clustering.metrics import balance, cost
from optfair.methods.fair_clustering.rules import AdditiveGap, PerfectFairness
from optfair.numbers import check_matrix
from optfair.rows.restarts import Restart, Step, Told, step_progress

# Centers that a clustering starts from.

Floats = NDArray[np.float64]


INITS = ("k-means", "k-means++", "random")


def check_init(init: Any, n_clusters: int, columns: int) -> str | Floats:
    """Return the name of a way to start, or the centers that were given.

    Raises
    ------
    DeclarationError, DataError
        An unknown name, centers of another shape.
    """
    if isinstance(init, str):
        if init not in INITS:
            raise DeclarationError(f"unknown init {init!r}", remedy=nearest(init, INITS))
        return init
    centers = check_matrix(init, "init", columns=columns)
    if centers.shape[0] != n_clusters:
        raise DataError(
            f"init has {centers.shape[0]} centers for n_clusters={n_clusters}",
            remedy="give one row per cluster",
        )
    return centers


def check_distinct(X: Floats, n_clusters: int) -> None:
    """Raise when there are fewer distinct rows than clusters.

    Raises
    ------
    DataError
        With the number of distinct rows.
    """
    if len(np.unique(X[: 20 * n_clusters], axis=0)) >= n_clusters:
        return  # a few rows settle it nearly always
    distinct = len(np.unique(X, axis=0))
    if distinct < n_clusters:
        raise DataError(
            f"n_clusters={n_clusters} is more than the rows can fill",
            f"{len(X)} rows, {distinct} of them distinct",
            f"give n_clusters <= {distinct}",
        )


def starting_centers(
    X: Floats, weights: Floats, n_clusters: int, *, init: str, metric: str, seed: int
) -> Floats:
    """Return centers to start from.

    Parameters
    ----------
    X : array (n, d)
        Rows.
    weights : array (n,)
        Weights of sum 1.
    n_clusters : int
        K.
    init : {"k-means", "k-means++", "random"}
        Centers of plain k-means (k-medians for metric "l1") run to convergence from one
        k-means++ start; that start itself; distinct rows drawn by weight.
    metric : {"sqeuclidean", "l1"}
        Cost that plain clustering minimises.
    seed : int
        Seed of the draw.

    Returns
    -------
    array (K, d)
    """
    if init == "random":
        return _drawn(X, weights, n_clusters, seed)
    from sklearn.cluster import KMeans, kmeans_plusplus

    if init == "k-means" and metric == "sqeuclidean":
        fitted = KMeans(n_clusters, n_init=1, random_state=seed)
        return np.asarray(fitted.fit(X, sample_weight=weights * len(X)).cluster_centers_)
    centers, _ = kmeans_plusplus(X, n_clusters, sample_weight=weights, random_state=seed)
    if init == "k-means":
        # groups play no part without a rule; any two will do
        halves = np.arange(len(X)) % 2
        plain = FairAssignment(
            X,
            groups=halves,
            centers=centers,
            metric=metric,
            sample_weight=np.maximum(weights, np.finfo(float).tiny),
            fairness=None,
        )
        data = plain.data
        held = HeldRows(
            compile_rules(plain).program, plain.cost, data["groups"], data["weights"], 1.0
        )
        run = descend(centers, held.assign, held.move, max_iter=100, tol=1e-4, rise=RISE)
        if run.status == "interrupted":
            raise KeyboardInterrupt
        centers = run.best.centers
    return np.asarray(centers, dtype=float)


def _drawn(X: Floats, weights: Floats, n_clusters: int, seed: int) -> Floats:
    rng = np.random.default_rng(seed)
    rows = rng.choice(len(X), len(X), replace=False) if np.ptp(weights) == 0 else None
    if rows is None:
        positive = np.flatnonzero(weights > 0)
        rows = rng.choice(positive, positive.size, replace=False, p=weights[positive])
    _, first = np.unique(X[rows], axis=0, return_index=True)
    return np.asarray(X[rows[np.sort(first)[:n_clusters]]])


# One start of fair k-means: exact alternation, or the printed algorithm judged by the exact one.

Fitter = Callable[[int, "float | None", Step], tuple[Restart, "Fit"]]


# From this many rows on, the first iterations run on a sample of rows.
LARGE, SAMPLE = 200_000, 50_000
# Relative rise of the objective that two exact steps may show.
RISE = 2e-7
# Violation of the rules that random blocks of unequal sizes leave.
BLOCKS = 1e-3


@dataclass(frozen=True, eq=False)
class Fit:
    """What one start found.

    Attributes
    ----------
    record : Restart
        Numbers for the user.
    solution : Solution
        Certified assignment at the centers.
    assignment : array (n, K)
        The clustering's own fractions: those of ``solution``, or the printed algorithm's.
    centers : array (K, d)
    history, gaps : sequence of float
        Per iteration.
    reseeded : tuple of (iteration, cluster)
    plan : sparse array or None
        Coupling, where the algorithm has one.
    """

    record: Restart
    solution: Solution
    assignment: Floats
    centers: Floats
    history: tuple[float, ...]
    gaps: tuple[float, ...]
    reseeded: tuple[tuple[int, int], ...] = ()
    plan: Any = None


def exact_fit(model: Any, problem: FairAssignment, init: Any, starts: int = 1) -> Fitter:
    """Return the function that runs one start of the exact alternation.

    Parameters
    ----------
    model : FairKMeans
        Its parameters.
    problem : FairAssignment
        Rows, groups and rules; its centers are replaced.
    init : str or array (K, d)
        Way to start, or centers.
    starts : int
        Starts whose assignments a search by swaps may take.
    """
    demands = problem.demands
    if demands.by_group and model.metric != "sqeuclidean":
        raise DeclarationError(
            f"rules on costs of groups with metric {model.metric!r}",
            "the centers that suit several groups are weighted means of theirs",
            'use metric="sqeuclidean"',
        )
    large = problem.cost.rows >= LARGE and not demands.bars
    sample = _sample(model, problem) if large and not _general(problem) else None

    def fit(seed: int, limit: float | None, report: Step) -> tuple[Restart, Fit]:
        begin = time.perf_counter()
        centers = start_of(problem, init, seed)

        def left() -> float | None:
            return None if limit is None else max(limit - (time.perf_counter() - begin), 1e-3)

        def onwards(
            p: FairAssignment, at: Floats, prices: Floats | None, tol: float, most: int | None
        ) -> Descent[Any]:
            return held_descent(
                p, at, prices, model, left(), report, tol=tol, max_iter=most, reach=reach
            )

        def searched(p: FairAssignment, run: Descent[Any], tol: float) -> Descent[Any]:
            if model.search != "swap" or run.status != "converged":
                return run
            return swapped(
                p,
                run,
                lambda at, own, most: onwards(p, at, own, tol, most),
                seed=seed,
                budget=(starts - 1) * len(run.history),
                deadline=np.inf if limit is None else begin + limit,
            )

        prices, duals, stopped, reach = None, None, "", 1.0
        begun = smoothed_start(sample or problem, centers, model, left())
        if begun is not None:
            centers, prices, reach = begun.centers, begun.prices, REACH
        if sample is not None:  # the many early iterations need no more than a sample
            rough = max(model.tol, 1e-5)
            few = searched(sample, onwards(sample, centers, prices, rough, None), rough)
            centers, prices = few.best.centers, few.best.found.prices
            duals = getattr(few.best.found, "duals", None)
            stopped = few.status if few.status in ("interrupted", "time_limit") else ""
        if _general(problem):
            return _general_fit(model, problem, centers, seed, left(), report)
        run = held_descent(
            problem,
            centers,
            prices,
            model,
            None if stopped else left(),
            report,
            tol=model.tol,
            max_iter=1 if stopped else model.max_iter,
            duals=duals,
            reach=reach,
        )
        if sample is None:
            run = searched(problem, run, model.tol)
        # the last assignment is solved as a problem, from its prices, for its certificate
        found = run.best.found
        solution = problem.with_centers(
            run.best.centers, prices=found.prices, duals=getattr(found, "duals", None)
        ).solve()
        A = np.asarray(solution["assignment"])
        record = Restart(
            seed,
            solution.objective,
            *_numbers(problem, A, run.best.centers),
            solution.gap,
            len(run.history),
            stopped or run.status,
            time.perf_counter() - begin,
        )
        gaps = (*run.gaps[:-1], solution.gap)
        history = (*run.history[:-1], min(*run.history[-2:], solution.objective))
        return record, Fit(record, solution, A, run.best.centers, history, gaps, run.reseeded)

    return fit


def held_descent(
    problem: FairAssignment,
    centers: Floats,
    prices: Floats | None,
    model: Any,
    time_limit: float | None,
    report: Step,
    *,
    tol: float,
    max_iter: int | None = None,
    duals: Floats | None = None,
    reach: float = 1.0,
) -> Descent[Flow]:
    """Run one start on rows in memory, from arrays alone; see `descend`."""
    rules, demands = compile_rules(problem), problem.demands
    stated = (
        rules.program,
        problem.cost,
        problem.data["groups"],
        problem.data["weights"],
        problem.objective_unit,
    )
    held: Any = HeldRows(*stated, prices)
    if demands.bars or demands.by_group:
        held = ChargedRows(*stated, demands, rules.feasible, prices, duals=duals)
    with step_progress(max(0, model.verbose - 1)) as log:

        def told(iteration: int, step: Assigned[Flow]) -> None:
            now = Told(step.objective, step.gap)
            log(iteration, now)
            report(iteration, now)

        return descend(
            centers,
            held.assign,
            held.move,
            max_iter=model.max_iter if max_iter is None else max_iter,
            tol=tol,
            rise=RISE,
            unit=problem.objective_unit,
            reach=reach,
            time_limit=time_limit,
            report=told,
        )


def smoothed_start(
    problem: FairAssignment, centers: Floats, model: Any, time_limit: float | None
) -> SmoothedStart | None:
    """Return where the first iterations lead that need no exact assignment; None without them."""
    demands = problem.demands
    if demands.bars or demands.by_group or problem.cost.metric != "sqeuclidean":
        return None
    if _general(problem):
        return None
    cost = replace(problem.cost, centers=centers)
    return smoothed_descent(
        compile_rules(problem).program,
        CostRows(cost, problem.data["groups"], problem.data["weights"]),
        tol=model.tol,
        max_iter=model.max_iter,
        deadline=np.inf if time_limit is None else time.perf_counter() + 0.5 * time_limit,
    )


def _general(problem: FairAssignment) -> bool:
    """Whether some rule needs a general solver, as links between rows do."""
    return bool(problem.structure_refusal("mass-assignment"))


def _general_fit(
    model: Any,
    problem: FairAssignment,
    centers: Floats,
    seed: int,
    time_limit: float | None,
    report: Step,
) -> tuple[Restart, Fit]:
    """Run one start by general solvers; see `alternate`."""
    run = alternate(
        problem.with_centers(centers),
        max_iter=model.max_iter,
        tol=model.tol,
        time_limit=time_limit,
        verbose=max(0, model.verbose - 1),
        callback=lambda i, s: report(i, Told(s.objective, s.gap)),
    )
    A = np.asarray(run.solution["assignment"])
    numbers = _numbers(problem, A, run.centers)
    record = Restart(
        seed,
        run.solution.objective,
        *numbers,
        run.solution.gap,
        run.n_iter,
        run.status,
        run.seconds,
    )
    return record, Fit(record, run.solution, A, run.centers, run.history, run.gaps, run.reseeded)


def printed_fit(model: Any, problem: FairAssignment, init: Any) -> Fitter:
    """Return the function that runs one start of FCA or FCA-C as printed; see `exact_fit`.

    The gap is measured against the exact assignment at the same centers; an assignment that
    breaks the rules has none.
    """
    share = _free_share(problem, model)
    groups, X = problem.data["groups"], problem.cost.points

    def fit(seed: int, limit: float | None, report: Step) -> tuple[Restart, Fit]:
        begin = time.perf_counter()
        run = printed_alignment(
            X,
            groups,
            start_of(problem, init, seed),
            free_share=share,
            partition_size=model.partition_size,
            coupling=model.coupling,
            regularization=model.regularization,
            max_iter=model.max_iter,
            tol=model.tol,
            time_limit=limit,
            rng=np.random.default_rng(seed),
        )
        taken = time.perf_counter() - begin
        exact = problem.with_centers(run.centers).solve()
        objective = exact.problem.data["cost"].mean(problem.data["weights"], run.assignment)
        gap = np.nan
        if _obeys(problem, run.assignment):
            gap = (objective - exact.bound) / max(problem.objective_unit, abs(objective))
        numbers = _numbers(problem, run.assignment, run.centers)
        record = Restart(seed, objective, *numbers, gap, len(run.history), run.status, taken)
        gaps = (*[np.nan] * (len(run.history) - 1), gap)
        return record, Fit(
            record, exact, run.assignment, run.centers, run.history, gaps, plan=run.plan
        )

    return fit


def _obeys(problem: FairAssignment, assignment: Floats) -> bool:
    """Whether a soft assignment obeys the rules, but for the unequal sizes of blocks."""
    w, groups = problem.data["weights"], problem.data["groups"]
    masses = np.stack(
        [np.bincount(groups, w * a, problem.shares.size) for a in assignment.T], axis=1
    )
    values = {"assignment": assignment, "masses": masses}
    rules = (t for name, t in problem.constraints.items() if t.scope <= {"masses"})
    return all(t.relative_violation(values) <= BLOCKS for t in rules)


def start_of(problem: FairAssignment, init: Any, seed: int) -> Floats:
    """Return the centers that a start begins with: drawn, or given."""
    if not isinstance(init, str):
        return np.asarray(init)
    cost = problem.cost
    return starting_centers(
        cost.points,
        problem.data["weights"],
        cost.clusters,
        init=init,
        metric=cost.metric,
        seed=seed,
    )


def _numbers(problem: FairAssignment, assignment: Floats, centers: Floats) -> tuple[float, float]:
    """Return cost and balance of the hard labels."""
    weights = problem.data["weights"]
    return (
        cost(
            problem.cost.points,
            centers,
            assignment,
            sample_weight=weights,
            metric=problem.cost.metric,
        ),
        balance(problem.data["groups"], assignment, sample_weight=weights),
    )


def _sample(model: Any, problem: FairAssignment) -> FairAssignment:
    """Return the problem on some rows, weighted so that every group keeps its share."""
    w, groups, shares = (problem.data[k] for k in ("weights", "groups", "shares"))
    rng = np.random.default_rng(0)  # the same sample for every start
    rows = []
    for g in range(shares.size):
        own = np.flatnonzero((groups == g) & (w > 0))
        count = max(min(own.size, 1_000), round(SAMPLE * own.size / groups.size))
        rows.append(np.sort(rng.choice(own, min(count, own.size), replace=False)))
    taken = np.concatenate(rows)
    some = np.array([w[part].sum() for part in rows])
    return FairAssignment(
        problem.cost.points[taken],
        groups=problem.data["group_names"][groups[taken]],  # rules name groups by their labels
        centers=problem.cost.centers,
        fairness=model.fairness,
        goal=model.goal,
        metric=model.metric,
        sample_weight=w[taken] * (shares / some)[groups[taken]],
    )


def _free_share(problem: FairAssignment, model: Any) -> float:
    """Return the share of pairs in W, or say what the printed algorithm cannot do."""
    weights = problem.data["weights"]
    reasons = []
    if problem.data["shares"].size != 2:
        reasons.append(f"there are {problem.data['shares'].size} groups")
    if model.metric != "sqeuclidean":
        reasons.append(f"metric is {model.metric!r}")
    if np.ptp(weights) > 1e-12 * weights.max():
        reasons.append("rows have different weights")
    if model.goal != "mean":
        reasons.append(f"goal is {model.goal!r}")
    if not isinstance(model.fairness, (PerfectFairness, AdditiveGap)) or model.fairness.on:
        reasons.append(f"fairness is {model.fairness!r}")
    if reasons:
        raise DeclarationError(
            'algorithm="paper" does not apply',
            "; ".join(reasons),
            "it takes two groups of equal weights, squared distances, and perfect_fairness() or"
            ' additive_gap(eps); algorithm="exact" takes everything',
        )
    return float(getattr(model.fairness, "eps", 0.0)) / 2.0
