"""Route of the structure ``feature-support``: branch and bound over the features that move."""

from __future__ import annotations

import heapq
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from optfair.backends.request import Outcome, Request
from optfair.backends.solve import solve_as_asked
from optfair.core.certificate import Certificate, DualCheck, Verdict
from optfair.core.expressions import Values
from optfair.core.solution import Solution
from optfair.core.term import family
from optfair.errors import Infeasible, SolverFailure
from optfair.methods.group_counterfactuals.maps.limits import FREE, covers

if TYPE_CHECKING:
    from optfair.backends.profile import SolverProfile
    from optfair.core.problem import Problem

Floats = NDArray[np.float64]
Fixed = tuple[int, ...]

__all__ = ["Leaf", "SupportProof", "run"]

# Relaxations are solved to this share of the tolerance.
SHARE = 0.1


@dataclass(frozen=True, eq=False)
class Leaf:
    """A part of the search tree that needs no further branching.

    Parameters
    ----------
    fixed : tuple of int
        1 or 0 for a feature that may or may not move, -1 where it is free.
    proof : Solution or Infeasible
        Of the convex problem with these features fixed.
    """

    fixed: Fixed
    proof: Solution | Infeasible


def run(problem: Problem, profile: SolverProfile, request: Request) -> Outcome:
    """Search best bound first; every relaxation is solved by the default solvers of its class."""
    request.refuse_options(profile)
    begin = time.perf_counter()
    search = _Search(problem, request)
    termination = search.run()
    proof = SupportProof(problem, tuple(search.leaves))
    values = {k: np.asarray(v, dtype=float) for k, v in search.values.items()}
    for array in values.values():
        array.flags.writeable = False
    seconds = {"compile": 0.0, "solve": time.perf_counter() - begin, "recover": 0.0}
    return Outcome(termination, values, {}, proof if values else None, seconds)


class _Search:
    def __init__(self, problem: Problem, request: Request) -> None:
        self.problem, self.request = problem, request
        (self.name,) = problem.integers
        self.size = int(problem[self.name].size)
        self.leaves: list[Leaf] = []
        self.values: Mapping[str, Any] = {}
        self.best = np.inf
        self.heap: list[tuple[float, int, Fixed, Solution]] = []
        self.count = 0

    def run(self) -> str:
        self._grow([(FREE,) * self.size])
        while self.heap:
            bound, _, fixed, found = heapq.heappop(self.heap)
            free = np.flatnonzero(np.array(fixed) == FREE)
            if not free.size or bound >= self.best - self._margin():
                self.leaves.append(Leaf(fixed, found))
                continue
            z = np.asarray(found[self.name], dtype=float)
            at = int(free[np.argmin(np.abs(z[free] - 0.5))])
            children = [(*fixed[:at], value, *fixed[at + 1 :]) for value in (1, 0)]
            try:
                in_time = time.perf_counter() <= self.request.deadline
                if in_time:
                    self._grow(children)
            except SolverFailure:
                in_time = time.perf_counter() <= self.request.deadline
                if in_time:
                    raise
            if not in_time:
                self.leaves.append(Leaf(fixed, found))
                self.leaves += [Leaf(open_, s) for _, _, open_, s in self.heap]
                return "time_limit"
        if not self.values:
            raise Infeasible(
                "no choice of the features that move satisfies the constraints",
                f"{len(self.leaves)} convex problems, which cover all choices, are infeasible",
                "let more features move, or soften a constraint",
                certificate=NoChoice(SupportProof(self.problem, tuple(self.leaves))),
            )
        return "optimal"

    def _margin(self) -> float:
        unit = max(self.problem.objective_unit, abs(self.best))
        return 0.5 * self.request.tolerance * unit

    def _grow(self, nodes: list[Fixed]) -> None:
        """Solve the relaxations of nodes; nothing is kept unless all of them end."""
        results = [(fixed, self._relaxation(fixed)) for fixed in nodes]
        for fixed, found in results:
            if isinstance(found, Infeasible):
                self.leaves.append(Leaf(fixed, found))
                continue
            z = np.round(np.asarray(found[self.name], dtype=float))
            if found.objective < self.best:
                if FREE in fixed:
                    self._try(self._largest(np.asarray(found[self.name], dtype=float), fixed))
                else:
                    self.best, self.values = found.objective, {**found.values, self.name: z}
            self.count += 1
            heapq.heappush(self.heap, (found.bound, self.count, fixed, found))

    def _relaxation(self, fixed: Fixed) -> Solution | Infeasible:
        try:
            return self._solve(fixed)
        except Infeasible as e:
            if e.certificate is None:
                raise SolverFailure(
                    "a choice of features could be neither solved nor refuted", str(e)
                ) from None
            return e

    def _largest(self, z: Floats, fixed: Fixed) -> Fixed:
        """Return the choice of as many features as may move, those with the largest z."""
        # the size of the right-hand side of the count is the number itself
        count = round(self.problem.constraints[f"{family(self.name)}.count"].largest_side)
        known = np.array(fixed)
        order = np.argsort(-np.where(known == FREE, z, 2.0 * known), kind="stable")
        chosen = np.zeros(self.size, dtype=int)
        chosen[order[:count]] = 1
        chosen[known == 0] = 0
        return tuple(int(v) for v in chosen)

    def _try(self, fixed: Fixed) -> None:
        """Take the nearest choice for an incumbent, if it is one."""
        try:
            found = self._solve(fixed)
        except (Infeasible, SolverFailure):
            return
        if found.objective < self.best:
            self.best = found.objective
            self.values = {**found.values, self.name: np.array(fixed, dtype=float)}

    def _solve(self, fixed: Fixed) -> Solution:
        limit = None if self.request.time_limit is None else max(1.0, self.request.seconds_left)
        tolerance = max(SHARE * self.request.tolerance, 1e-10)
        child = branch(self.problem, self.name, fixed)
        return solve_as_asked(child, None, Request(tolerance=tolerance, time_limit=limit))


def branch(problem: Problem, name: str, fixed: Fixed) -> Any:
    """Return the convex problem with some features allowed or forbidden to move."""
    relaxed: Any = problem._child(integers=frozenset())
    known = np.array(fixed)
    at = np.flatnonzero(known != FREE)
    if not at.size:
        return relaxed
    return relaxed.with_constraints({"branch": problem[name][at] == known[at].astype(float)})


@dataclass(frozen=True, eq=False)
class SupportProof:
    """The least of the leaves' bounds, each recomputed, over leaves that cover all choices."""

    problem: Problem
    leaves: tuple[Leaf, ...]
    source: str = "branch and bound, with a dual bound for every leaf"

    def check(self, values: Values, multipliers: Mapping[str, Any]) -> DualCheck:
        """Recompute the bound of every leaf and that the leaves cover all choices."""
        bound, dual = np.inf, 0.0
        worst: DualCheck | None = None
        for leaf in self.leaves:
            if isinstance(leaf.proof, Infeasible):
                if not leaf.proof.certificate.verify():
                    bound = -np.inf
                continue
            s = leaf.proof
            if s.proof is None:
                return DualCheck(-np.inf, np.inf)
            found = s.proof.check(s.values, s.multipliers)
            bound, dual = min(bound, found.bound), max(dual, found.dual)
            if found.reported or found.unpaid is not None:
                worst = found if worst is None else _weaker(worst, found)
        bound = bound if self.covers() else -np.inf
        if worst is None:
            return DualCheck(bound, dual)
        return replace(
            worst, bound=bound, dual=dual, complementarity=0.0, consistency=0.0, estimate=None
        )

    def covers(self) -> bool:
        """Whether no two leaves overlap and their shares of all choices add up to 1."""
        return covers([leaf.fixed for leaf in self.leaves])


@dataclass(frozen=True, eq=False, repr=False)
class NoChoice(Certificate):
    """Every choice is excluded: the leaves cover all, and each has a certificate."""

    proof: SupportProof

    def verify(self) -> Verdict:
        """Verify the certificate of every leaf, and that the leaves cover all choices."""
        reasons = [] if self.proof.covers() else ["the cases leave out a choice"]
        for leaf in self.proof.leaves:
            if not isinstance(leaf.proof, Infeasible):
                reasons.append("a case is not excluded")
            else:
                reasons += leaf.proof.certificate.verify().reasons
        return Verdict(not reasons, tuple(dict.fromkeys(reasons)))

    def __str__(self) -> str:
        return f"{len(self.proof.leaves)} cases, each with a certificate"

    __repr__ = __str__


def _weaker(first: DualCheck, second: DualCheck) -> DualCheck:
    """Return the weaker grade of two leaves: the least of their bounds rests on both."""
    if first.reported or second.unpaid is None:
        return first
    if second.reported or first.unpaid is None:
        return second
    a, b = first.unpaid, second.unpaid
    unpaid = replace(
        a,
        columns=a.columns if a.columns.size >= b.columns.size else b.columns,
        slope=max(a.slope, b.slope),
        curve=max(a.curve, b.curve),
        size=max(a.size, b.size),
        here=max(a.here, b.here),
    )
    return replace(first, unpaid=unpaid, free=tuple(dict.fromkeys((*first.free, *second.free))))
