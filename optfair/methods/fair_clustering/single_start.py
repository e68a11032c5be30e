"""One start of fair k-means: the centers it begins with, exact alternation, or the printed algorithm judged by the exact one."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from optfair.core.solution import Solution
from optfair.errors import DataError, DeclarationError, nearest
from optfair.methods.fair_clustering.algorithms.charged_rows import ChargedRows
from optfair.methods.fair_clustering.algorithms.costs import CostRows
from optfair.methods.fair_clustering.algorithms.descent import Assigned, Descent, HeldRows, descend
from optfair.methods.fair_clustering.algorithms.pricing import smallest_ratio
from optfair.methods.fair_clustering.algorithms.soft_descent import (
    SmoothedStart,
    smoothed_start,
)
from optfair.methods.fair_clustering.alignment import printed_alignment
from optfair.methods.fair_clustering.alternation import TRIAL, Tried, alternate, swapped
from optfair.methods.fair_clustering.assignment import FairAssignment
from optfair.methods.fair_clustering.links import linked_rows
from optfair.methods.fair_clustering.mass_rules import compile_rules
from optfair.methods.fair_clustering.metrics import gathered_masses
from optfair.methods.fair_clustering.rules import AdditiveGap, PerfectFairness
from optfair.numbers import Floats, check_matrix
from optfair.rows.restarts import Iteration, Restart, Step, step_progress

# Centers that a clustering starts from.

INITS = ("k-means", "k-means++", "random")
# Iterations of plain k-means, at most; between looks at the clock. The part of a time limit it takes.
PLAIN, TIMED, PLAIN_PART = 300, 10, 0.25


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


def check_distinct(X: Floats, n_clusters: int, what: str = "n_clusters") -> None:
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
            f"{what}={n_clusters} is more than the rows can fill",
            f"{len(X)} rows, {distinct} of them distinct",
            f"give {what} <= {distinct}",
        )


def starting_centers(
    X: Floats,
    weights: Floats,
    n_clusters: int,
    *,
    init: str,
    metric: str,
    seed: int,
    time_limit: float | None = None,
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
    time_limit : float, optional
        Wall seconds after which plain clustering ends.

    Returns
    -------
    array (K, d)
    """
    if init == "random":
        return _drawn(X, weights, n_clusters, seed)
    from sklearn.cluster import KMeans, kmeans_plusplus

    if init == "k-means" and metric == "sqeuclidean":
        begin, weights = time.perf_counter(), weights * len(X)
        some = PLAIN if time_limit is None else TIMED
        fitted = KMeans(n_clusters, n_init=1, max_iter=some, random_state=seed)
        fitted.fit(X, sample_weight=weights)
        for _ in range(PLAIN // some - 1):
            if fitted.n_iter_ < some or time.perf_counter() - begin > (time_limit or 0.0):
                break
            fitted = KMeans(n_clusters, n_init=1, max_iter=some, init=fitted.cluster_centers_)
            fitted.fit(X, sample_weight=weights)
        return np.asarray(fitted.cluster_centers_)
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
        stated = centers, held.assign, held.move
        run = descend(*stated, max_iter=100, tol=1e-4, rise=RISE, time_limit=time_limit)
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

# Relative rise of the objective that two exact steps may show.
RISE = 2e-7
# Violation of the rules that random blocks of unequal sizes leave.
BLOCKS = 1e-3
# Below so many clusters a search by swaps begins with all starts, led as far as fits are; from so many
# rows on it compares where soft choices lead.
ALL_STARTS, SOFT_ROWS = 24, 500
# Relative distance from the least within which such starts are run to their ends; brief looks that
# take as long as a start, at most.
CLOSE, BRIEF = 2e-3, 2.0
# What soft choices take, in assignments: first prices, and passes that take one, where all rules are
# equations and where not. What the proof of a start takes.
AHEAD, PASSES, PROOF = 2.0, (12.0, 6.0), 1.0
# Seconds for an incumbent at prices that are given: its pass is made whatever the limit.
SOON = 1e-3


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


def exact_fit(
    model: Any, problem: FairAssignment, init: Any, starts: int = 1, further: Sequence[int] = ()
) -> Fitter:
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
    further : sequence of int
        Seeds of starts that such a search looks at first.
    """
    demands = problem.demands
    if demands.by_group and model.metric != "sqeuclidean":
        raise DeclarationError(
            f"rules on costs of groups with metric {model.metric!r}",
            "the centers that suit several groups are weighted means of theirs",
            'use metric="sqeuclidean"',
        )

    def fit(seed: int, limit: float | None, report: Step) -> tuple[Restart, Fit]:
        begin = time.perf_counter()
        if general(problem):
            centers = start_of(problem, init, seed, limit)
            left = None if limit is None else max(limit - (time.perf_counter() - begin), 1e-3)
            return _general_fit(model, problem, centers, seed, left, report)
        seeds = [seed, *further]
        run = first_descent(model, problem, init, seeds, starts, limit, report, tol=model.tol)
        return certified(problem, run, seed, begin)

    return fit


def first_descent(
    model: Any,
    problem: FairAssignment,
    init: Any,
    seeds: Sequence[int],
    starts: int,
    limit: float | None,
    report: Step,
    *,
    tol: float,
) -> Descent[Any]:
    """Run one start on rows in memory: soft choices, exact iterations, and swaps if asked.

    A search by swaps looks at starts in turn, and at swaps of the best of all while these lower it, else
    of the start at hand. All are compared by where soft choices lead, or a few assignments, and the
    best is run to its end.
    """
    deadline = np.inf if limit is None else time.perf_counter() + limit
    demanding, K = not compile_rules(problem).program.only_equations, problem.cost.clusters

    best: Tried | None = None

    def left() -> float | None:
        return None if limit is None else max(deadline - time.perf_counter(), 1e-3)

    def onwards(begun: Tried, most: int | None) -> Descent[Any]:
        return descent(
            model,
            problem,
            rows_of(problem, begun.prices),
            begun.centers,
            left(),
            report,
            tol=tol,
            max_iter=most,
            mixed=begun.soft,
        )

    def tried(at: Floats, prices: Floats | None, most: int = TRIAL, brief: bool = True) -> Tried:
        """Return where centers lead, and how many assignments that took; none if ``most`` is 0."""
        nonlocal best
        fewest = SOFT_ROWS if model.search == "swap" and starts > 1 else None
        begun = softly(problem, at, model, left(), prices, brief=brief, fewest=fewest)
        trial, stopped = Tried(np.inf, at, prices, 0.0, False), False
        if begun is not None:
            taken = begun.passes / PASSES[demanding] + (not brief) * AHEAD
            trial = Tried(begun.value, begun.centers, begun.prices, taken, True)
            stopped = begun.interrupted
        if most and not stopped and not np.isfinite(trial.value):
            run = onwards(trial, 1 if trial.soft else most)
            own, stopped = run.best, run.status == "interrupted"
            taken = trial.taken + len(run.history)
            trial = Tried(own.objective, own.centers, own.answer.prices, taken, trial.soft)
        best = trial if best is None or trial.value < best.value else best
        if stopped:
            raise KeyboardInterrupt
        return trial

    try:
        first = tried(start_of(problem, init, seeds[0], left()), None, 0, False)
    except KeyboardInterrupt:
        if best is None:
            raise
        return replace(onwards(best, 1), status="interrupted")
    run = onwards(first, None)
    if model.search != "swap" or run.status != "converged":
        return run
    if not np.isfinite(first.value):
        own = run.best
        first = Tried(own.objective, own.centers, own.answer.prices, first.taken, first.soft)
    best, rest, led, interrupted = first, list(seeds[1:]), [first], False
    rng, patience, looked, lower = np.random.default_rng(seeds[0]), np.inf, first, True
    budget = (starts - 1) * (len(run.history) + first.taken + PROOF)
    try:
        while budget > 0.0 and time.perf_counter() < deadline:
            before = best.value
            if isinstance(init, str):
                asked, whole = bool(rest), bool(rest) and K < ALL_STARTS
                seed = rest.pop(0) if asked else int(rng.integers(2**31 - 1))
                looked = tried(start_of(problem, init, seed, left()), None, brief=not whole)
                patience = looked.taken
                # a whole one is a start but for half its end, and none takes less than some brief ones
                half = 0.5 * len(run.history)
                budget -= first.taken + half if whole and first.soft else patience
                if asked and looked.soft and not whole:
                    budget += max(0.0, BRIEF * patience - first.taken)
                led += [looked] if whole else []
                if whole and rest:
                    continue
            budget = swapped(
                problem,
                best if lower else looked,
                tried,
                rng=rng,
                budget=budget,
                patience=patience,
                deadline=deadline,
            )
            lower = best.value < before
    except KeyboardInterrupt:
        interrupted = True
    start = run
    close = [t for t in led if t is not best and t.value <= (1.0 + CLOSE) * best.value]
    for begun in (best, *close):
        if begun is first or (interrupted and begun is not best):
            continue
        try:
            last = onwards(begun, 1 if interrupted else None)
        except KeyboardInterrupt:
            last, interrupted = run, True
        interrupted = interrupted or last.status == "interrupted"
        if last.best.objective < run.best.objective:
            # the search goes on from where the first start ended: its history stays in front
            history, gaps = (*start.history, last.history[-1]), (*start.gaps, last.gaps[-1])
            run = replace(last, history=history, gaps=gaps, reseeded=start.reseeded)
    return replace(run, status="interrupted") if interrupted else run


def certified(
    problem: FairAssignment, run: Descent[Any], seed: int, begin: float
) -> tuple[Restart, Fit]:
    """Return what a descent found: its last assignment is proved as that of a problem.

    The first one, where it was cut short, is not solved but rows are moved to obey the rules; where
    arcs are barred too, that is no small change.
    """
    assigned, centers = run.best.answer, run.best.centers
    start = {name: getattr(assigned, name, None) for name in ("prices", "duals", "known")}
    last = problem.with_centers(centers, **start)
    whole = np.isfinite(run.best.gap) or problem.demands.bars or bool(problem.links)
    solution = last.solve(time_limit=None if whole else SOON)
    A = np.asarray(solution["assignment"])
    numbers = (*_numbers(problem, A, centers), solution.gap, len(run.history), run.status)
    record = Restart(seed, solution.objective, *numbers, time.perf_counter() - begin)
    gaps = (*run.gaps[:-1], solution.gap)
    history = (*run.history[:-1], min(*run.history[-2:], solution.objective))
    return record, Fit(record, solution, A, centers, history, gaps, run.reseeded)


def rows_of(problem: FairAssignment, prices: Floats | None, duals: Floats | None = None) -> Any:
    """Return the steps of a descent on rows in memory."""
    rules, demands, data = compile_rules(problem), problem.demands, problem.data
    stated = rules.program, problem.cost, data["groups"], data["weights"], problem.objective_unit
    if demands.of_costs:
        linked = linked_rows(problem)
        return ChargedRows(*stated, demands, rules.feasible, prices, duals=duals, links=linked)
    return HeldRows(*stated, prices)


def descent(
    model: Any,
    problem: FairAssignment,
    rows: Any,
    centers: Floats,
    time_limit: float | None,
    report: Step | None,
    *,
    tol: float,
    max_iter: int | None = None,
    mixed: bool = False,
) -> Descent[Any]:
    """Alternate on rows that are held or passed over, and tell of it; see `descend`."""
    # while starts run, a bar over them has the terminal
    shown = 0 if model.verbose == 1 and report is not None else model.verbose
    with step_progress(shown) as log:

        def shown(iteration: int, step: Assigned[Any]) -> None:
            now = Iteration(step.objective, step.gap)
            log(iteration, now)
            if report is not None:
                report(iteration, now)

        return descend(
            centers,
            rows.assign,
            rows.move,
            max_iter=model.max_iter if max_iter is None else max_iter,
            tol=tol,
            rise=RISE,
            unit=problem.objective_unit,
            mixed=mixed,
            time_limit=time_limit,
            report=shown,
        )


def softly(
    problem: FairAssignment,
    centers: Floats,
    model: Any,
    time_limit: float | None,
    prices: Floats | None,
    *,
    brief: bool,
    fewest: int | None,
) -> SmoothedStart | None:
    """Return where the first iterations lead that need no exact assignment; None without them."""
    if problem.demands.of_costs or problem.cost.metric != "sqeuclidean" or general(problem):
        return None
    cost = replace(problem.cost, centers=centers)
    return smoothed_start(
        compile_rules(problem).program,
        CostRows(cost, problem.data["groups"], problem.data["weights"]),
        tol=model.tol,
        max_iter=model.max_iter,
        prices=prices,
        brief=brief,
        fewest=fewest,
        deadline=np.inf if time_limit is None else time.perf_counter() + 0.5 * time_limit,
    )


def general(problem: FairAssignment) -> bool:
    """Whether assignments are solved as problems: links without rules on costs, rules on single rows."""
    linked = bool(problem.links) and not problem.demands.of_costs
    return linked or bool(problem.structure_refusal("mass-assignment"))


def _general_fit(
    model: Any,
    problem: FairAssignment,
    centers: Floats,
    seed: int,
    time_limit: float | None,
    report: Step,
) -> tuple[Restart, Fit]:
    """Run one start by solving problems; see `alternate`."""
    run = alternate(
        problem.with_centers(centers),
        max_iter=model.max_iter,
        tol=model.tol,
        time_limit=time_limit,
        verbose=max(0, model.verbose - 1),
        callback=lambda i, s: report(i, Iteration(s.objective, s.gap)),
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
            start_of(problem, init, seed, limit),
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
    masses = gathered_masses(assignment, groups, w, problem.shares.size)
    values = {"assignment": assignment, "masses": masses}
    rules = (t for name, t in problem.constraints.items() if t.scope <= {"masses"})
    return all(t.relative_violation(values) <= BLOCKS for t in rules)


def start_of(
    problem: FairAssignment, init: Any, seed: int, time_limit: float | None = None
) -> Floats:
    """Return the centers that a start begins with: drawn, in a part of the time limit, or given."""
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
        time_limit=None if time_limit is None else PLAIN_PART * time_limit,
    )


def _numbers(problem: FairAssignment, assignment: Floats, centers: Floats) -> tuple[float, float]:
    """Return cost and balance of the hard labels."""
    w, groups, (G, K) = problem.data["weights"], problem.data["groups"], problem["masses"].shape
    labels = assignment.argmax(axis=1)
    masses: Floats = np.bincount(groups * K + labels, w, G * K).astype(float).reshape(G, K)
    plain = replace(problem.cost, centers=centers, charge=None)
    return float(w @ plain.paired(np.arange(w.size), labels)), smallest_ratio(masses)


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
    if model.partition_size < 2:
        reasons.append(f"partition_size is {model.partition_size}, for blocks of both groups")
    if reasons:
        raise DeclarationError(
            'algorithm="paper" does not apply',
            "; ".join(reasons),
            "it takes two groups of equal weights, squared distances, and perfect_fairness() or"
            ' additive_gap(eps); algorithm="exact" takes everything',
        )
    return float(getattr(model.fairness, "eps", 0.0)) / 2.0
