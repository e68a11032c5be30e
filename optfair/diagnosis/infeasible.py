"""Findings on an infeasible problem: the conflict, and the least relaxation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from optfair.core.certificate import Certificate, Verdict
from optfair.diagnosis.branching import BranchingProof
from optfair.diagnosis.clock import Clock
from optfair.diagnosis.conflict import Conflict, find_conflict
from optfair.diagnosis.finding import Finding
from optfair.diagnosis.relaxation import Relaxation, elastic_names, least_relaxation
from optfair.diagnosis.system import Answer, System, relaxed

__all__ = ["Relaxations", "infeasible_findings"]

# Constraints of a conflict that are also relaxed one by one.
MOST_ALONE = 20
# Conflicts without a common constraint that are looked for.
MOST_CONFLICTS = 3


@dataclass(frozen=True, eq=False, repr=False)
class Relaxations(Certificate):
    """The least relaxation of a conflict together, and of each of its constraints alone."""

    together: Relaxation
    alone: Mapping[str, Relaxation]

    def verify(self) -> Verdict:
        """Verify every relaxation that is claimed."""
        claimed = [r for r in (self.together, *self.alone.values()) if r.solution is not None]
        if not claimed:
            return Verdict(False, ("no relaxation is claimed",))
        reasons = [reason for r in claimed for reason in r.verify().reasons]
        return Verdict(not reasons, tuple(reasons))

    def __str__(self) -> str:
        return f"{self.together}; {len(self.alone)} relaxed alone"

    __repr__ = __str__


def infeasible_findings(
    system: System,
    clock: Clock,
    hints: tuple[tuple[str, ...], ...] = (),
    within: tuple[str, ...] | None = None,
) -> list[Finding]:
    """Return what shows that a problem is infeasible; nothing when it is not known to be.

    With ``within``, a conflict is looked for among these names first.
    """
    found: Conflict | Answer | None = None
    if within is not None:
        found = find_conflict(system, clock, within=within)
    if not isinstance(found, Conflict):
        found = find_conflict(system, clock, hints)
    if not isinstance(found, Conflict):
        if found.point is None:
            return []
        title = "the constraints can hold together: a point satisfies them all"
        numbers = {"names": list(found.names)}
        return [Finding("feasible", title, evidence=found.point, numbers=numbers)]
    conflicts = [found]
    while len(conflicts) < MOST_CONFLICTS and not clock.stopped:
        used = {name for c in conflicts for name in c.names}
        rest = tuple(name for name in system.names if name not in used)
        if not rest or not conflicts[-1].names:
            break
        again = find_conflict(system, clock, within=rest)
        if not isinstance(again, Conflict):
            break
        conflicts.append(again)
    findings = [_conflict_finding(system, c) for c in conflicts]
    if not clock.stopped:
        relaxation = _relaxation_finding(system, conflicts, clock)
        findings += [] if relaxation is None else [relaxation]
    return findings


def _conflict_finding(system: System, c: Conflict) -> Finding:
    whole = [n for n in c.names if n in system.integers]
    if not c.names:
        title = "the model's own terms exclude each other"
    elif len(c.names) == 1:
        title = f"this constraint cannot hold: {c.names[0]!r}"
    else:
        title = f"these {len(c.names)} constraints exclude each other: "
        title += ", ".join(map(repr, c.names))
    lines = [c.words]
    if isinstance(c.proof, BranchingProof):
        lines.append(f"proved by {c.proof}, recomputed on the compiled data")
    elif c.proof is not None:
        lines.append("proved by a Farkas certificate, recomputed on the compiled data")
    elif system.origin(c.names) is not None:
        lines.append(c.word)
    else:
        lines.append(f"that they do is a solver's word, not a proof here: {c.word}")
    if whole:
        real = [n for n in c.names if n not in system.integers]
        lines.append(
            f"integrality is in the conflict: with continuous variables {', '.join(map(repr, real))}"
            + (" would hold" if len(real) == 1 else " would hold together")
        )
    if system.given:
        lines.append(f"taken as given, they define the model: {', '.join(map(repr, system.given))}")
    rows = tuple((name, _evidence(system, name), _origin(system, name)) for name in c.names)
    numbers = {
        "names": list(c.names),
        "irreducible": c.irreducible,
        "smallest": c.smallest,
        "proved": c.proof is not None,
        "integrality": whole,
        "given": list(system.given),
        "unsure": list(c.unsure),
    }
    remedy = "remove or relax one of them; the least relaxation says by how much"
    return Finding(
        "conflict",
        title,
        tuple(lines),
        ("constraint", "what it is", "from"),
        rows,
        (remedy,),
        c,
        numbers,
    )


def _evidence(system: System, name: str) -> str:
    if name in system.integers:
        return "integrality"
    e = system.problem.constraints[name].evidence
    return f"{e.function} in {e.set}"


def _origin(system: System, name: str) -> str:
    if name in system.domains:
        return "objective"
    if name in system.integers:
        return "declaration"
    return system.problem.constraints[name].origin


def _relaxation_finding(system: System, conflicts: list[Conflict], clock: Clock) -> Finding | None:
    names = tuple(name for c in conflicts for name in c.names)
    lines = ["amounts are in the units of each constraint, summed over its entries"]
    if system.integers and not any(name in system.integers for name in names):
        # the conflict needs no integrality, and without it the amounts come with a proof
        system = System(relaxed(system.declared), system.tolerance)
        lines.append("integrality is left aside: with it they may have to give more")
    elastic = elastic_names(system, names)
    if not elastic:
        return None
    alone = {}
    for name in elastic[:MOST_ALONE]:
        if clock.stopped:
            break
        alone[name] = least_relaxation(system, (name,), clock)
    together = least_relaxation(system, elastic, clock)
    if together.solution is None and not clock.stopped:
        wider = least_relaxation(system, elastic_names(system, system.names), clock)
        if wider.solution is not None:
            lines.append("there are further conflicts: all constraints were let give")
            together, elastic = wider, wider.elastic
    shown = tuple(n for n in elastic if n in names or together.total(n) > 0.0)
    rows = tuple((n, *_alone(alone.get(n)), _amount(together, n)) for n in shown)
    if all(r.solution is None for r in (together, *alone.values())):
        return None
    remedies = []
    cheapest = min(
        (r for r in alone.values() if r.solution is not None),
        key=lambda r: r.solution.objective if r.solution else np.inf,
        default=None,
    )
    if cheapest is not None:
        name = cheapest.elastic[0]
        remedies.append(
            f"let {name!r} give by {cheapest.largest(name):.6g}, the least in relation to its size"
        )
    if cheapest is not None and _within_tolerance(cheapest, system):
        lines.append(
            "they miss each other by less than the tolerance: a point violates them by"
            f" at most {system.tolerance:g} of their size, which solvers call feasible or not"
        )
        remedies = ["check the numbers, or measure in units that show the difference"]
    numbers = {
        "together": {n: together.total(n) for n in elastic} if together.solution else None,
        "alone": {n: None if r.solution is None else r.total(n) for n, r in alone.items()},
        "alone_largest": {
            n: None if r.solution is None else r.largest(n) for n, r in alone.items()
        },
    }
    return Finding(
        "relaxation",
        "least relaxation: by how much they would have to give",
        tuple(lines),
        ("constraint", "if it alone gives", "largest entry", "if all give"),
        rows,
        tuple(remedies),
        Relaxations(together, alone),
        numbers,
    )


def _within_tolerance(r: Relaxation, system: System) -> bool:
    """Whether a point that violates what gives would count as feasible."""
    name = r.elastic[0]
    return r.largest(name) <= system.tolerance * (
        1.0 + system.problem.constraints[name].largest_side
    )


def _alone(r: Relaxation | None) -> tuple[str, str]:
    if r is None:
        return "not tried", ""
    if r.solution is None:
        return r.refusal, ""
    name = r.elastic[0]
    return f"{r.total(name):.6g}", f"{r.largest(name):.6g}{_place(r, name)}"


def _place(r: Relaxation, name: str) -> str:
    """Return the index of the entry that gives most, empty for a single one."""
    given = r.amounts()[name]
    if given.size <= 1:
        return ""
    index = np.unravel_index(int(np.argmax(given)), given.shape)
    return f" at [{', '.join(str(int(i)) for i in index)}]"


def _amount(together: Relaxation, name: str) -> str:
    return "unknown" if together.solution is None else f"{together.total(name):.6g}"
