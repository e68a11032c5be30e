"""Routes for groups: closed forms, forms in d + 1 numbers, and a search over the features that move."""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from optfair.backends.request import Outcome, Request, SolverProfile, stages
from optfair.backends.solve import solve_as_asked
from optfair.core.certificate import DualCheck, least_check, recomputed
from optfair.core.expressions import Values
from optfair.core.solution import Solution
from optfair.errors import Infeasible, SolverFailure
from optfair.methods.group_counterfactuals.fixed_basis import ScaledMap
from optfair.methods.group_counterfactuals.limits import FREE, Fixed, NoChoice, covers
from optfair.methods.group_counterfactuals.map_problem import Reduction, ScoreLine
from optfair.methods.group_counterfactuals.members import IndependentCounterfactuals
from optfair.numbers import Floats
from optfair.proofs.rounding import loss
from optfair.proofs.unpaid import Unpaid

if TYPE_CHECKING:
    from optfair.core.problem import Problem
    from optfair.methods.group_counterfactuals.map_problem import MapProblem


# Route of the structure ``separable-target``: project every member on its half-space.


def run_independent_rows(problem: Problem, profile: SolverProfile, request: Request) -> Outcome:
    """Project, and read the multipliers off the steps."""
    begin = time.perf_counter()
    request.refuse_options(profile)
    p = cast(IndependentCounterfactuals, problem)
    Z = p.projected()
    v, along = p.normal, p.normal / p.feature_costs
    short = np.maximum(p.level - p.points @ v, 0.0)
    y = 2.0 * short / (len(p.points) * float(v @ along))
    Z.flags.writeable = y.flags.writeable = False
    seconds = {"compile": 0.0, "solve": time.perf_counter() - begin}
    return Outcome(
        "optimal", {"counterfactuals": Z}, {"classification": y}, ProjectionProof(p), seconds
    )


@dataclass(frozen=True, eq=False)
class ProjectionProof:
    r"""Bound from multipliers y of the target, for weights c of the features.

    .. math::
        \sum_i \min_z \tfrac1n \|z - x_i\|_c^2 + y_i (t - v^T z)
        = \sum_i y_i (t - v^T x_i) - \tfrac n4\, y_i^2 \textstyle\sum_j v_j^2 / c_j

    It holds for every y ≥ 0.
    """

    problem: IndependentCounterfactuals
    source: str = "duality"

    def check(self, values: Values, multipliers: Mapping[str, Any]) -> DualCheck:
        """Recompute the bound, and how far the pair is from stationary."""
        p = self.problem
        X, v, c = p.points, p.normal, p.feature_costs
        n = X.shape[0]
        y = np.asarray(multipliers["classification"], dtype=float)
        Z = np.asarray(values["counterfactuals"], dtype=float)
        if y.shape != (n,) or Z.shape != X.shape:
            return DualCheck(-np.inf, np.inf, np.inf, np.inf)
        short, sure = p.level - X @ v, np.maximum(y, 0.0)
        # each member's own gradient: the mean over n members must not hide one of them
        gradient = 2.0 * c * (Z - X) - n * np.outer(y, v)
        unit = 1.0 + float(np.abs(2.0 * c * (Z - X)).max(initial=0.0))
        rounding = 8.0 * np.finfo(float).eps * float((c * np.abs(X)).max(initial=0.0))
        off = max(0.0, float(np.abs(gradient).max(initial=0.0)) - rounding)
        slack = Z @ v - p.level
        curve = float(0.25 * n * np.sum(np.square(sure)) * np.sum(v * v / c))
        parts = abs(p.level) + np.abs(X) @ np.abs(v)
        return DualCheck(
            bound=float(sure @ short) - curve - loss(n + v.size, float(sure @ parts) + curve),
            dual=max(off, n * max(0.0, -float(y.min(initial=0.0)))) / unit,
            complementarity=n
            * float(np.abs(y * slack).max(initial=0.0))
            / (unit * (1.0 + abs(p.level))),
        )


# Route of the structure ``uniform-scale``: the closed form, with its multipliers.


def run_scaled_map(problem: Problem, profile: SolverProfile, request: Request) -> Outcome:
    """Evaluate the closed form."""
    p = cast(ScaledMap, problem)
    request.refuse_options(profile)
    begin = time.perf_counter()
    w, mean, costs = p.normal, p.moments.mean, p.feature_costs
    behind = -(p.data["centered"] @ w)
    last = int(np.argmax(behind))
    rho, gap = float(behind[last]), p.level - float(w @ mean)
    Q, T = float(w @ (w / costs)), float(costs @ p.variances)
    compiled_at = time.perf_counter()
    scale, pull = 1.0, 0.0
    if gap + rho > 0.0:
        least = 0.0 if p.data["k"] is None else 1.0 / p.data["k"]
        # T = 0 when all members are equal: then every scale is as good
        free = (T * Q - rho * gap) / (T * Q + rho**2) if T * Q + rho**2 > 0.0 else 1.0
        scale = 1.0 if p.data["K"] == p.data["k"] == 1.0 else max(least, free)
        pull = max(gap + scale * rho, 0.0) / Q
    solved_at = time.perf_counter()
    y = np.zeros(behind.size)
    y[last] = 2.0 * pull
    values = {"mean": mean + pull * w / costs, "scale": np.array(scale)}
    # stationarity in the scale: 2 T (a - 1) + y rho + upper - lower = 0
    force = 2.0 * T * (scale - 1.0) + y[last] * rho
    multipliers: dict[str, Any] = {"classification": y}
    for name in p.constraints:
        if name == "factor lower":
            multipliers[name] = np.array(max(force, 0.0))
        elif name == "factor upper":
            multipliers[name] = np.array(max(-force, 0.0))
        elif name == "factor identity":
            multipliers[name] = np.array(-force)
    for array in (*values.values(), *multipliers.values()):
        array.flags.writeable = False
    seconds = stages(begin, compiled_at, solved_at)
    return Outcome("optimal", values, multipliers, ScoreMapProof(p, p.reduction()), seconds)


# Route of the structure ``score-factors``: solve in d + 1 numbers, lift, prove on the map.

# The reduced problem is solved to this share of the tolerance.
SHARE = 0.25
# Singular values below this share of the largest may be rounding.
FLAT = 1e-12


def run_score_map(problem: Problem, profile: SolverProfile, request: Request) -> Outcome:
    """Solve the reduced problem by the default solvers of its class, and lift the result."""
    p: Any = problem
    request.refuse_options(profile)
    begin = time.perf_counter()
    reduced = ScoreLine(p)
    reduction: Reduction = reduced.data["whole"]
    limit = None if request.time_limit is None else request.seconds_left
    declared_at = time.perf_counter()
    solution = reduced.solve(tolerance=max(SHARE * request.tolerance, 1e-12), time_limit=limit)
    solved_at = time.perf_counter()
    step = (float(solution["score"]) - reduced.data["start"]) / reduced.data["weight"]
    mean = p.moments.mean + step * p.normal / p.feature_costs
    # a factor that nothing sees is that of the identity
    factors = np.where(reduced.seen, np.asarray(solution["factors"], dtype=float), reduction.center)
    values = reduction.lift(mean, factors)
    multipliers: dict[str, Floats] = {}
    for name, term in p.constraints.items():
        part = name.removeprefix("factor ")
        if part in solution.multipliers:
            multipliers[name] = np.array(solution.multipliers[part], dtype=float) / reduced.unit
            continue
        # a bound on the whole matrix was left out: it is slack, or this is not the optimum
        off = term.relative_violation(values)
        if off > request.tolerance:
            raise SolverFailure(f"{name!r} is active", f"left out, it is violated by {off:.1e}")
        multipliers[name] = np.zeros(term.shape)
    for array in (*values.values(), *multipliers.values()):
        array.flags.writeable = False
    compiled = declared_at - begin + float(solution.seconds.get("compile", 0.0))
    return Outcome(
        solution.status.termination,
        values,
        multipliers,
        ScoreMapProof(p, reduction),
        stages(begin, begin + compiled, solved_at),
        solution.progress,
    )


@dataclass(frozen=True, eq=False)
class ScoreMapProof:
    r"""Bound from multipliers y of the members and λ of the bounds on the factors.

    .. math::
        q(y, \lambda) = (t - s_0) \sum_i y_i - \tfrac14 Q \big(\textstyle\sum_i y_i\big)^2
        + g^T f_0 - \tfrac14 \|h\|^2 - \lambda_u^T u + \lambda_l^T l,\qquad
        g = \lambda_u - \lambda_l - T^T \sum_i y_i (x_i - \mu) = R^T h

    the minimum of the Lagrangian over all maps of the problem.
    """

    problem: Any
    reduction: Reduction
    source: str = "duality"

    def check(self, values: Values, multipliers: Mapping[str, Any]) -> DualCheck:
        """Recompute bound and residuals."""
        p, r = self.problem, self.reduction
        w, mean, centered = p.normal, p.moments.mean, p.data["centered"]
        image, factors = np.asarray(values["mean"], dtype=float), r.factors(values)
        y = np.asarray(multipliers["classification"], dtype=float)
        sure = np.maximum(y, 0.0)  # the bound holds for signs that are right only
        total, Q = float(sure.sum()), float(w @ (w / p.feature_costs))
        slope = -(r.turn.T @ (sure @ centered))
        unit = 1.0 + float(np.abs(total * w).max()) + float(np.abs(slope).max())
        bound = total * (p.level - float(w @ mean)) - 0.25 * Q * total**2
        outside, products = -float(y.min(initial=0.0)), 0.0
        sizes = total * (abs(p.level) + float(np.abs(w) @ np.abs(mean))) + 0.25 * Q * total**2
        sizes += float(sure @ (np.abs(centered) @ np.abs(r.turn).sum(axis=1)))
        edges = self._edges()
        for name in multipliers:
            rate = np.asarray(multipliers[name], dtype=float)
            if name in edges:
                sign, edge = edges[name]
                if name != "factor identity":
                    outside = max(outside, -float(rate.min(initial=0.0)))
                    rate = np.maximum(rate, 0.0)
                slope = slope + sign * rate
                sizes += abs(edge) * float(np.abs(rate).sum())
                bound -= sign * edge * float(rate.sum())
                products = max(products, float(np.abs(rate * (factors - edge)).max(initial=0.0)))
            elif name != "classification":  # left out of the bound, so nothing may be claimed
                outside = max(outside, float(np.abs(rate).max(initial=0.0)))
        K = p.data["K"]
        boxed = K is not None and "factor upper" in edges and "factor lower" in edges
        # any h bounds: in a direction that is flat but for rounding it may be dear to follow
        reach = float(K) if boxed else 1.0 + float(np.abs(factors).max(initial=0.0))
        kernels = [np.linalg.lstsq(r.root.T, slope, rcond=c)[0] for c in (None, FLAT)]
        losses = [0.25 * v @ v + reach * np.abs(r.root.T @ v - slope).sum() for v in kernels]
        h = kernels[int(np.argmin(losses))]
        bound += float(slope @ r.center) - 0.25 * float(h @ h)
        left = np.abs(r.root.T @ h - slope)
        rest = float(left.max(initial=0.0))
        sizes += float(np.abs(slope) @ np.abs(r.center)) + float(h @ h)
        bound -= loss(y.size + w.size + h.size, sizes)
        # what no factor cancels is paid with their bounds, or holds near the origin only
        bound -= float(left.sum()) * K * (1.0 + 1e-12) if boxed else 0.0
        away = np.abs(factors)
        unpaid = Unpaid(
            np.arange(left.size),
            float(left.sum()),
            0.0,
            float(away.max(initial=0.0)),
            float(left @ away),
        )
        apart = float(np.abs(2.0 * p.feature_costs * (image - mean) - total * w).max())
        turned = 2.0 * (r.root.T @ (r.root @ (factors - r.center))) + slope
        cheapest = r.lift(image, factors)
        drift = (
            np.abs(np.asarray(values[name]) - best).max() / (1.0 + np.abs(best).max())
            for name, best in cheapest.items()
        )
        slack = centered @ (r.turn @ factors) + float(w @ image) - p.level
        return DualCheck(
            bound=bound,
            dual=max(max(apart, float(np.abs(turned).max()), rest, outside) / unit, *drift),
            complementarity=max(products, float(np.abs(y * slack).max(initial=0.0))) / unit,
            unpaid=None if boxed or not unpaid.slope else unpaid,
            free=("factors",),
        )

    def _edges(self) -> dict[str, tuple[float, float]]:
        """Return (sign, edge) of the bounds by name: sign (f - edge) <= 0."""
        K, k = self.problem.data["K"], self.problem.data.get("k")
        known = {
            "factor upper": (1.0, K),
            "factor lower": (-1.0, 0.0 if k is None else 1.0 / k),
            "factor identity": (1.0, 1.0),
        }
        return {name: known[name] for name in self.reduction.bounds}


# Relaxations are solved to this share of the tolerance.
BRANCH_SHARE = 0.1


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


def run_support_search(problem: Problem, profile: SolverProfile, request: Request) -> Outcome:
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
            bound, _, fixed, solution = heapq.heappop(self.heap)
            free = np.flatnonzero(np.array(fixed) == FREE)
            if not free.size or bound >= self.best - self._margin():
                self.leaves.append(Leaf(fixed, solution))
                continue
            z = np.asarray(solution[self.name], dtype=float)
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
                self.leaves.append(Leaf(fixed, solution))
                self.leaves += [Leaf(open_, s) for _, _, open_, s in self.heap]
                return "time_limit"
        if not self.values:
            proofs = ((leaf.fixed, leaf.proof) for leaf in self.leaves)
            refuted = ((at, p if isinstance(p, Infeasible) else None) for at, p in proofs)
            raise Infeasible(
                "no choice of the features that move satisfies the constraints",
                f"{len(self.leaves)} convex problems, which cover all choices, are infeasible",
                "let more features move, or soften a constraint",
                certificate=NoSupport(cast("MapProblem", self.problem), tuple(refuted)),
            )
        return "optimal"

    def _margin(self) -> float:
        unit = max(self.problem.objective_unit, abs(self.best))
        return 0.5 * self.request.tolerance * unit

    def _grow(self, nodes: list[Fixed]) -> None:
        """Solve the relaxations of nodes; nothing is kept unless all of them end."""
        results = [(fixed, self._relaxation(fixed)) for fixed in nodes]
        for fixed, solution in results:
            if isinstance(solution, Infeasible):
                self.leaves.append(Leaf(fixed, solution))
                continue
            z = np.round(np.asarray(solution[self.name], dtype=float))
            if solution.objective < self.best:
                if FREE in fixed:
                    self._try(self._largest(np.asarray(solution[self.name], dtype=float), fixed))
                else:
                    self.best, self.values = solution.objective, {**solution.values, self.name: z}
            self.count += 1
            heapq.heappush(self.heap, (solution.bound, self.count, fixed, solution))

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
        label = self.name.rpartition(".")[0]
        count = round(self.problem.constraints[f"{label}.count"].largest_side)
        known = np.array(fixed)
        order = np.argsort(-np.where(known == FREE, z, 2.0 * known), kind="stable")
        chosen = np.zeros(self.size, dtype=int)
        chosen[order[:count]] = 1
        chosen[known == 0] = 0
        return tuple(int(v) for v in chosen)

    def _try(self, fixed: Fixed) -> None:
        """Take the nearest choice for an incumbent, if it is one."""
        try:
            solution = self._solve(fixed)
        except (Infeasible, SolverFailure):
            return
        if solution.objective < self.best:
            self.best = solution.objective
            self.values = {**solution.values, self.name: np.array(fixed, dtype=float)}

    def _solve(self, fixed: Fixed) -> Solution:
        limit = None if self.request.time_limit is None else max(1.0, self.request.seconds_left)
        tolerance = max(BRANCH_SHARE * self.request.tolerance, 1e-10)
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


class NoSupport(NoChoice):
    """Proof that no choice of the features that move is feasible, all of them within limits."""

    @property
    def most(self) -> int:
        """How many may move: what is counted is a constraint."""
        (name,) = self.problem.integers
        return int(self.problem[name].size)

    def cases(self, fixed: Fixed) -> Iterator[Any]:
        """Yield the convex problem that has to be infeasible."""
        (name,) = self.problem.integers
        yield branch(self.problem, name, fixed)


@dataclass(frozen=True, eq=False)
class SupportProof:
    """The least of the leaves' bounds, each recomputed, over leaves that cover all choices."""

    problem: Problem
    leaves: tuple[Leaf, ...]
    source: str = "branch and bound, with a dual bound for every leaf"

    def check(self, values: Values, multipliers: Mapping[str, Any]) -> DualCheck:
        """Recompute the bound of every leaf and that the leaves cover all choices.

        Leaves have multipliers of their own: those that are given play no part.
        """
        (name,) = self.problem.integers
        check = least_check(
            recomputed(leaf.proof, branch(self.problem, name, leaf.fixed)) for leaf in self.leaves
        )
        return check if self.covers() else replace(check, bound=-np.inf)

    def covers(self) -> bool:
        """Whether no two leaves overlap and their shares of all choices add up to 1."""
        return covers([leaf.fixed for leaf in self.leaves])
