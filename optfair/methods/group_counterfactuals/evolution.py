"""NSGA-II for two objectives under constraints, and the hypervolume of what it finds."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.errors import NotInstalled

Floats = NDArray[np.float64]
# (population, parameters) -> (population, objectives), (population,) violation: at most 0 is feasible
Evaluate = Callable[[Floats], tuple[Floats, Floats]]

__all__ = ["Evolved", "evolve", "hypervolume"]


@dataclass(frozen=True, eq=False)
class Evolved:
    """The nondominated feasible points of an evolutionary search.

    Attributes
    ----------
    parameters : array (m, p)
    objectives : array (m, 2)
        Sorted by the first objective.
    generations : int
        Generations run.
    complete : bool
        Whether all generations asked for were run.
    """

    parameters: Floats
    objectives: Floats
    generations: int
    complete: bool


def evolve(
    evaluate: Evaluate,
    lower: Floats,
    upper: Floats,
    start: Floats,
    *,
    generations: int,
    time_limit: float | None = None,
    seed: int | None = None,
) -> Evolved:
    """Run NSGA-II with simulated binary crossover, polynomial mutation and binary tournaments.

    A heuristic: nothing is said about how far the points are from the true front. Feasible
    points always beat infeasible ones. After Ctrl-C or the time limit, the points so far.

    Parameters
    ----------
    evaluate : callable
        Objectives and violation of a whole population at once.
    lower, upper : array (p,)
        Bounds of the parameters.
    start : array (population, p)
        First population.
    generations : int
        Most generations.
    time_limit : float, optional
        Seconds, checked after each generation.
    seed : int, optional
        For the random numbers.

    Raises
    ------
    NotInstalled
        pymoo is missing.

    References
    ----------
    Deb, Agrawal, Pratap, Meyarivan: A fast elitist non-dominated sorting genetic algorithm for
    multi-objective optimization: NSGA-II, 2000.
    """
    core, nsga2 = _pymoo()

    class Bounded(core.Problem):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__(n_var=lower.size, n_obj=2, n_ieq_constr=1, xl=lower, xu=upper)

        def _evaluate(self, x: Floats, out: dict[str, Any], *_: Any, **__: Any) -> None:
            objectives, violation = evaluate(np.asarray(x, dtype=np.float64))
            out["F"], out["G"] = objectives, violation[:, None]

    algorithm = nsga2.NSGA2(pop_size=start.shape[0], sampling=start)
    algorithm.setup(Bounded(), termination=("n_gen", generations), seed=seed, verbose=False)
    begin, complete, count = time.perf_counter(), True, 0
    try:
        while algorithm.has_next():
            algorithm.next()
            count += 1
            if time_limit is not None and time.perf_counter() - begin > time_limit:
                complete = not algorithm.has_next()
                break
    except KeyboardInterrupt:
        if algorithm.opt is None:
            raise
        complete = False
    best = algorithm.opt
    feasible = best.get("FEAS").ravel()
    parameters, objectives = best.get("X")[feasible], best.get("F")[feasible]
    order = np.lexsort((objectives[:, 1], objectives[:, 0]))
    return Evolved(
        np.asarray(parameters, dtype=np.float64)[order],
        np.asarray(objectives, dtype=np.float64)[order],
        count,
        complete,
    )


def hypervolume(points: Floats, reference: tuple[float, float]) -> float:
    """Return the area that points dominate up to a reference point, both objectives minimised."""
    _pymoo()
    from pymoo.indicators.hv import HV

    inside = points[(points <= np.asarray(reference)).all(axis=1)]
    return float(HV(ref_point=np.asarray(reference))(inside)) if inside.size else 0.0


def _pymoo() -> tuple[Any, Any]:
    try:
        from pymoo.algorithms.moo import nsga2
        from pymoo.core import problem
    except ImportError as e:
        raise NotInstalled(
            "pymoo is not installed", str(e), 'pip install "optfair[evolution]"'
        ) from None
    return problem, nsga2
