"""A search for maps of a group that asks a classifier for its answers only."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DeclarationError
from optfair.methods.group_counterfactuals.evolution import evolve
from optfair.methods.group_counterfactuals.map_families import Family, Group, family_of
from optfair.methods.group_counterfactuals.metrics.counterfactuals import SLACK
from optfair.methods.group_counterfactuals.metrics.target import Target
from optfair.methods.group_counterfactuals.reach import valid_translations

Floats = NDArray[np.float64]

__all__ = ["Found", "MapSearch"]

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
