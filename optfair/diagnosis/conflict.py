"""The named constraints of a problem as a system that is asked part by part, and its irreducible conflicts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from optfair.backends.branching import BranchingProof, excluded
from optfair.backends.facial_reduction import facial_contradiction
from optfair.backends.farkas import InfeasibilityProof, proved_infeasible
from optfair.backends.linear_program import HeldRows
from optfair.backends.registry import choose
from optfair.backends.solve import solve
from optfair.compile.form import Compiled, compile_problem
from optfair.core.certificate import PROVED, Certificate, Verdict
from optfair.core.composition import constraint_term
from optfair.core.expressions import Values
from optfair.core.labels import free_name
from optfair.core.term import family
from optfair.diagnosis.report import Clock
from optfair.errors import Infeasible, OptfairError, SolverFailure
from optfair.numbers import Floats
from optfair.transforms.relaxation import relaxed

if TYPE_CHECKING:
    from optfair.core.problem import Problem
    from optfair.core.solution import Solution

Names = tuple[str, ...]

# Entries of a Farkas vector below such a share of the largest are rounding.
NOISE = 1e-9


@dataclass(frozen=True, eq=False, repr=False)
class FeasiblePoint(Certificate):
    """A point that satisfies some named constraints, checked on the declared terms.

    Parameters
    ----------
    system : System
        Where the names belong.
    names : tuple of str
        What the point satisfies.
    values : mapping
        The point, by variable.
    tolerance : float
        Largest violation, relative to the unit of the data + the size of the right-hand side.
    """

    system: System
    names: tuple[str, ...]
    values: Values
    tolerance: float

    @property
    def about(self) -> Problem:
        """The problem of the system."""
        return self.system.declared

    def verify(self) -> Verdict:
        """Evaluate every named constraint at the point."""
        off = self.system.violations(self.names, self.values)
        reasons = [
            f"{k!r} is violated by {v:.1e}" for k, v in off.items() if not v <= self.tolerance
        ]
        reasons += self.system.malformed(self.values)
        return Verdict(not reasons, tuple(reasons))

    def __str__(self) -> str:
        return f"a point that satisfies {', '.join(map(repr, self.names)) or 'nothing'}"


@dataclass(frozen=True, eq=False)
class Answer:
    """Whether some constraints hold together.

    Attributes
    ----------
    names : tuple of str
        The constraints.
    point : FeasiblePoint or None
        They do, verified.
    proof : InfeasibilityProof, BranchingProof or None
        They do not, verified.
    word : str
        A solver says that they do not and leaves no certificate.
    unknown : str
        Why neither is known.
    """

    names: tuple[str, ...]
    point: FeasiblePoint | None = None
    proof: InfeasibilityProof | BranchingProof | None = None
    word: str = ""
    unknown: str = ""

    @property
    def infeasible(self) -> bool:
        """Whether the constraints exclude each other, proved or by a solver's word."""
        return self.proof is not None or bool(self.word)


class System:
    """Constraints, integrality and the objective's domain, each under a name.

    Parameters
    ----------
    problem : Problem
        Whose constraints.
    tolerance : float
        Relative violation below which a point counts as feasible.
    keep : frozenset of str
        Constraints, or families of them, that are not up for discussion.

    Attributes
    ----------
    given : tuple of str
        Terms that are never dropped: those to keep, and those a special algorithm of the model
        relies on, which say what its variables mean.
    names : tuple of str
        Everything else; ``NAME integer`` stands for the integrality of a variable and
        ``domain of NAME`` for the set on which an objective term is finite.
    """

    def __init__(
        self, problem: Problem, tolerance: float, keep: frozenset[str] = frozenset()
    ) -> None:
        domains = _domains(problem)
        self.keep = keep
        self.declared, self.tolerance = problem, tolerance
        self.domains, self.unit = tuple(domains), problem.data_unit
        self.structured = [s for s in problem.structures if not problem.structure_refusal(s.name)]
        # a special algorithm may need the objective it was made for
        objective = problem.objective if self.structured else {}
        self.problem: Problem = problem.with_terms(objective, {**problem.constraints, **domains})
        self.integers = {
            free_name(f"{name} integer", self.problem.constraints): name
            for name in sorted(problem.integers)
        }
        # they stay given when a rule or integrality has cost the algorithm
        present = {*problem.objective, *problem.constraints}
        needs = {
            name for s in problem.structures if present.issuperset(s.needs) for name in s.needs
        }
        needs |= {name for name in problem.constraints if {name, family(name)} & keep}
        self.given = tuple(name for name in problem.constraints if name in needs)
        rest = (name for name in self.problem.constraints if name not in needs)
        self.names = (*rest, *self.integers)

    def size(self, name: str) -> float:
        """Return what violations of a constraint are measured by."""
        return self.unit + self.problem.constraints[name].largest_side

    def part(self, names: Iterable[str]) -> Problem:
        """Return the problem of some constraints and the given ones, without an objective."""
        kept = {*names, *self.given}
        terms = {k: t for k, t in self.problem.constraints.items() if k in kept}
        integers = frozenset(v for k, v in self.integers.items() if k in kept)
        part: Problem = self.problem.with_terms(self.problem.objective, terms)
        return relaxed(part, integers)

    def ask(self, names: Iterable[str], clock: Clock, most: float | None = None) -> Answer:
        """Return whether some constraints hold together, with the evidence.

        Parameters
        ----------
        names : iterable of str
            Which constraints.
        clock : Clock
            When to stop.
        most : float, optional
            Seconds this question is worth.
        """
        wanted = set(names)
        ordered = tuple(name for name in self.names if name in wanted)
        if clock.stopped:
            return Answer(ordered, unknown=clock.stopped)
        at_zero = self.origin(ordered)
        if at_zero is not None:
            return at_zero
        limits = [s for s in (clock.left, most) if s is not None]
        limit = min(limits, default=None)
        answer = clock.run(lambda: self._asked(ordered, limit))
        return answer or Answer(ordered, unknown=clock.stopped)

    def origin(self, names: tuple[str, ...]) -> Answer | None:
        """Answer what needs no solver: nothing is asked, or no variable occurs."""
        terms = [
            self.problem.constraints[n] for n in (*self.given, *names) if n not in self.integers
        ]
        if any(t.scope for t in terms):
            return None
        zeros = {name: np.zeros(v.shape) for name, v in self.problem.variables.items()}
        point = FeasiblePoint(self, names, zeros, self.tolerance)
        if point.verify():
            return Answer(names, point=point)
        return Answer(names, word="no variable occurs in it, and its numbers violate it")

    @cached_property
    def linear(self) -> _Linear | None:
        """The linear constraints in one model, None where there are none, or more is given."""
        terms = self.problem.constraints
        names = {k for k, t in terms.items() if t.evidence.problem_class.name == "LP"}
        if self.structured or not names or not names.issuperset(self.given):
            return None
        try:
            part = self.part(name for name in self.names if name in names)
            profile = choose(part, None)[0]
            compiled = compile_problem(part, profile.cvxpy_name) if profile.cvxpy_name else None
        except OptfairError:
            return None
        if compiled is None or not compiled.form.polyhedral:
            return None
        return _Linear(self, compiled, profile.cvxpy_name)

    def _asked(self, names: tuple[str, ...], seconds: float | None) -> Answer:
        linear = self.linear
        known = None if linear is None else linear.ask(names, seconds)
        if known is not None:
            return known
        part = self.part(names)
        faces = facial_contradiction(part) if part.problem_class.convex else None
        if faces is not None and faces.weak:  # points far out would pass for feasible ones
            return Answer(names, proof=faces)
        try:
            solution = solve(part, tolerance=self.tolerance, time_limit=seconds)
        except Infeasible as e:
            proof = e.certificate
            if not isinstance(proof, InfeasibilityProof) and not part.integers:
                proof = second_opinion(part, self.tolerance, seconds)
            if isinstance(proof, InfeasibilityProof | BranchingProof):
                return Answer(names, proof=proof)
            return Answer(names, word=e.evidence)
        except OptfairError as e:
            if faces is not None:
                return Answer(names, proof=faces)
            if isinstance(e, SolverFailure) and e.claim == "infeasible":
                return Answer(names, word=e.cause)
            return Answer(names, unknown=e.cause)
        if solution.status.termination == "interrupted":  # some solvers stop without raising
            raise KeyboardInterrupt
        return self.answered(names, solution)

    def answered(self, names: tuple[str, ...], solution: Solution) -> Answer:
        """Return what a solution says about the constraints: its point, if it satisfies them."""
        values = {k: np.asarray(solution.values[k], dtype=float) for k in solution.values}
        tolerance = float(solution.options.get("tolerance", self.tolerance))
        point = FeasiblePoint(self, names, values, max(tolerance, self.tolerance))
        verdict = point.verify()
        if verdict:
            return Answer(names, point=point)
        return Answer(names, unknown="; ".join(verdict.reasons))

    def violations(self, names: Iterable[str], values: Values) -> dict[str, float]:
        """Return the relative violations of named constraints."""
        asked = list(names)
        stated = [name for name in asked if name not in self.integers]
        off = self.problem.relative_violations(stated, values)
        if self.unit < 1.0:  # it measures with a unit of 1
            off = {k: v * ((1.0 - self.unit) / self.size(k) + 1.0) for k, v in off.items()}
        for name in asked if len(off) < len(asked) else ():
            if name in self.integers:
                x = np.asarray(values[self.integers[name]], dtype=float)
                off[name] = float(np.abs(x - np.round(x)).max(initial=0.0))
        return off

    def malformed(self, values: Values) -> list[str]:
        """Return what is wrong with the values themselves: shapes, symmetry, finiteness."""
        faults = []
        for name, variable in self.problem.variables.items():
            x = np.asarray(values.get(name, np.nan), dtype=float)
            if x.shape != variable.shape or not np.isfinite(x).all():
                faults.append(f"{name!r} has no finite value of shape {variable.shape}")
            elif variable.attributes.get("symmetric") and np.abs(x - x.T).max() > self.tolerance:
                faults.append(f"{name!r} is not symmetric")
        return faults

    def holds(self, names: Iterable[str], values: Mapping[str, Any]) -> bool:
        """Whether values satisfy all the named constraints."""
        return bool(FeasiblePoint(self, tuple(names), values, self.tolerance).verify())


class _Linear:
    """The linear constraints of a system in one model, which is solved again from where it ended.

    Parameters
    ----------
    system : System
        Whose constraints.
    compiled : Compiled
        All of them that are linear.
    interface : str
        What they are compiled for, and proofs about some of them.
    """

    def __init__(self, system: System, compiled: Compiled, interface: str) -> None:
        self.system, self.compiled, self.interface = system, compiled, interface
        self.model = HeldRows(compiled.form, 1e-2 * system.tolerance)

    def ask(self, names: tuple[str, ...], seconds: float | None) -> Answer | None:
        """Return an answer with its evidence, None where the model has none.

        Of constraints that exclude each other those are named that carry the Farkas vector.
        """
        system, compiled = self.system, self.compiled
        if not all(name in compiled.constraints for name in names):
            return None
        held = np.zeros(compiled.form.b.size, dtype=bool)
        for name in (*names, *system.given):
            held[compiled.rows(name)] = True
        answer = self.model.solve(held, np.inf if seconds is None else seconds)
        if answer.x is not None:
            point = FeasiblePoint(system, names, compiled.values(answer.x), system.tolerance)
            return Answer(names, point=point) if point.verify() else None
        if answer.z is None:
            return None
        sizes = np.abs(answer.z)
        some = sizes > NOISE * sizes.max(initial=0.0)
        carried = tuple(name for name in names if some[compiled.rows(name)].any())
        return self._proved(carried, answer.z) or self._proved(names, answer.z)

    def _proved(self, names: tuple[str, ...], z: Floats) -> Answer | None:
        """Return the answer that a Farkas vector proves some constraints infeasible."""
        part = compile_problem(self.system.part(names), self.interface)
        own = np.zeros(part.form.b.size)
        for name in (*names, *self.system.given):
            own[part.rows(name)] = z[self.compiled.rows(name)]
        owned = {name: part.rows(name) for name in part.constraints}
        proof = proved_infeasible(part.form, own, owned)
        return None if proof is None else Answer(names, proof=proof)


def second_opinion(part: Problem, tolerance: float, seconds: float | None) -> Any:
    """Return a certificate from any solver of the policy: presolve may leave none."""
    for profile in choose(part, None):
        try:
            solve(part, profile.name, tolerance=tolerance, time_limit=seconds)
        except Infeasible as e:
            if e.certificate is not None:
                return e.certificate
        except OptfairError:
            continue
    return None


def _domains(problem: Problem) -> dict[str, Any]:
    """Return the constraints under which the objective is finite: log(x) needs x >= 0."""
    terms = {}
    for name, term in problem.objective.items():
        words = term.evidence.function
        if words == "affine" or "quadratic" in words or "piecewise" in words:
            continue
        expression = term.build()
        for i, c in enumerate(getattr(expression, "domain", ())):
            label = f"domain of {name}" + (f" {i + 1}" if i else "")
            label = free_name(label, problem.constraints)
            terms[label] = replace(constraint_term(label, c, problem.names), origin="model")
    return terms


# Irreducible conflicts: constraints that exclude each other, none of which can be spared.

# Names up to which a smaller conflict is searched for, questions that search may ask, and
# seconds each is worth.
FEW, QUESTIONS, SECONDS = 12, 200, 2.0
# Cases of a tree, and seconds it is worth: what takes more is left to the solver's word.
CASES, TREE_SECONDS = 30, 5.0
# What one question about integers is worth, of the time until a conflict was known: branching
# may never end on what is left of them when a bound is spared.
PATIENCE = 10.0


@dataclass(frozen=True, eq=False, repr=False)
class Conflict(Certificate):
    r"""Named constraints :math:`S` that exclude each other.

    Infeasibility of S is proved by a Farkas certificate on the compiled data. S is
    *irreducible* when for every :math:`i \in S` a point satisfies :math:`S \setminus \{i\}`,
    and *smallest* when every set of :math:`|S| - 1` names of the problem has a point.

    Parameters
    ----------
    system : System
        Where the names belong.
    names : tuple of str
        S; the system's given terms hold throughout.
    proof : InfeasibilityProof, BranchingProof or None
        Proves that S cannot hold, None where that is a solver's word.
    word : str
        The solver's word, for integer problems.
    points : tuple of FeasiblePoint
        What shows that nothing can be spared.
    irreducible, smallest : bool
        What is claimed.
    unsure : tuple of str
        Names that may or may not be spared: no answer was found.
    """

    system: System
    names: tuple[str, ...]
    proof: InfeasibilityProof | BranchingProof | None
    word: str = ""
    points: tuple[FeasiblePoint, ...] = ()
    irreducible: bool = False
    smallest: bool = False
    unsure: tuple[str, ...] = ()

    @property
    def about(self) -> Problem:
        """The problem of the system."""
        return self.system.declared

    @property
    def claimed(self) -> bool:
        """Whether a solver says so and nothing here proves it."""
        known = self.system.origin(self.names) if self.proof is None else None
        return self.proof is None and (known is None or known.point is not None)

    def verify(self) -> Verdict:
        """Check the Farkas vector on data compiled anew, and every point on the declared terms."""
        reasons: list[str] = []
        grade = PROVED
        if isinstance(self.proof, BranchingProof):
            own = replace(self.proof, problem=self.system.part(self.names))
            reasons += own.verify().reasons
        elif self.proof is not None:
            reasons += self.proof.faults(self.system.part(self.names))
            grade = self.proof.verify().grade
        elif self.claimed:
            reasons.append(f"that no point exists cannot be recomputed here: {self.word}")
        sound = [p for p in self.points if self._binds(p) and p.verify()]
        if self.irreducible:
            for name in self.names:
                if not _covered(set(self.names) - {name}, sound):
                    reasons.append(f"no point shows that {name!r} is needed")
        if self.smallest and self.names:
            fewer = combinations(self.system.names, len(self.names) - 1)
            if not all(_covered(set(names), sound) for names in fewer):
                reasons.append("no point rules out every smaller conflict")
        return Verdict(not reasons, tuple(reasons), grade)

    def _binds(self, point: FeasiblePoint) -> bool:
        """Whether a point is one of this system that satisfies what is given."""
        return (
            point.system is self.system
            and point.tolerance <= 10 * self.system.tolerance
            and self.system.holds(self.system.given, point.values)
        )

    @property
    def words(self) -> str:
        """What is known about the size of the set."""
        if self.smallest and self.names:
            return "smallest: every smaller set of constraints has a feasible point"
        if self.irreducible:
            return "irreducible: without any one of them there is a feasible point"
        unsure = ", ".join(map(repr, self.unsure))
        return f"perhaps not irreducible: nothing is known without {unsure}"

    def __str__(self) -> str:
        how = self.word if self.proof is None else str(self.proof)
        return f"{', '.join(map(repr, self.names))} exclude each other ({how})"


def find_conflict(
    system: System,
    clock: Clock,
    hints: Iterable[tuple[str, ...]] = (),
    within: tuple[str, ...] | None = None,
) -> Conflict | Answer:
    """Return an irreducible conflict, or the answer that there is none to be found.

    A deletion filter: constraints are left out one at a time; those whose loss makes the
    rest feasible are needed. Integrality is left out first, then the model's own terms, so
    what stays is continuous and the user's wherever that is possible.

    Parameters
    ----------
    system : System
        The constraints.
    clock : Clock
        When to stop; what was found by then is returned.
    hints : iterable of tuple of str
        Sets that may be in conflict, tried first.
    within : tuple of str, optional
        Search among these names only; the conflict is then irreducible, not smallest.
    """
    start: Answer | None = None
    for names in hints:
        tried = system.ask(names, clock)
        if tried.infeasible:
            start = tried
            break
    wanted = system.names if within is None else within
    if start is None and system.integers:  # a continuous conflict says more, and has a proof
        tried = system.ask([n for n in wanted if n not in system.integers], clock)
        start = tried if tried.infeasible else None
    if start is None:
        start = system.ask(wanted, clock)
    if not start.infeasible:
        return start
    conflict = _filtered(system, start, clock)
    if conflict.irreducible and within is None and len(system.names) <= FEW:
        conflict = _smallest(system, conflict, clock)
    if conflict.proof is None and any(name in system.integers for name in conflict.names):
        conflict = _by_branching(system, conflict, tuple(wanted), clock)
    return conflict


def _by_branching(system: System, conflict: Conflict, wanted: Names, clock: Clock) -> Conflict:
    """Return a conflict among integers that has a proof, of more names where few have a large tree."""
    seconds = TREE_SECONDS if clock.left is None else min(TREE_SECONDS, clock.left)
    own = clock.run(lambda: excluded(system.part(conflict.names), seconds, CASES))
    if own is not None or {*wanted} == {*conflict.names}:
        return replace(conflict, proof=own)
    more = clock.run(lambda: excluded(system.part(wanted), seconds, CASES))
    return conflict if more is None else _filtered(system, Answer(wanted, proof=more), clock)


def _filtered(system: System, start: Answer, clock: Clock) -> Conflict:
    current, points, unsure = _carried(system, start, clock), {}, []
    patience = max(SECONDS, PATIENCE * clock.seconds)
    for name in _order(system, current.names):
        if name not in current.names:
            continue
        rest = [n for n in current.names if n != name]
        answer = system.ask(rest, clock, patience if system.integers.keys() & set(rest) else None)
        if answer.infeasible and (answer.proof is not None or current.proof is None):
            current = _carried(system, answer, clock)
        elif answer.point is not None:
            points[name] = answer.point
        else:
            unsure.append(name)
    unsure = [name for name in unsure if name in current.names]
    kept = tuple(points[name] for name in current.names if name in points)
    return Conflict(
        system, current.names, current.proof, current.word, kept, not unsure, False, tuple(unsure)
    )


def _order(system: System, names: tuple[str, ...]) -> list[str]:
    """Return what is left out first: integrality, then model terms, then the user's."""

    def rank(name: str) -> int:
        if name in system.integers:
            return 0
        return 1 if system.problem.constraints[name].origin == "model" else 2

    return sorted(names, key=rank)


def _carried(system: System, answer: Answer, clock: Clock) -> Answer:
    """Return the terms that carry the Farkas vector, if they are in conflict alone."""
    if answer.proof is None:
        return answer
    held = {*answer.proof.conflict, *system.integers}
    fewer = tuple(n for n in answer.names if n in held)
    if not fewer or fewer == answer.names:
        return answer
    again = system.ask(fewer, clock)
    return again if again.infeasible else answer


def _smallest(system: System, conflict: Conflict, clock: Clock) -> Conflict:
    """Search every set with one name less; all feasible means that none is smaller."""
    if not conflict.names:
        return replace(conflict, smallest=True)
    points = list(conflict.points)
    asked = 0
    for names in combinations(system.names, len(conflict.names) - 1):
        if _covered(set(names), points):
            continue
        asked += 1
        if asked > QUESTIONS:
            return conflict
        answer = system.ask(names, clock, SECONDS)
        if answer.infeasible:
            smaller = _filtered(system, answer, clock)
            return _smallest(system, smaller, clock) if smaller.irreducible else conflict
        if answer.point is None:
            return conflict
        points.append(_wider(system, answer.point))
    return replace(conflict, points=tuple(points), smallest=True)


def _wider(system: System, point: FeasiblePoint) -> FeasiblePoint:
    """Return the point with all the names it satisfies: it may settle other sets too."""
    off = system.violations(system.names, point.values)
    names = tuple(name for name, v in off.items() if v <= point.tolerance)
    return FeasiblePoint(system, names, point.values, point.tolerance)


def _covered(names: set[str], points: Iterable[FeasiblePoint]) -> bool:
    return any(names <= set(p.names) for p in points)
