"""Route of the structure ``several-quadratics``: pair by pair, then the relaxation and a search."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from optfair.backends.policy import choose
from optfair.backends.registry import profile as profile_of
from optfair.backends.request import Outcome, Request
from optfair.backends.solve import solve
from optfair.backends.structured.projection.evidence import BoundaryProof
from optfair.backends.structured.projection.half_space import nearest_in_half_space
from optfair.backends.structured.projection.margin import PRODUCTS, out_of_reach, with_products
from optfair.backends.structured.projection.refusal import unreachable
from optfair.backends.structured.projection.secular import Pencil, nearest_in_quadratic
from optfair.backends.structured.projection.setting import Setting, outcome
from optfair.core.solution import Solution
from optfair.errors import Infeasible, SolverFailure, UnsupportedProblem
from optfair.models.cluster_counterfactual import ClusterCounterfactual
from optfair.transforms.recovery import recovered
from optfair.transforms.shor import shor

if TYPE_CHECKING:
    from optfair.backends.profile import SolverProfile
    from optfair.core.problem import Problem

Floats = NDArray[np.float64]

__all__ = ["best_known", "run"]

# Relative violation up to which the answer to one pair counts as valid against all.
VALID = 1e-12
# Free features beyond which the semidefinite relaxation takes too long to be tried.
LARGEST = 40
# Tolerance at which the relaxation is solved where the one asked for is not met.
ROUGH = 1e-5


def run(problem: Problem, profile: SolverProfile, request: Request) -> Outcome:
    """Solve every pair; where none of the answers is valid against all, relax and search.

    The optimum of a pair alone is a lower bound, so if the farthest of these points satisfies
    everything, it is the optimum, with its own multiplier as the proof. Else the semidefinite
    relaxation bounds the optimum and a local search improves the points it suggests. Where a gap
    remains the result does not pass, and the next solver branches and bounds.
    """
    request.refuse_options(profile)
    begin = time.perf_counter()
    p = cast(ClusterCounterfactual, problem)
    s = Setting.of(p)
    clock = begin, time.perf_counter()
    k, u, mu = _farthest_pair(p, s)
    z = s.start.copy()
    z[s.free] += u
    if all(t.relative_violation({"point": z}) <= VALID for t in p.constraints.values()):
        weights = np.zeros(len(s.sections))
        weights[k] = mu
        return outcome(p, s, u, weights, clock)
    if p.problem_class.convex or s.free.size > LARGEST:
        # a convex problem needs no relaxation: the next solver takes it as it is
        return Outcome("no pair is enough", {}, {}, None, {"solve": clock[1] - begin})
    try:
        found = _relaxed(p, request)
    except Infeasible as e:
        raise (out_of_reach(p) or e) from None
    if found.status.primal != "feasible" and (short := out_of_reach(p)) is not None:
        raise short
    seconds = {"compile": clock[1] - begin, "solve": time.perf_counter() - clock[1]}
    return Outcome("relaxed", found.values, found.multipliers, found.proof, seconds)


def _farthest_pair(p: ClusterCounterfactual, s: Setting) -> tuple[int, Floats, float]:
    """Return the boundary whose own nearest point is farthest, that step, and its multiplier."""
    best = -1.0
    kept: tuple[int, Floats, float] = 0, np.zeros(s.free.size), 0.0
    row = np.zeros((1, s.free.size))
    for k, section in enumerate(s.sections):
        if section.linear:
            found = nearest_in_half_space(row, s.normal(k), -section.level, metric=s.metric)
        else:
            found = nearest_in_quadratic(
                row,
                section.slope[None],
                np.array([section.level]),
                Pencil.of(section.D, s.metric, noise=section.noise),
                noise=section.slope_noise,
            )
        if not found.reached[0]:
            raise unreachable(p, (np.arange(len(s.sections)) == k).astype(float))
        u = found.points[0]
        W = s.metric
        size = u @ u if W is None else u @ (W * u) if W.ndim == 1 else u @ W @ u
        if size > best:
            best, kept = float(size), (k, u, float(found.multipliers[0, 0]))
    return kept


def _relaxed(p: ClusterCounterfactual, request: Request) -> Solution:
    """Return the point and the bound of the semidefinite relaxation."""
    curved, both = with_products(p)
    relaxation = shor(curved)
    left = None if request.time_limit is None else request.seconds_left
    try:
        relaxed = solve(relaxation.problem, tolerance=request.tolerance, time_limit=left)
    except SolverFailure:  # a rough one may do: points and multipliers are improved afterwards
        rough = max(ROUGH, request.tolerance)
        relaxed = solve(relaxation.problem, tolerance=rough, time_limit=left)
        asked = {**relaxed.options, "tolerance": request.tolerance}
        relaxed = replace(relaxed, options=asked)
    found = relaxation.recover(relaxed)
    products = np.zeros(p.free.size)
    if both.any():
        products[both] = found.multipliers[PRODUCTS]
    multipliers = {name: found.multipliers[name] for name in p.constraints}
    proof = BoundaryProof(p, products)
    return recovered(p, found, {"point": found["point"]}, multipliers, proof, "products")


def best_known(
    problem: ClusterCounterfactual, *, time_limit: float = 30.0, tolerance: float = 1e-7
) -> Solution:
    r"""Return the best counterfactual found with the best bound, optimal or not.

    First what `solve` does; where no route proves a point optimal in time, the point of the
    relaxation or of branch and bound, whichever is nearer, with the larger of their bounds.

    Parameters
    ----------
    problem : ClusterCounterfactual
        Typically against all of several Gaussian clusters.
    time_limit : float
        Seconds altogether.
    tolerance : float
        Relative gap at which a result counts as optimal.

    Returns
    -------
    Solution
        ``status.termination`` is "optimal", else "relaxed" or "time_limit"; ``gap`` says how far
        value and bound are apart.

    Raises
    ------
    Infeasible
        No point satisfies the constraints.
    SolverFailure
        Nothing feasible was found in time.

    Examples
    --------
    >>> import optfair as of
    >>> from optfair.models.cluster_counterfactual import ClusterCounterfactual
    >>> p = ClusterCounterfactual.gaussian(
    ...     means=[[0.0, 0.0], [3.0, 0.0], [3.0, 2.0]], covariances=[1.0, 0.5, 0.3],
    ...     factual=[0.0, 1.0], target=1, against="all",
    ... )
    >>> s = best_known(p)
    >>> s.status.termination, s.gap <= 1e-7
    ('optimal', True)
    """
    request = Request(tolerance=tolerance, time_limit=time_limit)
    names = [profile.name for profile in choose(problem, None)]
    proved, others = (names[:1], names[1:]) if profile_of(names[0]).structure else ([], names)
    known: Solution | None = None
    for name in proved:
        try:
            return solve(problem, name, tolerance=tolerance)
        except SolverFailure:
            known = _held(problem, request)
    for name in others:
        if request.deadline <= time.perf_counter() + 1e-3:
            break
        try:
            found = solve(
                problem,
                name,
                tolerance=tolerance,
                time_limit=request.seconds_left,
                warm_start=known,
            )
        except (SolverFailure, UnsupportedProblem):
            continue
        return found if known is None else _better(known, found, tolerance)
    if known is None:
        raise SolverFailure(
            f"no counterfactual was found in {time_limit:g} s",
            "neither the relaxation nor branch and bound left a feasible point",
            "give more time, or ask for the pair form",
        )
    return known


def _held(problem: ClusterCounterfactual, request: Request) -> Solution | None:
    """Return the relaxation's point and bound, None where it has none that is feasible."""
    if problem.free.size > LARGEST:
        return None
    try:
        found = _relaxed(problem, request)
    except SolverFailure:
        return None
    return found if found.status.primal == "feasible" else None


def _better(relaxed: Solution, branched: Solution, tolerance: float) -> Solution:
    """Return the nearer point with the larger bound."""
    if branched.bound >= relaxed.bound and branched.objective <= relaxed.objective:
        return branched
    point = min(branched, relaxed, key=lambda s: s.objective)
    bound = max(branched, relaxed, key=lambda s: s.bound)
    both = replace(
        point,
        bound=bound.bound,
        multipliers=bound.multipliers,
        proof=bound.proof,
        status=replace(point.status, dual=bound.status.dual),
        attempts=(*point.attempts, f"bound {bound.bound:.10g} by {bound.solver}"),
    )
    if both.is_optimal(tolerance):
        return replace(both, status=replace(both.status, termination="optimal"))
    return both
