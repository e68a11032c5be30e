"""Local optima: smooth nonlinear programs from several starts, and the convex-concave procedure of dccp."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import cvxpy as cp
import numpy as np
from cvxpy.constraints import Equality, Inequality, NonNeg, NonPos, Zero
from cvxpy.reductions.cvx_attr2constr import CvxAttr2Constr
from cvxpy.reductions.dnlp2smooth.dnlp2smooth import Dnlp2Smooth
from cvxpy.reductions.flip_objective import FlipObjective
from cvxpy.reductions.solvers.defines import SOLVER_MAP_NLP
from cvxpy.reductions.solvers.solving_chain import SolvingChain

from optfair.backends.farkas import unbounded
from optfair.backends.isolation import call_apart, ctrl_c
from optfair.backends.registry import profiles
from optfair.backends.request import Outcome, Request, SolverProfile, refuse_integers
from optfair.core.expressions import Values, substitute
from optfair.errors import NotInstalled, OptfairError, SolverFailure, UnsupportedProblem
from optfair.numbers import Floats

if TYPE_CHECKING:
    from optfair.core.problem import Problem

#: starting points that are tried
STARTS = 5
SILENT = "SILENT"
KKT = "FEASIBLE_KKT_POINT"
# An objective beyond this at a feasible point is taken for unbounded.
BEYOND = 1e15


def run(problem: Problem, profile: SolverProfile, request: Request) -> Outcome:
    """Solve from several starts and keep the best feasible point: *local*, never optimal.

    The first start is the warm start where there is one; the others are drawn with the
    seed. The best is the one with the best declared objective among those whose violation of
    every declared term is within the tolerance; nothing is claimed about other local optima.

    Parameters
    ----------
    problem : Problem
        Continuous variables; terms by the rules of disciplined nonlinear programming.
    profile : SolverProfile
        Facts about the solver.
    request : Request
        Options that mean the same for every solver.

    Returns
    -------
    Outcome
        Terminated "local" when the solver reports first-order optimality at a feasible point;
        no multipliers, no bound. Where no start led to a feasible point, the least violated
        one under the solver's own word: that proves nothing about feasibility.

    Raises
    ------
    UnsupportedProblem
        Integer variables, a term that these rules do not take, an option the solver does not
        have.
    NotInstalled
        The solver's module is missing.
    Unbounded
        A feasible point has an objective beyond 1e15.
    """
    begin = time.perf_counter()
    given, warm = request.start(problem)
    sizes = given or {name: np.ones(1) for name in problem.variables}
    units = {name: _unit(np.abs(x).max(initial=0.0)) for name, x in sizes.items()}
    worth = abs(problem.objective_at(given)) if given else problem.objective_unit
    program, variables = _smooth_problem(problem, profile, units, _unit(worth))
    _options(profile, request)  # a general option it lacks fails before anything is solved
    if not profile.installed:
        raise NotInstalled(
            f"{profile.name} is not installed",
            f"module {profile.module!r} was not found",
            profile.install,
        )
    begun = time.perf_counter()
    seconds = {"compile": begun - begin, "solve": 0.0}
    best: Rank | None = None
    kept: dict[str, Floats] = {}
    word, stopped = "failed", ""
    for start in _starts(problem, given, units, request.seed):
        for name, variable in variables.items():
            variable.save_value(start[name])
        options = _options(profile, request)  # what is left of the time limit
        task = profile.cvxpy_name, program, variables, options, request.verbose >= 2
        seconds_apart = request.apart(profile, _numbers(program))
        with ctrl_c() as pressed:
            if seconds_apart is None:
                values, said = _solve(*task)
            else:
                values, said = _solve_apart(_solve, task, profile, seconds_apart)
        values = {name: units[name] * value for name, value in values.items()}
        if pressed:
            stopped = "interrupted"
        rank = _rank(problem, values, said, request.tolerance)
        if best is None:
            word = said
        if rank is not None and (best is None or rank < best):
            best, kept, word = rank, values, said
        if time.perf_counter() > request.deadline:
            stopped = stopped or "time_limit"
        if stopped:
            break
    seconds["solve"] = time.perf_counter() - begun
    if best is not None and not best.infeasible and best.value <= -BEYOND:
        raise _unbounded(problem, profile, kept)
    # a point found before later starts were cut off stands
    local = best is not None and not best.infeasible and not best.unfinished
    if local:
        termination = "local"
    elif word == "optimal":
        termination = stopped or "stationary, not feasible"
    else:
        termination = stopped or word
    return Outcome(termination, kept, {}, None, seconds, warm_start=warm)


class Rank(NamedTuple):
    """Order of results: feasible before infeasible, finished before cut off, then by value.

    ``value`` is the objective as minimised, or the violation of an infeasible point.
    """

    infeasible: bool
    unfinished: bool
    value: float


_WORDS = {cp.OPTIMAL: "optimal", cp.OPTIMAL_INACCURATE: "inaccurate", cp.USER_LIMIT: "time_limit"}


def _solve(
    solver: str, program: Any, variables: Mapping[str, Any], options: dict[str, Any], log: bool
) -> tuple[dict[str, Floats], str]:
    """Solve from the values the variables hold; return values by name and the solver's word."""
    chain = _chain(program, solver)
    try:
        data, inverse = chain.apply(program)
    except (NotImplementedError, ValueError) as e:
        raise UnsupportedProblem(
            "CVXPY has no smooth form of a function in this problem",
            " ".join(str(e).split()),
            "a norm along an axis is one: write it as squares, or choose a conic solver",
        ) from e
    try:
        raw = chain.solver.solve_via_data(data, True, log, solver_opts=dict(options))
    except (KeyError, TypeError, ValueError) as e:
        raise UnsupportedProblem(
            "the solver does not take these options, or not this form",
            " ".join(map(str, e.args)),
            "correct or remove the option",
        ) from e
    except KeyboardInterrupt:
        return {}, "interrupted"
    except RuntimeError as e:
        raise SolverFailure("the solver failed", str(e), "try another start or solver") from e
    solution = chain.invert(raw, inverse)
    values = {
        name: np.asarray(solution.primal_vars[v.id], dtype=float).reshape(v.shape)
        for name, v in variables.items()
        if v.id in solution.primal_vars
    }
    # a variable that no term uses keeps its start
    for name, v in variables.items():
        if name not in values and values:
            values[name] = np.asarray(v.value, dtype=float)
    word = _WORDS.get(solution.status, str(solution.status))
    # "optimal" only says that the solver ended by itself; this says at what
    ended = str(raw.get("solution_status", "")) if isinstance(raw, Mapping) else ""
    if word == "optimal" and ended and ended != KKT:
        word = ended.lower().replace("_", " ")
    return values, word


def _numbers(program: Any) -> int:
    """Return how many numbers a CVXPY problem has, in its data, variables and rows."""
    size = program.size_metrics
    rows = size.num_scalar_eq_constr + size.num_scalar_leq_constr
    return int(size.num_scalar_data + size.num_scalar_variables + rows)


def _solve_apart(
    function: Any, task: tuple[Any, ...], profile: SolverProfile, seconds: float
) -> tuple[dict[Any, Floats], str]:
    """Return values and a word from another process; none where it was ended."""
    try:
        answer: Any = call_apart(function, task, name=profile.name, seconds=seconds)
    except KeyboardInterrupt:
        return {}, "interrupted"
    return ({}, "time_limit") if answer is None else answer


def _rank(
    problem: Problem, values: Mapping[str, Floats], word: str, tolerance: float
) -> Rank | None:
    if not values:
        return None
    worst = max((t.relative_violation(values) for t in problem.constraints.values()), default=0.0)
    value = problem.objective_at(values)
    if not (worst <= tolerance and np.isfinite(value)):
        return Rank(True, True, max(worst, 0.0) if worst > tolerance else np.inf)
    return Rank(False, word != "optimal", value if problem.sense == "minimize" else -value)


def _unbounded(
    problem: Problem, profile: SolverProfile, values: Mapping[str, Floats]
) -> OptfairError:
    value = problem.objective_at(values)
    return unbounded(
        problem,
        profile.name,
        values,
        f"it found a feasible point with objective {value:.3g}, which proves no limit",
    )


def _unit(size: float) -> float:
    """Return the power of two near a size, for solvers that do not scale; 1 where there is none."""
    return float(np.exp2(np.round(np.log2(size)))) if 0.0 < size < np.inf else 1.0


def _starts(
    problem: Problem, given: Values | None, units: Mapping[str, float], seed: int | None
) -> Iterator[dict[str, Floats]]:
    """Yield the starting points, in the units of the variables."""
    rng = np.random.default_rng(seed or 0)
    if given is not None:
        yield {name: np.asarray(given[name]) / unit for name, unit in units.items()}
    for k in range(STARTS - (given is not None)):
        point = {name: rng.normal(size=v.shape) for name, v in problem.variables.items()}
        # every other start is positive: logarithms, roots and quotients are defined there
        yield point if k % 2 else {name: np.abs(x) for name, x in point.items()}


def _options(profile: SolverProfile, request: Request) -> dict[str, Any]:
    """Return the options by the solver's own names; the seed draws starts, not in the solver."""
    chosen = request.solver_options(profile)
    seed = profile.options.get("seed")
    if seed is not None and seed not in request.options:
        chosen.pop(seed, None)
    if request.verbose >= 2:  # a solver that the facts keep silent may speak now
        hushed = [k for k, v in profile.fixed.items() if v == SILENT and k not in request.options]
        for name in hushed:
            chosen.pop(name)
    return chosen


def _chain(program: Any, name: str) -> Any:
    solver = SOLVER_MAP_NLP[name]
    flip = [FlipObjective()] if isinstance(program.objective, cp.Maximize) else []
    reduced = CvxAttr2Constr(reduce_bounds=not solver.BOUNDED_VARIABLES)
    return SolvingChain(reductions=[*flip, reduced, Dnlp2Smooth(), solver])


def _smooth_problem(
    problem: Problem, profile: SolverProfile, units: Mapping[str, float], worth: float
) -> tuple[Any, dict[str, Any]]:
    """Return the problem on plain variables of its own, in units, which may hold starting values.

    ``worth`` is the unit of the objective.
    """
    refuse_integers(problem, profile)
    variables = {name: cp.Variable(v.shape, name=name) for name, v in problem.variables.items()}
    swaps: dict[int, Any] = {
        id(problem.variables[name]): v if units[name] == 1.0 else units[name] * v
        for name, v in variables.items()
    }
    goals = []
    for name, term in problem.objective.items():
        goal = substitute(term.build(), swaps)
        _check(name, cp.Minimize(goal) if problem.sense == "minimize" else cp.Maximize(goal))
        goals.append(goal)
    constraints: list[Any] = []
    for name, constraint in problem.constraints.items():
        constraints.append(_relation(name, substitute(constraint.build(), swaps)))
        _check(name, constraints[-1])
    for name, v in problem.variables.items():
        constraints += _pattern(name, v, variables[name])
    # not a division by the unit, for which CVXPY adds a variable
    total = (1.0 / worth) * sum(goals) if goals else cp.Constant(0.0)
    goal = cp.Minimize(total) if problem.sense == "minimize" else cp.Maximize(total)
    return cp.Problem(goal, constraints), variables


def _check(name: str, part: Any) -> None:
    if not part.is_dnlp():
        raise UnsupportedProblem(
            f"{name!r} does not follow the rules of disciplined nonlinear programming",
            "nonsmooth functions must be convex in a convex place, concave in a concave one;"
            f" got {' '.join(str(part).split())[:120]}",
            f"write {name!r} with smooth functions, or remove it",
        )


def _relation(name: str, constraint: Any) -> Any:
    """Return a constraint as == or <=: the route drops whatever else it is handed."""
    if isinstance(constraint, (Equality, Inequality)):
        return constraint
    if isinstance(constraint, Zero):
        return constraint.args[0] == 0
    if isinstance(constraint, NonNeg):
        return constraint.args[0] >= 0
    if isinstance(constraint, NonPos):
        return constraint.args[0] <= 0
    raise UnsupportedProblem(
        f"{name!r} is a constraint in the cone {type(constraint).__name__}",
        "local solvers take ==, <= and >= of functions",
        f"write {name!r} as an inequality, or choose a conic solver",
    )


def _pattern(name: str, declared: Any, variable: Any) -> list[Any]:
    """Return constraints for what the declared variable's attributes say."""
    if declared.attributes.get("diag") or declared.attributes.get("sparsity"):
        raise UnsupportedProblem(
            f"{name!r} is a matrix with a fixed pattern",
            remedy="declare its free entries as a vector",
        )
    if not declared.attributes.get("symmetric"):
        return []
    return [variable == cp.swapaxes(variable, -1, -2)]


# Iterations between two looks at the clock, and all together.
BLOCK, ITERATIONS = 5, 400


def run_dccp(problem: Problem, profile: SolverProfile, request: Request) -> Outcome:
    """Linearise the concave parts again and again, from one start: *local*, never optimal.

    The start is the warm start, else a feasible point that the model knows, else drawn with
    the seed.

    Parameters
    ----------
    problem : Problem
        Continuous; every term convex or concave on each side.
    profile : SolverProfile
        Facts about the solver.
    request : Request
        Options that mean the same for every solver.

    Returns
    -------
    Outcome
        "local" when the procedure converged; no multipliers, no bound.

    Raises
    ------
    UnsupportedProblem
        Integer variables, or a term that is neither convex nor concave.
    NotInstalled
        The package is missing.
    """
    begin = time.perf_counter()
    refuse_integers(problem, profile)
    options = request.solver_options(profile)
    for general in ("time_limit", "seed"):
        options.pop(profile.options.get(general, general), None)
    try:
        import dccp
    except ImportError as e:
        raise NotInstalled(f"{profile.name} is not installed", str(e), profile.install) from e
    program, variables, constraints = problem.built(fresh=True)
    warm = _started(problem, variables, request)
    convex = program.is_dcp()
    if not convex and not dccp.is_dccp(program):
        culprits = [n for n, c in constraints.items() if not _one_sided(c)]
        raise UnsupportedProblem(
            f"{profile.name} needs terms that are convex or concave on each side",
            f"not so: {', '.join(map(repr, culprits)) or 'the objective'}",
            "write them as differences, or choose a local solver for smooth problems",
        )
    compiled_at = time.perf_counter()
    if convex:  # nothing to linearise
        word = _solved(program, {"solver": options["solver"]}, profile, request)
        word = "local" if word == "optimal" else word
    else:
        word = _iterate(dccp, program, options, profile, request)
    values = {}
    if all(v.value is not None for v in variables.values()):
        values = {name: np.asarray(v.value, dtype=float) for name, v in variables.items()}
    solved_at = time.perf_counter()
    seconds = {"compile": compiled_at - begin, "solve": solved_at - compiled_at, "recover": 0.0}
    return Outcome(word, values, {}, None, seconds, warm_start=warm)


def _iterate(
    dccp: Any, program: Any, options: dict[str, Any], profile: SolverProfile, request: Request
) -> str:
    """Run blocks of iterations with the package; each goes on from the point and the penalty of the last."""
    tau, mu = float(options.pop("tau_ini")), float(options.pop("mu"))
    for _ in range(ITERATIONS // BLOCK):
        asked = {"max_iter": BLOCK, "tau_ini": tau, "mu": mu, "seed": request.seed or 0, **options}
        asked = {"method": dccp.__name__, **asked}
        reached = _solved(program, asked, profile, request, BLOCK + 1)
        if reached in ("interrupted", "time_limit"):
            return reached
        if reached == "optimal":
            return "local"
        tau *= mu**BLOCK
    return "stalled"


def _solved(
    program: Any, asked: dict[str, Any], profile: SolverProfile, request: Request, times: int = 1
) -> str:
    """Solve with CVXPY, the inner solver so many times; return how it ended."""
    inner = next((p for p in profiles().values() if p.cvxpy_name == asked["solver"]), None)
    clock = "" if inner is None else inner.options.get("time_limit", "")
    if clock and request.time_limit is not None:
        asked = {**asked, clock: request.seconds_left / times}
    task = program, asked, request.verbose >= 2
    seconds = request.apart(profile, _numbers(program))
    try:
        if seconds is None:
            _, word = _ended(*task)
        else:
            values, word = _solve_apart(_ended, task, profile, seconds)
            for v in program.variables():
                v.save_value(values.get(v.id, v.value))
    except KeyboardInterrupt:
        return "interrupted"
    except Exception as e:  # the package has no tree of errors of its own
        if time.perf_counter() > request.deadline:
            return "time_limit"
        raise SolverFailure(
            "the convex-concave procedure failed", " ".join(str(e).split())[:200], "try another"
        ) from e
    late = time.perf_counter() > request.deadline or word == cp.settings.USER_LIMIT
    return "time_limit" if late and word not in ("optimal", "interrupted") else word


def _ended(program: Any, asked: dict[str, Any], log: bool) -> tuple[dict[int, Any], str]:
    """Solve with CVXPY; return the values by the variables' numbers, and the status."""
    import dccp  # its method is known to CVXPY then

    logging.getLogger(dccp.__name__).setLevel(logging.INFO if log else logging.ERROR)
    with warnings.catch_warnings():  # that a step is inaccurate: what comes of it is measured here
        warnings.simplefilter("ignore")
        program.solve(**asked)
    values = {v.id: v.value for v in program.variables() if v.value is not None}
    return values, str(program.status)


def _started(problem: Problem, variables: dict[str, Any], request: Request) -> str:
    """Give the variables their starting values, and say what became of the warm start."""
    known = getattr(problem, "feasible_point", None)
    given, warm = request.start(problem)
    values = given if given is not None or known is None else known()
    for name, variable in variables.items():
        if values is not None and name in values:
            variable.value = np.asarray(values[name], dtype=float)
    return warm


def _one_sided(constraint: Any) -> bool:
    return all(arg.is_convex() or arg.is_concave() for arg in constraint.args)
