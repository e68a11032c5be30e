"""Integer programs bounded or excluded by branching: every case by multipliers of its own."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from optfair.backends.case_search import (
    Case,
    CaseSearch,
    Split,
    Tree,
    bound_of,
    cases,
    declared_value,
)
from optfair.backends.farkas import InfeasibilityProof, proved_infeasible
from optfair.backends.integer_programs import (
    integer_columns,
)
from optfair.backends.registry import conic_interface
from optfair.backends.remainders import Remainder, remainder
from optfair.compile.form import Compiled, compile_problem
from optfair.core.certificate import Certificate, DualCheck, Optimality, Verdict, drift, unvouched
from optfair.core.expressions import Values, check_parameters
from optfair.errors import Infeasible, OptfairError, SolverFailure, UnsupportedProblem, kind_of
from optfair.numbers import Floats
from optfair.transforms.relaxation import relaxed

if TYPE_CHECKING:
    from optfair.core.problem import Problem
    from optfair.core.solution import Solution


@dataclass(frozen=True, eq=False)
class BranchedBound:
    """A tree that leaves out no integer, whose cases bound the objective or have no point.

    Attributes
    ----------
    problem : Problem
        With its integers.
    compiled : Compiled
        Its continuous relaxation.
    x : array (n,)
        The point it is compared with.
    tree : Split or Case
        The cases.
    """

    problem: Problem
    compiled: Compiled
    x: Floats
    tree: Split | Case
    source: str = "branching"

    @property
    def leaves(self) -> int:
        """Number of cases."""
        return sum(isinstance(n, Case) for _, n in cases(self.tree))

    def entry_sizes(self, name: str, values: Values, stated: Any = None) -> Floats:
        """Return the size of each entry of a constraint, 0 where its right-hand side tells it."""
        return self.compiled.entry_sizes(name, values, stated)

    def check(self, values: Values, multipliers: Mapping[str, Any]) -> DualCheck:
        """Return the least bound of all cases, rounded outward; each pair is looked at once."""
        form, upper = self.compiled.form, declared_value(self.problem, self.compiled, self.x)
        leaves = bound_of(form, integer_columns(self.problem, self.compiled), self.tree, upper)
        return DualCheck(
            bound=form.sign * min(leaves.value, upper),
            dual=0.0,
            consistency=max(drift(values, self.compiled.values(self.x)), unvouched(multipliers)),
            unpaid=leaves.unpaid,
            free=() if leaves.unpaid is None else form.column_names(leaves.unpaid.columns),
            unit=form.unit,
            rows=form.worst_row(self.x, form.slack(self.x)),
            apart=True,
        )


def proved(certificate: Optimality, time_limit: float) -> Optimality:
    """Return a certificate with a bound proved by branching, in more digits, or by boxes.

    Parameters
    ----------
    certificate : Optimality
        Of a solution whose bound a solver reports.
    time_limit : float
        Wall seconds for the tree.

    Raises
    ------
    UnsupportedProblem
        The relaxation is not convex and has many variables, or nothing is reported.
    SolverFailure
        The tree, or the cover by boxes, is not closed in time.
    """
    if not isinstance(certificate, Optimality):
        raise UnsupportedProblem(f"{kind_of(certificate)} is proved as it stands, or not")
    solution, tolerance = certificate.solution, certificate.tolerance
    check_parameters((problem := solution.problem).terms)
    if problem.problem_class.convex and not problem.integers:
        from optfair.backends.exact import everywhere

        return everywhere(certificate, time_limit)
    if solution.grade.sound:
        return certificate
    if not problem.problem_class.convex:
        from optfair.backends.boxes import enclosed

        return _graded(*enclosed(solution, tolerance, time_limit), tolerance)
    inner = getattr(solution.proof, "relaxed", None)
    if inner is not None:  # tangents: their linear program has the integers
        closed = proved(Optimality(inner, 0.1 * tolerance), time_limit).solution
        return _graded(solution, replace(solution.proof, relaxed=closed), tolerance)  # type: ignore[type-var]
    compiled = compile_problem(relaxed(problem), conic_interface())
    end = time.perf_counter() + time_limit
    search = CaseSearch(problem, compiled, tolerance, end, unit=solution.unit)
    tree, values = search.tree(solution), compiled.values(search.x)
    proof = BranchedBound(problem, compiled, search.x, tree)
    at = problem.objective_at(values)
    moved = replace(solution, values=values, objective=at, multipliers={})
    return _graded(moved, proof, tolerance)


def _graded(solution: Solution, proof: Any, tolerance: float) -> Optimality:
    """Return a solution with another proof, graded anew."""
    bound = proof.check(solution.values, solution.multipliers).bound
    moved = replace(solution, proof=proof, bound=bound)
    residuals = moved.residuals()
    reasons = residuals.above(tolerance)
    if reasons:
        raise SolverFailure("the tree is closed, but its point is not optimal", "; ".join(reasons))
    status = replace(moved.status, termination="optimal", grade=residuals.grade(tolerance))
    return Optimality(replace(moved, status=status), tolerance)


@dataclass(frozen=True, eq=False, repr=False)
class BranchingProof(Certificate):
    """A tree whose branches leave out no integer and whose leaves are infeasible.

    Parameters
    ----------
    problem : Problem
        With its integers.
    tree : Split, Case or Remainder
        A leaf certifies that the continuous constraints and the bounds above it in the tree
        exclude each other.
    names : tuple of str
        The constraints that it is about, all where none are named.
    """

    problem: Problem
    tree: Tree
    names: tuple[str, ...] = ()
    of_objective = False

    @property
    def conflict(self) -> tuple[str, ...]:
        """Names of the constraints."""
        return self.names or tuple(self.problem.constraints)

    def verify(self) -> Verdict:
        """Compile the constraints anew and check the certificate of every leaf."""
        compiled = compile_problem(relaxed(self.problem), conic_interface())
        leaves = bound_of(compiled.form, integer_columns(self.problem, compiled), self.tree)
        if leaves.value == np.inf:
            return Verdict(True)
        return Verdict(False, (leaves.fault or "a case has a bound, and may have a point",))

    @property
    def by_multipliers(self) -> bool:
        """Whether multipliers exclude every case, as a proof file holds them."""
        return not any(isinstance(n, Remainder) for _, n in cases(self.tree))

    @property
    def leaves(self) -> int:
        """Number of cases."""
        return sum(not isinstance(n, Split) for _, n in cases(self.tree))

    def __str__(self) -> str:
        cases = "1 case" if self.leaves == 1 else f"{self.leaves} cases"
        by = f"{cases} by branching, each with a Farkas certificate"
        return str(self.tree) if isinstance(self.tree, Remainder) else by

    __repr__ = __str__


def excluded(
    problem: Problem, seconds: float, most: int
) -> BranchingProof | InfeasibilityProof | None:
    """Return a proof that no point satisfies the convex constraints and the integers of a problem.

    None where no tree of so many cases is closed in time, or it does not compile to cones.

    Parameters
    ----------
    problem : Problem
        Its objective does not matter: one that is curved may be what a solver fails on.
    seconds : float
        Wall seconds for the tree.
    most : int
        Cases it may have.
    """
    try:
        rows = problem.with_terms({}, problem.constraints)
        compiled = compile_problem(relaxed(rows), conic_interface())
        tree: Tree | None = remainder(compiled.form, integer_columns(rows, compiled))
    except OptfairError:
        return None
    if not isinstance(tree, Remainder) or tree.opposite:  # a file holds a tree of cases
        search = CaseSearch(rows, compiled, 1e-7, time.perf_counter() + seconds, most)
        with suppress(OptfairError):
            tree = search.closed_below(())
    if isinstance(tree, Remainder):
        held = (n for n in rows.constraints if {*compiled.rows(n)} & tree.used)
        return BranchingProof(rows, tree, tuple(held))
    if tree is None or problem.integers or not isinstance(tree, Case):
        return None if tree is None else BranchingProof(rows, tree)
    owned = {name: compiled.rows(name) for name in compiled.constraints}
    return proved_infeasible(compiled.form, tree.z, owned)


def without_a_point(problem: Problem, seconds: float, most: int) -> Infeasible | None:
    """Return what to raise where it is proved that no point is feasible, as `excluded` does.

    Neither the objective matters nor constraints that are not convex, where the others suffice.
    """
    rows = {n: t for n, t in problem.constraints.items() if t.evidence.problem_class.convex}
    left = problem if problem.problem_class.convex else problem.with_terms({}, rows)
    proof = excluded(left, seconds, most) if rows else None
    if proof is None or not proof.verify():
        return None
    whole = "integer " if problem.integers else ""
    return Infeasible(
        f"no {whole}point satisfies {', '.join(map(repr, proof.conflict))}",
        f"{proof}, verified on the compiled data",
        "remove or soften one of them; diagnose() names fewer",
        certificate=proof,
        conflict=proof.conflict,
    )
