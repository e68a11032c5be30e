"""Check what an instance says about itself: with solvers that did not say it, or at every integer point."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import numpy as np

from optfair.backends.registry import conic_interface, profile, profiles
from optfair.compile.form import compile_problem
from optfair.core.problem import Problem
from optfair.core.solution import Solution
from optfair.errors import DataError, Infeasible, OptfairError, SolverFailure
from optfair.library.instance import Infeasibility, Instance, Optimum, load
from optfair.numbers import Floats, checked, one_of
from optfair.transforms.relaxation import relax_integrality, shor

# Prove an integer optimum by looking at every integer point.

#: how files of facts call this route, in the place of a solver
ENUMERATION = "enumeration"
LARGEST_BOX = 20_000


@dataclass(frozen=True)
class Enumerated:
    """The best of all integer points.

    Attributes
    ----------
    objective, bound : float
        Declared objective of the best point, and what no point beats.
    feasible, points : int
        How many points satisfy the constraints, of how many.
    """

    objective: float
    bound: float
    feasible: int
    points: int

    @property
    def gap(self) -> float:
        """Relative gap; 0 where every variable is integer."""
        return abs(self.objective - self.bound) / max(1.0, abs(self.objective))


def enumerated(problem: Problem, tolerance: float) -> Enumerated:
    r"""Return the optimum over all integer points of the box that the constraints state.

    Where every variable is integer, a point is judged by the declared terms alone, without a
    solver. Otherwise what remains after fixing the integers is solved and verified, or proved
    infeasible.

    Parameters
    ----------
    problem : Problem
        With integer variables that have lower and upper bounds.
    tolerance : float
        Relative residuals asked of the solutions of what remains.

    Raises
    ------
    DataError
        No integer variables, a variable without bounds, a box with too many points.
    Infeasible
        No point satisfies the constraints.

    Examples
    --------
    >>> from optfair.methods.textbook.allocation import Knapsack
    >>> p = Knapsack(values=[6.0, 5.0, 5.0], weights=[3.0, 2.0, 2.0], capacity=4.0)
    >>> enumerated(p, 1e-8)
    Enumerated(objective=10.0, bound=10.0, feasible=5, points=8)
    """
    names = sorted(problem.integers)
    box = _box(problem, names)
    count = int(np.prod([float(len(r)) for r in box]))
    pure = problem.integers == frozenset(problem.variables)
    judge = _judged if pure else _completed
    sign = 1.0 if problem.sense == "minimize" else -1.0
    best = bound = np.inf
    feasible = 0
    for point in _points(problem, names, box):
        pair = judge(problem, point, tolerance)
        if pair is not None:
            feasible += 1
            best, bound = min(best, sign * pair[0]), min(bound, sign * pair[1])
    if not feasible:
        raise Infeasible(
            "no integer point satisfies the constraints", f"{count} points were tried", ""
        )
    return Enumerated(sign * best, sign * bound, feasible, count)


def _box(problem: Problem, names: list[str]) -> list[range]:
    """Return the integers between the bounds of every entry, from rows with one column."""
    if not names:
        raise DataError(
            "there are no integer variables to enumerate", remedy="name a solver instead"
        )
    form = compile_problem(relax_integrality(problem).problem, conic_interface()).form
    lower, upper = form.column_bounds
    ranges: list[range] = []
    for name in names:
        # a variable that no term uses has no columns
        at = form.columns.get(name, slice(0, 0))
        low, high = np.ceil(lower[at] - 1e-9), np.floor(upper[at] + 1e-9)
        if low.size != problem[name].size or not np.isfinite([low, high]).all():
            raise DataError(
                f"{name!r} has entries without lower and upper bounds",
                remedy="add bounds, as in p.with_constraints(least=p[name] >= 0)",
            )
        ranges += [range(int(a), int(b) + 1) for a, b in zip(low, high, strict=True)]
    size = float(np.prod([float(len(r)) for r in ranges]))
    if size > LARGEST_BOX:
        raise DataError(
            f"the box has {size:.3g} integer points, more than {LARGEST_BOX}",
            remedy="check this instance with a solver that takes integer variables",
        )
    return ranges


def _points(problem: Problem, names: list[str], box: list[range]) -> Iterator[dict[str, Floats]]:
    ends = np.cumsum([problem[name].size for name in names])[:-1]
    for entries in product(*box):
        parts = np.split(np.array(entries, dtype=float), ends)
        # columns of the compiled form stack matrices column by column
        yield {
            name: part.reshape(problem[name].shape, order="F")
            for name, part in zip(names, parts, strict=True)
        }


def _judged(
    problem: Problem, point: dict[str, Floats], tolerance: float
) -> tuple[float, float] | None:
    """Return the objective twice, or None for a point outside a constraint."""
    for term in problem.constraints.values():
        if not term.relative_violation(point) <= tolerance:
            return None
    objective = problem.objective_at(point)
    return objective, objective


def _completed(
    problem: Problem, point: dict[str, Floats], tolerance: float
) -> tuple[float, float] | None:
    """Return objective and bound of the best completion, or None where there is none."""
    fixed: dict[str, Any] = {f"fixed {k}": problem[k] == v for k, v in point.items()}
    rest = relax_integrality(problem.with_constraints(fixed)).problem
    try:
        s = rest.solve(tolerance=tolerance)
    except Infeasible as e:
        certificate = e.certificate
        if certificate is None or not certificate.verify():
            raise
        return None
    return s.objective, s.bound


# Prove an integer optimum from the bounds of its relaxations.

LARGEST_TREE = 2_000
INTEGER = 1e-6


def tree_bound(problem: Problem, value: float, solver: str, tolerance: float) -> tuple[float, int]:
    r"""Return a bound that no integer point can beat, and the number of nodes it took.

    The tree is cut where a relaxation is infeasible or its verified bound is not better than
    ``value`` by more than ``tolerance``; so a bound near ``value`` proves that ``value`` is
    optimal, and a better one shows the point that refutes it. The solver needs no integer
    variables of its own: this is a second opinion on branch and bound, for small problems.

    Parameters
    ----------
    problem : Problem
        With integer variables.
    value : float
        Claimed optimum.
    solver : str
        Who solves the relaxations.
    tolerance : float
        Relative to max(1, \|value\|).

    Raises
    ------
    SolverFailure
        The tree grows too large.
    """
    sign = 1.0 if problem.sense == "minimize" else -1.0
    slack = tolerance * max(1.0, abs(value))
    worst, nodes = np.inf, 0
    open_nodes: list[dict[str, Any]] = [{}]
    while open_nodes:
        branches = open_nodes.pop()
        nodes += 1
        if nodes > LARGEST_TREE:
            raise SolverFailure(
                f"the search tree has more than {LARGEST_TREE} nodes",
                f"relaxations solved by {solver}",
                "check this instance with a solver that takes integer variables",
            )
        node = relax_integrality(problem.with_constraints(branches)).problem
        try:
            relaxed = node.solve(solver)
        except Infeasible:
            continue
        bound = sign * relaxed.bound
        split = _fractional(problem, relaxed.values)
        if bound >= sign * value - slack or split is None:
            worst = min(worst, bound)
            continue
        name, index, low = split
        entry = problem[name][index]
        label = f"branch {nodes}"
        open_nodes += [{**branches, label: entry <= low}, {**branches, label: entry >= low + 1.0}]
    return sign * worst, nodes


def _fractional(problem: Problem, values: Any) -> tuple[str, tuple[Any, ...], float] | None:
    """Return (name, index, floor) of the integer entry farthest from integers, if any is."""
    entry, farthest = None, INTEGER
    for name in sorted(problem.integers):
        x = np.asarray(values[name], dtype=float)
        away = np.abs(x - np.round(x))
        index = np.unravel_index(int(away.argmax()), away.shape)
        if away[index] > farthest:
            entry, farthest = (name, tuple(map(int, index)), float(np.floor(x[index]))), away[index]
    return entry


# Check what an instance says about itself, with solvers that did not say it.

# (is it as stated, what was found), and the optimum and gap where a solver found one
Answer = tuple[bool, str] | tuple[bool, str, float, float]

# Largest relative difference between the stated value and what a solver finds.
AGREEMENT = 1e-6
# Relative residuals asked of the solver that certifies, at most and at least, and of those that check.
CERTIFYING, FINEST, CHECKING = 1e-8, 1e-9, 1e-7


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Attributes
    ----------
    what : str
        What it was.
    ok : bool
        Whether it is as stated.
    detail : str
        What was found.
    value, gap : float or None
        Optimum and relative gap that a solver found.
    """

    what: str
    ok: bool
    detail: str
    value: float | None = None
    gap: float | None = None

    def __str__(self) -> str:
        return f"{'ok ' if self.ok else 'NO '} {self.what}: {self.detail}"


@dataclass(frozen=True)
class Certification:
    """All that was looked at for one instance.

    Attributes
    ----------
    instance : Instance
        What was checked.
    checks : tuple of Check
        In the order they were made.
    seconds : float
        Wall time.

    Examples
    --------
    >>> import optfair as of
    >>> found = of.library.certify("textbook/diet")
    >>> found.ok, round(found.value, 6), str(found.checks[0])
    (True, 88.2, 'ok  class: LP')
    """

    instance: Instance
    checks: tuple[Check, ...]
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether every check passed."""
        return all(check.ok for check in self.checks)

    @property
    def value(self) -> float | None:
        """Optimum that the certifying solver found in this run, None where there is none."""
        return next((c.value for c in self.checks if c.value is not None), None)

    @property
    def gap(self) -> float | None:
        """Relative gap of that optimum."""
        return next((c.gap for c in self.checks if c.value is not None), None)

    def __bool__(self) -> bool:
        return self.ok

    def __repr__(self) -> str:
        head = f"{self.instance.name}: {'certified' if self.ok else 'NOT certified'}"
        return "\n".join([head, *(f"  {check}" for check in self.checks)])

    def to_dict(self) -> dict[str, Any]:
        """Return the outcome, for JSON output."""
        return {
            "name": self.instance.name,
            "class": self.instance.problem_class,
            "certified": self.ok,
            "infeasible": self.instance.infeasible is not None,
            "value": self.value,
            "gap": self.gap,
            "checks": [asdict(check) for check in self.checks],
            "seconds": self.seconds,
        }


@checked(instance=one_of(str, Instance))
def certify(instance: Instance | str) -> Certification:
    """Check everything an instance's file says.

    The class and its certificate; then the optimum, by the solver that certifies it and by
    each solver that checks it; or the conflict, by their certificates of infeasibility. For an
    integer optimum "enumeration" is a solver too: it looks at every integer point.

    A nonconvex instance needs a verified witness and the refusal of every solver of convex
    problems. Its optimum is proved by a global solver, or by a solver of convex problems
    through the model's convex form; where the model has none, through the semidefinite
    relaxation, with a point that meets its bound.

    Parameters
    ----------
    instance : Instance or str
        Or its name.

    Returns
    -------
    Certification
        True when every check passed.

    Raises
    ------
    DataError, DeclarationError
        The instance cannot be declared.

    Examples
    --------
    >>> import optfair as of
    >>> bool(of.library.certify("textbook/knapsack"))
    True
    """
    begin = time.perf_counter()
    known = load(instance) if isinstance(instance, str) else instance
    problem = known.problem()
    own = str(problem.problem_class)
    checks = [
        Check("class", own == known.problem_class, own),
        _attempt("certificate", lambda: _certificate(problem)),
    ]
    if not problem.problem_class.convex:
        checks.append(_attempt("refused", lambda: _refusals(problem)))
    if known.optimum is not None:
        checks += _optimum_checks(problem, known.optimum)
    if known.infeasible is not None:
        checks += _conflict_checks(problem, known.infeasible)
    return Certification(known, tuple(checks), time.perf_counter() - begin)


def _attempt(what: str, look: Callable[[], Answer]) -> Check:
    """Return a check; an error fails it and says why."""
    try:
        return Check(what, *look())
    except OptfairError as e:
        return Check(what, False, " ".join(str(e).split()))


def _certificate(problem: Problem) -> Answer:
    verdict = problem.certificate.verify()
    return bool(verdict), f"{problem.certificate}, {verdict}"


def _refusals(problem: Problem) -> Answer:
    convex_only = [p for p in profiles().values() if not p.nonconvex]
    takers = [p.name for p in convex_only if p.accepts(problem)]
    if takers:
        return False, f"taken by {', '.join(takers)}"
    return True, f"by all {len(convex_only)} solvers of convex problems"


def _optimum_checks(problem: Problem, optimum: Optimum) -> list[Check]:
    first = optimum.certified_by
    # a bound in exact arithmetic pays for what the multipliers leave: ask for as much as is stated
    asked = min(CERTIFYING, max(optimum.gap, FINEST))
    certifying = lambda: _solved(problem, optimum, first, asked, optimum.gap)
    checks = [_attempt(f"certified by {first}", certifying)]
    independent = [name for name in optimum.checked_by if name != optimum.certified_by]
    if not independent:
        checks.append(Check("checked", False, "no other solver is named in checked_by"))
    for name in independent:
        look = lambda name=name: _checked(problem, optimum, name)
        checks.append(_attempt(f"checked by {name}", look))
    return checks


def _solved(
    problem: Problem, optimum: Optimum, solver: str, tolerance: float, gap: float
) -> Answer:
    if solver == ENUMERATION:
        return _enumerated(problem, optimum, gap)
    s = solved_with(problem, solver, tolerance)
    above = s.residuals().above(s.certificate.tolerance)
    ok = not above and s.gap <= gap and _agrees(s.objective, optimum.value)
    detail = f"{s.objective:.10g}, gap {s.gap:.1e}, {'; '.join(above) or s.grade}"
    return ok, detail, s.objective, s.gap


def solved_with(problem: Problem, solver: str, tolerance: float) -> Solution:
    """Solve; for a nonconvex problem that the solver does not take, in a convex formulation.

    Parameters
    ----------
    problem : Problem
        What to solve.
    solver : str
        Name of a solver.
    tolerance : float
        Relative residuals asked of it.

    Returns
    -------
    Solution
        Of the problem, or of a convex form with the same optimum.
    """
    if problem.problem_class.convex or profile(solver).accepts(problem):
        return problem.solve(solver, tolerance=tolerance)
    form = getattr(problem, "convex_form", None)
    if form is not None:
        solution: Solution = form().solve(solver, tolerance=tolerance)
        return solution
    relaxation = shor(problem)
    return relaxation.recover(relaxation.problem.solve(solver, tolerance=tolerance))


def _enumerated(problem: Problem, optimum: Optimum, gap: float) -> Answer:
    best = enumerated(problem, CERTIFYING)
    ok = best.gap <= gap and _agrees(best.objective, optimum.value)
    detail = f"{best.objective:.10g}, gap {best.gap:.1e}, {best.feasible} of {best.points} points"
    return ok, detail, best.objective, best.gap


def _checked(problem: Problem, optimum: Optimum, solver: str) -> Answer:
    if solver == ENUMERATION:
        return _enumerated(problem, optimum, CHECKING)
    if problem.integers and not profile(solver).accepts(problem):
        bound, nodes = tree_bound(problem, optimum.value, solver, AGREEMENT)
        return _agrees(bound, optimum.value), f"bound {bound:.10g} from {nodes} relaxations"
    return _solved(problem, optimum, solver, CHECKING, CHECKING)


def _agrees(value: float, stated: float) -> bool:
    return abs(value - stated) <= AGREEMENT * (abs(stated) or 1.0)


def _conflict_checks(problem: Problem, known: Infeasibility) -> list[Check]:
    solvers = (known.certified_by, *known.checked_by)
    looks = {name: lambda name=name: _conflict(problem, known, name) for name in solvers}
    return [_attempt(f"infeasible by {name}", look) for name, look in looks.items()]


def _conflict(problem: Problem, known: Infeasibility, solver: str) -> Answer:
    try:
        s = problem.solve(solver)
    except Infeasible as e:
        if e.certificate is None:
            return False, "reported without a certificate"
        verdict = e.certificate.verify()
        names, stated = set(e.conflict), set(known.conflict)
        # an interior point may mix certificates, and then names more than it needs
        ok = bool(verdict) and (
            names == stated if solver == known.certified_by else names >= stated
        )
        return ok, f"conflict of {', '.join(map(repr, e.conflict))}, {verdict}"
    return False, f"solved with objective {s.objective:.10g}"
