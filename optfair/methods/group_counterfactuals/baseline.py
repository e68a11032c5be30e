"""The nonconvex bi-Lipschitz problem: the best point found, the best bound proved, the gap."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.backends.registry import profile, profiles
from optfair.core.problem import Problem
from optfair.core.solution import Solution, Status
from optfair.errors import DataError, DeclarationError, OptfairError, SizeLimited
from optfair.methods.group_counterfactuals.bi_lipschitz import BiLipschitzCounterfactuals, GramBound
from optfair.methods.group_counterfactuals.maps.affine_maps import PSDMap
from optfair.numbers import (
    check_mapping,
    check_names,
    check_seconds,
    check_seed,
    check_text,
    checked,
    floats,
)

Floats = NDArray[np.float64]

__all__ = ["BoundedValue", "bi_lipschitz_baseline"]

PAIRS = ("stretching", "shrinking")
# Orders of the Gram matrix up to which the semidefinite bound takes seconds.
LARGEST_GRAM = 80
FEASIBLE = 1e-7


@dataclass(frozen=True, eq=False)
class BoundedValue:
    """A feasible point of a nonconvex problem, and how far it may be from the best one.

    Attributes
    ----------
    counterfactuals : array (n, d)
        The best point found; it satisfies the declared constraints.
    value : float
        Its transport cost.
    bound : float
        No feasible point costs less.
    gap : float
        (value - bound) / value; 0 for a value of 0.
    found_by, bound_by : str
        Who found the point, who gave the bound.
    seconds : float
        Wall time.
    notes : tuple of str
        What was tried without success, and why.
    """

    counterfactuals: Floats
    value: float
    bound: float
    gap: float
    found_by: str
    bound_by: str
    seconds: float
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return (
            f"value {self.value:.6g} ({self.found_by}), bound {self.bound:.6g} ({self.bound_by}),"
            f" gap {self.gap:.1%}"
        )


@checked(
    start=floats,
    solver=check_text,
    time_limit=check_seconds,
    seed=check_seed,
    options=check_mapping,
    local=check_names,
)
def bi_lipschitz_baseline(
    problem: BiLipschitzCounterfactuals,
    *,
    start: Any = None,
    local: Sequence[str] | None = None,
    solver: str | None = None,
    time_limit: float | None = None,
    seed: int | None = None,
    options: dict[str, Any] | None = None,
) -> BoundedValue:
    """Find a point and a bound for bi-Lipschitz counterfactuals.

    Points: the group moved as one, the map of `PSDMap` where its image is feasible, ``start``,
    and what local solvers make of the best of them. Bounds: the problem without its pairs, the
    semidefinite `GramBound` for groups of up to about 70 members, and branch and bound when a
    solver is named. That solver gets bounds on the variables that the best point implies.

    Parameters
    ----------
    problem : BiLipschitzCounterfactuals
        May carry further convex constraints.
    start : array-like (n, d), optional
        A feasible point.
    local : sequence of str, optional
        Local solvers; every one installed by default, none for an empty sequence.
    solver : str, optional
        A global solver.
    time_limit : float, optional
        Wall seconds; local solvers together get half of what is left, the global one the rest.
        The bounds that are proved are always computed.
    seed : int, optional
        Seed of the solvers.
    options : dict, optional
        Further options of the global solver by its own names.

    Returns
    -------
    BoundedValue

    Raises
    ------
    DeclarationError
        Not a bi-Lipschitz problem, or a solver that does not fit.
    DataError
        A start that breaks a constraint, or no feasible point found.

    Examples
    --------
    >>> import optfair as of
    >>> X = [[0.0, 0.0], [-2.0, 0.0]]
    >>> p = of.group_counterfactuals.BiLipschitzCounterfactuals(X, score=([1.0, 0.0], -1.0), K=2.0, k=1.0)
    >>> found = bi_lipschitz_baseline(p, local=())
    >>> found.value >= found.bound, round(found.bound, 4)
    (True, 6.0)

    References
    ----------
    Valero-Leal et al.: Optimal transport group counterfactual explanations, Section 4.1 and
    appendix C.8.
    """
    if not isinstance(problem, BiLipschitzCounterfactuals):
        raise DeclarationError(
            f"a {type(problem).__name__} is no bi-Lipschitz problem",
            remedy="give a BiLipschitzCounterfactuals problem",
        )
    begin = time.perf_counter()
    if solver is not None:
        profile(solver)
    names = _local_solvers(problem, local)
    search = _Search(problem, None if time_limit is None else begin + time_limit, seed)
    search.begin(start)
    search.bound_from_below()
    for i, name in enumerate(names):
        share = (len(names) - i) * (2.0 if solver is not None else 1.0)
        search.improve(name, share)
    if solver is not None:
        search.globally(solver, options)
    return search.result(time.perf_counter() - begin)


def _local_solvers(problem: Problem, named: Sequence[str] | None) -> list[str]:
    known = profiles()
    able = [n for n, p in known.items() if p.nonconvex == "local" and p.accepts(problem)]
    if named is None:
        return [n for n in able if known[n].installed]
    wrong = [n for n in named if n not in able]
    if wrong:
        raise DeclarationError(
            f"{wrong[0]!r} is no local solver for this problem",
            remedy=f"one of {', '.join(able)}",
        )
    return list(named)


class _Search:
    """The best point and the best bound so far."""

    def __init__(
        self, problem: BiLipschitzCounterfactuals, deadline: float | None, seed: int | None
    ) -> None:
        self.problem, self.deadline, self.seed = problem, deadline, seed
        self.point: Floats | None = None
        self.value, self.bound = np.inf, -np.inf
        self.found_by = self.bound_by = ""
        self.notes: list[str] = []

    def offer(self, Z: Any, who: str) -> bool:
        """Take a point if it is feasible and better; whether it is feasible."""
        point = {"counterfactuals": np.array(Z, dtype=float)}
        off = {n: t.relative_violation(point) for n, t in self.problem.constraints.items()}
        worst = max(off, key=lambda name: off[name])
        if not off[worst] <= FEASIBLE:
            self.notes.append(f"{who}: its point breaks {worst!r} by {off[worst]:.1e}")
            return False
        value = self.problem.objective_value(point)
        if value < self.value:
            self.point, self.value, self.found_by = point["counterfactuals"], value, who
        return True

    def begin(self, start: Any) -> None:
        """Collect the points that cost nothing to find."""
        p = self.problem
        if start is not None:
            if np.shape(start) != p.points.shape:
                raise DataError(
                    f"start has shape {np.shape(start)}, the group {p.points.shape}",
                    remedy="give one counterfactual per member",
                )
            if not self.offer(start, "start"):
                raise DataError(
                    "the start is not feasible", self.notes[-1], "give a feasible point, or none"
                )
        self.offer(p.feasible_point()["counterfactuals"], "moved as one")
        K, k = float(p.data["K"]), float(p.data["k"])
        try:
            sign = 1.0 if np.all(p.normal == p.data["score"].coef) else -1.0
            target = p.data["score"].classes[1 if sign > 0 else 0]
            threshold = p.level + sign * p.data["score"].intercept
            maps = PSDMap(
                p.points,
                score=p.data["score"],
                threshold=threshold,
                target_class=target,
                K=K,
                k=k,
                feature_costs=p.feature_costs,
            )
            self.offer(maps.map(maps.solve()).transform(p.points), maps.title or "PSDMap")
        except OptfairError as e:
            self.notes.append(f"PSDMap: {e.cause}")

    def bound_from_below(self) -> None:
        """Solve the convex relaxations."""
        p = self.problem
        pairs = [name for name in PAIRS if name in p.constraints]
        self._bounded(p.without(*pairs) if pairs else p, "without pairs")
        order = sum(p.points.shape)
        if pairs and order <= LARGEST_GRAM:
            self._bounded(GramBound(p), "GramBound")
        elif pairs:
            self.notes.append(f"GramBound: not tried, its matrix has order {order}")

    def _bounded(self, relaxation: Problem, who: str) -> None:
        try:
            s = relaxation.solve()
        except OptfairError as e:
            self.notes.append(f"{who}: {e.cause}")
            return
        if s.is_optimal(1e-6) and s.bound > self.bound:
            self.bound, self.bound_by = s.bound, who

    def _left(self, share: float) -> dict[str, Any]:
        if self.deadline is None:
            return {}
        return {"time_limit": max(0.1, (self.deadline - time.perf_counter()) / share)}

    def improve(self, name: str, share: float) -> None:
        """Let a local solver go on from the best point."""
        try:
            s = self.problem.solve(
                name, seed=self.seed, warm_start=self._start(), **self._left(share)
            )
        except OptfairError as e:
            self.notes.append(f"{name}: {e.cause}")
            return
        self.offer(s["counterfactuals"], name)

    def globally(self, name: str, options: dict[str, Any] | None) -> None:
        """Let branch and bound work within the bounds that the best point implies."""
        p = self.problem
        if self.point is None:
            within = p
        else:
            n = len(p.points)
            # a better point moves no member by more than the whole cost allows
            reach = np.sqrt(n * self.value / p.feature_costs) * (1.0 + 1e-9) + 1e-9
            Z = p["counterfactuals"]
            low, high = p.points - reach, p.points + reach
            within = p.with_constraints({"reach": [low <= Z, high >= Z]})
        try:
            s = within.solve(
                name,
                seed=self.seed,
                warm_start=self._start(),
                options=options or {},
                **self._left(1.0),
            )
        except SizeLimited:
            raise
        except OptfairError as e:
            self.notes.append(f"{name}: {e.cause}")
            return
        self.offer(s["counterfactuals"], name)
        bound = min(s.bound, self.value)
        if bound > self.bound:
            self.bound, self.bound_by = bound, name

    def _start(self) -> Solution | None:
        if self.point is None:
            return None
        return Solution(
            problem=self.problem,
            solver=self.found_by,
            version="",
            status=Status("feasible", "feasible", "unknown"),
            objective=self.value,
            bound=-np.inf,
            values={"counterfactuals": self.point},
            multipliers={},
            proof=None,
            seconds={},
            options={},
        )

    def result(self, seconds: float) -> BoundedValue:
        """Return what was found."""
        if self.point is None:
            raise DataError(
                "no feasible point was found",
                "; ".join(self.notes),
                "give a feasible start, or relax the further constraints",
            )
        gap = max(0.0, self.value - self.bound) / self.value if self.value > 0.0 else 0.0
        point = self.point
        point.flags.writeable = False
        return BoundedValue(
            point,
            self.value,
            self.bound,
            gap,
            self.found_by,
            self.bound_by,
            seconds,
            tuple(self.notes),
        )
