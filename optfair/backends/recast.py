"""Solve a problem in other words: what it was recast to, level by level."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from optfair.backends.registry import claimed_infeasible
from optfair.backends.request import LEAST, SMALL, Outcome, Request, SolverProfile
from optfair.backends.unattained import DISTANCES, nearing
from optfair.convexity.derivatives import gradient_at
from optfair.convexity.domain import Domain
from optfair.convexity.expression import Leaf, Node, subnodes
from optfair.convexity.intervals import Interval
from optfair.convexity.quasiconvex import inward, outward
from optfair.convexity.reading import leaf_of
from optfair.convexity.recast import Recast
from optfair.convexity.writing import sublevel_of
from optfair.core.certificate import OTHER, Certificate, DualCheck, Verdict, drift
from optfair.core.expressions import Values
from optfair.core.identity import fingerprint
from optfair.errors import (
    Infeasible,
    OptfairError,
    SolverFailure,
    Unbounded,
    UnsupportedProblem,
)
from optfair.numbers import Floats

if TYPE_CHECKING:
    from optfair.core.problem import Problem
    from optfair.core.solution import Solution

Ask = Callable[["Problem", Request], "Solution"]

# Levels that are tried, and those of them that may be neither reached nor proved out of reach.
LEVELS, FAILURES = 60, 10
# Sizes of the objective below it at which a level is the last one that is tried.
FAR = 1e3
# Sizes of an objective beyond which, and beyond the inverse of which, it is left as it is.
SMALLEST = 1e-200
# Share of the parts of a level that an inner objective is measured by.
LESS = 0.125
# Share of the largest of several ratios by which others are as large.
TIED = 1e-5
# Derivatives of all entries of a part of a row.
MOST_SLOPES = 2_000_000


@dataclass(frozen=True, eq=False)
class RecastProof:
    """A bound on the problem that another, convex one leads to.

    Attributes
    ----------
    problem : Problem
        Whose optimum it bounds.
    way : Recast
        How it was recast; with its level, where there are levels.
    relaxed : Solution
        Of the recast problem, with its own proof.
    values, multipliers : mapping
        The numbers it is about.
    """

    problem: Problem
    way: Recast
    relaxed: Solution
    values: Values
    multipliers: Mapping[str, Any]
    source: str = "duality"

    def check(self, values: Values, multipliers: Mapping[str, Any]) -> DualCheck:
        """Recast the declared problem, check every proof, and recompute the bound."""
        nothing = -np.inf if self.problem.sense == "minimize" else np.inf
        own = self.relaxed.proof
        again: Recast | None = self.problem.recast
        if again is None or own is None:
            return DualCheck(nothing, np.inf)
        again = again if again.way != "level" else again.at(self.way.level, self.way.size)
        same = fingerprint(again.inner) == fingerprint(self.relaxed.problem)
        if not same or not again.inner.certificate.verify():
            return DualCheck(nothing, np.inf)
        inner = own.check(self.relaxed.values, self.relaxed.multipliers)
        apart = max(drift(values, self.values), drift(multipliers, self.multipliers))
        return replace(
            inner,
            bound=again.bound(inner.bound),
            estimate=None,
            consistency=max(inner.consistency, apart),
            complementarity=0.0,
            rows=0.0,
        )


@dataclass(frozen=True, eq=False, repr=False)
class RecastCertificate(Certificate):
    """What is proved of the recast problem holds of the declared one: no point, or no limit."""

    problem: Problem
    way: Recast
    inner: Certificate

    def verify(self) -> Verdict:
        """Recast the declared problem anew and check the certificate of the inner one."""
        verdict = self.way.verify()
        if not verdict:
            return verdict
        faults = self.inner.faults(self.way.inner) if self.way.problem is self.problem else (OTHER,)
        faults = faults or self.inner.verify().everywhere.reasons
        return Verdict(not faults, faults)

    def __str__(self) -> str:
        return f"{self.way}: {self.inner}"

    __repr__ = __str__


def run(problem: Problem, profile: SolverProfile, request: Request) -> Outcome:
    """Solve the recast problem; of levels, lower one until none below is possible.

    The option ``solver`` names who solves convex problems, and the others are for it.
    """
    way, options = problem.recast, dict(request.options)
    by = options.pop("solver", None)
    if by is None:
        request.refuse_options(profile)
    if way is None:
        raise UnsupportedProblem(f"{profile.name} needs a problem that is convex in other words")
    begin = time.perf_counter()
    inside = replace(
        request, options=options, warm_start=None, tolerance=max(1e-10, 0.1 * request.tolerance)
    )
    ask: Ask = partial(_asked, by)
    try:
        solved, status = _solved(problem, way, ask, inside, request)
    except Infeasible as met:
        # the logarithm of an objective that is 0 is no reason
        e = _without_goal(way, ask, inside) if way.way == "logarithm" else met
        if e.certificate is None:
            raise
        if beyond := e.certificate.verify().everywhere.reasons:
            raise claimed_infeasible(problem, profile.name, "; ".join(beyond)) from None
        raise Infeasible(
            f"no point satisfies the constraints, which were recast: {way.word}",
            str(e.certificate),
            "diagnose() names a conflict",
            certificate=RecastCertificate(problem, way, e.certificate),
            conflict=e.conflict,
        ) from None
    except Unbounded as e:
        if way.in_logarithms and np.isinf(way.bound(-np.inf)):
            known = e.certificate
            proof_of = None if known is None else RecastCertificate(problem, way, known)
            raise Unbounded(
                e.cause, f"{way.word}: {e.evidence}", e.remedy, ray=e.ray, certificate=proof_of
            ) from None
        if way.way == "logarithm" and (
            near := _next_to_nothing(problem, way, ask, inside, request)
        ):
            return near
        raise SolverFailure(
            "no point attains the optimum: the objective falls for ever without reaching a limit",
            f"{way.word}: {e.evidence}",
            "bound the variables it depends on",
        ) from None
    way, solution, values = solved
    if solution is None:
        return Outcome(status, values, {}, None, {"solve": time.perf_counter() - begin})
    multipliers = {} if problem.integers else _multipliers(problem, way, solution, values)
    seconds = {"solve": time.perf_counter() - begin}
    proof = RecastProof(problem, way, solution, values, multipliers)
    return Outcome(status, values, multipliers, proof, seconds)


def _asked(by: str | None, problem: Problem, request: Request) -> Solution:
    """Solve a convex problem by a named solver, or by the default."""
    from optfair.backends.solve import solve_as_asked

    return solve_as_asked(problem, by, request)


def _without_goal(way: Recast, ask: Ask, inside: Request) -> Infeasible:
    """Return that the rows alone have no point.

    Raises
    ------
    SolverFailure
        They have one.
    """
    try:
        ask(way.inner.with_terms({}, way.inner.constraints), inside)
    except Infeasible as e:
        return e
    raise SolverFailure("the objective is 0 at every feasible point: it has no logarithm")


def _next_to_nothing(
    problem: Problem, way: Recast, ask: Ask, inside: Request, request: Request
) -> Outcome | None:
    """Return a point whose objective is as near to its limit 0 as is asked, None where none is found."""
    with contextlib.suppress(OptfairError):
        rows = way.inner.with_terms({}, way.inner.constraints)
        return nearing(problem, _values(way, ask(rows, inside)), request.tolerance)
    return None


Solved = tuple[Recast, "Solution | None", dict[str, Any]]


def _solved(
    problem: Problem, way: Recast, ask: Ask, inside: Request, request: Request
) -> tuple[Solved, str]:
    if way.way != "level":
        solution = ask(way.inner, inside)
        return (way, solution, _values(way, solution)), "optimal"
    sign = 1.0 if problem.sense == "minimize" else -1.0

    def objective(values: Values) -> float:
        """Return what has levels: that of which the objective is an increasing function."""
        with np.errstate(all="ignore"):
            value = sign * float(problem.objective_at(values))
        at = inward(way.choice.outer, value) if np.isfinite(value) else None
        return np.inf if at is None else at

    best: dict[str, Any] = {n: np.zeros(v.shape) for n, v in problem.variables.items()}
    if way.inner.constraints:
        start = way.inner.with_terms({}, way.inner.constraints)
        best = _values(way, ask(start, inside))
    upper, lower = objective(best), -np.inf
    most = way.choice.most
    for level in (0.0, 1.0, 1e3, 1e6):  # a high level asks for a denominator that is not 0
        if np.isfinite(upper) and upper < most:
            break
        try:
            best = _values(way, ask(way.at(level).inner, inside))
        except Unbounded as e:
            ahead = (v for v in _along(way, best, e.ray) if np.isfinite(objective(v)))
            best = next(ahead, best)
        except SolverFailure:
            continue
        upper = objective(best)
    if not np.isfinite(upper):
        raise SolverFailure("no point was met at which the objective is defined")
    if not upper < most:
        raise SolverFailure(
            f"levels are convex below {most:g}, and no point was met whose level is",
            f"{way}; {upper:.3g} is reached",
        )
    proved: Solved | None = None
    rough = replace(inside, tolerance=request.tolerance)  # where only the sign counts
    met, further, failed = upper, 0.4, 0  # what is reached, if only along a ray
    first = seen = abs(upper)  # sizes of numbers that an objective near 0 is one of
    for k in range(LEVELS):
        met = min(met, upper)
        if met < -LEAST * (first or 1.0):
            raise SolverFailure(
                "the objective has no limit that levels prove",
                f"{sign * float(outward(way.choice.outer, Interval.exactly(np.array(met))).low):.3g} is reached along a ray",
                "bound the variables it depends on",
            )
        seen = max(seen, abs(upper))
        unit = max(SMALL * (seen or 1.0), abs(upper))
        if upper - lower <= 0.5 * request.tolerance * unit:
            break
        # just below what is known to be reached; now and then halfway to what is not
        level, asked = met - further * request.tolerance * unit, inside
        if level <= lower or (k % 3 == 2 and np.isfinite(lower)):
            level, asked = (met + lower) / 2, rough
        try:
            here = way.at(level, _size(way, best, upper))
            solution = ask(here.inner, asked)
        except SolverFailure as e:  # its bound may do, as only its sign counts, and its point
            failed += 1
            if failed > FAILURES or further * request.tolerance > FAR:
                break
            if e.solution is None:
                further *= 64.0
                continue
            solution = e.solution
        except Unbounded as e:  # lower levels are reached along a ray
            met, further = level, 8.0 * further
            for further_on in _along(way, best, e.ray):
                reached = objective(further_on)
                if reached < upper and request.satisfied(problem, further_on):
                    upper, best = reached, further_on
                if reached <= level:
                    break
            continue
        values, before = _values(here, solution), (lower, upper)
        if solution.bound > 0.0:
            lower, proved = level, (here, solution, best)
        reached = objective(values)
        if np.isfinite(reached) and reached < upper and request.satisfied(problem, values):
            upper, best = reached, values
        if before == (lower, upper):  # rounding decides, or it is reached where nothing is defined
            further, failed = 64.0 * further, failed + 1
            if failed > FAILURES or further * request.tolerance > FAR:
                break
        if time.perf_counter() > request.deadline:
            break
    if proved is None:
        return (way, None, best), "inaccurate"  # no level was proved to be out of reach
    close = request.tolerance * max(SMALL * (seen or 1.0), abs(upper))
    status = "optimal" if upper - lower <= close else "inaccurate"
    return (proved[0], proved[1], best), status


def _parts(way: Recast, values: Values) -> tuple[Floats, Floats]:
    """Return p and q of a level at a point, rounded up, infinite where they are not known."""
    point = {
        leaf_of(v): Interval.exactly(np.ravel(values[n], order="F"))
        for n, v in way.problem.variables.items()
    }
    here = Domain(boxes=point)
    p, q = (here.range(node).high for node in way.choice.goal)
    return p, q


def _unit(way: Recast, values: Values) -> float:
    """Return by how much the best p - t q falls as t grows, NaN where the largest p/q differ in it."""
    p, q = _parts(way, values)
    with np.errstate(all="ignore"):
        ratio = p / q
        tied = q[~(ratio < ratio.max() - TIED * np.abs(ratio).max())]  # and what is not known
        return float(tied[0]) if (np.abs(tied - tied[0]) <= TIED * tied[0]).all() else np.nan


def _size(way: Recast, values: Values, reached: float) -> float:
    """Return a power of 2 somewhat below p and t q at a point, 1 where these are not known."""
    if sublevel_of(way.choice.goal[0], 0.0) is not None:
        return 1.0  # levels of an atom are no such difference
    size = LESS * float(_parts(way, values)[1].max()) * abs(reached)
    return float(np.exp2(np.round(np.log2(size)))) if SMALLEST < size < 1.0 / SMALLEST else 1.0


def _along(way: Recast, values: Values, ray: Mapping[str, Any] | None) -> Iterator[dict[str, Any]]:
    """Yield points ever farther out along a ray from a point."""
    if ray is None or way.in_logarithms:
        return
    for distance in DISTANCES:
        yield {n: v + distance * np.asarray(ray.get(n, 0.0)) for n, v in values.items()}


def _values(way: Recast, solution: Solution) -> dict[str, Any]:
    variables, known = way.problem.variables, solution.values  # what no term uses has no value
    if not way.in_logarithms:
        return {n: known[n] if n in known else np.zeros(v.shape) for n, v in variables.items()}
    logs = {n: known.get(f"log {n}", np.zeros(v.shape)) for n, v in variables.items()}
    return {n: np.exp(v) for n, v in logs.items()}


def _multipliers(
    problem: Problem, way: Recast, solution: Solution, values: Values
) -> dict[str, Any]:
    r"""Return the multipliers of the declared rows.

    With :math:`g = \varphi(f)` at :math:`f = 0` a row has :math:`\mu_f = \varphi' \mu_g`, and the
    objective's own :math:`\varphi'` divides all; they are ratios of gradients.
    """
    plain = {leaf_of(v): np.ravel(values[n], order="F") for n, v in problem.variables.items()}
    moved = {  # in the same order, but for logarithms
        leaf: np.ravel(solution.values.get(way.names.get(leaf, ""), np.zeros(leaf.size)), order="F")
        for leaf in (way.names if way.in_logarithms else plain)
    }
    beforehand = moved if way.in_logarithms else plain

    def slope(before: Node, after: Node) -> Floats:
        f, g = _gradient(before, beforehand), _gradient(after, moved)
        if f is None or g is None:
            return np.ones(before.size)
        size = np.square(f).sum(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = (f * g).sum(axis=1) / size
        return np.where((size > 0.0) & np.isfinite(ratio), ratio, 1.0)

    before, after = way.choice.goal
    if way.way == "level":
        own = _unit(way, values) / way.size
        bent = any(f.function for f in way.choice.outer)
        if bent or not np.isfinite(own):  # the size of a level is not known, so no price is
            return {}
    else:
        own = float(slope(before, after)[0])
    own = own if own > 0.0 else 1.0
    out: dict[str, Any] = {}
    for name, t in problem.constraints.items():
        if name not in way.rows:
            z = solution.multipliers.get(name, np.zeros(t.shape))  # tangents leave out some
            out[name] = np.asarray(z, dtype=float) / own
            continue
        if any(_gradient(piece.before, beforehand) is None for piece in way.rows[name]):
            continue  # of a row without a known slope there is no price
        z = np.zeros(int(np.prod(t.shape)))
        for piece in way.rows[name]:
            first = int(piece.name.removeprefix(name).split()[0] if piece.name != name else 0)
            mu = np.ravel(solution.multipliers.get(piece.name, np.zeros(piece.before.size)))
            flip = -1.0 if " above" in piece.name.removeprefix(name) else 1.0
            at = slice(first, first + piece.before.size)
            z[at] += flip * mu * np.abs(slope(piece.before, piece.after)) / own
        out[name] = np.reshape(z, t.shape, order="F")
    return out


def _gradient(node: Node, point: Mapping[Leaf, Floats]) -> Floats | None:
    """Return the derivatives of each entry (rows); None where they are not known, or too many."""
    if max(n.size for n in subnodes(node)) * sum(v.size for v in point.values()) > MOST_SLOPES:
        return None
    enclosed = gradient_at(node, dict(point))
    if enclosed is None:
        return None
    with np.errstate(invalid="ignore"):  # where a function has steps, no slope is known
        return np.concatenate([(g.low + g.high) / 2 for g in enclosed[1].values()], axis=1)
