"""Irreducible conflicts: constraints that exclude each other, none of which can be spared."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from optfair.backends.branching import BranchingProof, excluded
from optfair.backends.farkas import InfeasibilityProof
from optfair.core.certificate import Certificate, Verdict
from optfair.diagnosis.report import Clock
from optfair.diagnosis.scaling import proof_faults
from optfair.diagnosis.system import Answer, FeasiblePoint, System

# Names up to which a smaller conflict is searched for, questions that search may ask, and
# seconds each is worth.
FEW, QUESTIONS, SECONDS = 12, 200, 2.0
# Cases of a tree, and seconds it is worth: what takes more is left to the solver's word.
CASES, TREE_SECONDS = 30, 5.0


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

    def verify(self) -> Verdict:
        """Check the Farkas vector on data compiled anew, and every point on the declared terms."""
        reasons: list[str] = []
        if isinstance(self.proof, BranchingProof):
            own = replace(self.proof, problem=self.system.part(self.names))
            reasons += own.verify().reasons
        elif self.proof is not None:
            reasons += proof_faults(self.system.part(self.names), self.proof)
        elif self.system.origin(self.names) is None or self.system.holds(self.names, self.zeros):
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
        return Verdict(not reasons, tuple(reasons))

    @property
    def zeros(self) -> dict[str, Any]:
        """The origin, where constraints without variables are evaluated."""
        return self.system.zeros()

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

    __repr__ = __str__


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
    found = _filtered(system, start, clock)
    if found.irreducible and within is None and len(system.names) <= FEW:
        found = _smallest(system, found, clock)
    if found.proof is None and any(name in system.integers for name in found.names):
        found = replace(found, proof=_by_branching(system, found.names, clock))
    return found


def _by_branching(system: System, names: tuple[str, ...], clock: Clock) -> BranchingProof | None:
    """Return a proof that integer constraints exclude each other, None where the tree is large."""
    seconds = TREE_SECONDS if clock.left is None else min(TREE_SECONDS, clock.left)
    return clock.run(lambda: excluded(system.part(names), seconds, CASES))


def _filtered(system: System, start: Answer, clock: Clock) -> Conflict:
    current, points, unsure = start, {}, []
    current = _carried(system, current, clock)
    for name in _order(system, current.names):
        if name not in current.names:
            continue
        answer = system.ask([n for n in current.names if n != name], clock)
        if answer.infeasible:
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
    fewer = tuple(n for n in answer.names if n in answer.proof.conflict)
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
    return Conflict(
        system, conflict.names, conflict.proof, conflict.word, tuple(points), True, True
    )


def _wider(system: System, point: FeasiblePoint) -> FeasiblePoint:
    """Return the point with all the names it satisfies: it may settle other sets too."""
    names = tuple(n for n in system.names if system.violation(n, point.values) <= point.tolerance)
    return FeasiblePoint(system, names, point.values, point.tolerance)


def _covered(names: set[str], points: Iterable[FeasiblePoint]) -> bool:
    return any(names <= set(p.names) for p in points)
