"""What is wrong with a problem: findings on infeasible, unbounded, nonconvex terms and on numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from optfair.backends.farkas import find_ray
from optfair.backends.request import Request
from optfair.backends.solve import solve
from optfair.backends.unattained import UnattainedOptimum, unattained
from optfair.core.expressions import check_parameters
from optfair.core.problem import Problem, check_problem
from optfair.core.term import family
from optfair.diagnosis.conflict import Conflict
from optfair.diagnosis.infeasible import excluded_finding, infeasible_findings
from optfair.diagnosis.report import Clock, Diagnosis, Finding, listed, plain
from optfair.diagnosis.scaling import Scaling, measure_scaling
from optfair.diagnosis.system import FeasiblePoint, System
from optfair.errors import DeclarationError, Infeasible, OptfairError, Unbounded, nearest
from optfair.numbers import check_positive, check_seconds, checked

if TYPE_CHECKING:
    from optfair.core.certificate import NonconvexityWitness
    from optfair.core.solution import Solution

# Findings on terms that are not convex, or not known to be: the witness with its numbers.


def nonconvex_finding(problem: Problem) -> Finding:
    """Return which terms keep the problem from being convex, with the witness if there is one."""
    suspects = [t for t in problem.terms if not t.evidence.problem_class.convex]
    lines = [str(t.evidence) for t in suspects]
    names = [t.name for t in suspects]
    witness = problem.witness
    remedy = (
        "write these terms in a convex form by the rules of disciplined convex programming,"
        " relax them, or ask for a local solution by name of a solver"
    )
    if witness is None:
        title = f"no proof of convexity and none against it: {', '.join(map(repr, names))}"
        return Finding(
            "nonconvexity",
            title,
            tuple(lines),
            remedies=(remedy,),
            numbers={"terms": names, "witness": None},
        )
    numbers = _numbers(problem, witness)
    if witness.term in problem.constraints:
        lines.append("two feasible points, and their midpoint breaks the constraint:")
        rows = [
            (k, f"violated by {numbers[k]:.6g}" if numbers[k] > witness.tolerance else "satisfied")
            for k in ("first", "second", "midpoint")
        ]
        head = ("point", repr(witness.term), "entries")
    else:
        lines.append(
            "two feasible points, and the objective between them is worse than their mean:"
        )
        rows = [(k, f"{numbers[k]:.6g}") for k in ("first", "second", "midpoint")]
        head = ("point", "objective", "entries")
    points = _points(witness)
    return Finding(
        "nonconvexity",
        f"the problem is not convex: {witness.term!r}",
        tuple(lines),
        head,
        tuple((*row, listed(points[row[0]])) for row in rows),
        (remedy,),
        witness,
        {
            "terms": names,
            "witness": {"term": witness.term, **numbers},
            "points": {k: plain(v) for k, v in points.items()},
        },
    )


def _points(witness: NonconvexityWitness) -> dict[str, dict[str, Any]]:
    first = {k: np.asarray(v, dtype=float) for k, v in witness.first.items()}
    second = {k: np.asarray(v, dtype=float) for k, v in witness.second.items()}
    middle = {k: (v + second[k]) / 2 for k, v in first.items()}
    return {"first": first, "second": second, "midpoint": middle}


def _numbers(problem: Problem, witness: NonconvexityWitness) -> dict[str, float]:
    """Return violations of the constraint, or objective values, at the three points."""
    points = _points(witness)
    if witness.term in problem.constraints:
        term = problem.constraints[witness.term]
        return {k: float(np.max(term.violation(v), initial=0.0)) for k, v in points.items()}
    return {k: problem.objective_at(v) for k, v in points.items()}


# Findings on numbers: scaling out of proportion, and what could be left out.

SHOWN = 10


def scaling_finding(scaling: Scaling) -> Finding | None:
    """Return what is out of proportion, None when nothing is."""
    if not scaling.out_of_proportion:
        return None
    rows = [
        ("constraint", name, str(scaling.terms[name]), str(scaling.sides[name]))
        for name in scaling.worst_terms[:SHOWN]
    ]
    rows += [("row", f"{name}, row {i}", str(r), "") for name, i, r in scaling.rows]
    wide = sorted(scaling.columns, key=lambda k: -scaling.columns[k].ratio)
    rows += [("variable", name, str(scaling.columns[name]), "") for name in wide[:SHOWN]]
    if any(scaling.columns[name].ratio > 1e4 for name in wide):
        rows += [("entry", name, f"up to {r.largest:.1e}", "") for name, r in scaling.entries]
    rows.append(("objective", "", str(scaling.objective), ""))
    return Finding(
        "scaling",
        "the numbers are out of proportion: solvers lose digits on such data",
        scaling.out_of_proportion,
        ("what", "name", "coefficients", "right-hand side"),
        tuple(rows),
        scaling.suggestions,
        scaling,
        scaling.to_dict(),
    )


def redundancy_finding(scaling: Scaling) -> Finding | None:
    """Return rows that repeat others and variables that nothing holds, None without any."""
    lines = [
        f"{second!r} has a row that {'repeats another of its own' if first == second else f'is also in {first!r}'}"
        for first, second in scaling.copies
    ]
    if scaling.unused:
        lines.append(f"no term uses {', '.join(map(repr, scaling.unused))}")
    if scaling.free and scaling.terms:  # without any constraint that is what was meant
        lines.append(f"no constraint uses {', '.join(map(repr, scaling.free))}")
    if not lines:
        return None
    return Finding(
        "redundancy",
        "some of it could be left out, or is not what was meant",
        tuple(lines),
        evidence=scaling,
        numbers={
            "copies": [list(pair) for pair in scaling.copies],
            "unused": list(scaling.unused),
            "free": list(scaling.free),
        },
    )


# Findings on an unbounded problem: the ray, and which variables move along it.


def unbounded_finding(
    problem: Problem, point: FeasiblePoint | None, clock: Clock
) -> Finding | None:
    """Return the ray of an unbounded problem as a finding, None when there is none."""
    values = None if point is None else point.values
    ray = clock.run(lambda: find_ray(problem, values, clock.left))
    if ray is None:
        return None
    direction = ray.direction
    moving = {k: v for k, v in direction.items() if np.abs(v).max(initial=0.0) > 0.0}
    terms = ", ".join(map(repr, problem.objective))
    word = "falls" if problem.sense == "minimize" else "grows"
    along = listed(moving, nonzero=True, label=problem.entry_label)
    lines = [f"along {along} it {word} by {abs(ray.rate):.6g} per step"]
    proved = bool(ray.verify())  # a point that is feasible to a tolerance is no proof
    if point is None:
        lines.append("no feasible point is known: the problem is unbounded or infeasible")
    elif proved:
        lines.append("the ray starts at a feasible point and never leaves the constraints")
    else:
        lines.append("the ray starts at a point that is feasible, as far as the tolerance goes")
    if problem.integers and ray.period:
        lines.append(f"integer variables are integer again after every {ray.period} steps of it")
    elif problem.integers:
        lines.append("integer variables were taken as continuous: they are not integer along it")
    names = ", ".join(map(repr, moving))
    whose = "the objective" if ray.period else "without integrality the objective"
    title = f"{whose} ({terms}) improves without limit"
    if ray.period and not proved:
        title = f"{whose} ({terms}) may improve without limit: no feasible point is proved"
    return Finding(
        "ray",
        title,
        tuple(lines),
        remedies=(f"bound {names}, or add a constraint on which they move together",),
        evidence=ray,
        numbers={
            "direction": plain(moving),
            "moving": list(moving),
            "rate": ray.rate,
            "point": None if point is None else plain(point.values),
        },
    )


WITHOUT_RAY = "no ray is known: it may improve along curves alone, as a logarithm does"


def limitless_finding(e: Unbounded) -> Finding:
    """Return that an objective improves without limit, along curves perhaps, as a finding."""
    return Finding(
        "unbounded",
        e.cause,
        (e.evidence,) if e.ray is not None else (e.evidence, WITHOUT_RAY),
        remedies=(e.remedy,),
        evidence=e.certificate,
    )


def unattained_finding(problem: Problem, proof: UnattainedOptimum) -> Finding:
    """Return that no point attains an optimum as a finding."""
    worse = "above" if problem.sense == "minimize" else "below"
    return Finding(
        "unattained",
        f"no point attains {proof.value:.10g}, and no multipliers exclude it",
        (
            f"every feasible point is {worse} it, by {proof.proof}, recomputed on the compiled data",
            f"the optimum is it, or {worse} it by no more than the point that was found",
        ),
        remedies=("bound the variables: a point near the optimum may be far out",),
        evidence=proof,
        numbers={"limit": proof.value},
    )


# The verb ``diagnose``: why a problem has no solution, with evidence.


@checked(problem=check_problem, tolerance=check_positive, time_limit=check_seconds)
def diagnose(
    problem: Problem,
    *,
    keep: str | Iterable[str] = (),
    tolerance: float = 1e-7,
    time_limit: float | None = None,
) -> Diagnosis:
    r"""Say why a problem has no solution, or that it has one, with evidence.

    * Infeasible: an irreducible set of named constraints that exclude each other, proved by
      a Farkas certificate :math:`A^T z = 0,\; z \in K^*,\; b^T z < 0`, and the least
      relaxation :math:`\min \sum_k w_k \|s_k\|_1` that lets them hold.
    * Weakly infeasible: no point satisfies semidefinite constraints though no vector separates
      them, proved by facial reduction. An optimum that no point attains is told in the same way.
    * Unbounded: a ray :math:`-Ad \in K,\; Pd = 0,\; q^T d < 0` from a feasible point, or a feasible
      point and that no multipliers :math:`A^T z = -q,\; z \in K^*` exist.
    * Not convex: two feasible points with a bad midpoint.
    * Out of proportion: the range of the coefficients by constraint and variable.

    Class: every class with an open solver; of a problem that is not convex, the convex
    constraints are looked at.

    Parameters
    ----------
    problem : Problem
        What to look at; it is not changed.
    keep : str or iterable of str
        Hard constraints, or families of them: they are neither blamed nor relaxed, conflicts
        and relaxations are those of the others beside them.
    tolerance : float
        Relative violation below which a point counts as feasible.
    time_limit : float, optional
        Wall seconds over the whole call; what was found by then is returned, as after
        Ctrl-C.

    Returns
    -------
    Diagnosis
        Findings in the names of the problem; each can be verified again.

    Raises
    ------
    DeclarationError
        Not a problem, no constraint of a name to keep, or a tolerance or time limit that is not
        positive.

    Examples
    --------
    >>> import cvxpy as cp, optfair as of
    >>> from optfair.diagnosis.diagnose import diagnose
    >>> x = cp.Variable(2, name="x")
    >>> rows = [cp.sum(x) >= 3, x <= 1, x >= 0]
    >>> p = of.from_cvxpy(cp.Problem(cp.Minimize(x[0]), rows), ["demand", "capacity", "sign"])
    >>> d = diagnose(p)
    >>> d.verdict, d.conflict
    ('infeasible', ('demand', 'capacity'))
    >>> print(d["conflict"].lines[0])
    smallest: every smaller set of constraints has a feasible point
    >>> round(d["relaxation"].numbers["alone"]["demand"], 6), bool(d.verify())
    (1.0, True)
    >>> diagnose(p, keep="demand").conflict
    ('capacity',)

    References
    ----------
    Chinneck: Feasibility and Infeasibility in Optimization, Springer 2008.
    """
    check_parameters(problem.terms)
    Request(tolerance=tolerance, time_limit=time_limit)  # refuses bad options before any work
    examination = _Examination(problem, tolerance, _kept(problem, keep), Clock(time_limit))
    verdict = examination.clock.run(examination.verdict)
    return Diagnosis(
        problem,
        verdict or examination.so_far,
        tuple(examination.findings),
        tuple(examination.checked),
        examination.clock.stopped if examination.cut or verdict is None else "",
        examination.clock.seconds,
    )


def _kept(problem: Problem, keep: Any) -> frozenset[str]:
    try:
        names = frozenset([keep] if isinstance(keep, str) else keep)
    except TypeError:
        raise DeclarationError(
            f"keep={keep!r} is no name and no list of names", remedy="name constraints to keep"
        ) from None
    known = {*problem.constraints, *map(family, problem.constraints)}
    for name in names:
        if name not in known:
            raise DeclarationError(
                f"no constraint {name!r} to keep", remedy=nearest(str(name), known)
            )
    return names


@dataclass
class _Examination:
    """One diagnosis while it runs: what was found stays when it is stopped."""

    problem: Problem
    tolerance: float
    keep: frozenset[str]
    clock: Clock
    findings: list[Finding] = field(default_factory=list)
    checked: list[str] = field(default_factory=list)
    so_far: str = "unknown"
    cut: bool = False

    def verdict(self) -> str:
        """Look at convexity, then the solution, then the numbers."""
        p = self.problem
        if not p.problem_class.convex:
            self._convexity()
        else:
            self._solution()
        scaled = self._numbers()
        if self.so_far in ("fine", "unknown") and scaled:
            self.so_far = "badly scaled"
        self.cut = bool(self.clock.stopped)
        return self.so_far

    def _convexity(self) -> None:
        p = self.problem
        self.checked.append("convexity of every term")
        finding = nonconvex_finding(p)
        self.findings.append(finding)
        self.so_far = "unverified" if finding.evidence is None else "nonconvex"
        convex = {k: t for k, t in p.constraints.items() if t.evidence.problem_class.convex}
        rest = p.with_terms({}, convex)
        findings = infeasible_findings(System(rest, self.tolerance, self.keep), self.clock)
        self.checked.append("feasibility of the convex constraints")
        if any(f.kind == "conflict" for f in findings):
            self.findings += findings
            self.so_far = self._excluded(findings)
        elif (none := excluded_finding(p, self.keep, self.clock)) is not None:
            self.checked.append("all constraints, over boxes")
            self.findings.append(none)
            self.so_far = "infeasible"

    @staticmethod
    def _excluded(findings: Sequence[Finding]) -> str:
        """Return what conflicts say, "unknown" where that is a solver's word."""
        conflicts = [f.evidence for f in findings if f.kind == "conflict"]
        if not any(isinstance(c, Conflict) and not c.claimed for c in conflicts):
            return "unknown"
        return "weakly infeasible" if any(f.numbers.get("weak") for f in findings) else "infeasible"

    def _solution(self) -> None:
        p = self.problem
        self.checked.append("convexity of every term")
        if not any(t.scope for t in p.terms):
            self._feasibility(())
            return
        try:
            # half of the time stays for the reasons
            half = None if self.clock.left is None else max(1e-3, self.clock.left / 2)
            solution = solve(p, tolerance=self.tolerance, time_limit=half)
        except OptfairError as e:
            self.checked.append("a solution")
            if isinstance(e, Infeasible):
                self._feasibility((e.conflict,), e)
            else:  # a solver gives up on conflicts and on rays as on bad numbers
                self._boundedness(e)
        else:
            self.checked.append("a solution")
            self._solved(solution)

    def _solved(self, solution: Solution) -> None:
        if solution.status.termination == "interrupted":
            self.clock.interrupted = True
        optimal = solution.status.termination == "optimal"
        self.so_far = "fine" if optimal else "unknown"
        edge = unattained(solution) if optimal else None
        far = optimal and edge is None and not solution.attained
        state = "an optimum" if optimal else "a feasible point"
        state = "a point near an optimum that none attains" if far else state
        self.findings.append(
            Finding(
                "solution",
                f"{state} was found by {solution.solver}: {solution.objective:.10g}",
                (
                    f"bound {solution.bound:.10g}, gap {solution.gap:.1e}",
                    *(["no point attains the bound, which it tends to far out"] * far),
                ),
                evidence=solution.certificate,
                numbers={"objective": solution.objective, "bound": solution.bound},
            )
        )
        if edge is not None:
            self.findings.append(unattained_finding(self.problem, edge))

    def _feasibility(
        self, hints: tuple[tuple[str, ...], ...], e: OptfairError | None = None
    ) -> None:
        """Look for a conflict."""
        problem, within = self.problem.separated(self.clock.left)
        system = System(problem, self.tolerance, self.keep)
        known = tuple(h for h in hints if h and set(h) <= {*system.names, *system.given})
        findings = infeasible_findings(system, self.clock, known, within)
        self.checked.append("feasibility of the constraints and of parts of them")
        self.findings += findings
        if any(f.kind == "conflict" for f in findings):
            self.so_far = self._excluded(findings)
        elif e is not None:
            self._unknown(e)
        elif findings:
            self.so_far = "fine"

    def _boundedness(self, e: OptfairError) -> None:
        """Look for a conflict, and for a ray from a feasible point where there is none."""
        system = System(self.problem, self.tolerance, self.keep)
        answer = system.ask(system.names, self.clock)
        if answer.infeasible:
            self._feasibility((answer.names,), e)
            return
        try:
            finding = unbounded_finding(self.problem, answer.point, self.clock)
        except OptfairError:  # it cannot be compiled as a cone program
            finding = None
        self.checked.append("a ray of improvement from a feasible point")
        if finding is None and isinstance(e, Unbounded):
            finding = limitless_finding(e)
        if finding is None:
            self._unknown(e)
        else:
            self.findings.append(finding)
            self.so_far = "unbounded" if finding.verify() else "unknown"

    def _unknown(self, e: OptfairError) -> None:
        lines = tuple(line for line in (e.evidence,) if line)
        remedies = tuple(line for line in (e.remedy,) if line)
        title = f"not explained: {e.cause}"
        self.findings.append(Finding("unknown", title, lines, remedies=remedies))

    def _numbers(self) -> bool:
        """Measure the scaling; return whether it is out of proportion."""
        scaling = self.clock.run(lambda: measure_scaling(self.problem, self.clock))
        if scaling is None:
            return False
        self.checked.append("range of the numbers, repeated rows, unused variables")
        bad, redundant = scaling_finding(scaling), redundancy_finding(scaling)
        self.findings += [f for f in (bad, redundant) if f is not None]
        return bad is not None
