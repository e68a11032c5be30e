"""A relaxation that keeps some rows of a problem, and the points of the whole that it gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from cvxpy.constraints import SOC, Equality, Inequality, NonNeg, NonPos, Zero

from optfair.backends.cone_program import solve_cone_program
from optfair.backends.registry import conic_interface
from optfair.compile.form import Compiled, compile_problem
from optfair.core.canonical import built
from optfair.core.expressions import Values
from optfair.core.term import ConstraintTerm
from optfair.errors import UnsupportedProblem
from optfair.numbers import Floats, Indices
from optfair.solution.conic_form import ConicForm

if TYPE_CHECKING:
    from optfair.core.problem import Problem

# A primal-dual point of a relaxation by rows, read by the names of the declared problem.


@dataclass(frozen=True, eq=False)
class Block:
    """Some rows of one term.

    Attributes
    ----------
    term : str
        Name of the term.
    rows : array (k,)
        Which of its rows.
    """

    term: str
    rows: Indices


@dataclass(frozen=True, eq=False)
class RowMultipliers:
    """Multipliers of a term of many rows, of which most are 0.

    Attributes
    ----------
    rows : array (k,)
        Rows that may have one.
    lines : array (k, width)
        A number per row for an inequality, the entries of the dual cone for a cone.
    """

    rows: Indices
    lines: Floats

    @property
    def size(self) -> Floats:
        """Size of the multiplier of each row."""
        return np.asarray(np.abs(self.lines).max(axis=1))

    def dense(self, count: int, shape: tuple[int, ...]) -> Floats:
        """Return the multipliers of all rows, in the shape of the term."""
        full = np.zeros((count, self.lines.shape[1]))
        full[self.rows] = self.lines
        return full.reshape(shape) if full.size == int(np.prod(shape)) else full.ravel()


@dataclass(frozen=True, eq=False)
class RelaxedPoint:
    """Where the solver of the relaxation ended; it does not change when rows are added later.

    Attributes
    ----------
    status : str
        Of the cone program.
    compiled : Compiled
        The cone program.
    blocks : dict
        Term of the relaxation -> the rows of a long term that it is.
    x, z : arrays
        Primal and dual point, or a Farkas vector z.
    """

    status: str
    compiled: Compiled
    blocks: Mapping[str, Block]
    x: Floats
    z: Floats

    @property
    def form(self) -> ConicForm:
        """The cone program in arrays."""
        return self.compiled.form

    @cached_property
    def values(self) -> dict[str, Floats]:
        """Values of the declared variables."""
        return self.compiled.values(self.x)

    @cached_property
    def _multipliers(self) -> dict[str, Floats]:
        return self.compiled.multipliers(self.z)

    @cached_property
    def short(self) -> dict[str, Floats]:
        """Multipliers of the terms that are there as a whole."""
        return {k: y for k, y in self._multipliers.items() if k not in self.blocks}

    @cached_property
    def long(self) -> dict[str, RowMultipliers]:
        """Multipliers of the rows at hand, by term."""
        names = dict.fromkeys(block.term for block in self.blocks.values())
        return {name: self._of(name) for name in names}

    def _of(self, term: str) -> RowMultipliers:
        own = {key: block for key, block in self.blocks.items() if block.term == term}
        lines = [self._multipliers[key].reshape(b.rows.size, -1) for key, b in own.items()]
        return RowMultipliers(np.concatenate([b.rows for b in own.values()]), np.concatenate(lines))


# A relaxation that keeps some rows of a problem.

# Constraints whose multipliers CVXPY lists row after row.
ROW_BY_ROW = (Equality, Inequality, NonNeg, NonPos, SOC, Zero)


# How many times its unit the largest coefficient of an objective may be.
BESIDE = 1e4


class Relaxation:
    """The terms that are short, and some rows of those that are long.

    Rows are terms of their own, which are turned into matrices once, when they come.

    Parameters
    ----------
    problem : Problem
        Whose terms with ``rows`` are generated.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.long: dict[str, ConstraintTerm] = {
            name: t for name, t in problem.constraints.items() if t.rows is not None
        }
        self._short = {name: t for name, t in problem.constraints.items() if t.rows is None}
        zero = {name: np.zeros(v.shape) for name, v in problem.variables.items()}
        self.counts = {name: int(np.size(t.violation(zero))) for name, t in self.long.items()}
        self.blocks: dict[str, Block] = {}
        self._terms: dict[str, ConstraintTerm] = {}
        self._compiled: Compiled | None = None
        #: columns of the short terms: the freedom that rows can take away
        self.width = self.compiled.form.q.size

    def clear(self) -> None:
        """Take all rows of the long terms out."""
        self.blocks, self._terms, self._compiled = {}, {}, None

    def missing(self, term: str) -> Indices:
        """Return the rows of a term that are not here."""
        absent = np.ones(self.counts[term], dtype=bool)
        for block in self.blocks.values():
            if block.term == term:
                absent[block.rows] = False
        return np.flatnonzero(absent)

    @property
    def complete(self) -> bool:
        """Whether all rows are here."""
        return sum(block.rows.size for block in self.blocks.values()) == sum(self.counts.values())

    def add(self, term: str, rows: Indices) -> None:
        """Append rows of a term."""
        build = self.long[term].rows
        if build is None or not rows.size:
            return
        key = f"{term} rows {len(self.blocks)}"
        some = replace(self.long[term], name=key, build=lambda: build(rows), rows=None)
        if not isinstance(built(some), ROW_BY_ROW):
            raise UnsupportedProblem(
                f"{term!r} is a cone whose multipliers are not listed row by row",
                remedy="name a solver, it gets the whole problem",
            )
        self.blocks[key], self._terms[key] = Block(term, rows), some
        self._compiled = None

    @property
    def compiled(self) -> Compiled:
        """The program as it stands."""
        if self._compiled is None:
            terms = {**self._short, **self._terms}
            whole = self.problem.with_terms(self.problem.objective, terms)
            self._compiled = compile_problem(whole, conic_interface())
        return self._compiled

    @cached_property
    def _unit(self) -> float:
        """A power of two that brings the largest coefficient of the objective near 1.

        Where the objective itself is small beside it, as it is in small units, solvers would stop
        too early: then it brings its unit near 1.
        """
        sizes = np.abs(np.concatenate([self.compiled.form.q, self.compiled.form.P.data]))
        largest = min(float(sizes.max(initial=0.0)), BESIDE * self.problem.objective_unit)
        return float(2.0 ** -np.round(np.log2(largest))) if largest > 0.0 else 1.0

    def solve(self, tolerance: float, time_limit: float) -> RelaxedPoint:
        """Solve it as it stands."""
        form, unit = self.compiled.form, self._unit
        found = solve_cone_program(
            form.P * unit,
            form.q * unit,
            form.A,
            form.b,
            form.cones,
            tolerance=tolerance,
            time_limit=time_limit,
            scattered=all(cone.kind != "psd" for cone in form.cones),
        )
        return RelaxedPoint(found.status, self.compiled, dict(self.blocks), found.x, found.z / unit)


# A feasible point from one that satisfies some of the rows.

# Halvings of the segment, and what counts as feasible.
HALVINGS, FEASIBLE = 40, 1e-9


def repaired(problem: Problem, outside: Values | None = None) -> dict[str, Any] | None:
    """Return the last feasible point on the way from a feasible one to the point given.

    The feasible set is convex, so the way leaves it once. A model that knows a feasible point of
    its own terms has a method ``feasible_point``; None when there is none, or when further
    constraints exclude it. Without a point to go to it stays at the feasible one.
    """
    known = getattr(problem, "feasible_point", None)
    inside: Values | None = None if known is None else known()
    if inside is None or _violation(problem, inside) > FEASIBLE:
        return None
    if outside is None:
        return {k: np.array(v) for k, v in inside.items()}

    def at(share: float) -> dict[str, Any]:
        return {k: inside[k] + share * (np.asarray(outside[k]) - inside[k]) for k in outside}

    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        if _violation(problem, at(middle)) <= FEASIBLE:
            low = middle
        else:
            high = middle
    return at(low)


def _violation(problem: Problem, values: Values) -> float:
    return max((t.relative_violation(values) for t in problem.constraints.values()), default=0.0)
