"""Terms and objective of a file's problem, from columns and rows in arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.core.composition import RELATIONS, constraint_term, objective_term
from optfair.core.problem_class import Evidence, ProblemClass
from optfair.core.term import ConstraintTerm, ObjectiveTerm
from optfair.formats.layout import Families, Family, Layout, Rows, suffixed, unique_names
from optfair.numbers import Floats
from optfair.proofs.definiteness import curvature_of

# Rows and bounds of a file as few named terms.

Indices = NDArray[np.int64]


#: Beyond so many arrays rows are gathered by sense and bounds by side: a term is compiled alone.
GATHERED = 32


@dataclass(frozen=True, eq=False)
class Block:
    """Rows, or bounds of columns, on one side.

    Parameters
    ----------
    name : str
        Of the term.
    layout : Layout
        Where columns are.
    kind : {"row", "column"}
        Rows, or bounds.
    members : array of int
        Which of them, in the order of the entries.
    side : {"==", "<=", ">="}
        Between the entries and their limits.
    shape : tuple of int
        Shape of the term.
    word : str
        What is added to the label of an entry: "lower" where there is an upper side too.
    gathered : bool
        Whether its entries belong together by their sense only.
    """

    name: str
    layout: Layout
    kind: Literal["row", "column"]
    members: Indices
    side: Literal["==", "<=", ">="]
    shape: tuple[int, ...]
    word: str = ""
    gathered: bool = False

    @property
    def limits(self) -> Floats:
        """The numbers on the right."""
        r = self.layout.rows
        if self.kind == "row":
            limits = r.row_lower if self.side == ">=" else r.row_upper
        else:
            limits = r.lower if self.side == ">=" else r.upper
        return limits[self.members]

    def labels(self) -> list[str]:
        """Return the label of each entry."""
        names = self.layout.rows.rows if self.kind == "row" else self.layout.rows.columns
        labels = [names[k] for k in self.members.tolist()]
        return [suffixed(label, self.word) for label in labels] if self.word else labels

    @cached_property
    def matrix(self) -> Any:
        """The rows, all columns."""
        A = self.layout.rows.A
        every = self.members.size == A.shape[0] and (np.diff(self.members) == 1).all()
        return A if every else A[self.members, :]

    def body(self) -> Any:
        """Return the left side as a vector."""
        if self.kind == "row":
            return self.layout.times(self.matrix)
        return self.layout.expression(Family(self.name, self.members, (self.members.size,)))

    def numbers(self) -> tuple[bool, list[Any], Floats]:
        """Return the rows as numbers, see `ConstraintTerm`."""
        way = -1.0 if self.side == ">=" else 1.0
        layout, entries = self.layout, list[Any]()
        if self.kind == "column":
            whole = bool(layout.rows.integer[self.members[0]])
            name = next(n for n in layout.members if (n in layout.integers) == whole)
            every, at = np.arange(self.members.size), layout.place[self.members]
            entries.append((layout.variables[name], every, at, np.full(at.size, way)))
        else:
            made = sp.coo_array(self.matrix)
            row, column = (k[made.data != 0.0] for k in made.coords)
            data = way * made.data[made.data != 0.0]
            for name, own in layout.members.items():
                here = np.isin(column, own) if own.size < layout.place.size else column >= 0
                part = layout.variables[name], row[here], layout.place[column[here]], data[here]
                entries += [part] if part[1].size else []
            if not entries:  # rows without entries are still rows
                entries.append((next(iter(layout.variables.values())), row, column, data))
        return self.side == "==", entries, way * self.limits

    @cached_property
    def constraint(self) -> Any:
        """The constraint in CVXPY."""
        limit: Any = self.limits
        body = self.body()
        if self.shape != (self.members.size,):
            body = cp.reshape(body, self.shape, order="F")
            limit = limit.reshape(self.shape, order="F") if self.shape else float(limit[0])
        return RELATIONS[self.side](body, limit)

    def build(self) -> Any:
        """Return the constraint in CVXPY."""
        return self.constraint

    def violation(self, values: Mapping[str, Any]) -> Floats:
        """Return how far each entry is outside."""
        body, limits = self.sides(values)
        over = body - limits
        if self.side == "==":
            outside = np.abs(over)
        else:
            outside = np.maximum(over if self.side == "<=" else -over, 0.0)
        return np.asarray(outside)

    def sides(self, values: Mapping[str, Any]) -> tuple[Floats, Floats]:
        """Return both sides of each entry."""
        x = self.layout.vector(values)
        body = self.matrix @ x if self.kind == "row" else x[self.members]
        return body.reshape(self.shape, order="F"), self.limits.reshape(self.shape, order="F")

    def without(self, at: Any) -> Block:
        """Return the block without some entries."""
        members = np.delete(self.members, at)
        return replace(self, members=members, shape=(members.size,))

    def single(self, at: int) -> Block:
        """Return one entry, under its label."""
        return replace(
            self, name=self.labels()[at], members=self.members[[at]], shape=(), gathered=False
        )

    def term(self) -> BlockTerm:
        """Return the term: affine by construction, so nothing is analysed."""
        if len(self.layout.members) == 1:
            scope = self.layout.scope(self.members)
        else:
            own = self.members if self.kind == "column" else np.unique(self.matrix.indices)
            scope = self.layout.scope(own)
        where = "Zero" if self.side == "==" else "Nonpositive"
        return BlockTerm(
            name=self.name,
            scope=scope,
            evidence=Evidence(self.name, "affine", where, ProblemClass()),
            build=self.build,
            violation=self.violation,
            shape=self.shape,
            scale=np.abs(self.limits).reshape(self.shape, order="F"),
            labels=self.labels,
            numbers=self.numbers,
            block=self,
        )


@dataclass(frozen=True, eq=False, repr=False)
class BlockTerm(ConstraintTerm):
    """A constraint that knows which rows or bounds of a file it states."""

    block: Block | None = None


class Entries:
    """All entries of block terms on one layout: at a point, measured together.

    Parameters
    ----------
    terms : mapping
        Block terms by name.
    """

    def __init__(self, terms: Mapping[str, ConstraintTerm]) -> None:
        stated = {k: t.block for k, t in terms.items() if isinstance(t, BlockTerm) and t.block}
        self.layout = next((b.layout for b in stated.values() if b.members.size), None)
        blocks = {k: b for k, b in stated.items() if b.layout is self.layout and b.members.size}
        self.names = tuple(blocks)
        sizes = np.array([b.members.size for b in blocks.values()], dtype=np.intp)
        self._starts = np.cumsum(sizes) - sizes
        self._sides = np.array([1.0 + terms[name].largest_side for name in blocks])
        if self.layout is None:  # nothing of a file
            return
        rows = self.layout.rows.A.shape[0]
        kinds = np.repeat([b.kind == "column" for b in blocks.values()], sizes)
        self._at = np.concatenate([b.members for b in blocks.values()]) + rows * kinds
        self._limits = np.concatenate([b.limits for b in blocks.values()])
        self._equal = np.repeat([b.side == "==" for b in blocks.values()], sizes)
        self._sign = np.where(
            np.repeat([b.side == ">=" for b in blocks.values()], sizes), -1.0, 1.0
        )

    def relative_violations(self, values: Mapping[str, Any]) -> dict[str, float]:
        """Return the largest violation of each term relative to 1 + its largest right-hand side."""
        if self.layout is None:
            return {}
        x = self.layout.vector(values)
        body = np.concatenate([self.layout.rows.A @ x, x])[self._at]
        over = self._sign * (body - self._limits)
        outside = np.where(self._equal, np.abs(over), np.maximum(over, 0.0))
        worst = np.maximum.reduceat(outside, self._starts)
        worst[~np.isfinite(worst)] = np.inf
        return dict(zip(self.names, (worst / self._sides).tolist(), strict=True))


def constraints(rows: Rows, layout: Layout) -> list[ConstraintTerm]:
    """Return rows and bounds as terms, each of a name of its own."""
    terms = [*_rows(rows, layout), *_bounds(rows, layout)]
    names = unique_names(t.name for t in terms)
    return [
        t if t.name == name else _renamed(t, name) for t, name in zip(terms, names, strict=True)
    ]


def _renamed(t: ConstraintTerm, name: str) -> ConstraintTerm:
    if isinstance(t, BlockTerm) and t.block is not None:
        return replace(t.block, name=name).term()
    return replace(t, name=name, evidence=replace(t.evidence, term=name))


def _rows(rows: Rows, layout: Layout) -> list[ConstraintTerm]:
    low, high = np.isfinite(rows.row_lower), np.isfinite(rows.row_upper)
    equal = rows.row_lower == rows.row_upper
    kinds = np.where(equal, "==", np.where(low & high, "in", np.where(high, "<=", ">=")))
    kinds = np.where(low | high, kinds, "")  # a free row states nothing
    words: list[str | None] = [k or None for k in kinds.tolist()]
    for i in rows.row_P:
        words[i] = None if words[i] is None else f"{words[i]} {i}"  # alone
    if rows.groups is not None:
        words = [w and f"{w} {g}" for w, g in zip(words, rows.groups.tolist(), strict=True)]
    families = Families(rows.rows, words)
    if len(families) - len(rows.row_P) <= GATHERED:
        return [t for name in families for t in _array_rows(layout, families[name], kinds)]
    plain = np.ones(kinds.size, dtype=bool)
    plain[list(rows.row_P)] = False
    terms: list[ConstraintTerm] = []
    for kind in ("==", "<=", ">=", "in"):
        at = np.flatnonzero((kinds == kind) & plain)
        if at.size:
            name = "ranges" if kind == "in" else f"rows {kind}"
            terms += _array_rows(layout, Family(name, at, (at.size,)), kinds, gathered=True)
    for i in sorted(rows.row_P):
        if words[i] is not None:
            terms += _array_rows(layout, Family(rows.rows[i], np.array([i]), ()), kinds)
    return terms


def _array_rows(
    layout: Layout, f: Family, kinds: NDArray[Any], *, gathered: bool = False
) -> list[ConstraintTerm]:
    """Return the terms of rows of one kind."""
    kind = str(kinds[f.members[0]])
    sides: Any = [(">=", "lower"), ("<=", "upper")] if kind == "in" else [(kind, "")]
    i = int(f.members[0])
    if i in layout.rows.row_P:
        name = layout.rows.rows[i]
        body = layout.times(layout.rows.A[[i], :])[0] + layout.quadratic(layout.rows.row_P[i])
        return [
            _quadratic_row(layout, suffixed(name, w) if w else name, body, i, s) for s, w in sides
        ]
    return [
        Block(
            f"{f.name} {word}" if word else f.name,
            layout,
            "row",
            f.members,
            side,
            f.shape,
            word,
            gathered,
        ).term()
        for side, word in sides
    ]


def _quadratic_row(layout: Layout, name: str, body: Any, i: int, side: str) -> ConstraintTerm:
    r = layout.rows
    limit = float(r.row_lower[i] if side == ">=" else r.row_upper[i])
    names = {v.id: n for n, v in layout.variables.items()}
    term = constraint_term(name, RELATIONS[side](body, limit), names)
    violation = term.violation
    return replace(
        term,
        origin="model",
        labels=lambda: (name,),
        violation=lambda values: violation(layout.complete(values)),
    )


def _bounds(rows: Rows, layout: Layout) -> list[ConstraintTerm]:
    fixed = rows.lower == rows.upper
    parts: Any = (
        ("fixed", "==", fixed),
        ("lower", ">=", np.isfinite(rows.lower) & ~fixed),
        ("upper", "<=", np.isfinite(rows.upper) & ~fixed),
    )
    if not any(where.any() for _, _, where in parts):
        return []
    gathered = len(layout.families) > GATHERED
    if not gathered:
        groups = [layout.families[name] for name in layout.families]
    else:
        groups = [Family(name, at, (at.size,)) for name, at in layout.members.items()]
    terms: list[ConstraintTerm] = []
    for f in groups:
        for word, side, where in parts:
            at = f.members[where[f.members]]
            if at.size:
                shape = f.shape if at.size == f.members.size else (at.size,)
                name = f"{f.name} {word}"
                block = Block(name, layout, "column", at, side, shape, word, gathered)
                terms.append(block.term())
    return terms


# The objective of a file as one term, with the proof that a large one is convex.

# A quadratic objective in more columns is not expanded by CVXPY's analysis, but proved here by factors.
_ANALYSED = 120


def objective(rows: Rows, layout: Layout) -> ObjectiveTerm:
    """Return the objective as one term."""
    used = np.flatnonzero(rows.cost)
    linear = _Linear(rows, layout)
    sense = "maximize" if rows.maximize else "minimize"
    if rows.P is None or not rows.P.nnz:
        return ObjectiveTerm(
            name="objective",
            scope=layout.scope(used),
            evidence=Evidence("objective", "affine", sense, ProblemClass()),
            build=linear.build,
            value=linear.value,
        )
    columns = np.flatnonzero(np.diff(sp.csc_array(rows.P).indptr))
    names = {v.id: n for n, v in layout.variables.items()}
    if columns.size <= _ANALYSED:
        term = objective_term("objective", linear.build() + layout.quadratic(rows.P), names, sense)
        return replace(term, origin="model", value=linear.value)
    sign = -1.0 if rows.maximize else 1.0
    curvature = curvature_of(sign * sp.csc_array(rows.P))
    proved, note = curvature.accepted, str(curvature)
    word = "concave" if rows.maximize else "convex"
    plain = ProblemClass(True)
    evidence = (
        Evidence("objective", f"{word} quadratic", sense, plain, note)
        if proved
        else Evidence("objective", "quadratic", sense, plain.with_curvature("unverified"), note)
    )

    def build() -> Any:
        if proved and rows.maximize:
            return linear.build() - layout.quadratic(-rows.P, definite=True)
        return linear.build() + layout.quadratic(rows.P, definite=proved)

    scope = layout.scope(np.union1d(used, columns))
    return ObjectiveTerm("objective", scope, evidence, build, value=linear.value)


@dataclass(frozen=True, eq=False)
class _Linear:
    """The objective in arrays."""

    rows: Rows
    layout: Layout

    def build(self) -> Any:
        """Return the linear part and the constant."""
        parts = [
            self.rows.cost[at] @ self.layout.variables[n] for n, at in self.layout.members.items()
        ]
        return sum(parts, cp.Constant(self.rows.offset)) if self.rows.offset else sum(parts)

    def value(self, values: Mapping[str, Any]) -> float:
        """Return the whole objective at a point."""
        x = self.layout.vector(values)
        r = self.rows
        curved = 0.5 * float(x @ (r.P @ x)) if r.P is not None else 0.0
        return float(r.cost @ x) + curved + r.offset
