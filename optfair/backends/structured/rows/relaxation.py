"""A relaxation that keeps some rows of a problem: compiled once, rows appended to its cone data."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp
from cvxpy.constraints import SOC, Equality, Inequality, NonNeg, NonPos, Zero
from numpy.typing import NDArray

from optfair.backends.cone_program import solve_cone_program
from optfair.backends.policy import conic_interface
from optfair.backends.structured.rows.point import Block, RelaxedPoint
from optfair.compile.form import Compiled, compile_problem
from optfair.core.canonical import built
from optfair.core.term import ConstraintTerm
from optfair.errors import UnsupportedProblem
from optfair.proofs.cones import Cone
from optfair.solution.conic_form import ConicForm

if TYPE_CHECKING:
    from optfair.core.problem import Problem

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

__all__ = ["Relaxation"]

# Constraints whose multipliers CVXPY lists row after row.
ROW_BY_ROW = (Equality, Inequality, NonNeg, NonPos, SOC, Zero)


class Relaxation:
    """The terms that are short, and some rows of those that are long.

    The short terms and the objective go through CVXPY once. Rows that are added later go
    through it by themselves, a few at a time, and are appended to the cone program: what a
    round costs does not depend on how much is already there.

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
        short = {name: t for name, t in problem.constraints.items() if t.rows is None}
        self.base = compile_problem(
            problem.with_terms(problem.objective, short), conic_interface(), {}
        )
        zero = {name: np.zeros(v.shape) for name, v in problem.variables.items()}
        self.counts = {name: int(np.size(t.violation(zero))) for name, t in self.long.items()}
        self.clear()

    def clear(self) -> None:
        """Take all rows of the long terms out."""
        self.blocks: list[Block] = []
        self._columns = _variable_columns(self.base)
        self._width = self.base.form.q.size
        self._height = self.base.form.b.size
        self._home = dict.fromkeys(self._columns, self.base)
        self._form: ConicForm | None = None

    def missing(self, term: str) -> Indices:
        """Return the rows of a term that are not here."""
        absent = np.ones(self.counts[term], dtype=bool)
        for block in self.blocks:
            if block.term == term:
                absent[block.rows] = False
        return np.flatnonzero(absent)

    @property
    def complete(self) -> bool:
        """Whether all rows are here."""
        return sum(block.rows.size for block in self.blocks) == sum(self.counts.values())

    @property
    def width(self) -> int:
        """Columns of the short terms: the freedom that rows can take away."""
        return self.base.form.q.size

    def add(self, term: str, rows: Indices) -> None:
        """Append rows of a term."""
        build = self.long[term].rows
        if build is None or not rows.size:
            return
        some = replace(self.long[term], build=lambda: build(rows), rows=None)
        compiled = compile_problem(self.problem.with_terms({}, {term: some}), conic_interface(), {})
        if not isinstance(built(compiled.constraints[term]), ROW_BY_ROW):
            raise UnsupportedProblem(
                f"{term!r} is a cone whose multipliers are not listed row by row",
                remedy="name a solver, it gets the whole problem",
            )
        own = np.full(compiled.form.q.size, -1, dtype=np.intp)
        for i, here in _variable_columns(compiled).items():
            if i not in self._columns:
                size = here.stop - here.start
                self._columns[i] = slice(self._width, self._width + size)
                self._home[i] = compiled
                self._width += size
            own[here] = np.arange(self._columns[i].start, self._columns[i].stop)
        for name in some.scope:  # CVXPY puts another variable in the place of some kinds
            if self.problem[name].id not in self._columns:
                raise UnsupportedProblem(
                    f"{name!r} has attributes that rows cannot be generated with",
                    remedy="name a solver, it gets the whole problem",
                )
        new = np.flatnonzero(own < 0)  # epigraph variables of these rows
        own[new] = self._width + np.arange(new.size)
        self._width += new.size
        self.blocks.append(Block(term, rows, compiled, own, self._height))
        self._height += compiled.form.b.size
        self._form = None

    @property
    def form(self) -> ConicForm:
        """The cone program as it stands."""
        if self._form is None:
            self._form = self._assembled()
        return self._form

    def _assembled(self) -> ConicForm:
        base = self.base.form
        parts = [(base.A, np.arange(base.q.size), 0)]
        parts += [(block.compiled.form.A, block.columns, block.start) for block in self.blocks]
        entries = [(sp.coo_array(A), columns, start) for A, columns, start in parts]
        data = np.concatenate([e.data for e, _, _ in entries])
        down = np.concatenate([e.row + start for e, _, start in entries])
        across = np.concatenate([columns[e.col] for e, columns, _ in entries])
        P = sp.coo_array(base.P)
        cones = list(base.cones)
        for block in self.blocks:
            cones += [_moved(c, block.start) for c in block.compiled.form.cones]
        return ConicForm(
            P=sp.csc_array((P.data, (P.row, P.col)), shape=(self._width, self._width)),
            q=np.concatenate([base.q, np.zeros(self._width - base.q.size)]),
            offset=base.offset,
            A=sp.csc_array((data, (down, across)), shape=(self._height, self._width)),
            b=np.concatenate([base.b, *(block.compiled.form.b for block in self.blocks)]),
            cones=tuple(cones),
            sign=base.sign,
        )

    @cached_property
    def _unit(self) -> float:
        """A power of two that brings the largest coefficient of the objective near 1."""
        sizes = np.abs(np.concatenate([self.base.form.q, self.base.form.P.data]))
        largest = float(sizes.max(initial=0.0))
        return float(2.0 ** -np.round(np.log2(largest))) if largest > 0.0 else 1.0

    def solve(self, tolerance: float, time_limit: float) -> RelaxedPoint:
        """Solve it as it stands."""
        form, unit = self.form, self._unit
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
        homes = {
            self.problem.names[i]: next(k for k, b in enumerate(self.blocks) if b.compiled is home)
            for i, home in self._home.items()
            if home is not self.base
        }
        return RelaxedPoint(
            found.status,
            self.problem,
            self.base,
            tuple(self.blocks),
            homes,
            form,
            found.x,
            found.z / unit,
        )


def _moved(cone: Cone, by: int) -> Cone:
    return replace(cone, start=cone.start + by, stop=cone.stop + by)


def _variable_columns(compiled: Compiled) -> dict[int, slice]:
    """Return the columns of the declared variables by CVXPY id."""
    return {compiled.variables[name].id: at for name, at in compiled.form.columns.items()}
