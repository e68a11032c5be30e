"""Irreducible conflicts: constraints that exclude each other, none of which can be spared."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING

from optfair.backends.branching import BranchingProof, excluded
from optfair.backends.farkas import InfeasibilityProof
from optfair.core.certificate import PROVED, Certificate, Verdict
from optfair.diagnosis.report import Clock
from optfair.diagnosis.system import Answer, FeasiblePoint, System

if TYPE_CHECKING:
    from optfair.core.problem import Problem

Names = tuple[str, ...]

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
