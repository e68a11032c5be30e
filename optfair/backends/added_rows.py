"""Rows added between solves: cuts that a user writes at each point, and pools of solutions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import cvxpy as cp
import numpy as np

from optfair.backends.branching import integer_columns
from optfair.backends.registry import conic_interface
from optfair.compile.form import compile_problem
from optfair.core.certificate import Certificate
from optfair.core.labels import free_name
from optfair.core.solution import Solution
from optfair.core.term import family
from optfair.errors import ClassError, Infeasible, SolverFailure, data_frame
from optfair.transforms.relaxation import relaxed

if TYPE_CHECKING:
    from optfair.core.problem import Problem

# Stops that leave an incumbent, which may or may not obey the cuts.
EARLY = ("time_limit", "interrupted")

Answer = Callable[[Any], Solution]


def with_cuts(
    problem: Problem,
    cuts: Callable[[Mapping[str, Any]], Any],
    answer: Answer,
    tolerance: float,
    deadline: float = np.inf,
) -> Solution:
    """Solve a problem again with what its user adds, until nothing new cuts the point off.

    Every problem on the way has fewer rows than the user means, so its bound holds for the whole;
    the last point obeys all that was returned for it.

    Parameters
    ----------
    problem : Problem
        Without the rows.
    cuts : callable
        Values by name -> constraint, rule, list or dict of them, or None; on the problem's variables.
    answer : callable
        Solves a problem and verifies it.
    tolerance : float
        Relative violation from which a row cuts a point off.
    deadline : float
        ``time.perf_counter()`` at which to stop.

    Returns
    -------
    Solution
        Of the problem with the cuts that were needed, ``cut 1``, ``cut 2`` and so on.

    Raises
    ------
    SolverFailure
        It was stopped before a point obeyed all rows; the last, with its bound, is attached.
    """
    stated, count, rounds, spent = problem, 0, 0, dict[str, float]()
    solution: Solution | None = None
    while True:
        try:
            solution = answer(stated)
        except SolverFailure:
            if solution is None or time.perf_counter() < deadline:
                raise
            raise _stopped(solution, "time_limit") from None
        for word, seconds in solution.seconds.items():
            spent[word] = spent.get(word, 0.0) + seconds
        rounds += 1
        begin = time.perf_counter()
        try:
            given = _by_name(cuts(solution.values), count, {*map(family, stated.constraints)})
        except KeyboardInterrupt:
            raise _stopped(solution, "interrupted") from None
        count += len(given)
        grown = stated.with_constraints(given) if given else stated
        rows, unit, values = grown.constraints, grown.data_unit, solution.values
        broken = {
            family(label)
            for label in rows.keys() - stated.constraints.keys()
            if rows[label].violations(values, unit)[0] > tolerance
        }
        off = {name for name in given if family(name) in broken}
        spent["cuts"] = spent.get("cuts", 0.0) + time.perf_counter() - begin
        if not off:
            more = len(stated.constraints) - len(problem.constraints)
            options = {**solution.options, "cuts": more, "rounds": rounds}
            return replace(solution, options=options, seconds=spent)
        if solution.status.termination in EARLY:
            raise _stopped(solution, solution.status.termination)
        if time.perf_counter() > deadline:
            raise _stopped(solution, "time_limit")
        idle = [name for name in given if name not in off]
        stated = grown.without(*idle) if idle else grown


def _by_name(given: Any, count: int, taken: set[str]) -> dict[str, Any]:
    """Return the rows by names that no others have."""
    if given is None:
        return {}
    several = list(given) if isinstance(given, (list, tuple)) else [given]
    numbered = {f"cut {count + i}": c for i, c in enumerate(several, 1)}
    named: dict[str, Any] = {}
    for name, c in (given if isinstance(given, Mapping) else numbered).items():
        named[free_name(str(name), taken | named.keys())] = c
    return named


def _stopped(last: Solution, word: str) -> SolverFailure:
    return SolverFailure(
        f"{word.replace('_', ' ')}: no point obeys all cuts yet",
        f"the last has the objective {last.objective:.8g} and proves the bound {last.bound:.8g}",
        "give more time, or return more cuts for a point; it is the solution of this error",
        solution=last,
    )


@dataclass(frozen=True, eq=False, repr=False)
class Pool:
    """Solutions of an integer problem in the order of their objectives.

    Attributes
    ----------
    solutions : tuple of Solution
        Each is an optimum of the problem without those before it.
    ended : str
        exhausted, full (as many as were asked for), time_limit, interrupted, or why the next was not
        found.
    proof : Certificate or None
        That there are no more, where it is exhausted and that is proved.
    """

    solutions: tuple[Solution, ...]
    ended: str
    proof: Certificate | None = None

    def __len__(self) -> int:
        return len(self.solutions)

    def __iter__(self) -> Iterator[Solution]:
        return iter(self.solutions)

    def __getitem__(self, i: int) -> Solution:
        return self.solutions[i]

    def frame(self) -> Any:
        """Return a pandas DataFrame, one row a solution.

        Raises
        ------
        NotInstalled
            pandas is missing.
        """
        return data_frame(
            [
                {
                    "objective": s.objective,
                    "bound": s.bound,
                    "grade": s.grade.word,
                    "solver": s.solver,
                }
                for s in self.solutions
            ]
        )

    def __repr__(self) -> str:
        proved = "" if self.ended != "exhausted" else f", {self.proof or 'reported by the solver'}"
        values = ", ".join(f"{s.objective:.8g}" for s in self.solutions[:10])
        return f"Pool of {len(self)} solutions ({self.ended}{proved}): {values}"


def pooled(problem: Problem, many: int, answer: Answer) -> Solution:
    r"""Solve a binary problem again without the solutions that are known.

    After a solution :math:`\hat x` the row :math:`\sum_{\hat x_i = 0} x_i + \sum_{\hat x_i = 1} (1 -
    x_i) \ge 1` leaves out nothing but its binaries.

    Parameters
    ----------
    problem : Problem
        Its integers are between 0 and 1.
    many : int
        Solutions to look for.
    answer : callable
        Solves a problem and verifies it.

    Returns
    -------
    Solution
        The best, with the `Pool`.

    Raises
    ------
    ClassError
        No integers, or one that may have another value than 0 and 1.
    """
    _check_binary(problem)
    stated, known, ended, proof = problem, list[Solution](), "full", None
    while len(known) < many:
        try:
            solution = answer(stated)
        except (Infeasible, SolverFailure, KeyboardInterrupt) as e:
            if not known:
                raise
            if isinstance(e, Infeasible):
                ended, proof = "exhausted", e.certificate
            elif isinstance(e, SolverFailure):
                ended = "exhausted" if e.claim == "infeasible" else e.cause
            else:
                ended = "interrupted"
            break
        early = solution.status.termination in EARLY
        if early:
            ended = solution.status.termination
        if not early or not known:  # an incumbent may come out of order
            known.append(solution)
        if early:
            break
        at = {name: np.round(np.asarray(solution[name])) for name in sorted(problem.integers)}
        changed = sum(
            cp.sum(cp.multiply(1.0 - 2.0 * v, stated[name])) + float(v.sum())
            for name, v in at.items()
        )
        label = free_name(f"not solution {len(known)}", solution.problem.constraints)
        stated = solution.problem.with_constraints({label: changed >= 1.0})
    return replace(known[0], pool=Pool(tuple(known), ended, proof))


def _check_binary(problem: Problem) -> None:
    if not problem.integers:
        raise ClassError(
            f"a pool is of problems with binaries, this is {problem.problem_class}",
            remedy="ask for one solution; or with_integrality(NAME)",
        )
    compiled = compile_problem(relaxed(problem), conic_interface())
    lower, upper = compiled.form.column_bounds
    columns = integer_columns(problem, compiled)
    there = all((np.asarray(compiled.places()[name]) >= 0).all() for name in problem.integers)
    whole = np.ceil(lower[columns]), np.floor(upper[columns])
    if not there or (whole[0] < 0.0).any() or (whole[1] > 1.0).any():
        raise ClassError(
            "an integer variable may have another value than 0 and 1",
            "rows that leave out a solution are written on binaries",
            "bound it by 0 and 1, or write it by binaries",
        )
