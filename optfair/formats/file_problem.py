"""A problem from a file, with its disjunctions and elastic rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from types import MappingProxyType
from typing import Any, Self
from weakref import WeakKeyDictionary

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.backends.solve import solve
from optfair.core.composition import RELATIONS, named_term, objective_term
from optfair.core.labels import Axes, Labelled, axes_of
from optfair.core.parameters import Datum
from optfair.core.problem import Declaration, Problem
from optfair.core.solution import names_of_entries
from optfair.core.term import ConstraintTerm
from optfair.errors import DataError, DeclarationError, Infeasible, OptfairError, nearest
from optfair.formats.file_terms import BlockTerm, Entries, constraints, objective
from optfair.formats.layout import (
    Families,
    Layout,
    Rows,
    RowsInProgress,
    index_labels,
    suffixed,
    unique_names,
)
from optfair.formats.text import Source, spellings
from optfair.transforms.relaxation import relaxed

# Semicontinuous columns, special ordered sets and indicators, as binaries and bounds.
#
# What a file states about "zero, or between two bounds" becomes linear rows with binary columns.
# The factor of a binary is the bound itself, so the rows say exactly what the file says; where a
# bound is missing there is no such row, and the file is refused.

Fail = Callable[[str, str], DataError]
_GIVE_BOUND = "give it a finite bound"


@dataclass(eq=False)
class Disjunctions:
    """What a file states beside rows, each with its line: rows once every bound is known.

    Attributes
    ----------
    indicators : list of (row, column, value, line)
    sets : list of (name, kind, members, line)
    semicontinuous : dict
        Column -> line.
    """

    indicators: list[tuple[int, int, int, int]] = field(default_factory=list)
    sets: list[tuple[str, int, list[tuple[int, float]], int]] = field(default_factory=list)
    semicontinuous: dict[int, int] = field(default_factory=dict)

    def add_to(self, f: RowsInProgress, source: Source) -> None:
        """Add them as rows and binaries."""
        stated = {j: (f.lower[j], f.upper[j]) for j in self.semicontinuous}
        for j, (low, high) in stated.items():  # how far they reach is what the others need to know
            f.lower[j], f.upper[j] = min(low, 0.0), max(high, 0.0)
        for i, j, value, source.line in self.indicators:
            add_indicator(f, i, j, value, source.fail)
        for name, kind, members, source.line in self.sets:
            add_special_ordered_set(f, name, kind, members, source.fail)
        for j, source.line in self.semicontinuous.items():
            f.lower[j], f.upper[j] = stated[j]
            add_semicontinuous(f, j, source.fail)


def _binary(f: RowsInProgress, name: str) -> int:
    return f.add_column(name, integer=True, upper=1.0)


def add_semicontinuous(f: RowsInProgress, j: int, fail: Fail) -> None:
    r"""Let a column be 0 or between its bounds: :math:`l y \le x \le u y`, y binary.

    Raises
    ------
    DataError
        A bound is infinite.
    """
    name, low, high = f.columns[j], f.lower[j], f.upper[j]
    if not (np.isfinite(low) and np.isfinite(high)):
        raise fail(f"the semicontinuous column {name!r} has no finite upper bound", _GIVE_BOUND)
    y = _binary(f, f"{name} on")
    f.add_row(f"{name} semicontinuous upper", -np.inf, 0.0, {j: 1.0, y: -high})
    if low != 0.0:
        f.add_row(f"{name} semicontinuous lower", 0.0, np.inf, {j: 1.0, y: -low})
    f.lower[j], f.upper[j] = min(low, 0.0), np.inf  # the upper bound is in the row


def add_special_ordered_set(
    f: RowsInProgress, name: str, kind: int, members: Sequence[tuple[int, float]], fail: Fail
) -> None:
    r"""Let at most one column, or two neighbours by weight, differ from 0.

    Parameters
    ----------
    f : RowsInProgress
        Where rows and binaries are added.
    name : str
        Of the set.
    kind : {1, 2}
        At most one, or two neighbours.
    members : sequence of (column, weight)
        The weights give the order.
    fail : callable
        Makes the error.

    Raises
    ------
    DataError
        A weight or column occurs twice, or a bound is infinite.
    """
    order = [j for j, _ in sorted(members, key=lambda m: m[1])]
    if len(set(order)) < len(order) or len({w for _, w in members}) < len(order):
        raise fail(f"the set {name!r} has a column or a weight twice", "correct the file")
    if len(order) <= kind:
        return  # it states nothing
    count = len(order) - kind + 1
    on = [_binary(f, f"{name} on[{k}]") for k in range(count)]
    f.add_row(f"{name} on", -np.inf, 1.0, dict.fromkeys(on, 1.0))
    for k, j in enumerate(order):
        owners = on[max(k - kind + 1, 0) : k + 1]
        for word, bound, needed in (
            ("upper", f.upper[j], f.upper[j] > 0.0),
            ("lower", f.lower[j], f.lower[j] < 0.0),
        ):
            if not needed:
                continue
            if not np.isfinite(bound):
                reason = f"{f.columns[j]!r} in the set {name!r} has no finite {word} bound"
                raise fail(reason, _GIVE_BOUND)
            entries = {j: 1.0, **dict.fromkeys(owners, -bound)}
            sides = (-np.inf, 0.0) if word == "upper" else (0.0, np.inf)
            f.add_row(f"{name} {word}[{k}]", *sides, entries)


def add_indicator(f: RowsInProgress, i: int, column: int, value: int, fail: Fail) -> None:
    r"""Let a row hold only where a binary column has a value.

    With M the largest value of :math:`a^T x` between the bounds, :math:`a^T x \le b` becomes
    :math:`a^T x \le M - (M - b) z` for z = 1 and :math:`a^T x \le b + (M - b) z` for z = 0. M is
    rounded up, so that it cuts nothing off; where M - (M - b) is not b to the last digit, the
    first is stated as the second, of a column 1 - z.

    Raises
    ------
    DataError
        The column is not binary, the row has products, or a bound is missing.
    """
    name = f.rows[i]
    if not f.integer[column] or (f.lower[column], f.upper[column]) != (0.0, 1.0):
        raise fail(f"{f.columns[column]!r} decides {name!r} and is not binary", "make it binary")
    if i in f.row_products:
        raise fail(f"the indicator row {name!r} has products", "only linear rows can be switched")
    entries = f.entries_of(i)
    low, high = f.row_lower[i], f.row_upper[i]
    sides = [s for s in ("upper", "lower") if np.isfinite(high if s == "upper" else low)]
    off: int | None = None
    for side in sides:
        sign = 1.0 if side == "upper" else -1.0
        b = high if side == "upper" else low
        most = _largest(f, entries, sign)
        if most is None:
            raise fail(
                f"the columns of the indicator row {name!r} have no finite bounds", _GIVE_BOUND
            )
        # how far the row may be broken at all
        spare = _above(max(most - Fraction(sign * b), Fraction(0)))
        factor, limit, z = -spare, sign * b, column
        if value == 1 and Fraction(limit + spare) == Fraction(limit) + Fraction(spare):
            factor, limit = spare, limit + spare
        elif value == 1:
            if off is None:
                off = _binary(f, f"{name} off")
                f.add_row(f"{name} off", 1.0, 1.0, {off: 1.0, column: 1.0})
            z = off
        if side == sides[0]:
            f.entries.append(([i], [z], [sign * factor]))
            f.row_lower[i], f.row_upper[i] = (
                (-np.inf, limit) if side == "upper" else (-limit, np.inf)
            )
        else:
            more = {**entries, z: entries.get(z, 0.0) + sign * factor}
            f.add_row(f"{name} {side}", -limit, np.inf, more)


# What sums of numbers of a file may be.
FARTHEST = Fraction(10) ** 300


def _largest(f: RowsInProgress, entries: dict[int, float], sign: float) -> Fraction | None:
    """Return the largest value of sign * a'x between the bounds, None where it is no number."""
    total = Fraction(0)
    for j, v in entries.items():
        if not v:
            continue
        end = f.upper[j] if sign * v > 0.0 else f.lower[j]
        if not np.isfinite(end):
            return None
        total += Fraction(float(sign * v)) * Fraction(float(end))
    return total if abs(total) < FARTHEST else None


def _above(value: Fraction) -> float:
    """Return the least float that is not below a fraction."""
    near = float(value)
    return near if Fraction(near) >= value else float(np.nextafter(near, np.inf))


# Which rows of a gathered term carry a conflict: those that an elastic program has to bend.

# Multipliers of at least this share of the largest carry the conflict.
_SHARE = 1e-7


def carrying_entries(problem: Problem, time_limit: float | None) -> dict[str, NDArray[np.int64]]:
    r"""Return the entries of gathered terms that exclude each other, by term.

    Every gathered row :math:`a^T x \le b` may be bent:

    .. math:: \min_{x,\, s \ge 0}\; \sum_k s_k \quad\text{s.t.}\quad a_k^T x - s_k \le b_k

    The rows with multipliers are those whose combination has no solution. Integers are
    relaxed. Nothing is returned where the rows can hold together, or no answer was found.

    Parameters
    ----------
    problem : Problem
        Convex; its gathered terms are looked at.
    time_limit : float, optional
        Wall seconds this is worth.
    """
    gathered = {
        name: t.block
        for name, t in problem.constraints.items()
        if isinstance(t, BlockTerm) and t.block is not None and t.block.gathered
    }
    if not gathered:
        return {}
    rest = {k: t for k, t in problem.constraints.items() if k not in gathered}
    bent = relaxed(problem).with_terms({}, rest)
    slacks, elastic, bounds = {}, {}, {}
    for name, block in gathered.items():
        s = cp.Variable((2 if block.side == "==" else 1, block.members.size), name=f"bend {name}")
        slacks[f"bend {name}"] = s
        body = block.body()
        moved = body - s[0] + s[1] if block.side == "==" else body - s[0]
        moved = body + s[0] if block.side == ">=" else moved
        elastic[name] = RELATIONS[block.side](moved, block.limits)
        bounds[f"bend {name} nonnegative"] = s >= 0
    bent = bent.with_variables(slacks).with_constraints({**elastic, **bounds})
    sign = 1.0 if bent.sense == "minimize" else -1.0
    total = sign * sum(cp.sum(s) for s in slacks.values())
    goal = objective_term("bend", total, bent.names, bent.sense)
    bent = bent.with_terms({"bend": goal}, bent.constraints)
    try:
        solution = solve(bent, time_limit=time_limit)
    except OptfairError:
        return {}
    sizes = {
        k: np.abs(np.ravel(np.asarray(solution.multipliers[k], dtype=float))) for k in gathered
    }
    largest = max((float(v.max(initial=0.0)) for v in sizes.values()), default=0.0)
    if abs(solution.objective) <= 0.0 or not largest:
        return {}
    return {k: np.flatnonzero(v > _SHARE * largest) for k, v in sizes.items()}


# A problem from arrays or a file: one vector of columns, few terms, every entry with its label.


# Of each problem, for as long as it lives.
_ENTRIES: WeakKeyDictionary[Problem, Entries] = WeakKeyDictionary()


class FileProblem(Problem):
    r"""What a file or arrays state.

    .. math::
        \min_x \text{ or } \max_x\; \tfrac12 x^T P x + c^T x + r
        \quad\text{s.t.}\quad
        l_k \le \tfrac12 x^T P_k x + a_k^T x \le u_k,\;
        l \le x \le u,\; x_j \in \mathbb{Z}\; (j \in J)

    All continuous columns are one variable and all integer columns another. ``p["x"]`` is the
    array of the columns ``x[0]``, ``x[1]``, ... (or ``x1``, ``x2``, ...) as an expression, and
    ``p["COL1"]`` a single column; `row` is the left side of a row. Solutions are read the same
    way: ``s["x"]``, ``s["COL1"]``, ``s.shadow_price["ROW1"]``.

    Rows with the same stem are one term of that name, and bounds are terms ``x lower``, ``x upper`` and
    ``x fixed``. A file of more than 32 such arrays has one term per sense instead: ``rows ==``,
    ``rows <=``, ``rows >=``, ``ranges lower`` and ``ranges upper``; and bounds by side.

    Parameters
    ----------
    rows : Rows
        The data.
    title : str
        What it is called in prints.

    Examples
    --------
    >>> import optfair as of
    >>> p = of.from_arrays(q=[1.0, 2.0], A=[[1.0, 1.0]], l=3.0, ub=2.0, rows=["demand"])
    >>> s = p.solve()
    >>> s["x"].tolist(), float(s["x[0]"]), float(s.shadow_price["demand"])
    ([2.0, 1.0], 2.0, 2.0)
    """

    unit_from_data = True

    def __init__(self, rows: Rows, title: str = "") -> None:
        super().__init__({"rows": rows})
        self._set(title=title or self.title)

    rows = Datum[Rows]("The data as the file states them.")

    @property
    def arrays(self) -> Families:
        """Names of the arrays that columns form, with their shapes."""
        return self._layout.families

    @cached_property
    def _layout(self) -> Layout:
        return Layout(self.rows)

    def declare(self) -> Declaration:
        """Return the two vectors and the terms of rows and bounds."""
        layout = self._layout
        return Declaration(
            layout.variables,
            "maximize" if self.rows.maximize else "minimize",
            (objective(self.rows, layout),),
            tuple(constraints(self.rows, layout)),
            layout.integers,
        )

    # --- columns and rows by label -----------------------------------------------------------

    def __getitem__(self, name: str) -> Any:
        if name in self.variables:
            return self.variables[name]
        at = self._layout.find(name)
        if at is None:
            known = [*self.variables, *self.arrays]
            raise DeclarationError(
                f"no variable or column {name!r} in {self.title}", remedy=nearest(str(name), known)
            )
        return self._layout.expression(at)

    def row(self, label: str) -> Any:
        """Return the left side of a row as an expression, to state further constraints on it.

        Raises
        ------
        DeclarationError
            There is no row of that label.
        """
        i = self._layout.row_index.get(label)
        if i is None:
            raise DeclarationError(
                f"no row {label!r} in {self.title}",
                remedy=nearest(str(label), list(self._layout.row_index)),
            )
        body = self._layout.times(self.rows.A[[i], :])[0]
        return body + self._layout.quadratic(self.rows.row_P[i]) if i in self.rows.row_P else body

    def times(self, matrix: Any) -> Any:
        """Return matrix @ columns as an expression, for a matrix with a column per column."""
        return self._layout.times(sp.csr_array(matrix))

    def point(self, values: Mapping[str, Any]) -> NDArray[np.float64]:
        """Return the values of all columns in the order of the file."""
        return self._layout.vector(values)

    def entry_labels(self, variable: str) -> Sequence[str]:
        """Return the labels of the columns that a vector holds."""
        members = self._layout.members.get(variable)
        return () if members is None else [self.rows.columns[j] for j in members]

    def shape_of(self, name: str) -> tuple[int, ...] | None:
        """Return the shape of a variable, a constraint or an array of columns."""
        array = self.arrays.get(name)
        return super().shape_of(name) if array is None else array.shape

    def axes(self, name: str) -> Axes:
        """Return the axes of a vector, an array or rows, empty where its entries are counted."""
        if name in self.given_axes:
            return super().axes(name)
        if name not in self._axes:
            self._axes[name] = self._read_axes(name)
        return self._axes[name]

    def _read_axes(self, name: str) -> Axes:
        shape, labels = self.shape_of(name), self.entry_labels(name)
        if name in self.arrays:
            labels = [self.rows.columns[j] for j in self.arrays[name].members]
        elif name in self.constraints:
            stated = self.constraints[name].labels
            labels = stated() if stated else ()
        own = index_labels(labels, len(shape)) if shape and labels else ()
        return axes_of(own, shape or (), repr(name)) if own else ()

    @cached_property
    def _axes(self) -> dict[str, Axes]:
        """What `axes` found: reading many labels takes long."""
        return {}

    def labelled(self, numbers: Mapping[str, Any], what: str) -> Mapping[str, Any]:
        """Return numbers by variable or constraint that are also found by label."""
        if isinstance(numbers, Labelled):
            return numbers
        find = {"values": self._value, "prices": self._price}.get(what, self._multiplier)
        return Labelled(numbers, find, self._entries_of)

    def _entries_of(self, numbers: Mapping[str, Any]) -> Iterator[str]:
        for name in numbers:
            yield from names_of_entries(self, name, name in self.constraints)

    def _value(self, values: Mapping[str, Any], name: str) -> Any:
        at = self._layout.find(name)
        if at is None or not self._layout.variables.keys() <= set(values):
            return None
        return self._layout.vector(values)[at.members].reshape(at.shape, order="F")

    def _multiplier(self, multipliers: Mapping[str, Any], label: str) -> Any:
        for name, at in self._terms_of(label):
            if name in multipliers and self._label(name, at) in spellings(label):
                return _entry(multipliers[name], at)
        return None

    def _price(self, prices: Mapping[str, Any], label: str) -> Any:
        parts = [(name, at) for name, at in self._terms_of(label) if name in prices]
        # of a row with two sides one is idle
        return np.sum([_entry(prices[name], at) for name, at in parts]) if parts else None

    def _label(self, name: str, at: int) -> str:
        labels = self.constraints[name].labels
        return labels()[at] if labels else name

    def _terms_of(self, label: str) -> list[tuple[str, int]]:
        """Return (term, entry) of a label: both sides of a row with two."""
        each = spellings(label)
        sides = [*each, *(suffixed(s, word) for word in ("lower", "upper") for s in each)]
        places = [self._places[side] for side in dict.fromkeys(sides) if side in self._places]
        return [part for side in places for part in side]

    @cached_property
    def _places(self) -> dict[str, list[tuple[str, int]]]:
        places: dict[str, list[tuple[str, int]]] = {}
        for name, term in self.constraints.items():
            for at, entry in enumerate(term.labels() if term.labels else ()):
                places.setdefault(entry, []).append((name, at))
        return places

    def _child(self, **fields: Any) -> Self:
        child = super()._child(**fields)
        for kept in ("_places", "_axes"):
            child.__dict__.pop(kept, None)
        return child

    def objective_at(self, values: Mapping[str, Any]) -> float:
        """Return the objective at values by vector, or by array of columns."""
        return super().objective_at(self._layout.complete(values))

    def extended(
        self, variables: Mapping[str, Any], parts: Sequence[tuple[str, Any]], goal: Any = None
    ) -> FileProblem:
        """Return this problem with what else its file states: cones, matrix variables.

        Parameters
        ----------
        variables : mapping
            Name -> CVXPY variable.
        parts : sequence of (name, constraint)
            CVXPY constraints, or terms that state their own evidence.
        goal : cvxpy.Expression, optional
            What is added to the objective.
        """
        wide: FileProblem = self.with_variables(variables) if variables else self
        names = unique_names([*self.constraints, *(name for name, _ in parts)])
        terms: dict[str, ConstraintTerm] = dict(self.constraints)
        for name, (_, part) in zip(names[len(terms) :], parts, strict=True):
            term = named_term(wide, name, part)
            terms[name] = replace(term, origin="model")
        objective = dict(self.objective)
        if goal is not None:
            whole = sum((t.build() for t in objective.values()), goal)
            sum_of = objective_term("objective", whole, wide.names, self.sense)
            objective = {"objective": replace(sum_of, origin="model")}
        problem: FileProblem = wide.with_terms(objective, terms)
        return problem

    def separated(self, time_limit: float | None = None) -> tuple[Any, tuple[str, ...] | None]:
        """Return this problem with gathered rows that exclude each other as terms, and where to look."""
        entries = carrying_entries(self, time_limit)
        if not entries:
            return self, None
        terms: dict[str, ConstraintTerm] = {}
        named: list[str] = []
        for name, term in self.constraints.items():
            block = getattr(term, "block", None)
            if name not in entries or block is None:
                terms[name] = term
                named.append(name)
                continue
            own = entries[name]
            singles = [block.single(at) for at in own.tolist()]
            terms |= {single.name: single.term() for single in singles}
            named += [single.name for single in singles]
            if own.size < block.members.size:
                terms[name] = block.without(own).term()
        return self.with_terms(self.objective, terms), tuple(named)

    def relative_violations(
        self, names: Sequence[str], values: Mapping[str, Any]
    ) -> dict[str, float]:
        """Return how far constraints are violated: rows and bounds of the file all at once."""
        if self not in _ENTRIES:
            _ENTRIES[self] = Entries(self.constraints)
        known = _ENTRIES[self].relative_violations(values)
        rest = [name for name in names if name not in known]
        known |= super().relative_violations(rest, values)
        return {name: known[name] for name in names}

    def explained(self, error: Infeasible) -> Infeasible:
        """Return the error with the way to the rows, where its terms are gathered ones."""
        blocks = (getattr(self.constraints.get(name), "block", None) for name in error.conflict)
        if not any(block is not None and block.gathered for block in blocks):
            return error
        remedy = "p.diagnose() says which rows and bounds"
        return Infeasible(
            error.cause,
            error.evidence,
            f"{error.remedy}; {remedy}" if error.remedy else remedy,
            certificate=error.certificate,
            conflict=error.conflict,
        )

    # --- composing ---------------------------------------------------------------------------

    def without(self, *names: str) -> Self:
        """Return this problem without some constraints, or without single rows by label."""
        child: Self = self
        for name in names:
            if name in child.constraints or not (places := child._terms_of(name)):
                child = super(FileProblem, child).without(name)
                continue
            terms: dict[str, ConstraintTerm] = dict(child.constraints)
            for term, at in places:
                block = getattr(terms.pop(term), "block", None)
                if block is not None and block.members.size > 1:
                    terms[term] = block.without(at).term()
            ordered = {k: terms[k] for k in child.constraints if k in terms}
            child = child._child(constraints=MappingProxyType(ordered))
        return child

    def with_integrality(self, *names: str) -> Self:
        """Return this problem with some arrays, columns or vectors integer.

        Part of a vector becomes integer by a copy of it: a variable ``NAME integer``, and a constraint that both
        are equal.
        """
        child: Self = self
        for name in names:
            if name in child.variables:
                child = super(FileProblem, child).with_integrality(name)
                continue
            part = child[name]
            copy = cp.Variable(part.shape, name=f"{name} integer")
            child = child.with_variables({f"{name} integer": copy})
            child = super(FileProblem, child).with_integrality(f"{name} integer")
            child = child.with_constraints({f"{name} is integer": part == copy})
        return child


def _entry(value: Any, at: int) -> Any:
    return np.asarray(np.ravel(np.asarray(value, dtype=float), order="F")[at])
