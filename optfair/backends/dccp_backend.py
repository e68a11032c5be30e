"""The one file that talks to dccp: the convex-concave procedure, for local optima."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from optfair.backends.request import Outcome, refuse_integers
from optfair.errors import NotInstalled, SolverFailure, UnsupportedProblem

if TYPE_CHECKING:
    from optfair.backends.profile import SolverProfile
    from optfair.backends.request import Request
    from optfair.core.problem import Problem

# Iterations between two looks at the clock, and all together.
BLOCK, ITERATIONS = 5, 400


def run(problem: Problem, profile: SolverProfile, request: Request) -> Outcome:
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
    warm = _start(problem, variables, request)
    convex = program.is_dcp()
    if not convex and not dccp.is_dccp(program):
        culprits = [n for n, c in constraints.items() if not _one_sided(c)]
        raise UnsupportedProblem(
            f"{profile.name} needs terms that are convex or concave on each side",
            f"not so: {', '.join(map(repr, culprits)) or 'the objective'}",
            "write them as differences, or choose a local solver for smooth problems",
        )
    compiled_at = time.perf_counter()
    logging.getLogger(dccp.__name__).setLevel(
        logging.INFO if request.verbose >= 2 else logging.ERROR
    )
    if convex:  # nothing to linearise
        word = _convex(program, options)
    else:
        word = _iterate(dccp, program, options, request)
    values = {}
    if all(v.value is not None for v in variables.values()):
        values = {name: np.asarray(v.value, dtype=float) for name, v in variables.items()}
    solved_at = time.perf_counter()
    seconds = {"compile": compiled_at - begin, "solve": solved_at - compiled_at, "recover": 0.0}
    return Outcome(word, values, {}, None, seconds, warm_start=warm)


def _iterate(dccp: Any, program: Any, options: dict[str, Any], request: Request) -> str:
    """Run blocks of iterations with the package; each goes on from the point and the penalty of the last."""
    tau, mu = float(options.pop("tau_ini")), float(options.pop("mu"))
    word = "stalled"
    for _ in range(ITERATIONS // BLOCK):
        try:
            program.solve(
                method=dccp.__name__,
                max_iter=BLOCK,
                tau_ini=tau,
                mu=mu,
                seed=request.seed,
                **options,
            )
        except KeyboardInterrupt:
            return "interrupted"
        except Exception as e:  # the package has no tree of errors of its own
            raise SolverFailure(
                "the convex-concave procedure failed", " ".join(str(e).split())[:200], "try another"
            ) from e
        if program.status == "optimal":
            return "local"
        tau *= mu**BLOCK
        if time.perf_counter() > request.deadline:
            word = "time_limit"
            break
    return word


def _convex(program: Any, options: dict[str, Any]) -> str:
    program.solve(solver=options["solver"])
    return "local" if program.status == "optimal" else str(program.status)


def _start(problem: Problem, variables: dict[str, Any], request: Request) -> str:
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
