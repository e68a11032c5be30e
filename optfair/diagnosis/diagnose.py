"""The verb ``diagnose``: why a problem has no solution, with evidence."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from optfair.backends.request import Request
from optfair.backends.solve import solve
from optfair.core.parameters import check_parameters
from optfair.core.problem import Problem
from optfair.diagnosis.clock import Clock
from optfair.diagnosis.finding import Finding
from optfair.diagnosis.infeasible import infeasible_findings
from optfair.diagnosis.nonconvex import nonconvex_finding
from optfair.diagnosis.numerics import redundancy_finding, scaling_finding
from optfair.diagnosis.report import Diagnosis
from optfair.diagnosis.scaling import measure_scaling
from optfair.diagnosis.system import FeasiblePoint, System
from optfair.diagnosis.unbounded import unbounded_finding
from optfair.errors import DeclarationError, Infeasible, OptfairError, SolverFailure, Unbounded

if TYPE_CHECKING:
    from optfair.core.solution import Solution

__all__ = ["diagnose"]


def diagnose(
    problem: Problem, *, tolerance: float = 1e-7, time_limit: float | None = None
) -> Diagnosis:
    r"""Say why a problem has no solution, or that it has one, with evidence.

    * Infeasible: an irreducible set of named constraints that exclude each other, proved by
      a Farkas certificate :math:`A^T z = 0,\; z \in K^*,\; b^T z < 0`, and the least
      relaxation :math:`\min \sum_k w_k \|s_k\|_1` that lets them hold.
    * Unbounded: a ray :math:`-Ad \in K,\; Pd = 0,\; q^T d < 0` from a feasible point.
    * Not convex: two feasible points with a bad midpoint.
    * Out of proportion: the range of the coefficients by constraint and variable.

    Class: every class with an open solver; of a problem that is not convex, the convex
    constraints are looked at.

    Parameters
    ----------
    problem : Problem
        What to look at; it is not changed.
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
        Not a problem, or a tolerance or time limit that is not positive.

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

    References
    ----------
    Chinneck: Feasibility and Infeasibility in Optimization, Springer 2008.
    """
    if not isinstance(problem, Problem):
        raise DeclarationError(
            f"diagnose got a {type(problem).__name__}",
            remedy="give an optfair problem; optfair.from_cvxpy wraps a cvxpy.Problem",
        )
    check_parameters(problem.terms)
    Request(tolerance=tolerance, time_limit=time_limit)  # refuses bad options before any work
    examination = _Examination(problem, tolerance, Clock(time_limit))
    verdict = examination.clock.run(examination.verdict)
    return Diagnosis(
        problem,
        verdict or examination.so_far,
        tuple(examination.findings),
        tuple(examination.checked),
        examination.clock.stopped if examination.cut or verdict is None else "",
        examination.clock.seconds,
    )


@dataclass
class _Examination:
    """One diagnosis while it runs: what was found stays when it is stopped."""

    problem: Problem
    tolerance: float
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
        found = infeasible_findings(System(rest, self.tolerance), self.clock)
        self.checked.append("feasibility of the convex constraints")
        if any(f.kind == "conflict" for f in found):
            self.findings += found
            self.so_far = "infeasible"

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
        except Infeasible as e:
            self.checked.append("a solution")
            self._feasibility((e.conflict,), e)
        except Unbounded as e:
            self.checked.append("a solution")
            self._boundedness(e)
        except OptfairError as e:
            self.checked.append("a solution")
            if isinstance(e, SolverFailure) and e.claim == "unbounded":
                self._boundedness(e)
            else:
                self._failure(e)
        else:
            self.checked.append("a solution")
            self._solved(solution)

    def _solved(self, solution: Solution) -> None:
        if solution.status.termination == "interrupted":
            self.clock.interrupted = True
        optimal = solution.status.termination == "optimal"
        self.so_far = "fine" if optimal else "unknown"
        state = "an optimum" if optimal else "a feasible point"
        self.findings.append(
            Finding(
                "solution",
                f"{state} was found by {solution.solver}: {solution.objective:.10g}",
                (f"bound {solution.bound:.10g}, gap {solution.gap:.1e}",),
                evidence=solution.certificate,
                numbers={"objective": solution.objective, "bound": solution.bound},
            )
        )

    def _feasibility(
        self, hints: tuple[tuple[str, ...], ...], e: OptfairError | None = None
    ) -> bool:
        """Look for a conflict; return whether there is one."""
        problem, within = self.problem.separated(self.clock.left)
        system = System(problem, self.tolerance)
        known = tuple(h for h in hints if h and set(h) <= set(system.names))
        found = infeasible_findings(system, self.clock, known, within)
        self.checked.append("feasibility of the constraints and of parts of them")
        self.findings += found
        conflict = any(f.kind == "conflict" for f in found)
        if conflict:
            self.so_far = "infeasible"
        elif e is not None:
            self._unknown(e)
        elif found:
            self.so_far = "fine"
        return conflict

    def _boundedness(self, e: OptfairError | None) -> bool:
        """Look for a ray from a feasible point; return whether there is one."""
        system = System(self.problem, self.tolerance)
        answer = system.ask(system.names, self.clock)
        if answer.infeasible:
            return self._feasibility((answer.names,), e)
        finding = self._ray(answer.point)
        self.checked.append("a ray of improvement from a feasible point")
        if finding is None:
            if e is not None:
                self._unknown(e)
            return False
        self.findings.append(finding)
        self.so_far = "unbounded" if finding.verify() else "unknown"
        return True

    def _ray(self, point: FeasiblePoint | None) -> Finding | None:
        try:
            return unbounded_finding(self.problem, point, self.clock)
        except OptfairError:  # it cannot be compiled as a cone program
            return None

    def _failure(self, e: OptfairError) -> None:
        """Look for a conflict and a ray: a solver gives up on both as on bad numbers."""
        system = System(self.problem, self.tolerance)
        answer = system.ask(system.names, self.clock)
        if answer.infeasible:
            self._feasibility((answer.names,), e)
        elif not self._boundedness(None):
            self._unknown(e)

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
