"""Routes of counterfactuals between clusters: one exact projection where that is enough, pair by pair where it is not."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from optfair.backends.registry import choose
from optfair.backends.request import Outcome, Request, SolverProfile
from optfair.backends.solve import solve, solve_as_asked
from optfair.core.solution import Solution, Status
from optfair.errors import Infeasible, SolverFailure, Unbounded, UnsupportedProblem
from optfair.methods.cluster_counterfactuals.algorithms.polyhedra import (
    LEAST,
    nearest_in_half_space,
    nearest_in_linear,
    weighted,
)
from optfair.methods.cluster_counterfactuals.algorithms.quadrics import nearest_behind
from optfair.methods.cluster_counterfactuals.algorithms.several_quadrics import Several, near_point
from optfair.methods.cluster_counterfactuals.choices import (
    Choice,
    ChoiceProof,
    Choices,
    NoCategory,
    one_hot_groups,
)
from optfair.methods.cluster_counterfactuals.cluster_counterfactual import ClusterCounterfactual
from optfair.methods.cluster_counterfactuals.evidence import (
    PRODUCTS,
    BoundaryProof,
    Projection,
    named_multipliers,
    out_of_reach,
    outcome,
    products,
    unreachable,
)
from optfair.methods.cluster_counterfactuals.point_problem import SEVERAL_QUADRATICS
from optfair.numbers import Floats, check_positive, check_seconds, checked, one_of
from optfair.transforms.relaxation import recovered, shor

if TYPE_CHECKING:
    from optfair.core.problem import Problem


# Routes of the structures ``half-space``, ``one-quadratic`` and ``cell``: one exact projection each.


def _projection(
    problem: Problem, profile: SolverProfile, request: Request
) -> tuple[ClusterCounterfactual, Projection, float]:
    """Return the problem, what is to be projected, and when that was begun."""
    request.refuse_options(profile)
    begin = time.perf_counter()
    p = cast(ClusterCounterfactual, problem)
    return p, Projection.of(p), begin


# Routes of the structures ``half-space`` and ``cell``: the nearest point of a polyhedron.


def run_linear(problem: Problem, profile: SolverProfile, request: Request) -> Outcome:
    """Project the row on the half-spaces of all boundaries and on the bounds."""
    p, s, begin = _projection(problem, profile, request)
    m, f = len(s.sections), s.free.size
    normals = np.array([s.normal(k) for k in range(m)]).reshape(m, f)
    right = -np.array([section.level for section in s.sections])
    bounds = {"lower": s.lower[None], "upper": s.upper[None]} if s.bounded else {}
    clock = begin, time.perf_counter()
    nearest = nearest_in_linear(np.zeros((1, f)), normals, right, metric=s.metric, **bounds)
    weights = nearest.multipliers[0, :m]
    if not nearest.reached[0]:
        if not nearest.multipliers.any():
            raise SolverFailure("the active set did not settle", remedy="name another solver")
        raise unreachable(p, weights)
    return outcome(p, s.at(nearest.points[0]), weights, clock)


# Route of the structure ``one-quadratic``: the secular equation, with its S-lemma certificate.


def run_secular(problem: Problem, profile: SolverProfile, request: Request) -> Outcome:
    """Solve the secular equation on the interval where the Lagrangian is convex."""
    p, s, begin = _projection(problem, profile, request)
    boundary = s.sections[0].boundary
    clock = begin, time.perf_counter()
    nearest = nearest_behind(s.start[None], boundary, s.free, metric=s.metric)
    if not nearest.reached[0]:
        raise unreachable(p, np.ones(1))
    return outcome(p, s.at(nearest.points[0] - s.start[s.free]), nearest.multipliers[0], clock)


# Route of the structure ``several-quadratics``: pair by pair, all at once, then the relaxation.

# Relative violation up to which the answer to one pair counts as valid against all.
VALID = 1e-12
# Free features beyond which the semidefinite relaxation takes too long to be tried.
LARGEST = 40
# Tolerance at which the relaxation is solved where the one asked for is not met.
ROUGH = 1e-5


def run_pairwise(problem: Problem, profile: SolverProfile, request: Request) -> Outcome:
    """Solve every pair; where none of the answers is valid against all, take them together.

    The optimum of a pair alone is a lower bound, so if the farthest of these points satisfies
    everything, it is the optimum, with its own multiplier as the proof. Else the Lagrangian of
    all boundaries and bounds is maximised, which proves a point wherever its maximum is not at
    the edge of its domain. Else the semidefinite relaxation bounds the optimum and a local
    search improves the points it suggests. Where a gap remains the result does not pass, and the
    next solver branches and bounds.
    """
    p, s, begin = _projection(problem, profile, request)
    clock = begin, time.perf_counter()
    nearest = _at_once(p, s, request)
    if nearest is not None:
        return outcome(p, *nearest, clock)
    if p.problem_class.convex or s.free.size > LARGEST:
        # a convex problem needs no relaxation: the next solver takes it as it is
        return Outcome("no pair is enough", {}, {}, None, {"solve": time.perf_counter() - begin})
    try:
        relaxed = _relaxed(p, request)
    except Infeasible as e:
        raise (_short(p, request) or e) from None
    if relaxed.status.primal != "feasible" and (short := _short(p, request)) is not None:
        raise short
    seconds = {"compile": clock[1] - begin, "solve": time.perf_counter() - clock[1]}
    return Outcome("relaxed", relaxed.values, relaxed.multipliers, relaxed.proof, seconds)


def _at_once(
    p: ClusterCounterfactual, s: Projection, request: Request
) -> tuple[Floats, Floats] | None:
    """Return point and multipliers of the sides where no relaxation is needed, else None."""
    k, u, mu = _farthest_pair(p, s)
    z = s.at(u)
    if all(t.relative_violation({"point": z}) <= VALID for t in p.constraints.values()):
        weights = np.zeros(len(s.sections))
        weights[k] = mu
        return z, weights
    nearest = _several(p, s).nearest(s.start, *p.limits, deadline=request.deadline)
    return None if nearest is None else (nearest[0], nearest[3])


def _several(p: ClusterCounterfactual, s: Projection) -> Several:
    """Return the dual of all boundaries, with gaps in the size of the clusters."""
    return Several(*s.sides, least=LEAST * float(p.clusters.sizes.max()) ** 2)


def _short(p: ClusterCounterfactual, request: Request) -> Infeasible | None:
    """Return the error that the target is out of reach, if there is time to prove it."""
    if time.perf_counter() > request.deadline:
        return None
    return out_of_reach(p, time_limit=_left(request))


def _left(request: Request) -> float | None:
    return None if request.time_limit is None else request.seconds_left


def _farthest_pair(p: ClusterCounterfactual, s: Projection) -> tuple[int, Floats, float]:
    """Return the boundary whose own nearest point is farthest, that step, and its multiplier."""
    best = -1.0
    kept: tuple[int, Floats, float] = 0, np.zeros(s.free.size), 0.0
    row = np.zeros((1, s.free.size))
    for k, section in enumerate(s.sections):
        if section.linear:
            nearest = nearest_in_half_space(row, s.normal(k), -section.level, metric=s.metric)
        else:
            nearest = nearest_behind(s.start[None], section.boundary, s.free, metric=s.metric)
        if not nearest.reached[0]:
            raise unreachable(p, (np.arange(len(s.sections)) == k).astype(float))
        u = nearest.points[0] if section.linear else nearest.points[0] - s.start[s.free]
        size = float(u @ weighted(u, s.metric))
        if size > best:
            best, kept = size, (k, u, float(nearest.multipliers[0, 0]))
    return kept


def _relaxed(p: ClusterCounterfactual, request: Request) -> Solution:
    """Return the point and the bound of the semidefinite relaxation."""
    extra, both = products(p)
    relaxation = shor(p.with_constraints(extra) if extra else p)
    try:
        relaxed = _bounded(relaxation.problem, request.tolerance, request)
    except SolverFailure:  # a rough one may do: points and multipliers are improved afterwards
        if time.perf_counter() > request.deadline:
            raise
        relaxed = _bounded(relaxation.problem, max(ROUGH, request.tolerance), request)
        asked = {**relaxed.options, "tolerance": request.tolerance}
        relaxed = replace(relaxed, options=asked)
    solution = relaxation.recover(relaxed)
    prices = np.zeros(p.free.size)
    if extra:
        prices[both] = solution.multipliers[PRODUCTS]
    multipliers = {name: solution.multipliers[name] for name in p.constraints}
    proof = BoundaryProof(p, prices)
    return recovered(p, solution, {"point": solution["point"]}, multipliers, proof, "products")


def _bounded(relaxation: Any, tolerance: float, request: Request) -> Solution:
    """Solve a relaxation; one that is called unbounded has failed: no distance is below 0."""
    try:
        return solve(relaxation, tolerance=tolerance, time_limit=_left(request))
    except Unbounded as e:
        raise SolverFailure(
            "the semidefinite relaxation was not solved", e.evidence, "rescale the features"
        ) from e


# Route of the structure ``one-hot-choices``: what is left of each choice of categories.


def run_choices(problem: Problem, profile: SolverProfile, request: Request) -> Outcome:
    """Solve what is left of each choice, the nearest categories first, until no other is nearer."""
    request.refuse_options(profile)
    begin = time.perf_counter()
    p = cast(ClusterCounterfactual, problem)
    every = Choices(p, one_hot_groups(p))
    bare = p.without(*every.groups)
    answers: dict[Choice, Solution | Infeasible] = {}
    best: tuple[float, Choice, Solution] | None = None
    ended = "optimal"
    for least, choice in sorted((every.least(choice), choice) for choice in every):
        if best is not None and least >= best[0]:
            break
        if time.perf_counter() > request.deadline:
            ended = "time_limit"
            break
        answer = _answer(every.left(bare, choice), request)
        if answer is None:
            ended = "time_limit"
            break
        answers[choice] = answer
        if isinstance(answer, Solution) and (best is None or answer.objective < best[0]):
            best = answer.objective, choice, answer
    seconds = {"compile": 0.0, "solve": time.perf_counter() - begin, "recover": 0.0}
    if best is not None:
        _settle(answers, best[0], request)
        chosen = {f"{n}.choice": v for n, v in every.entries(best[1]).items()}
        values = {"point": np.asarray(best[2]["point"]), **chosen}
        return Outcome(ended, values, {}, ChoiceProof(p, answers), seconds)
    if ended == "time_limit":
        return Outcome(ended, {}, {}, None, seconds)
    refuted = {at: e for at, e in answers.items() if isinstance(e, Infeasible)}
    raise Infeasible(
        f"no point that may be chosen is in cluster {p.target}",
        f"none with any of the {len(refuted)} choices of {', '.join(map(repr, every.groups))}",
        "free more features, widen their bounds, or ask for less plausibility",
        certificate=NoCategory(p, refuted),
        conflict=tuple(p.constraints),
    )


def _answer(left: ClusterCounterfactual, request: Request) -> Solution | Infeasible | None:
    """Return a solution or a refutation; None where the time was up."""
    limit = None if request.time_limit is None else max(1e-3, request.seconds_left)
    try:
        return solve_as_asked(
            left, None, Request(tolerance=0.5 * request.tolerance, time_limit=limit)
        )
    except Infeasible as e:
        if e.certificate is None:
            raise SolverFailure(
                "a choice of categories could be neither solved nor refuted", str(e)
            ) from None
        return e
    except SolverFailure:
        if time.perf_counter() > request.deadline:
            return None
        raise


def _settle(answers: dict[Choice, Solution | Infeasible], best: float, request: Request) -> None:
    """Take a bound that is proved for one that a solver reports, where it says enough."""
    for choice, answer in answers.items():
        if isinstance(answer, Infeasible) or answer.grade.sound or answer.bound < best:
            continue
        left = cast(ClusterCounterfactual, answer.problem)
        if not left.structure_refusal(SEVERAL_QUADRATICS):
            z, begin = np.asarray(answer["point"], dtype=float), time.perf_counter()
            proved = _dually(left, Projection.of(left), z, request, begin)
            if proved is not None and proved.grade.sound and proved.bound >= best:
                answers[choice] = proved


@checked(problem=one_of(ClusterCounterfactual), time_limit=check_seconds, tolerance=check_positive)
def best_known(
    problem: ClusterCounterfactual, *, time_limit: float = 30.0, tolerance: float = 1e-7
) -> Solution:
    r"""Return the best counterfactual found with the best bound, optimal or not.

    First what `solve` does; where no route proves a point optimal in time, the nearest point of
    convex inner approximations, the relaxation and branch and bound, with the largest of their
    bounds.

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
    >>> from optfair.methods.cluster_counterfactuals.cluster_counterfactual import ClusterCounterfactual
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
    known: Solution | None = None
    if not problem.structure_refusal(SEVERAL_QUADRATICS):
        s = Projection.of(problem)
        if _at_once(problem, s, request) is not None:
            try:
                return solve(problem, names[0], tolerance=tolerance)  # takes milliseconds
            except SolverFailure:  # a tolerance beyond rounding
                pass
        known = _near(problem, s, request)
        held = _held(problem, request)
        if held is not None:
            known = held if known is None else _better(known, held, tolerance)
        if known is not None and known.is_optimal(tolerance):
            return known
        names = names[1:]
    for name in names:
        if request.deadline <= time.perf_counter() + 1e-3:
            break
        try:
            solution = solve(
                problem,
                name,
                tolerance=tolerance,
                time_limit=request.seconds_left,
                warm_start=known,
            )
        except (SolverFailure, Unbounded, UnsupportedProblem):
            continue
        except Infeasible:
            if known is None:
                raise
            continue  # a point that satisfies everything is at hand
        return solution if known is None else _better(known, solution, tolerance)
    if known is None:
        raise SolverFailure(
            f"no counterfactual was found in {time_limit:g} s",
            "no descent, no relaxation and no branch and bound led to a feasible point",
            "give more time, or ask for the pair form",
        )
    return known


def _near(p: ClusterCounterfactual, s: Projection, request: Request) -> Solution | None:
    """Return a point that no convex approximation improves, with the bound of a convex dual."""
    begin = time.perf_counter()
    z = near_point(s.start, *s.sides, p.limits, deadline=request.deadline)
    return None if z is None else _dually(p, s, z, request, begin)


def _dually(
    p: ClusterCounterfactual, s: Projection, z: Floats, request: Request, begin: float
) -> Solution | None:
    """Return a point with the bound of a convex dual, None if it is not feasible."""
    k, _, mu = _farthest_pair(p, s)
    pair = np.where(np.arange(len(s.sections)) == k, mu, 0.0)
    weights = pair, _several(p, s).maximised(s.start, *p.limits, request.deadline)[1]
    values, proof = {"point": z}, BoundaryProof(p)
    named = [named_multipliers(p, z, w) for w in weights]
    best = max(named, key=lambda m: proof.check(values, m).bound)
    profile = choose(p, None)[0]
    template = Solution(
        problem=p,
        solver=profile.name,
        version=profile.version,
        status=Status("relaxed", "unknown", "unknown"),
        objective=np.inf,
        bound=-np.inf,
        values=values,
        multipliers=best,
        proof=proof,
        seconds={"solve": time.perf_counter() - begin},
        options=request.to_dict(),
    )
    solution = recovered(p, template, values, best, proof, "inner approximations")
    return solution if solution.status.primal == "feasible" else None


def _held(p: ClusterCounterfactual, request: Request) -> Solution | None:
    """Return the relaxation's point and bound, None where it has none that is feasible."""
    if p.problem_class.convex or p.free.size > LARGEST:
        return None
    if time.perf_counter() > request.deadline:
        return None
    try:
        solution = _relaxed(p, request)
    except SolverFailure:
        return None
    except Infeasible as e:
        proved = _short(p, request) or e
        if proved.certificate is None:
            return None  # one solver's word
        raise proved from None
    if solution.status.primal == "feasible":
        return solution
    if (short := _short(p, request)) is not None:
        raise short
    return None


def _better(earlier: Solution, later: Solution, tolerance: float) -> Solution:
    """Return the nearer point with the larger bound."""
    if later.bound >= earlier.bound and later.objective <= earlier.objective:
        return later
    if earlier.bound >= later.bound and earlier.objective <= later.objective:
        return earlier
    point = min(later, earlier, key=lambda s: s.objective)
    bound = max(later, earlier, key=lambda s: s.bound)
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
