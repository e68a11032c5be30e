"""Certificates: statements that can be verified again without a solver, and what each rests on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from math import floor, isinf, log10
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from optfair.core import display
from optfair.core.composition import constraint_term, objective_term
from optfair.core.expressions import Values, check_parameters
from optfair.core.term import ConstraintTerm
from optfair.core.verbs import CertificateVerbs
from optfair.errors import Infeasible, say_names
from optfair.numbers import check_number, checked
from optfair.proofs.unpaid import Unpaid

if TYPE_CHECKING:
    from optfair.core.problem import Problem
    from optfair.core.solution import Solution

#: A point that violates constraints by no more is feasible up to rounding.
FEASIBLE = 1e-12
#: Why a certificate that holds is no proof of a problem.
OTHER = "it is a proof of another problem"
#: A number of this size is no optimum, and no coordinate of one.
BEYOND = 1e15


@dataclass(frozen=True)
class Grade:
    """How far a claim is proved.

    Attributes
    ----------
    word : str
        What it is worth is its `meaning`.
    radius : float
        Infinite unless within.
    by : str
        Who reports it.
    because : str
        Why it is not more.

    Examples
    --------
    >>> print(PROVED, within(123456.0), reported("scip"), sep="; ")
    proved; proved for |x| ≤ 1.2e+05; reported by scip
    """

    word: Literal["proved", "within", "reported"] = "proved"
    radius: float = float("inf")
    by: str = ""
    because: str = ""

    @property
    def sound(self) -> bool:
        """Whether it is a proof, not somebody's word."""
        return self.word != "reported"

    @property
    def limits(self) -> str:
        """The radius in words, rounded down; empty where there is none."""
        if self.word != "within":
            return ""
        if isinf(self.radius) or self.radius == 0.0:
            return f"for |x| ≤ {self.radius:g}"
        unit = 10.0 ** (floor(log10(self.radius)) - 1)
        return f"for |x| ≤ {floor(self.radius / unit) * unit:.1e}"

    @property
    def meaning(self) -> str:
        """What is claimed, in a sentence, and why it is not more."""
        meant = {
            "proved": "it holds in exact arithmetic for the declared numbers",
            "within": "no feasible point whose entries are that small is better by more than the"
            " tolerance",
            "reported": "it is somebody's word, which nothing here proves",
        }[self.word]
        return f"{meant}: {self.because}" if self.because else meant

    def by_default(self, name: str) -> Grade:
        """Return the grade; what nobody is known to report, somebody with this name reports."""
        known = self.sound or self.by not in ("", "nobody")
        return self if known else reported(name, self.because)

    def __str__(self) -> str:
        if self.word == "reported":
            return f"reported by {self.by or 'nobody'}"
        return f"proved {self.limits}".strip()

    def to_dict(self) -> dict[str, object]:
        """Return the grade, ready for JSON."""
        return {
            "grade": str(self),
            "sound": self.sound,
            "radius": None if isinf(self.radius) else self.radius,
            "by": self.by,
            "because": self.because,
        }


PROVED = Grade()
UNKNOWN = Grade("reported")


def within(radius: float, because: str = "") -> Grade:
    """Return the grade of what holds for entries of at most this size."""
    return Grade("within", radius, because=because)


def reported(by: str, because: str = "") -> Grade:
    """Return the grade of what somebody says."""
    return Grade("reported", by=by, because=because)


# Certificates: statements about a problem that can be verified again without a solver.


@dataclass(frozen=True)
class Verdict:
    """Outcome of a verification; false with the reasons when something is off.

    Attributes
    ----------
    ok : bool
        Whether it was recomputed here and holds, as far as the grade says. False for what
        rests on a solver's word, however good the numbers.
    reasons : tuple of str
        What is off.
    grade : Grade
        What the claim rests on.
    """

    ok: bool
    reasons: tuple[str, ...] = ()
    grade: Grade = PROVED

    def __bool__(self) -> bool:
        return self.ok

    @property
    def everywhere(self) -> Verdict:
        """The verdict where other numbers are stated: a radius says nothing about them."""
        if not (self.ok and self.grade.word == "within"):
            return self
        return Verdict(False, (f"it holds {self.grade.limits} only: {self.grade.because}",))

    def __str__(self) -> str:
        if self.ok:
            return f"verified {self.grade.limits}".strip()
        return "NOT verified: " + "; ".join(self.reasons)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return display.html_verdict(self)


def _declared(value: Any, what: str) -> Any:
    from optfair.core.problem import check_problem

    return check_problem(value, what)


class Certificate(CertificateVerbs, ABC):
    """A statement with the data that proves it."""

    #: what is claimed, in a sentence; empty where the certificate's text is one
    states: ClassVar[str] = ""
    #: whether it is about the objective, too
    of_objective: ClassVar[bool] = True

    @property
    def claim(self) -> str:
        """What is claimed."""
        return self.states

    @property
    def means(self) -> str:
        """What the proof was made by; empty where the certificate's text says it."""
        return ""

    @abstractmethod
    def verify(self) -> Verdict:
        """Recompute the proof from data."""

    @checked(problem=_declared)
    def faults(self, problem: Problem) -> tuple[str, ...]:
        """Return why this is no proof about a problem, empty when it is one.

        Verified is what it says, and that this is the problem: the same program under the same
        names, with the same numbers. That no point satisfies some constraints is true of every
        problem that has these among its own.

        Examples
        --------
        >>> import cvxpy as cp, optfair as of
        >>> x = cp.Variable(name="x")
        >>> def above(least):
        ...     return of.from_cvxpy(cp.Problem(cp.Minimize(x), [x >= least]))
        >>> proof = above(1).solve().certificate
        >>> proof.faults(above(1)), proof.faults(above(2))
        ((), ('it is a proof of another problem',))
        """
        return self._faults(problem)

    def _faults(self, problem: Problem) -> tuple[str, ...]:
        from optfair.core.identity import is_part, same_program

        own = self.about
        if own is None:
            return ("it does not say which problem it is about",)
        same = same_program(own, problem) if self.of_objective else is_part(own, problem)
        return self.verify().reasons if same else (OTHER,)

    @property
    def about(self) -> Problem | None:
        """The problem that it is about, None where it knows numbers alone."""
        return getattr(self, "problem", None)


@dataclass(frozen=True, eq=False, repr=False)
class Curvature(Certificate):
    """Every term is convex, by composition rules or by the eigenvalues of its Hessian."""

    problem: Problem
    states = "every term is convex"

    def verify(self) -> Verdict:
        """Build every term and analyse it anew; the class may not be below the declared one."""
        reasons = []
        p = self.problem
        check_parameters(p.terms)
        builds = {id(t.build) for t in p.terms}
        for t in p.terms:
            if t.evidence.proof is not None:
                reasons += [f"{t.name!r}: {r}" for r in t.evidence.proof.verify().reasons]
                if any(id(b) not in builds for b in t.evidence.support):
                    reasons.append(f"{t.name!r} rests on terms that are gone")
                continue
            again = (
                constraint_term(t.name, t.build(), p.names)
                if isinstance(t, ConstraintTerm)
                else objective_term(t.name, t.build(), p.names, p.sense)
            ).evidence
            if not again.problem_class <= t.evidence.problem_class:
                reasons.append(f"{t.evidence} but analysis says {again}")
        if not p.problem_class.convex:
            reasons.append(f"the class is {p.problem_class}")
        return Verdict(not reasons, tuple(reasons))

    def __str__(self) -> str:
        return f"convex: {len(self.problem.terms)} terms with evidence"


@dataclass(frozen=True, eq=False, repr=False)
class NonconvexityWitness(Certificate):
    """Evidence that a problem is not convex.

    With a term name of a constraint: ``first`` and ``second`` are feasible and their
    midpoint violates that constraint. Of an objective term: both are feasible, and the
    objective at the midpoint is worse than the mean of its values at the ends. Feasible to
    rounding: what falls to 0 far out is within any tolerance there, and nowhere within it.
    """

    problem: Problem
    term: str
    first: Values
    second: Values
    tolerance: float = 1e-7
    states = "the problem is not convex"

    def __post_init__(self) -> None:
        say_names(self, first="value", second="value")

    def verify(self) -> Verdict:
        """Check both ends and the midpoint on the declared terms."""
        p = self.problem
        check_parameters(p.terms)
        reasons = []
        if self.term not in p.constraints and self.term not in p.objective:
            return Verdict(False, (f"{self.term!r} is not a term any more",))
        middle = {
            k: (np.asarray(self.first[k], dtype=float) + self.second[k]) / 2 for k in self.first
        }
        for label, point in (("first", self.first), ("second", self.second)):
            for name, t in p.constraints.items():
                off = t.relative_violation(point)
                if not off <= FEASIBLE:
                    reasons.append(f"the {label} point violates {name!r} by {off:.1e}")
        if self.term in p.constraints:
            off = p.constraints[self.term].relative_violation(middle)
            if not np.isfinite(off) or off <= 10 * self.tolerance:
                reasons.append(f"the midpoint satisfies {self.term!r}")
        else:
            sign = 1.0 if p.sense == "minimize" else -1.0
            ends = (p.objective_at(self.first) + p.objective_value(self.second)) / 2
            excess = sign * (p.objective_at(middle) - ends)
            if not (np.isfinite(excess) and excess > 10 * self.tolerance * max(1.0, abs(ends))):
                reasons.append("the objective is not worse at the midpoint")
        return Verdict(not reasons, tuple(reasons))

    def __str__(self) -> str:
        return f"two feasible points whose midpoint breaks {self.term!r}"


@dataclass(frozen=True)
class DualCheck:
    """What a dual proof says about given values and multipliers.

    Attributes
    ----------
    bound : float
        Bound on the declared optimum, recomputed.
    dual : float
        Relative dual residual.
    complementarity : float
        Relative size of the products of slacks and multipliers.
    relative : float or None
        The same, of curved cones also relative to the root of the sizes of what is multiplied.
    consistency : float
        Largest relative difference between named numbers and the ones that prove the bound.
    unpaid : Unpaid or None
        Columns without a bound whose residual is not exactly 0: the bound holds near the origin.
    free : tuple of str
        Names of the variables they belong to.
    reported : str
        Who says so, when the bound is somebody's word.
    unit : float
        Least size that an objective with these data is measured by.
    estimate : float or None
        What the bound is worth to somebody who takes the multipliers at their word.
    rows : float
        Largest violation of a compiled row, relative to its own terms.
    apart : bool
        Whether the bound rests on numbers of the proof alone, with which named multipliers are
        compared: these may then be loose without harm to the bound.
    face : float
        Largest entry of a compiled row that is 0 at every feasible point, relative to its terms.
    penalty : float
        What violations of compiled rows are worth at the multipliers.
    """

    bound: float
    dual: float
    complementarity: float = 0.0
    consistency: float = 0.0
    unpaid: Unpaid | None = None
    free: tuple[str, ...] = ()
    reported: str = ""
    unit: float = 1.0
    estimate: float | None = None
    rows: float = 0.0
    apart: bool = False
    face: float = 0.0
    relative: float | None = None
    penalty: float = 0.0


class DualProof(Protocol):
    """Proves a bound on the optimum of the declared problem."""

    @property
    def problem(self) -> Any:
        """The problem whose optimum it bounds; for any other it proves nothing."""

    @property
    def source(self) -> str:
        """Say "duality", or who reported the bound when it cannot be recomputed."""

    def check(self, values: Values, multipliers: Mapping[str, Any]) -> DualCheck:
        """Recompute the bound and its residuals."""


def recomputed(answer: Any, problem: Problem) -> DualCheck:
    """Return what the proof of one case says, where that is the problem the answer is about.

    Parameters
    ----------
    answer : Solution or Infeasible
        With its bound, or its certificate.
    problem : Problem
        The case.
    """
    from optfair.core.identity import same_program

    if isinstance(answer, Infeasible):
        refuted = answer.certificate is not None and not answer.certificate.faults(problem)
        return DualCheck(np.inf if refuted else -np.inf, 0.0, apart=True)
    if answer.proof is None or not same_program(answer.problem, problem):
        return DualCheck(-np.inf, np.inf)
    check: DualCheck = answer.proof.check(answer.values, answer.multipliers)
    return check


def least_check(cases: Iterable[DualCheck]) -> DualCheck:
    """Return the least bound of cases that leave nothing out, and the weakest that it rests on."""
    cases = tuple(cases)
    bound = min((c.bound for c in cases), default=np.inf)
    dual = max((c.dual for c in cases), default=0.0)
    apart = all(c.apart for c in cases)
    weak = [c for c in cases if c.reported or c.unpaid is not None]
    if not weak:
        return DualCheck(bound, dual, apart=apart)
    nothing: dict[str, Any] = {"complementarity": 0.0, "consistency": 0.0, "estimate": None}
    return replace(reduce(_weaker, weak), bound=bound, dual=dual, apart=apart, **nothing)


def _weaker(first: DualCheck, second: DualCheck) -> DualCheck:
    """Return the weaker grade of two cases: the least of their bounds rests on both."""
    if first.reported or second.unpaid is None:
        return first
    if second.reported or first.unpaid is None:
        return second
    a, b = first.unpaid, second.unpaid
    unpaid = replace(
        a,
        columns=a.columns if a.columns.size >= b.columns.size else b.columns,
        slope=max(a.slope, b.slope),
        curve=max(a.curve, b.curve),
        size=max(a.size, b.size),
        here=max(a.here, b.here),
    )
    return replace(first, unpaid=unpaid, free=tuple(dict.fromkeys((*first.free, *second.free))))


def drift(given: Mapping[str, Any], expected: Mapping[str, Any]) -> float:
    """Return the largest relative difference of named numbers from those a proof is about.

    Infinite for what is missing, has another shape or is not finite.

    Examples
    --------
    >>> drift({"x": [1.0, 2.0]}, {"x": [1.0, 1.0]}), drift({}, {"x": [1.0]})
    (0.5, inf)
    """
    own = [np.asarray(value, dtype=float) for value in expected.values()]
    received = [np.asarray(given.get(name, np.nan), dtype=float) for name in expected]
    if not own or any(a.shape != b.shape for a, b in zip(received, own, strict=True)):
        return np.inf if own else 0.0
    ours, theirs = (np.concatenate([a.ravel() for a in some]) for some in (own, received))
    apart = np.abs(theirs - ours) / (1.0 + np.abs(ours))
    return float(apart.max(initial=0.0)) if np.isfinite(apart).all() else np.inf


def unvouched(multipliers: Mapping[str, Any]) -> float:
    """Return infinity where multipliers are stated beside a proof that has none, else 0."""
    return np.inf if multipliers else 0.0


@dataclass(frozen=True, eq=False, repr=False)
class Optimality(Certificate):
    """Primal values, a bound, and the gap between them."""

    solution: Solution
    tolerance: float

    def __post_init__(self) -> None:
        from optfair.core.solution import check_solution

        check_solution(self.solution)
        check_number(self.tolerance, "tolerance", least=0.0)

    @property
    def about(self) -> Problem:
        """The problem of the solution."""
        return self.solution.problem

    def verify(self) -> Verdict:
        """Recompute every residual on the declared problem."""
        residuals = self.solution.residuals()
        reasons = residuals.above(self.tolerance)
        grade = residuals.grade(self.tolerance).by_default(self.solution.solver)
        if not reasons and not grade.sound:
            reasons = (f"the bound is {grade}, not proved here", *filter(None, (grade.because,)))
        return Verdict(not reasons, reasons, grade)

    @property
    def claim(self) -> str:
        """That no point is better than the bound."""
        s = self.solution
        if not np.isfinite(s.bound):
            return "nothing bounds the objective"
        side = "below" if s.problem.sense == "minimize" else "above"
        return f"no feasible point has an objective {side} {s.bound:.10g}"

    @property
    def means(self) -> str:
        """What proves the bound, and who found the point."""
        s = self.solution
        by = "nobody" if s.proof is None else s.proof.source
        return f"the bound by {by}, the point by {s.solver} {s.version}"

    def __str__(self) -> str:
        s = self.solution
        grade = s.grade if s.proof is not None else reported(s.solver)
        return f"objective {s.objective:.10g}, bound {s.bound:.10g} ({grade}), gap {s.gap:.1e}"


# Search for a proof that a problem is not convex.

TRIES = 400


def search_witness(problem: Problem) -> NonconvexityWitness | None:
    """Look for two feasible points with a bad midpoint around random centers.

    A search that finds nothing proves nothing: the class then stays *unverified*.
    """
    suspects = [t.name for t in problem.terms if not t.evidence.problem_class.convex]
    sizes = {name: v.shape for name, v in problem.variables.items()}
    if sum(v.size for v in problem.variables.values()) > 2_000:
        return None
    rng = np.random.default_rng(0)

    def unpack(flat: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
        out, at = {}, 0
        for name, shape in sizes.items():
            size = int(np.prod(shape))
            out[name] = flat[at : at + size].reshape(shape)
            at += size
        return out

    def projected(flat: NDArray[np.float64]) -> NDArray[np.float64]:
        # symmetric variables take symmetric values
        parts = unpack(flat)
        for name, v in problem.variables.items():
            if v.attributes.get("symmetric"):
                parts[name] = (parts[name] + parts[name].swapaxes(-1, -2)) / 2
        return np.concatenate([np.ravel(parts[name]) for name in sizes])

    total = sum(int(np.prod(s)) for s in sizes.values())
    for _ in range(TRIES):
        center = projected(rng.normal(size=total) * 10.0 ** rng.uniform(-2, 1))
        if rng.random() < 0.3:
            center = np.zeros(total)
        step = projected(rng.normal(size=total))
        if rng.random() < 0.5:  # one coordinate at a time meets axis-shaped sets
            step *= np.arange(total) == rng.integers(total)
            step = projected(step)
        step *= 10.0 ** rng.uniform(-1, 1.5) / max(np.linalg.norm(step), 1e-12)
        first, second = unpack(center + step), unpack(center - step)
        rows = problem.constraints.values()
        if not all(t.relative_violation(end) == 0.0 for end in (first, second) for t in rows):
            continue
        for name in suspects:
            witness = NonconvexityWitness(problem, name, first, second)
            if witness.verify():
                return witness
    return None
