"""Global optimisation of nonconvex quadratic programs by branch and bound."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from optfair.backends.farkas import claimed_infeasible, unbounded
from optfair.backends.generic import ReportedBound
from optfair.backends.lifted import quadratic_form
from optfair.backends.request import Outcome, with_whole
from optfair.errors import NotInstalled, OptfairError, SolverFailure, UnsupportedProblem
from optfair.numbers import Floats

if TYPE_CHECKING:
    from optfair.backends.profile import SolverProfile
    from optfair.backends.request import Request
    from optfair.compile.program import QuadraticForms
    from optfair.core.problem import Problem

_FORMATS = (".cip", ".lp", ".mps")
GAPS = ("limits/gap", "limits/absgap")
FEASIBILITY = "numerics/feastol"
# A feasible point with an objective beyond this ends the search: it is taken for unbounded.
BEYOND = 1e15


def run(problem: Problem, profile: SolverProfile, request: Request) -> Outcome:
    """Solve to global optimality; Ctrl-C and the time limit return the incumbent.

    Parameters
    ----------
    problem : Problem
        Linear and quadratic terms, convex or not; convex terms that second-order cones
        express; integer variables.
    profile : SolverProfile
        Facts about the solver.
    request : Request
        Options that mean the same for every solver.

    Returns
    -------
    Outcome
        With the bound that branch and bound reports; it cannot be recomputed here.

    Raises
    ------
    UnsupportedProblem
        A term that quadratics cannot express, or an option the solver does not have.
    Infeasible, Unbounded
        On the solver's word, without a certificate.
    """
    from optfair.backends.scip_model import ScipModel

    begin = time.perf_counter()
    model = ScipModel(quadratic_form(problem))
    forms = model.forms
    options = _options(request, profile)
    model.set(options)  # a wrong option fails before anything is solved
    start, warm = request.start(problem)
    if start is not None:
        limit = float(options.get(FEASIBILITY, request.tolerance))
        point, warm = _start(problem, forms, start, limit)
        if point is not None:
            model.start_from(point)
    compiled_at = time.perf_counter()
    raw = model.solve(_options(request, profile), beyond=BEYOND, log=request.verbose >= 2)
    solved_at = time.perf_counter()
    seconds = {"compile": compiled_at - begin, "solve": solved_at - compiled_at}
    if raw.status == "infeasible":
        why = "its branch and bound excluded every region and leaves no certificate"
        raise claimed_infeasible(problem, profile.name, why)
    if raw.status in ("unbounded", "infeasible_or_unbounded"):
        best = None if raw.x is None else float(forms.total.value(raw.x)[0])
        raise _unbounded(problem, profile, request, best)
    proof = None
    if raw.bound is not None:
        proof = ReportedBound(problem, raw.bound, profile.name)
    values: dict[str, Floats] = {}
    if raw.x is not None and np.isfinite(raw.x).all():
        values = with_whole(problem, forms.by_name(raw.x))
    seconds["recover"] = time.perf_counter() - solved_at
    return Outcome(raw.status, values, {}, proof, seconds, warm_start=warm)


def export_scip(problem: Problem, path: str | Path) -> Path:
    """Write a quadratic program, convex or not, with its names, as branch and bound gets it.

    Second-order cones and sums of squares are written with the variables that
    `quadratic_form` adds; they are called ``added_1``, ``added_2`` ...

    Parameters
    ----------
    problem : Problem
        What `run` takes.
    path : str or Path
        Ends in .cip, .lp or .mps.

    Returns
    -------
    Path
        Where it was written.

    Raises
    ------
    UnsupportedProblem
        Another suffix, or a term that quadratics cannot express.
    NotInstalled
        The package that writes the file is missing.
    """
    target = Path(path)
    if target.suffix not in _FORMATS:
        raise UnsupportedProblem(
            f"{target.name!r} is not a format for quadratic programs",
            f"known are {', '.join(_FORMATS)}",
            "choose one of these suffixes",
        )
    forms = quadratic_form(problem)
    try:
        from optfair.backends.scip_model import ScipModel
    except ImportError as e:
        raise NotInstalled(
            "writing nonconvex quadratic programs needs pyscipopt",
            str(e),
            "pip install pyscipopt",
        ) from e
    name = "_".join((problem.title or type(problem).__name__).split())
    if target.suffix == ".lp":
        # some readers take a constant in the objective for the name of a variable
        shifted = bool(forms.total.r[0] != 0.0)
        ScipModel(forms, name, epigraph=shifted, brackets="()").write(target)
    else:
        ScipModel(forms, name).write(target)
    return target


def _options(request: Request, profile: SolverProfile) -> dict[str, Any]:
    """Return the options; the gap stays above what the feasibility tolerance resolves.

    The objective of a quadratic is known to within the feasibility tolerance only: a search
    that is to close the gap further than that does not end.
    """
    chosen = request.solver_options(profile)
    resolved = 10.0 * float(chosen.get(FEASIBILITY, 0.0))
    gap = max(0.3 * request.tolerance, resolved)
    return chosen | {name: gap for name in GAPS if name not in request.options}


def _start(
    problem: Problem, forms: QuadraticForms, start: dict[str, Floats], limit: float
) -> tuple[Floats | None, str]:
    """Return the point of a warm start and "used", or None and why not.

    Added variables are NaN: the solver finds their values.
    """
    for name, term in problem.constraints.items():
        off = term.relative_violation(start)
        if not off <= limit:
            return None, f"not used: it violates {name!r} by {off:.1e}"
    added = {n: np.full(s, np.nan) for n, s in forms.shapes.items() if n not in problem.variables}
    return forms.vector({**start, **added}), "used"


def _unbounded(
    problem: Problem, profile: SolverProfile, request: Request, best: float | None
) -> OptfairError:
    """Tell unbounded from infeasible by dropping the objective.

    ``best`` is the objective at a point the solver left, if it left one.
    """
    if best is not None and abs(best) >= BEYOND:
        seen = f"{profile.name} found a feasible point with objective {best:.3g}"
    else:
        # raises Infeasible when it is that
        alone = run(problem.with_terms({}, problem.constraints), profile, request)
        if not alone.values:
            raise SolverFailure(
                f"{profile.name} could not tell unbounded from infeasible",
                f"it stopped for {alone.termination} without a feasible point",
                "give more time, or bound the variables",
            )
        seen = f"{profile.name} reports it unbounded, and the constraints alone have a solution"
    return unbounded(problem, profile.name, why=seen)
