"""The named constraints of a problem as a system that is asked part by part."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from optfair.backends.branching import BranchingProof
from optfair.backends.facial_reduction import facial_contradiction
from optfair.backends.farkas import InfeasibilityProof, proved_infeasible
from optfair.backends.linear_program import HeldRows
from optfair.backends.registry import choose
from optfair.backends.solve import solve
from optfair.compile.form import Compiled, compile_problem
from optfair.core.certificate import Certificate, Verdict
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

# Entries of a Farkas vector below such a share of the largest are rounding; rows whose terms are below
# such a share of what their constraint is measured by are in units of their own, if these are numbers.
NOISE, APART, TINY = 1e-9, 1e-3, 1e-100


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
        Largest violation, relative to `System.sizes`.
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
        """Return what violations of a constraint are measured by: the unit of the data + its right-hand side.

        Where the terms of linear rows are far less, in units of columns, they are in a unit of their own.
        """
        size: float = self.unit + self.problem.constraints[name].largest_side
        own = None if self.linear is None else self.linear.terms(name, {})
        most = size if own is None else float(own.max(initial=0.0))
        return most if TINY < most < APART * size else size

    def sizes(self, name: str, values: Values) -> Any:
        """Return what violations at a point are measured by, of linear rows each by its own terms."""
        own = None if self.linear is None else self.linear.terms(name, values)
        size = self.size(name)
        return size if own is None else np.minimum(size, own)

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
            sides = {k: self.problem.constraints[k].largest_side for k in off}
            off = {k: v * (1.0 + sides[k]) / (self.unit + sides[k]) for k, v in off.items()}
        for name in [name for name, v in off.items() if 0.0 < v < np.inf]:
            outside = self.problem.constraints[name].violation(values)
            off[name] = max(off[name], float(np.max(outside / self.sizes(name, values))))
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

    def terms(self, name: str, values: Values) -> Floats | None:
        """Return what the terms of each row of a constraint add up to at a point, None of other rows.

        A column counts for a number in its unit at least, and a right-hand side is a term.
        """
        compiled, form = self.compiled, self.compiled.form
        at = compiled.plain_rows(name) if name in compiled.constraints else None
        if at is None:
            return None
        x = form.column_units.copy()
        for variable, place in self._places.items() if values else ():
            known = place >= 0
            own = np.abs(np.asarray(values[variable], dtype=float))[known]
            x[place[known]] = np.maximum(x[place[known]], own)
        size = np.maximum(form.products.terms(x)[at], np.abs(form.b[at]))
        size = np.where(size > 0.0, size, 1.0)
        return np.asarray(size.reshape(compiled.constraints[name].shape, order="F"))

    @cached_property
    def _places(self) -> Mapping[str, Any]:
        return self.compiled.places()

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
