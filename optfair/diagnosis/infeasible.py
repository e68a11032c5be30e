"""Findings on an infeasible problem: the conflict, and the least relaxation."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import cvxpy as cp
import numpy as np
from cvxpy.constraints import PSD, SOC, Equality, ExpCone, Inequality, NonNeg, PowCone3D, Zero

from optfair.backends.boxes import excluded_by_boxes
from optfair.backends.branching import BranchingProof
from optfair.backends.facial_reduction import WEAKLY, FaceContradiction, FacialContradiction
from optfair.backends.registry import choose
from optfair.backends.solve import solve
from optfair.core.certificate import Certificate, Verdict
from optfair.core.composition import constraint_term, objective_term
from optfair.core.labels import free_name
from optfair.core.problem import Declaration, Problem
from optfair.core.solution import Solution
from optfair.core.term import family
from optfair.diagnosis.conflict import Conflict, find_conflict
from optfair.diagnosis.report import Clock, Finding
from optfair.diagnosis.system import Answer, System
from optfair.errors import DeclarationError, Infeasible, OptfairError, SolverFailure
from optfair.numbers import Floats
from optfair.transforms.relaxation import relaxed

# Least relaxations: by how much constraints in conflict would have to give.


class ElasticProblem(Problem):
    r"""Least weighted relaxation of some constraints, the others held.

    .. math::
        \min_{x,\, s \ge 0} \; \sum_k \frac{u}{u + \beta_k} \sum_i s_{ki}
        \quad \text{s.t.} \quad f_k(x) \le s_k, \;\; |h_k(x)| \le s_k, \;\;
        G_k(x) + s_k e \in K_k

    :math:`\beta_k` is the size of the right-hand side and u that of a number in the data, at
    most 1, so that all constraints give in relative terms (:math:`u + \beta_k` is `System.size`,
    less for rows in small units of their own); e is a point inside the cone: (1, 0) of the second-order cone, I of the
    semidefinite cone, (-1, 1, 1) of the exponential cone, (1, 1, 0) of a power cone.

    Class: that of the constraints.

    Parameters
    ----------
    system : System
        The constraints.
    elastic : tuple of str
        Which of them may give.
    """

    title = "least relaxation"
    unit_from_data = True

    def __init__(self, system: System, elastic: tuple[str, ...]) -> None:
        super().__init__({"system": system, "elastic": elastic})

    def declare(self) -> Declaration:
        """Give each elastic constraint a variable for what it gives."""
        system: System = self.data["system"]
        source = system.problem
        variables = dict(source.variables)
        changed, slacks = {}, {}
        for name in self.data["elastic"]:
            constraint, slack = _loosened(source.constraints[name].build())
            if constraint is None:
                raise DeclarationError(
                    f"{name!r} cannot give",
                    f"it is {source.constraints[name].evidence}",
                    "write it as an inequality",
                )
            changed[name], slacks[name] = constraint, slack
            variables[self.slack_of(name)] = slack
        ids = {v.id: name for name, v in variables.items()}
        terms = {n: t for n, t in source.constraints.items() if n not in changed}
        goal = []
        for name, slack in slacks.items():
            weight = system.unit / system.size(name)
            label = self.slack_of(name)
            goal.append(objective_term(label, weight * cp.sum(slack), ids, "minimize"))
            terms[name] = constraint_term(name, changed[name], ids)
            terms[f"{label} is not negative"] = constraint_term(
                f"{label} is not negative", slack >= 0, ids
            )
        return Declaration(
            variables, "minimize", tuple(goal), tuple(terms.values()), source.integers
        )

    def slack_of(self, name: str) -> str:
        """Return the name of the variable by which a constraint gives."""
        source: Problem = self.data["system"].problem
        return free_name(f"slack of {name}", {*source.variables, *source.constraints})


def _gives(solution: Solution, name: str) -> Floats:
    """Return what a constraint gives in a solution of an elastic problem."""
    problem = cast("ElasticProblem", solution.problem)
    return np.asarray(solution[problem.slack_of(name)], dtype=float)


def _loosened(c: Any) -> tuple[Any, Any]:
    """Return a constraint that gives by a new variable, and the variable."""
    if isinstance(c, (Equality, Zero, Inequality)):
        s = cp.Variable(c.expr.shape)
        return (c.expr if isinstance(c, Inequality) else cp.abs(c.expr)) <= s, s
    s = cp.Variable(np.shape(c.args[0]) if not isinstance(c, PSD) else ())
    if isinstance(c, NonNeg):
        return c.args[0] + s >= 0, s
    if isinstance(c, PSD):
        return c.args[0] + s * np.eye(c.args[0].shape[0]) >> 0, s
    if isinstance(c, SOC):
        return SOC(c.args[0] + s, c.args[1], axis=c.axis), s
    if isinstance(c, ExpCone):
        return ExpCone(c.args[0] - s, c.args[1] + s, c.args[2] + s), s
    if isinstance(c, PowCone3D):
        return PowCone3D(c.args[0] + s, c.args[1] + s, c.args[2], c.alpha), s
    return None, None


@dataclass(frozen=True, eq=False, repr=False)
class Relaxation(Certificate):
    """By how much some constraints give, and the proof that less does not do.

    Parameters
    ----------
    system : System
        The constraints.
    elastic : tuple of str
        Those that may give.
    solution : Solution or None
        Of the elastic problem; None when no amount helps.
    refusal : str
        Why there is no solution.
    """

    system: System
    elastic: tuple[str, ...]
    solution: Solution | None
    refusal: str = ""

    def amounts(self) -> dict[str, Floats]:
        """Return what each constraint gives, entry by entry, in its own units."""
        if self.solution is None:
            return {}
        sizes = {name: self.system.sizes(name, self.solution.values) for name in self.elastic}
        given = {name: _gives(self.solution, name) for name in self.elastic}
        worst = max(float(np.max(v / sizes[name], initial=0.0)) for name, v in given.items())
        # what an interior-point method leaves beside the amounts that count
        noise = max(1e-2 * self.system.tolerance, 1e-6 * worst)
        return {name: np.where(v > noise * sizes[name], v, 0.0) for name, v in given.items()}

    def total(self, name: str) -> float:
        """Return what a constraint gives, summed over its entries."""
        return float(self.amounts()[name].sum()) if self.solution is not None else np.inf

    def largest(self, name: str) -> float:
        """Return the most that an entry of a constraint gives."""
        if self.solution is None:
            return np.inf
        return float(self.amounts()[name].max(initial=0.0))

    def _by_others(self) -> bool:
        """Whether constraints give in the solution that are none of these."""
        solution, least = self.solution, 1e-2 * self.system.tolerance
        others = [] if solution is None else solution.problem.data["elastic"]
        return any(
            bool((_gives(solution, name) > least * self.system.sizes(name, solution.values)).any())
            for name in others
            if solution is not None and name not in self.elastic
        )

    def of(self, name: str) -> Relaxation | None:
        """Return the least relaxation of one constraint alone, where no other gives in this one.

        Less would do with the others too.
        """
        alone = Relaxation(self.system, (name,), self.solution)
        return None if self.solution is None or alone._by_others() else alone

    def verify(self) -> Verdict:
        """Recompute feasibility and bound of the elastic problem, declared anew."""
        if self.solution is None:
            return Verdict(False, (self.refusal,))
        problem = self.solution.problem
        if (
            not isinstance(problem, ElasticProblem)
            or problem.data["system"] is not self.system
            or not set(self.elastic) <= set(problem.data["elastic"])
            or self._by_others()
        ):
            return Verdict(False, ("the solution is that of another problem",))
        return self.solution.certificate.verify()

    def __str__(self) -> str:
        if self.solution is None:
            return self.refusal
        given = ", ".join(f"{k!r} by {self.total(k):.6g}" for k in self.elastic if self.total(k))
        return f"least relaxation: {given or 'nothing'}"


# Scalars up to which a solver takes its own way with a least relaxation.
NARROW = 1_000


def elastic_names(system: System, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return those of the constraints that can give: not integrality, not a domain."""
    able = []
    for name in names:
        if name in system.integers or name in system.domains:
            continue
        if _loosened(system.problem.constraints[name].build())[0] is not None:
            able.append(name)
    return tuple(able)


def least_relaxation(system: System, elastic: tuple[str, ...], clock: Clock) -> Relaxation:
    """Return by how much the elastic constraints must give for the others to hold with them."""
    if not elastic:
        return Relaxation(system, elastic, None, "none of the constraints can give")
    try:
        problem = ElasticProblem(system, elastic)
        solution = clock.run(lambda: _least(problem, system.tolerance, clock))
    except Infeasible as e:
        # what gives by any amount is in no conflict, nor is that its amount is not negative
        stated = {n: None for n in e.conflict if n in system.problem.constraints}
        others = ", ".join(repr(n) for n in stated if n not in elastic) or "the others"
        why = f"no amount helps: {others} stay in conflict"
        return Relaxation(system, elastic, None, why)
    except OptfairError as e:
        return Relaxation(system, elastic, None, e.cause)
    if solution is not None and solution.status.termination == "interrupted":
        clock.interrupted = True
    if solution is None or solution.status.termination != "optimal":
        return Relaxation(system, elastic, None, clock.stopped or "no proved optimum was found")
    return Relaxation(system, elastic, solution)


def _least(problem: ElasticProblem, tolerance: float, clock: Clock) -> Solution:
    """Solve an elastic problem; where it has a point it has an optimum, for all it costs is >= 0."""
    first = choose(problem, None)[0]
    wide = sum(v.size for v in problem.variables.values()) > NARROW
    if first.bounded and wide and problem.problem_class.name == "LP":
        with contextlib.suppress(SolverFailure):
            return solve(
                problem,
                first.name,
                tolerance=tolerance,
                time_limit=clock.left,
                options=first.bounded,
            )
    limit = clock.left
    if problem.integers:  # without bounds their search may have no end
        limit = ENDLESS if limit is None else min(ENDLESS, limit)
    return solve(problem, tolerance=tolerance, time_limit=limit)


# Findings on an infeasible problem: the conflict, and the least relaxation.

# Seconds for the least relaxation of a problem with integers.
ENDLESS = 5.0
# Constraints of a conflict that are also relaxed one by one.
MOST_ALONE = 20
# Conflicts without a common constraint that are looked for.
MOST_CONFLICTS = 3
WORD = "that less does not do is a solver's word, not a proof here"


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


def infeasible_findings(
    system: System,
    clock: Clock,
    hints: tuple[tuple[str, ...], ...] = (),
    within: tuple[str, ...] | None = None,
) -> list[Finding]:
    """Return what shows that a problem is infeasible; nothing when it is not known to be.

    With ``within``, a conflict is looked for among these names first.
    """
    conflict: Conflict | Answer | None = None
    if within is not None:
        conflict = find_conflict(system, clock, within=within)
    if not isinstance(conflict, Conflict):
        conflict = find_conflict(system, clock, hints)
    if not isinstance(conflict, Conflict):
        if conflict.point is None:
            return []
        title = "the constraints can hold together: a point satisfies them all"
        numbers = {"names": list(conflict.names)}
        return [Finding("feasible", title, evidence=conflict.point, numbers=numbers)]
    conflicts, relaxation = [conflict], _relaxation_finding(system, [conflict], clock)
    # a point that only these constraints are let give for satisfies the others: no more conflicts
    alone = _holds_without(system, conflict, relaxation)
    while len(conflicts) < MOST_CONFLICTS and not alone and not clock.stopped:
        used = {name for c in conflicts for name in c.names}
        rest = tuple(name for name in system.names if name not in used)
        if not rest or not conflicts[-1].names:
            break
        again = find_conflict(system, clock, within=rest)
        if not isinstance(again, Conflict):
            break
        conflicts.append(again)
    findings = [_conflict_finding(system, c) for c in conflicts]
    if len(conflicts) > 1 and not clock.stopped:
        relaxation = _relaxation_finding(system, conflicts, clock)
    if relaxation is not None and WORD in relaxation.lines:  # a remark, which claims no proof
        relaxation = replace(relaxation, evidence=None)
    return findings + ([] if relaxation is None else [relaxation])


def excluded_finding(problem: Problem, keep: frozenset[str], clock: Clock) -> Finding | None:
    """Return constraints, convex or not, that exclude each other over boxes; None where no few do."""
    end = time.perf_counter() + (ENDLESS if clock.left is None else min(ENDLESS, clock.left))
    needed = list(problem.constraints)

    def excluded(names: list[str]) -> Infeasible | None:
        terms = {n: t for n, t in problem.constraints.items() if n in names}
        left = end - time.perf_counter()
        part = problem.with_terms({}, terms)
        return clock.run(lambda: excluded_by_boxes(part, left)) if left > 0.0 else None

    none = excluded(needed)
    for name in list(needed) if none is not None else ():
        fewer = None if {name, family(name)} & keep else excluded([n for n in needed if n != name])
        if fewer is not None:
            none = fewer
            needed.remove(name)
    if none is None or none.certificate is None:
        return None
    given = [n for n in needed if {n, family(n)} & keep]
    names = [n for n in needed if n not in given]
    lines = [f"proved by {none.certificate}, recomputed on the declared terms"]
    lines += [f"taken as given: {', '.join(map(repr, given))}"] * bool(given)
    return Finding(
        "conflict",
        f"no point satisfies {', '.join(map(repr, names)) or 'what is taken as given'}",
        tuple(lines),
        remedies=("remove or relax one of them",),
        evidence=none.certificate,
        numbers={"names": names, "proved": True, "given": given},
    )


def _holds_without(system: System, conflict: Conflict, relaxation: Finding | None) -> bool:
    """Whether the point of a relaxation satisfies all that is in no conflict."""
    relaxed = None if relaxation is None else relaxation.evidence
    together = relaxed.together if isinstance(relaxed, Relaxations) else None
    if together is None or together.solution is None or set(together.elastic) - {*conflict.names}:
        return False
    rest = [name for name in system.names if name not in conflict.names]
    values = together.solution.values
    return system.holds(rest, {name: values[name] for name in system.problem.variables})


def _conflict_finding(system: System, c: Conflict) -> Finding:
    whole = [n for n in c.names if n in system.integers]
    weak = isinstance(c.proof, FacialContradiction) and c.proof.weak
    if not c.names:
        title = "what is taken as given excludes itself"
    elif len(c.names) == 1:
        title = f"this constraint cannot hold: {c.names[0]!r}"
    else:
        title = f"these {len(c.names)} constraints exclude each other: "
        title += ", ".join(map(repr, c.names))
    lines = [c.words]
    if isinstance(c.proof, BranchingProof):
        lines.append(f"proved by {c.proof}, recomputed on the compiled data")
    elif isinstance(c.proof, FacialContradiction):
        lines.append(f"proved by {c.proof.proof}, recomputed on the compiled data")
        lines += [WEAKLY] * weak
    elif c.proof is not None:
        how = "a Farkas certificate" if not isinstance(c.proof, FaceContradiction) else str(c.proof)
        known = f"proved {c.proof.limits} by {how}, recomputed on the compiled data"
        lines.append(known.replace("  ", " "))
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
        lines.append(f"taken as given: {', '.join(map(repr, system.given))}")
    rows = tuple((name, _evidence(system, name), _origin(system, name)) for name in c.names)
    numbers = {
        "names": list(c.names),
        "irreducible": c.irreducible,
        "smallest": c.smallest,
        "proved": c.proof is not None,
        "weak": weak,
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
        system = System(relaxed(system.declared), system.tolerance, system.keep)
        lines.append("integrality is left aside: with it they may have to give more")
    elastic = elastic_names(system, names)
    if not elastic:
        return None
    together, alone = least_relaxation(system, elastic, clock), dict[str, Relaxation]()
    for name in elastic[:MOST_ALONE]:
        if (known := together.of(name)) is not None:
            alone[name] = known
        elif not clock.stopped:
            alone[name] = least_relaxation(system, (name,), clock)
    if together.solution is None and not clock.stopped:
        wider = least_relaxation(system, elastic_names(system, system.names), clock)
        if wider.solution is not None:
            lines.append("there are further conflicts: all constraints were let give")
            together, elastic = wider, wider.elastic
    proved = _by_branching(Relaxations(together, alone), clock)
    together, alone = proved.together, dict(proved.alone)
    shown = tuple(n for n in elastic if n in names or together.total(n) > 0.0)
    rows = tuple((n, *_alone(alone.get(n), system.problem), _amount(together, n)) for n in shown)
    if all(r.solution is None for r in (together, *alone.values())):
        return None
    evidence, remedies = Relaxations(together, alone), list[str]()
    if not evidence.verify():
        lines.append(WORD)
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
        evidence,
        numbers,
    )


def _by_branching(all_of: Relaxations, clock: Clock) -> Relaxations:
    """Return relaxations with a proof of those among integers, as far as a short time goes."""
    end = time.perf_counter() + (ENDLESS if clock.left is None else min(ENDLESS, clock.left))
    proofs: dict[int, Solution | None] = {}

    def proved(r: Relaxation) -> Relaxation:
        key, s = id(r.solution), r.solution
        if s is None or s.grade.sound or not s.problem.integers:
            return r
        if key not in proofs:  # some share one
            left = end - time.perf_counter()
            proofs[key] = clock.run(lambda: _proof(s, left)) if left > 0.0 else None
        return replace(r, solution=proofs[key] or s)

    return Relaxations(proved(all_of.together), {k: proved(r) for k, r in all_of.alone.items()})


def _proof(solution: Solution, seconds: float) -> Solution | None:
    """Return a solution whose bound is proved by branching, None where the tree is large."""
    with contextlib.suppress(OptfairError):
        return solution.certificate.prove(time_limit=seconds).solution
    return None


def _within_tolerance(r: Relaxation, system: System) -> bool:
    """Whether a point that violates what gives would count as feasible."""
    name, values = r.elastic[0], r.solution.values if r.solution is not None else {}
    return bool((r.amounts()[name] <= system.tolerance * system.sizes(name, values)).all())


def _alone(r: Relaxation | None, problem: Problem) -> tuple[str, str]:
    if r is None:
        return "not tried", ""
    if r.solution is None:
        return r.refusal, ""
    name = r.elastic[0]
    return f"{r.total(name):.6g}", f"{r.largest(name):.6g}{_place(r, name, problem)}"


def _place(r: Relaxation, name: str, problem: Problem) -> str:
    """Return the entry that gives most, by its labels or index; empty for a single one."""
    given = r.amounts()[name]
    if given.size <= 1:
        return ""
    index = np.unravel_index(int(np.argmax(given)), given.shape)
    entry = tuple(int(i) for i in index)
    whole = name in problem.constraints and problem.constraints[name].shape == given.shape
    label = problem.entry_label(name, entry) if whole else ", ".join(map(str, entry))
    return f" at [{label}]"


def _amount(together: Relaxation, name: str) -> str:
    return "unknown" if together.solution is None else f"{together.total(name):.6g}"
