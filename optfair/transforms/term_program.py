"""The cone program of a convex problem, term by term: every row and column belongs to a term."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.backends.policy import conic_interface
from optfair.compile.conic_proof import form_check
from optfair.compile.form import Compiled, compile_problem
from optfair.core.certificate import DualCheck
from optfair.core.expressions import Values
from optfair.core.problem import Problem
from optfair.errors import ClassError
from optfair.proofs.cones import Cone
from optfair.solution.conic_form import ConicForm
from optfair.transforms.recovery import apart

Floats = NDArray[np.float64]
Integers = NDArray[np.intp]

__all__ = ["TermProgram", "TermProgramProof", "TermRows", "single_term", "term_program"]


@dataclass(frozen=True, eq=False)
class TermRows:
    """The part of the cone program that one term compiles to.

    Attributes
    ----------
    name : str
        Name of the term.
    compiled : Compiled
        The term alone: an objective without constraints, or a constraint without objective.
    columns : array of int
        Where its columns stand in the whole program.
    start : int
        Where its rows begin in the whole program.
    own : array of int or None
        Entry k of the term's multiplier is row ``own[k]`` of the part, in the shape of the
        multiplier; None for an objective term, and for a matrix inequality.
    sign : array or None
        Sign between that row's multiplier and the term's.
    matrix : Cone or None
        Block of rows of a matrix inequality.
    """

    name: str
    compiled: Compiled
    columns: Integers
    start: int
    own: Integers | None = None
    sign: Floats | None = None
    matrix: Cone | None = None

    @property
    def rows(self) -> slice:
        """Rows of the part in the whole program."""
        return slice(self.start, self.start + self.compiled.form.b.size)

    def by_name(self, x: Floats, z: Floats) -> tuple[dict[str, Floats], dict[str, Floats]]:
        """Return values and multipliers by name from a point of the whole program."""
        return self.compiled.by_name(x[self.columns], z[self.rows])


@dataclass(frozen=True, eq=False)
class TermProgram:
    """Minimise ½xᵀPx + qᵀx + offset subject to b - Ax in K, assembled from terms.

    Attributes
    ----------
    problem : Problem
        What was compiled.
    form : ConicForm
        The whole program; columns of the variables first, then those that terms introduce.
    parts : tuple of TermRows
        Objective terms, then constraint terms.
    columns : dict
        Variable name, or ``TERM auxiliary``, -> its columns.
    """

    problem: Problem
    form: ConicForm
    parts: tuple[TermRows, ...]
    columns: Mapping[str, slice]

    def by_name(self, x: Floats, z: Floats) -> tuple[dict[str, Floats], dict[str, Floats]]:
        """Return values and multipliers by name."""
        values = {name: np.zeros(v.shape) for name, v in self.problem.variables.items()}
        multipliers: dict[str, Floats] = {}
        for part in self.parts:
            found, duals = part.by_name(x, z)
            term = self.problem.constraints.get(part.name) or self.problem.objective[part.name]
            values |= {name: found[name] for name in term.scope}
            multipliers |= duals
        return values, multipliers


def term_program(problem: Problem) -> TermProgram:
    """Compile every term by itself and put the parts together.

    Raises
    ------
    ClassError
        A constraint uses no variable, so it has no multiplier.
    UnsupportedProblem
        CVXPY cannot compile a term.
    """
    interface = conic_interface()
    terms = [(name, single_term(problem, name)) for name in problem.objective]
    terms += [(name, single_term(problem, name)) for name in problem.constraints]
    offset, compiled = 0.0, []
    sign = 1.0 if problem.sense == "minimize" else -1.0
    for name, alone in terms:
        if alone.terms[0].scope:
            compiled.append((name, compile_problem(alone, interface, {})))
        elif name in problem.objective:
            offset += sign * problem.objective[name].value({})
        else:
            raise ClassError(
                f"{name!r} uses no variable, so it has no multiplier",
                remedy=f"remove it: problem.without({name!r})",
            )
    return _assembled(problem, compiled, offset, sign)


def single_term(problem: Problem, name: str) -> Problem:
    """Return a problem of one term as it stands, whatever a model makes of missing ones.

    A term may be convex only because others hold features fixed.
    """
    objective = {n: t for n, t in problem.objective.items() if n == name}
    constraints = {n: t for n, t in problem.constraints.items() if n == name}
    child: Problem = Problem._child(
        problem,
        objective=MappingProxyType(objective),
        constraints=MappingProxyType(constraints),
    )
    return child


def _assembled(
    problem: Problem, compiled: list[tuple[str, Compiled]], offset: float, sign: float
) -> TermProgram:
    columns: dict[str, slice] = {}
    width = height = 0
    for name in problem.variables:
        own = [c.form.columns[name] for _, c in compiled if name in c.form.columns]
        columns[name] = slice(width, width + (own[0].stop - own[0].start if own else 0))
        width = columns[name].stop
    parts = []
    for name, c in compiled:
        where = np.full(c.form.q.size, -1, dtype=np.intp)
        for variable, at in c.form.columns.items():
            where[at] = np.arange(at.stop - at.start) + columns[variable].start
        extra = np.flatnonzero(where < 0)
        if extra.size:
            columns[f"{name} auxiliary"] = slice(width, width + extra.size)
            where[extra] = width + np.arange(extra.size)
            width += extra.size
        parts.append(_located(TermRows(name, c, where, height), name in problem.constraints))
        height += c.form.b.size
    q = np.zeros(width)
    blocks, quadratic = [], sp.csc_array((width, width))
    cones: list[Cone] = []
    for part in parts:
        form = part.compiled.form
        place = sp.csc_array(
            (np.ones(part.columns.size), (np.arange(part.columns.size), part.columns)),
            shape=(part.columns.size, width),
        )
        blocks.append(form.A @ place)
        quadratic = quadratic + place.T @ form.P @ place
        np.add.at(q, part.columns, form.q)
        offset += form.offset
        cones += [
            replace(c, start=c.start + part.start, stop=c.stop + part.start) for c in form.cones
        ]
    form = ConicForm(
        P=sp.csc_array(quadratic),
        q=q,
        offset=offset,
        A=sp.csc_array(sp.vstack(blocks)) if blocks else sp.csc_array((0, width)),
        b=np.concatenate([p.compiled.form.b for p in parts]) if parts else np.zeros(0),
        cones=tuple(cones),
        columns={name: columns[name] for name in problem.variables},
        sign=sign,
    )
    return TermProgram(problem, form, tuple(parts), columns)


def _located(part: TermRows, constraint: bool) -> TermRows:
    """Find out which rows carry the multiplier of the term, by marking each with its number."""
    if not constraint:
        return part
    form = part.compiled.form
    marks = np.arange(1.0, form.b.size + 1.0)
    marked = part.compiled.by_name(np.zeros(form.q.size), marks)[1][part.name]
    for cone in form.cones:
        block = marks[cone.start : cone.stop]
        square = cone.kind == "psd" and np.shape(marked) == (cone.order, cone.order)
        if square and np.allclose(cone.matrix(block), marked):
            return replace(part, matrix=cone)
    rows = np.abs(marked) - 1.0
    whole = np.round(rows)
    if not np.array_equal(rows, whole) or np.unique(whole).size != whole.size:
        raise ClassError(
            f"the multiplier of {part.name!r} is not a row of its cone program",
            f"it compiles to {', '.join(c.kind for c in form.cones)}",
            "write it as ==, <=, >= or >>",
        )
    return replace(part, own=whole.astype(np.intp), sign=np.sign(marked))


@dataclass(frozen=True, eq=False)
class TermProgramProof:
    """A primal-dual pair of the cone program, checked by its residuals.

    The named values and multipliers must be the image of (x, z); stationarity, feasibility
    and complementarity are recomputed from the data of the terms.
    """

    program: TermProgram
    x: Floats
    z: Floats
    source: str = "duality"

    @property
    def problem(self) -> Problem:
        """The problem whose optimum it bounds."""
        return self.program.problem

    def check(self, values: Values, multipliers: Mapping[str, Any]) -> DualCheck:
        """Recompute the bound from the data of the terms."""
        ours, duals = self.program.by_name(self.x, self.z)
        drift = [apart(values.get(k), v) for k, v in ours.items()]
        drift += [apart(multipliers.get(k), v) for k, v in duals.items()]
        return form_check(self.program.form, self.x, self.z, float(np.max(drift, initial=0.0)))
