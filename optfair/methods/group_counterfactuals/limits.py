"""Limits that a rule guesses to switch features off, the features that move, and what keeps guesses from deciding."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from optfair.core.certificate import Certificate, Verdict
from optfair.core.composition import named_term
from optfair.core.problem_class import ProblemClass, Structure
from optfair.core.term import ConstraintTerm, family
from optfair.errors import Infeasible, SolverFailure, Unbounded, UnsupportedProblem
from optfair.numbers import Floats

if TYPE_CHECKING:
    from optfair.core.problem import Problem
    from optfair.core.solution import Solution
    from optfair.methods.group_counterfactuals.map_problem import MapProblem


# Which features a map moves, as the binary variable of a rule.

#: Part of the name of the binary variable that counts features.
MOVED = "moved"
#: A feature that may still move or not, where 1 says that it may and 0 that it may not.
FREE = -1
#: A convex problem but for one binary variable that says which features move.
SUPPORT = Structure("feature-support", (), None, "")


def support_refusal(problem: Problem) -> str:
    """Return why a problem is not convex but for the features that move, else an empty string."""
    if len(problem.integers) != 1:
        return f"it has {len(problem.integers)} integer variables and not one"
    if problem.sense != "minimize":
        return "its objective is maximised"
    (name,) = problem.integers
    count = f"{name.rpartition('.')[0]}.count"
    if not name.endswith(f".{MOVED}") or count not in problem.constraints:
        return f"{name!r} does not count features"
    for term in problem.terms:
        if not term.evidence.problem_class.convex:
            return f"{term.name!r} is not known to be convex"
    return ""


def covers(choices: Sequence[tuple[int, ...]]) -> bool:
    """Whether no two parts of the choices overlap and their shares of all choices add up to 1."""
    fixed = np.array(choices)
    if not fixed.size:
        return False
    share = float(np.sum(0.5 ** (fixed != FREE).sum(axis=1)))
    apart = np.array(
        [((fixed != row) & (fixed != FREE) & (row != FREE)).any(axis=1) for row in fixed]
    )
    np.fill_diagonal(apart, True)
    return bool(apart.all() and abs(share - 1.0) <= 1e-12)


# Limits that a rule guesses to switch features off, and what keeps them from deciding.

Fixed = tuple[int, ...]


# How often a limit is enlarged, and how many convex problems may be solved to find out how far.
ROUNDS, MOST = 4, 512


@dataclass(frozen=True, eq=False)
class Limit:
    """The number r that rows of `at_most` were written with: they hold where the cost is at most r².

    Parameters
    ----------
    reach : float
        r.
    given : bool
        Whether somebody gave it: then it is a constraint like any other, else a guess.
    relies : frozenset of str
        Names of the model's bounds on the matrix that the row takes for granted.
    write : callable
        Writes the row for another r: ``write(problem, moved, reach)`` returns the constraint
        and what it relies on.
    """

    reach: float
    given: bool
    relies: frozenset[str]
    write: Callable[[Any, Any, float], tuple[Any, frozenset[str]]]


def guessed(problem: MapProblem) -> dict[str, ConstraintTerm]:
    """Return the terms whose limit nobody gave, by name."""
    limited = {name: t for name, t in problem.constraints.items() if t.limit is not None}
    return {name: t for name, t in limited.items() if not t.limit.given}


def without_guesses(problem: MapProblem) -> Any:
    """Return a relaxation: the rows with a guessed limit are gone, and features not counted."""
    gone = guessed(problem)
    kept = {name: t for name, t in problem.constraints.items() if name not in gone}
    counts = frozenset(_moved(t) for t in gone.values())
    relaxed: Any = problem.with_terms(problem.objective, kept)
    return relaxed._child(integers=problem.integers - counts) if gone else problem


def solved_within(problem: MapProblem, ask: Callable[..., Solution]) -> Solution:
    r"""Return what ``ask`` finds on a problem whose guessed limits take nothing away.

    Rows written with r hold for every map of cost at most r². A bound on the optimum is one
    without the limit too as long as it is at most r², for whatever was cut off costs more. Else
    any feasible point says how far to look: with its cost :math:`r^2` no better map is cut off.

    Parameters
    ----------
    problem : MapProblem
        With rows whose terms have a `Limit`.
    ask : callable
        Solves a problem with what the user asked for; with ``by_default=True`` by the default
        solvers.

    Raises
    ------
    Infeasible
        No choice of features is enough, whatever the limit.
    UnsupportedProblem
        The limit touches, and how far to look could not be found out.
    """
    limits = [t.limit for t in problem.constraints.values() if t.limit is not None]
    stated = problem
    if any(not limit.relies <= set(problem.constraints) for limit in limits):
        stated = _rewritten(problem)  # a bound that a row took for granted was removed
    reach = min((limit.reach for limit in limits if not limit.given), default=None)
    if reach is None:
        return ask(stated)
    said: tuple[str, ...] = ()
    for _ in range(ROUNDS):
        try:
            solution = ask(stated)
        except Infeasible:
            cost = _Choices(problem, ask, reach).cost()
        except SolverFailure as e:
            if e.claim == "infeasible":
                cost = _Choices(problem, ask, reach).cost()
            elif not said:
                raise  # nothing to do with the limit
            else:
                raise _touching(problem, reach, str(e)) from None
        else:
            if _harmless(problem, solution, reach):
                return replace(solution, attempts=(*said, *solution.attempts)) if said else solution
            cost = solution.objective
        last, reach = reach, max(1.25 * reach, float(np.sqrt(max(cost, 0.0))) * (1.0 + 1e-6))
        said += (f"the limit {last:.6g} of at_most touched: asked again with largest={reach:.6g}",)
        stated = _rewritten(problem, reach)
    raise _touching(problem, reach, f"it still touches after {ROUNDS} enlargements")


def _harmless(problem: MapProblem, solution: Solution, reach: float) -> bool:
    """Whether no map that the limit cuts off can be better than the bound that is claimed."""
    if not problem.objective or solution.bound == -np.inf:
        return True  # any point will do, or nothing is claimed
    strange = [n for n in problem.objective if not n.startswith(("transport cost", "soft "))]
    if strange or problem.sense != "minimize":
        goal = ", ".join(map(repr, strange or problem.objective))
        raise _touching(problem, reach, f"it bounds the transport cost; the objective is {goal}")
    return bool(solution.bound <= reach**2)


def _rewritten(problem: MapProblem, reach: float | None = None) -> Any:
    """Return the problem with its guessed limits enlarged, and all rows as its bounds allow."""
    terms = dict(problem.constraints)
    for name, term in problem.constraints.items():
        if term.limit is not None:
            r = term.limit.reach if term.limit.given or reach is None else reach
            row, relies = term.limit.write(problem, problem[_moved(term)], r)
            limit = replace(term.limit, reach=r, relies=relies)
            new = named_term(problem, name, row)
            terms[name] = replace(new, latex=term.latex, origin=term.origin, limit=limit)
    return problem.with_terms(problem.objective, terms)


def _moved(term: ConstraintTerm) -> str:
    """Return the name of the variable that counts features in a row."""
    return next(name for name in term.scope if name.endswith(f".{MOVED}"))


def _touching(problem: MapProblem, reach: float, why: str) -> UnsupportedProblem:
    names = ", ".join(repr(n) for n in dict.fromkeys(map(family, guessed(problem))))
    return UnsupportedProblem(
        f"the limit on how far {names} lets a feature move may decide the answer",
        f"at_most guessed the limit {reach:.6g} from the members alone: {why}",
        "give a limit: at_most(..., largest=r), where r² is more than any map you want may cost",
    )


@dataclass(frozen=True, eq=False, repr=False)
class NoChoice(Certificate):
    """Proof that no choice of the features that move is feasible, however far they may move.

    Parameters
    ----------
    problem : MapProblem
        Whose features move.
    leaves : tuple
        Of (which features move, the infeasible convex problem): 1 moves, 0 is held, -1 is open;
        None in place of a problem where more features move than may.
    """

    problem: MapProblem
    leaves: tuple[tuple[Fixed, Infeasible | None], ...]
    of_objective = False

    @property
    def most(self) -> int:
        """How many may move."""
        return _Cases(self.problem).most

    def cases(self, fixed: Fixed) -> Iterator[Any]:
        """Yield the convex problems of which one has to be infeasible."""
        return _Cases(self.problem).refutable(fixed)

    def verify(self) -> Verdict:
        """Verify every leaf, and that the leaves cover all choices."""
        reasons: tuple[str, ...] = ()
        for fixed, error in self.leaves:
            if error is None:
                if fixed.count(1) <= self.most:
                    reasons += (f"{fixed} does not move more than {self.most} features",)
            elif (known := error.certificate) is None:
                reasons += (f"{fixed} has no certificate",)
            elif all(faults := [known.faults(case) for case in self.cases(fixed)]):
                reasons += faults[0]
        if not covers([fixed for fixed, _ in self.leaves]):
            reasons += ("the choices that were refuted are not all",)
        return Verdict(not reasons, reasons)

    def __str__(self) -> str:
        return f"{len(self.leaves)} infeasible convex problems, which cover all choices"


class _Cases:
    """The convex problems of some features that move and others that do not, without a limit."""

    def __init__(self, problem: MapProblem) -> None:
        self.problem, self.bare = problem, without_guesses(problem)
        self.names = tuple(dict.fromkeys(_moved(t) for t in guessed(problem).values()))
        counts = (problem.constraints.get(f"{n.removesuffix(MOVED)}count") for n in self.names)
        d = len(problem.features)
        # the size of the right-hand side of the count is the number itself
        self.counts = tuple(t for t in counts if t is not None)
        self.most = min((round(t.largest_side) for t in self.counts), default=d)
        own = {n.removesuffix(MOVED) + w for n in self.names for w in ("count", "signs", "ones")}
        counted = {n for n, t in self.bare.constraints.items() if t.scope & set(self.names)}
        self.linked, self.own = counted - own, own

    def case(self, fixed: Fixed, pinned: bool = True) -> Any:
        """Return the problem of a choice, pinned where what counts is told which features move."""
        known = np.array(fixed)
        held, rows = np.flatnonzero(known == 0), dict[str, Any]()
        if held.size:
            rows["held features"] = self.bare.fixed(held)
        stated = pinned and FREE not in fixed
        at = np.arange(known.size) if stated else np.flatnonzero(known == 1)
        if at.size:
            for name in self.names:
                label = f"choice of {name.replace('.', ' ')}"
                rows[label] = self.bare[name][at] == known[at].astype(float)
        return self.bare.with_constraints(rows)

    def refutable(self, fixed: Fixed) -> Iterator[Any]:
        """Yield the problems of which none has a point where one has none: whole ones and parts.

        What other constraints on the count say of held features is not what is refuted.
        """
        loose = FREE not in fixed and bool(self.linked)
        for pinned in (False,) if loose else (True, False):
            case = self.case(fixed, pinned)
            yield from (case, _linear_part(case))


def _linear_part(case: Any) -> Any:
    linear = {
        name: t
        for name, t in case.constraints.items()
        if t.evidence.problem_class <= ProblemClass()
    }
    return case.with_terms({}, linear)


class _Choices(_Cases):
    """A search for a choice of features that is feasible, by convex problems without a limit."""

    def __init__(self, problem: MapProblem, ask: Callable[..., Solution], reach: float) -> None:
        super().__init__(problem)
        self.ask, self.reach = ask, reach
        self.leaves: list[tuple[Fixed, Infeasible | None]] = []
        self.doubt = ""

    def cost(self) -> float:
        """Return the cost of a feasible point, or raise the proof that there is none."""
        stack: list[Fixed] = [(FREE,) * len(self.problem.features)]
        for _ in range(MOST):
            if not stack:
                raise self._undecided(self.doubt) if self.doubt else self._none()
            fixed = stack.pop()
            if fixed.count(1) > self.most:
                self.leaves.append((fixed, None))
                continue
            solution = self._solve(fixed)
            if isinstance(solution, Infeasible):
                self._refuted(fixed, solution)
                continue
            moves = self._movement(solution)
            if FREE not in fixed:
                return max(
                    float(moves.sum()), solution.objective if self.problem.objective else 0.0
                )
            free = [j for j, v in enumerate(fixed) if v == FREE]
            at = min(free, key=lambda j: float(moves[j]))
            stack += [(*fixed[:at], value, *fixed[at + 1 :]) for value in (1, 0)]
        raise self._undecided(f"{MOST} convex problems did not find a map")

    def _refuted(self, fixed: Fixed, error: Infeasible) -> None:
        """Keep the proof that a part of the choices is infeasible, or why there is none."""
        if FREE not in fixed and self.linked:
            # what other constraints on the count say of held features is not what is refuted
            again = self._solve(fixed, pinned=False)
            if not isinstance(again, Infeasible):
                self.doubt = "further constraints on the features that count"
                return
            error = again
        if error.certificate is None:
            self.doubt = str(error)
        else:
            self.leaves.append((fixed, error))

    def _solve(self, fixed: Fixed, pinned: bool = True) -> Solution | Infeasible:
        child = self.case(fixed, pinned)
        try:
            return self.ask(child, by_default=True)
        except Infeasible as e:
            return e if e.certificate is not None else self._linear(child, e)
        except (SolverFailure, Unbounded, UnsupportedProblem) as e:
            if isinstance(e, SolverFailure) and e.claim == "infeasible":
                return self._linear(child, Infeasible(e.cause, e.evidence))
            raise self._undecided(str(e)) from None

    def _linear(self, child: Any, error: Infeasible) -> Infeasible:
        """Return a proof from the linear constraints alone, of which a simplex method has one."""
        try:
            self.ask(_linear_part(child), by_default=True)
        except Infeasible as e:
            return e if e.certificate is not None else error
        except (SolverFailure, Unbounded, UnsupportedProblem):
            return error
        return error

    def _movement(self, solution: Solution) -> Floats:
        """Return what each feature adds to the cost."""
        total = np.zeros(len(self.problem.features))
        for piece in self.problem.pieces:
            mean, A = piece.read(solution.values)
            turned = np.square((A - np.eye(total.size)) @ piece.moments.root).sum(axis=1)
            total += piece.weight * (np.square(mean - piece.moments.mean) + turned)
        return np.asarray(self.problem.feature_costs * total)

    def _none(self) -> Infeasible:
        if len(self.leaves) == 1 and self.leaves[0][1] is not None:
            return self.leaves[0][1]  # infeasible without a count
        named = (n for _, e in self.leaves if e is not None for n in e.conflict)
        counts = [t.name for t in self.counts]
        known = self.problem.constraints.keys() - self.own
        conflict = [n for n in dict.fromkeys(named) if n in known] + counts
        return Infeasible(
            f"no choice of {self.most} features to move satisfies the constraints",
            f"{len(self.leaves)} convex problems, which cover all choices, are infeasible, "
            "however far a feature may move",
            "let more features move, or soften one of " + ", ".join(map(repr, conflict)),
            certificate=NoChoice(self.problem, tuple(self.leaves)),
            conflict=conflict,
        )

    def _undecided(self, why: str) -> UnsupportedProblem:
        return _touching(self.problem, self.reach, f"nothing is feasible within it; {why}")
