"""A relaxation that keeps some rows of a problem."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from cvxpy.constraints import SOC, Equality, Inequality, NonNeg, NonPos, Zero
from numpy.typing import NDArray

from optfair.backends.cone_program import solve_cone_program
from optfair.backends.policy import conic_interface
from optfair.backends.rows.point import Block, RelaxedPoint
from optfair.compile.form import Compiled, compile_problem
from optfair.core.canonical import built
from optfair.core.term import ConstraintTerm
from optfair.errors import UnsupportedProblem

if TYPE_CHECKING:
    from optfair.core.problem import Problem

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

__all__ = ["Relaxation"]

# Constraints whose multipliers CVXPY lists row after row.
ROW_BY_ROW = (Equality, Inequality, NonNeg, NonPos, SOC, Zero)


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
        """A power of two that brings the largest coefficient of the objective near 1."""
        sizes = np.abs(np.concatenate([self.compiled.form.q, self.compiled.form.P.data]))
        largest = float(sizes.max(initial=0.0))
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
