"""A search for maps of a group that asks a classifier for its answers only, by NSGA-II."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DeclarationError, Infeasible, NotInstalled
from optfair.methods.group_counterfactuals.map_families import Family, Group, family_of
from optfair.methods.group_counterfactuals.metrics import SLACK, Target

# NSGA-II for two objectives under constraints, and the hypervolume of what it finds.

Floats = NDArray[np.float64]
# (population, parameters) -> (population, objectives), (population,) violation: at most 0 is feasible
Evaluate = Callable[[Floats], tuple[Floats, Floats]]


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


# How far a group must be moved, found by looking at a classifier's answers only.

# Distances tried, in multiples of the group's spread, and how often the first that works is halved.
LADDER: Floats = np.logspace(-3, 7, 11, base=2.0)
HALVINGS = 6
# Members looked at first; all of them then need at least as much, and the shortest are tried.
MOST, KEPT = 200, 20
FURTHER = np.array([1.0, 1.1, 1.3, 1.7, 2.5, 5.0, 10.0])


def valid_translations(
    target: Target, group: Group, background: Floats | None, rng: np.random.Generator
) -> Floats:
    """Return shifts (m, d) after each of which every member reaches the target, nearest first.

    Directions are those of the features, random ones, the estimated slope of the mean margin,
    and from the group's mean to rows of the background that reach the target.

    Raises
    ------
    Infeasible
        None was found. Deformations might still reach the target, but a search would have to
        find one by chance.
    """
    rows = group.members
    if _all_valid(target, rows, np.zeros(rows.shape[1])):
        return np.zeros((1, rows.shape[1]))
    if rows.shape[0] > MOST:
        rows = rows[rng.choice(rows.shape[0], MOST, replace=False)]
    # a feature that is constant in the group may move by the scale of the others
    spread = np.sqrt(np.diag(group.covariance))
    spread = np.where(spread > 0, spread, spread.max() or 1.0)
    directions = _directions(target, rows, group.center, spread, background, rng)
    size = np.linalg.norm(spread)
    found = _shifts(target, rows, size * directions, LADDER)
    if rows.shape[0] < group.members.shape[0]:
        # from the shortest that work for some of the members to what all of them need
        found.sort(key=lambda shift: float(np.linalg.norm(shift)))
        found = _shifts(target, group.members, np.array(found[:KEPT]), FURTHER)
    if not found:
        raise Infeasible(
            "no translation of the group was found that every member reaches the target with",
            f"{len(directions)} directions up to {LADDER[-1]:g} times the spread of the group",
            "give background= rows of which some reach the target, or a lower probability",
        )
    shifts = np.array(found)
    return shifts[np.argsort(np.linalg.norm(shifts, axis=1), kind="stable")]


def _directions(
    target: Target,
    rows: Floats,
    center: Floats,
    spread: Floats,
    background: Floats | None,
    rng: np.random.Generator,
) -> Floats:
    d = center.size
    axes = np.diag(spread)
    slope = np.array(
        [
            (target.margin(rows + step).mean() - target.margin(rows - step).mean()) / s
            for step, s in zip(0.5 * axes, spread, strict=True)
        ]
    )
    parts = [slope[None], slope[None] * spread**2, axes, -axes]
    parts.append(rng.normal(size=(min(4 * d, 60), d)) * spread)
    if background is not None:
        reached = background[target.margin(background) >= 0]
        nearest = np.argsort(np.linalg.norm(reached - center, axis=1), kind="stable")[:20]
        parts += [reached[nearest] - center, (reached.mean(axis=0) - center)[None]] * bool(
            reached.size
        )
    stacked = np.vstack(parts)
    norms = np.linalg.norm(stacked, axis=1)
    return np.asarray(stacked[norms > 0] / norms[norms > 0, None])


def _all_valid(target: Target, rows: Floats, shift: Floats) -> bool:
    return bool((target.margin(rows + shift) >= 0).all())


def _shifts(target: Target, rows: Floats, units: Iterable[Floats], ladder: Floats) -> list[Floats]:
    """Return the shortest multiple of each unit that works, where a step of the ladder does."""
    found = []
    for unit in units:
        for low, high in zip((0.0, *ladder), ladder, strict=False):
            if _all_valid(target, rows, high * unit):
                found.append(_nearest(target, rows, unit, (low, high)))
                break
    return found


def _nearest(target: Target, rows: Floats, unit: Floats, bracket: tuple[float, float]) -> Floats:
    low, high = bracket
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if _all_valid(target, rows, middle * unit):
            high = middle
        else:
            low = middle
    return high * unit


# A search for maps of a group that asks a classifier for its answers only.

# Predictions asked for at a time.
ROWS = 200_000
# Halvings of the way of a pressed group.
PRESSINGS = 8


@dataclass(frozen=True, eq=False)
class Found:
    """What a search ends with.

    Attributes
    ----------
    images : array (m, n, d)
        Counterfactuals of the members.
    matrices, offsets : array (m, d, d) and (m, d)
        The maps; empty where every member moves by itself.
    complete : bool
        Whether all generations were run.
    """

    images: Floats
    matrices: Floats
    offsets: Floats
    complete: bool


class MapSearch:
    """NSGA-II on a family of maps.

    Parameters
    ----------
    target : Target
        What every member must reach.
    members : array (n, d)
        The group.
    family : str
        One of `FAMILIES`.
    K : float
        Bound of the eigenvalues of A and of their inverses.
    seed : int, optional
        For the random numbers.
    """

    def __init__(
        self, target: Target, members: Floats, family: str, K: float, seed: int | None
    ) -> None:
        self.target, self.name, self.K, self.seed = target, family, K, seed
        self.rng = np.random.default_rng(seed)
        self.group = Group.of(members, self.rng)

    def run(
        self,
        background: Floats | None,
        population: int,
        generations: int,
        time_limit: float | None,
    ) -> Found:
        """Search, from maps that are known to reach the target.

        Raises
        ------
        DeclarationError
            Too small a search.
        Infeasible
            No translation reaches the target.
        """
        if min(population, generations) < 2:
            raise DeclarationError(
                f"population {population}, generations {generations}", remedy="give at least 2"
            )
        shifts = valid_translations(self.target, self.group, background, self.rng)
        spread = np.sqrt(np.diag(self.group.covariance))
        reach = np.maximum(1.2 * np.abs(shifts).max(axis=0), spread)
        # a feature nobody moves still needs a box
        reach = np.maximum(reach, 1e-6 * (reach.max() or 1.0))
        family = family_of(self.name, self.group, reach, self.K)
        found = evolve(
            lambda x: self._evaluate(family, x),
            family.lower,
            family.upper,
            self._start(family, shifts, population),
            generations=generations,
            time_limit=time_limit,
            seed=self.seed,
        )
        return Found(
            family.images(found.parameters), *family.maps(found.parameters), found.complete
        )

    def _start(self, family: Family, shifts: Floats, population: int) -> Floats:
        """Return maps that reach the target, the same with some noise, and random points."""
        p = family.lower.size
        start = self.rng.uniform(family.lower, family.upper, size=(population, p))
        seeds = self._pressed(family, shifts)[: max(1, population // 2)]
        start[: len(seeds)] = seeds
        more = min(population - len(seeds), population // 4)
        noise = self.rng.normal(scale=0.1, size=(more, p)) * (family.upper - family.lower)
        picked = seeds[self.rng.integers(0, len(seeds), more)]
        start[len(seeds) : len(seeds) + more] = picked + noise * self.rng.uniform(size=(more, 1))
        return np.clip(start, family.lower, family.upper)

    def _pressed(self, family: Family, shifts: Floats) -> Floats:
        """Return translations, then maps that press the group and need a shorter way."""
        nearest = shifts[:10]
        found = [np.array([family.pressed(s, 0.0) for s in nearest])]
        for share in (0.25, 0.5, 0.75, 1.0) if self.name != "members" else ():
            log = -share * np.log(self.K)
            short, long = np.zeros(len(nearest)), np.ones(len(nearest))
            for _ in range(PRESSINGS):
                middle = (short + long) / 2
                x = [family.pressed(m * s, log) for m, s in zip(middle, nearest, strict=True)]
                good = self._violation(family, np.array(x)) <= 0
                long, short = np.where(good, middle, long), np.where(good, short, middle)
            x = [family.pressed(m * s, log) for m, s in zip(long, nearest, strict=True)]
            pressed = np.array(x)
            found.append(pressed[self._violation(family, pressed) <= 0])
        return np.vstack(found)

    def _evaluate(self, family: Family, x: Floats) -> tuple[Floats, Floats]:
        high, low = family.ratios(x)
        with np.errstate(divide="ignore"):
            worst = np.maximum(high, 1.0 / low)
        objectives = np.column_stack([family.cost(x), 1.0 - 1.0 / worst])
        return objectives, self._violation(family, x)

    def _violation(self, family: Family, x: Floats) -> Floats:
        """Return by how much the worst member of each map falls short of the target."""
        n, d = self.group.members.shape
        step = max(1, ROWS // n)
        worst = [
            self.target.margin(family.images(x[i : i + step]).reshape(-1, d))
            .reshape(-1, n)
            .min(axis=1)
            for i in range(0, x.shape[0], step)
        ]
        short = -np.concatenate(worst)
        return np.where(short <= SLACK, 0.0, short)
