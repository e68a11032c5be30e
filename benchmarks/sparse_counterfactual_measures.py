"""Measurements of sparse counterfactuals: edits, optima, times and curves."""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np
import pandas as pd
from sparse_counterfactual_scenarios import (
    GENERATORS,
    GERMAN,
    HOTEL,
    METHODS,
    Task,
    estimators,
    neighbours,
    on_decisions,
    task,
)

import optfair as of
from optfair.methods.sparse_counterfactuals.action_plan import ActionPlan
from optfair.methods.sparse_counterfactuals.couplings import random_coupling
from optfair.methods.sparse_counterfactuals.shapley import p_shap
from optfair.methods.sparse_counterfactuals.sparse_counterfactuals import (
    SparseCounterfactuals,
)

LEVELS = (0.8, 1.0)
Result = dict[str, Any]


def edits_for(fitted: SparseCounterfactuals, effect: float, **options: Any) -> Result | None:
    """Return edits per row and ratios for an effect, None where no budget reaches it."""
    try:
        z = fitted.minimum_actions(effect, **options)
    except of.DataError as e:
        if not e.cause.startswith("no budget reaches"):
            raise
        return None
    return {
        "edits": z.n_edits / z.edits.shape[0],
        "share": z.edit_ratio,
        "distance": z.distance_ratio,
    }


def fewest_edits(fitted: SparseCounterfactuals, effect: float, **options: Any) -> float | None:
    """Return the proven least number of edits per row for an effect on the mean."""
    try:
        problem = fitted.fewest(effect, **options)
    except of.DataError as e:
        if not e.cause.startswith("no edits reach"):
            raise
        return None
    solution = problem.solve()
    if not solution.is_optimal(1e-6):
        return None
    return float(problem.cost(solution)) / len(fitted.factual_outputs_)


def scenario(data: str, classifier: str, generator: str, quick: bool) -> Result:
    """Return edits of all methods in one scenario."""
    small = data == HOTEL
    job = task(data)
    model = job.fitted(classifier)
    x = job.factuals(model, 30 if quick or small else 100)
    r = GENERATORS[generator](job, model, x)
    rows: dict[str, list[Result]] = {name: [] for name in METHODS}
    optimum: Result = {}
    for name, fitted in estimators(
        job,
        model,
        x,
        r,
        background=10 if quick or small else 50,
        seeds=1 if quick else 5,
        samples=512 if small else None,
    ):
        decided = on_decisions(job, model, fitted, x, r)
        rows[name].append(
            {
                "original": fitted.original_edits_ / len(x),
                "decisions": {f"{e:.0%}": edits_for(decided, e) for e in LEVELS},
                "pruned": {f"{e:.0%}": edits_for(decided, e, prune=True) for e in LEVELS},
                "scores": {f"{e:.0%}": edits_for(fitted, e) for e in LEVELS},
            }
        )
        if name == "CF-pOT":
            # of 29 features only sets of up to 3: where the effect is reached with these it takes
            # the cheapest rows, and a row that needs 4 edits is none of them
            most = {"most_edits": 3} if small else {}
            optimum = {f"{e:.0%}": fewest_edits(decided, e, **most) for e in LEVELS}
    return {
        "data": data,
        "classifier": classifier,
        "generator": generator,
        "rows": len(x),
        "methods": rows,
        "optimum": optimum,
    }


def headline(quick: bool) -> list[Result]:
    """Return edits per row of all methods for the full effect on decisions, on 100 rows.

    Methods that draw count with their best draw, those of the uniform coupling with the better
    of both values. One entry per generator, nearest neighbours first.
    """
    job = task(GERMAN)
    model = job.fitted("RndForest")
    x = job.factuals(model, 100)
    generators = dict(list(GENERATORS.items())[:1]) if quick else GENERATORS
    return [
        {"generator": name, **full_effect(job, model, x, generate(job, model, x), quick)}
        for name, generate in generators.items()
    ]


def full_effect(job: Task, model: Any, x: pd.DataFrame, r: pd.DataFrame, quick: bool) -> Result:
    seeds = 2 if quick else 10
    found: dict[str, Result | None] = {}
    as_printed: dict[str, Result | None] = {}
    values = {}
    for name, fitted in estimators(job, model, x, r, background=10 if quick else 100, seeds=seeds):
        draws: list[dict[str, Any]] = [{}]
        if fitted.coupling == "uniform":
            draws += [{"value": "max", "seed": k} for k in range(seeds)]
        for best, printed in ((found, False), (as_printed, True)):
            tried = [on_decisions(job, model, fitted, x, r, printed=printed, **d) for d in draws]
            known = [e for e in (best.get(name), *(edits_for(t, 1.0) for t in tried)) if e]
            best[name] = min(known, key=lambda one: one["edits"], default=None)
        values[name] = tried[0].values_
        if name == "CF-pOT":
            least = fewest_edits(tried[0], 1.0)
    return {
        "rows": len(x),
        "original": float((x.to_numpy() != r.to_numpy()).sum()) / len(x),
        "methods": found,
        "as printed": as_printed,
        "optimum": least,
        "CF-pEct has the values of CF-pOT": bool(values["CF-pEct"].equals(values["CF-pOT"])),
    }


def direct(fitted: SparseCounterfactuals, x: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Return effects (n, 2^d) and sets (2^d, d): all choices, as appendix G prints them."""
    q, (n, d) = fitted.values_, x.shape
    sets = (np.arange(2**d)[:, None] >> np.arange(d)) % 2 == 1
    rows = pd.DataFrame(
        {
            c: np.where(
                np.tile(sets[:, j], n),
                np.repeat(np.asarray(q[c]), 2**d),
                np.repeat(np.asarray(x[c]), 2**d),
            )
            for j, c in enumerate(x.columns)
        }
    ).astype(x.dtypes.to_dict())
    return fitted.predictor_(rows).reshape(n, 2**d) - fitted.target_.mean(), sets


def optimum(quick: bool) -> list[Result]:
    """Return values and times of the default route and of HiGHS on the direct formulation."""
    found = []
    job = task(GERMAN)
    model = job.fitted("GradBoost")
    x = job.factuals(model, 50)
    r = neighbours(job, model, x)
    for coupling in ("random", "ot"):
        # at random most features of a pair differ, so that most of the choices do
        fitted = SparseCounterfactuals(
            model, coupling=coupling, target_class=job.wanted, random_state=0
        ).fit(x, r)
        effects, sets = direct(fitted, x)
        for budget in (25, 50, 100):
            if quick and coupling == "ot":
                continue
            problem = ActionPlan(effects, sets, budget=budget)
            seconds, whole = [], []
            for _ in range(9):
                begin = time.perf_counter()
                ours = problem.solve()
                whole.append(time.perf_counter() - begin)
                seconds.append(ours.seconds["solve"])
            limit = 60.0
            if quick:  # it ends in 2 s or never
                limit = 3.0 if budget == 100 else 10.0
            value, proven, spent, called = by_highs(problem, limit, 1 if quick else 3)
            found.append(
                {
                    "coupling": coupling,
                    "budget": budget,
                    "value": ours.objective,
                    "proven": bool(ours.is_optimal(1e-9)),
                    "seconds": statistics.median(seconds),
                    "whole seconds": statistics.median(whole),
                    "HiGHS value": value,
                    "HiGHS proven": proven,
                    "HiGHS seconds": spent,
                    "HiGHS whole seconds": called,
                }
            )
    return found


def by_highs(
    problem: ActionPlan, limit: float, runs: int
) -> tuple[float | None, bool, float, float]:
    """Return value, whether it is proven, seconds of HiGHS alone and of the call; medians.

    A timeout counts as "at least", and is run once.
    """
    seconds, whole = [], []
    for _ in range(runs):
        begin = time.perf_counter()
        try:
            found = problem.solve("highs", time_limit=limit)
        except of.OptfairError:  # the limit came before any point
            return None, False, limit, limit
        whole.append(time.perf_counter() - begin)
        seconds.append(found.seconds["solve"])
        if not found.is_optimal(1e-9):
            return found.objective, False, seconds[-1], whole[-1]
    return found.objective, True, statistics.median(seconds), statistics.median(whole)


def attribution(quick: bool) -> Result:
    """Return the time of exact p-SHAP over the time inside the model."""
    job = task(GERMAN)
    model = job.fitted("RndForest")
    x = job.factuals(model, 100)
    r = neighbours(job, model, x)
    p = random_coupling(len(x), len(r), np.random.default_rng(0))
    column = list(model.classes_).index(job.wanted)
    inside = 0.0

    def score(rows: Any) -> np.ndarray:
        nonlocal inside
        begin = time.process_time()
        values = model.predict_proba(rows)[:, column]
        inside += time.process_time() - begin
        return np.asarray(values)

    ratios = []
    for _ in range(2 if quick else 5):
        inside, begin = 0.0, time.process_time()
        found = p_shap(score, x, r, p)
        ratios.append((time.process_time() - begin) / inside)
    return {
        "rows": len(x),
        "method": found.method,
        "model rows": found.evaluations,
        "ratio": statistics.median(ratios),
        "seconds": inside,
    }


def budget(quick: bool) -> list[Result]:
    """Return the mean difference of every method after each edit, and the optimum."""
    found = []
    names = ("GradBoost",) if quick else ("RndForest", "GradBoost", "LR")
    job = task(GERMAN)
    for classifier in names:
        for generator, generate in GENERATORS.items():
            if quick and generator != "KNN":
                continue
            model = job.fitted(classifier)
            x = job.factuals(model, 50)
            r = generate(job, model, x)
            curves: dict[str, list[list[float]]] = {}
            away: dict[str, list[float]] = {}
            bound: dict[str, Any] = {}
            for name, fitted in estimators(
                job, model, x, r, background=10 if quick else 50, seeds=1 if quick else 20
            ):
                curve = fitted.divergences("mean")
                curves.setdefault(name, []).append(curve.tolist())
                if len(curves[name]) == 1:
                    # each method by the optimum of its own values
                    least = least_along(fitted, 10 if quick else 4)
                    bound[name] = least
                    at, values = (np.array(v) for v in least)
                    away[name] = ((curve[at] - values) / curve[0]).tolist()
            found.append(
                {
                    "classifier": classifier,
                    "generator": generator,
                    "rows": len(x),
                    "curves": curves,
                    "optimum": bound["CF-pOT"],
                    "optimum of CF-pEct": bound["CF-pEct"],
                    "distance": {k: [max(v), float(np.mean(v)), min(v)] for k, v in away.items()},
                }
            )
    return found


def least_along(fitted: SparseCounterfactuals, step: int) -> tuple[list[int], list[float]]:
    """Return budgets and proven least mean differences, up to the budget that reaches zero."""
    plan, n = fitted.plan(0), len(fitted.factual_outputs_)
    budgets, values = [], []
    for C in range(0, int(fitted.editable_.sum()) + 1, step):
        solution = plan.with_budget(C).solve()
        budgets.append(C)
        # a bound is a bound also where the value is not proven to 1e-9
        values.append(max(0.0, float(solution.bound)) / n)
        if solution.objective <= 1e-6:
            break
    return budgets, values
