"""A search for maps of a group, in families within a box, that asks a classifier for its answers only, by NSGA-II."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DeclarationError, Infeasible, needed
from optfair.methods.group_counterfactuals.metrics import SLACK, Target
from optfair.numbers import Floats

# Pairs whose distances are compared during a search; more are sampled.
MOST_PAIRS = 80_000
# Entries of a temporary array.
CHUNK = 4_000_000


@dataclass(frozen=True, eq=False)
class Group:
    """Members, and what a search needs of them.

    Attributes
    ----------
    members : array (n, d)
    center : array (d,)
        Their mean.
    covariance : array (d, d)
        Divided by n.
    directions : array (pairs, d)
        Unit vectors between different members: of all pairs, or of as many drawn ones.
    firsts, seconds : array (pairs,) of int
        The pairs.
    lengths : array (pairs,)
        Their distances.
    """

    members: Floats
    center: Floats
    covariance: Floats
    directions: Floats
    firsts: NDArray[np.intp]
    seconds: NDArray[np.intp]
    lengths: Floats

    @classmethod
    def of(cls, members: Floats, rng: np.random.Generator) -> Group:
        """Return the group of some members."""
        n = members.shape[0]
        if n * (n - 1) // 2 <= MOST_PAIRS:
            firsts, seconds = np.triu_indices(n, 1)
        else:
            firsts = rng.integers(0, n, MOST_PAIRS)
            seconds = (firsts + rng.integers(1, n, MOST_PAIRS)) % n
        apart = members[firsts] - members[seconds]
        lengths = np.linalg.norm(apart, axis=1)
        kept = lengths > 0
        center = members.mean(axis=0)
        centred = members - center
        return cls(
            members,
            center,
            centred.T @ centred / n,
            apart[kept] / lengths[kept, None],
            firsts[kept],
            seconds[kept],
            lengths[kept],
        )


class _Affine(ABC):
    """Affine maps: the first parameters say A, the last d the shift.

    Parameters lie in a box, and all methods take a whole population of them (P, p).
    """

    def __init__(self, group: Group, reach: Floats, K: float, count: int) -> None:
        self.group = group
        log = np.full(count, np.log(K))
        self.count = count
        self.lower = np.concatenate([-log, -reach])
        self.upper = np.concatenate([log, reach])

    @abstractmethod
    def matrices(self, x: Floats) -> Floats:
        """Return A of every parameter vector (P, d, d)."""

    @abstractmethod
    def ratios(self, x: Floats) -> tuple[Floats, Floats]:
        """Return the largest and the smallest ratio of distances (P,), image / original."""

    @abstractmethod
    def logarithm(self, S: Floats) -> Floats:
        """Return the parameters of exp(S), or of what the family has instead."""

    def images(self, x: Floats) -> Floats:
        """Return the counterfactuals (P, n, d)."""
        g = self.group
        moved = np.matmul((g.members - g.center)[None], self.matrices(x))
        return np.asarray(moved + (g.center + x[:, self.count :])[:, None, :])

    def cost(self, x: Floats) -> Floats:
        """Return the mean squared distances (P,)."""
        shift = x[:, self.count :]
        change = self.matrices(x) - np.eye(shift.shape[1])
        deformed = np.einsum("pij,jk,pik->p", change, self.group.covariance, change, optimize=True)
        return np.asarray(np.einsum("pj,pj->p", shift, shift) + deformed)

    def pressed(self, shift: Floats, log: float) -> Floats:
        """Return the parameters (p,) of a map that moves the mean and presses the group.

        The group is pressed together by e^log along the shift, as far as the family can.
        """
        S = log * np.outer(shift, shift) / max(float(shift @ shift), 1e-300)
        return np.asarray(np.concatenate([self.logarithm(S), shift]))

    def maps(self, x: Floats) -> tuple[Floats, Floats]:
        """Return A (P, d, d) and b (P, d)."""
        A = self.matrices(x)
        g = self.group
        return A, g.center + x[:, self.count :] - A @ g.center


class _Spectral(_Affine):
    """A = U diag(e^u) U^T in a fixed basis: u of one entry (scaled) or one per direction."""

    def __init__(self, name: str, group: Group, reach: Floats, K: float) -> None:
        d = group.center.size
        self.basis = np.eye(d)
        if name == "commutative":
            self.basis = np.linalg.eigh(group.covariance)[1]
        super().__init__(group, reach, K, 1 if name == "scaled" else d)
        # |A e|^2 = sum_j a_j^2 (U^T e)_j^2
        self.squares = np.square(group.directions @ self.basis)

    def _values(self, x: Floats) -> Floats:
        values = np.exp(x[:, : self.count])
        return np.asarray(np.broadcast_to(values, (x.shape[0], self.group.center.size)))

    def matrices(self, x: Floats) -> Floats:
        return np.asarray(np.matmul(self.basis * self._values(x)[:, None, :], self.basis.T))

    def logarithm(self, S: Floats) -> Floats:
        along = np.einsum("ji,jk,ki->i", self.basis, S, self.basis)
        return np.array([np.trace(S)]) if self.count == 1 else np.asarray(along)

    def ratios(self, x: Floats) -> tuple[Floats, Floats]:
        return _extremes(np.square(self._values(x)), self.squares)


class _Full(_Affine):
    """A = exp(S) for a symmetric S, whose eigenvalues are cut to [-log K, log K]."""

    def __init__(self, group: Group, reach: Floats, K: float) -> None:
        d = group.center.size
        self.rows, self.columns = np.triu_indices(d)
        super().__init__(group, reach, K, self.rows.size)
        self.log = np.log(K)
        # |A e|^2 = <A'A, e e'>, off-diagonal entries twice
        e = group.directions
        twice = np.where(self.rows == self.columns, 1.0, 2.0)
        self.products = e[:, self.rows] * e[:, self.columns] * twice

    def matrices(self, x: Floats) -> Floats:
        d = self.group.center.size
        S = np.zeros((x.shape[0], d, d))
        S[:, self.rows, self.columns] = S[:, self.columns, self.rows] = x[:, : self.count]
        values, vectors = np.linalg.eigh(S)
        values = np.exp(np.clip(values, -self.log, self.log))
        return np.asarray(np.matmul(vectors * values[:, None, :], np.swapaxes(vectors, 1, 2)))

    def logarithm(self, S: Floats) -> Floats:
        return np.asarray(S[self.rows, self.columns])

    def ratios(self, x: Floats) -> tuple[Floats, Floats]:
        A = self.matrices(x)
        gram = np.matmul(np.swapaxes(A, 1, 2), A)
        return _extremes(gram[:, self.rows, self.columns], self.products)


class _Members:
    """Every member goes where it likes: n·d parameters and no map, the paper's baseline."""

    def __init__(self, group: Group, reach: Floats, K: float) -> None:
        from scipy.spatial.distance import pdist

        self.group = group
        n = group.members.shape[0]
        self.upper = np.tile(reach, n)
        self.lower = -self.upper
        self.distances = pdist
        # all pairs stand in the order of SciPy; drawn ones do not
        self.kept = pdist(group.members) > 0 if n * (n - 1) // 2 <= MOST_PAIRS else None

    def _moves(self, x: Floats) -> Floats:
        return np.asarray(x.reshape(x.shape[0], *self.group.members.shape))

    def images(self, x: Floats) -> Floats:
        return np.asarray(self.group.members + self._moves(x))

    def cost(self, x: Floats) -> Floats:
        return np.asarray(np.square(x).sum(axis=1) / self.group.members.shape[0])

    def ratios(self, x: Floats) -> tuple[Floats, Floats]:
        g = self.group
        high, low = np.ones(x.shape[0]), np.ones(x.shape[0])
        if g.lengths.size:
            for p, Z in enumerate(self.images(x)):
                if self.kept is not None:
                    apart = self.distances(Z)[self.kept]
                else:
                    apart = np.linalg.norm(Z[g.firsts] - Z[g.seconds], axis=1)
                ratio = apart / g.lengths
                high[p], low[p] = ratio.max(), ratio.min()
        return high, low

    def pressed(self, shift: Floats, log: float) -> Floats:
        return np.asarray(np.tile(shift, self.group.members.shape[0]))

    def maps(self, x: Floats) -> tuple[Floats, Floats]:
        d = self.group.center.size
        return np.empty((0, d, d)), np.empty((0, d))


Family = _Affine | _Members
FAMILIES = ("psd", "diagonal", "commutative", "scaled", "members")


def family_of(name: str, group: Group, reach: Floats, K: float) -> Family:
    """Return a family on a group.

    Parameters
    ----------
    name : str
        One of `FAMILIES`.
    group : Group
        Members.
    reach : array (d,)
        Bounds of the shift.
    K : float
        Bound of the eigenvalues and of their inverses.
    """
    if name == "psd":
        return _Full(group, reach, K)
    if name == "members":
        return _Members(group, reach, K)
    return _Spectral(name, group, reach, K)


def _extremes(weights: Floats, squares: Floats) -> tuple[Floats, Floats]:
    """Return the largest and smallest root of weights @ squares.T, without keeping it."""
    count = weights.shape[0]
    if squares.shape[0] == 0:  # all members are equal
        return np.ones(count), np.ones(count)
    high, low = np.zeros(count), np.full(count, np.inf)
    step = max(1, CHUNK // count)
    for start in range(0, squares.shape[0], step):
        products = weights @ squares[start : start + step].T
        np.maximum(high, products.max(axis=1), out=high)
        np.minimum(low, products.min(axis=1), out=low)
    return np.sqrt(high), np.sqrt(np.maximum(low, 0.0))


# NSGA-II for two objectives under constraints, and the hypervolume of what it finds.

PYMOO = 'pip install "optfair[evolution]"'
# (population, parameters) -> (population, objectives), (population,) violation: at most 0 is feasible
Evaluate = Callable[[Floats], tuple[Floats, Floats]]


class Evolved(NamedTuple):
    """The nondominated feasible points of a search, by the first objective; `complete`: in full."""

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
    lower, upper, start : arrays (p,), (p,), (population, p)
        Bounds of the parameters and the first population.
    time_limit : float, optional
        Seconds, checked after each generation.

    References
    ----------
    Deb, Agrawal, Pratap, Meyarivan: A fast elitist non-dominated sorting genetic algorithm for
    multi-objective optimization: NSGA-II, 2000.
    """
    core = needed("pymoo.core.problem", PYMOO)
    nsga2 = needed("pymoo.algorithms.moo.nsga2", PYMOO)

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
    hv = needed("pymoo.indicators.hv", PYMOO)
    inside = points[(points <= np.asarray(reference)).all(axis=1)]
    return float(hv.HV(ref_point=np.asarray(reference))(inside)) if inside.size else 0.0


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
    translations = _shifts(target, rows, size * directions, LADDER)
    if rows.shape[0] < group.members.shape[0]:
        # from the shortest that work for some of the members to what all of them need
        translations.sort(key=lambda shift: float(np.linalg.norm(shift)))
        translations = _shifts(target, group.members, np.array(translations[:KEPT]), FURTHER)
    if not translations:
        raise Infeasible(
            "no translation of the group was found that every member reaches the target with",
            f"{len(directions)} directions up to {LADDER[-1]:g} times the spread of the group",
            "give background= rows of which some reach the target, or a lower probability",
        )
    shifts = np.array(translations)
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
    shifts = []
    for unit in units:
        for low, high in zip((0.0, *ladder), ladder, strict=False):
            if _all_valid(target, rows, high * unit):
                shifts.append(_nearest(target, rows, unit, (low, high)))
                break
    return shifts


def _nearest(target: Target, rows: Floats, unit: Floats, bracket: tuple[float, float]) -> Floats:
    low, high = bracket
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        valid = _all_valid(target, rows, middle * unit)
        low, high = (low, middle) if valid else (middle, high)
    return high * unit


# A search for maps of a group that asks a classifier for its answers only.

# Predictions asked for at a time.
ROWS = 200_000
# Halvings of the way of a pressed group.
PRESSINGS = 8


class MapSearch:
    """NSGA-II on one of the `FAMILIES`, with K the bound of A's eigenvalues and their inverses."""

    def __init__(
        self, target: Target, members: Floats, family: str, K: float, seed: int | None
    ) -> None:
        self.target, self.name, self.K, self.seed = target, family, K, seed
        self.rng = np.random.default_rng(seed)
        self.group = Group.of(members, self.rng)

    def run(
        self, background: Floats | None, population: int, generations: int, time_limit: float | None
    ) -> tuple[Floats, Floats, Floats, bool]:
        """Search, from maps that are known to reach the target.

        Returns
        -------
        tuple
            Counterfactuals of the members (m, n, d), matrices and offsets of the maps, empty where
            every member moves by itself, and whether all generations were run.

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
        evolved = evolve(
            lambda x: self._evaluate(family, x),
            family.lower,
            family.upper,
            self._start(family, shifts, population),
            generations=generations,
            time_limit=time_limit,
            seed=self.seed,
        )
        images = family.images(evolved.parameters)
        return images, *family.maps(evolved.parameters), evolved.complete

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
        parts = [np.array([family.pressed(s, 0.0) for s in nearest])]
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
            parts.append(pressed[self._violation(family, pressed) <= 0])
        return np.vstack(parts)

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
