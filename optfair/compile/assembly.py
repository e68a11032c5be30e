"""Blocks of terms put under each other, and their numbers when parameters move."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from cvxpy.constraints import SOC, ExpCone, PowCone3D

from optfair.core.canonical import Canonical, height
from optfair.core.parameters import Numbers
from optfair.numbers import Floats, Indices
from optfair.proofs.rounding import summed

if TYPE_CHECKING:
    from optfair.compile.form import Compiled
    from optfair.core.problem import Problem


@dataclass(eq=False)
class Stuffing:
    """Terms whose matrices were built together: one call of CVXPY's stuffing.

    Rows stand in the convention ``b - A x in K``, cones in the order (t, x), (x, y, z).
    """

    row: Indices
    column: Indices
    entry: Floats
    b: Floats
    sizes: Indices  # rows of each constraint
    place: Indices  # of each row within its constraint
    ranks: list[int]
    mixed: list[bool]  # whether its matrices may have rounded means for entries
    constraints: list[Any]
    variables: Mapping[int, int]  # id -> first column
    width: int
    numbers: Numbers | None = None  # where its entries move with parameters


@dataclass(eq=False)
class Part:
    """Where the matrices of a canonical term are."""

    stuffing: Stuffing
    blocks: tuple[int, ...]  # its constraints in the stuffing
    cost: tuple[Any, Floats, float] | None  # P, q, constant of an objective term


def moved(
    terms: Sequence[Canonical], values: Mapping[int, Any]
) -> tuple[list[Canonical], dict[int, Stuffing]]:
    """Return terms with their numbers at values by parameter id, and the new stuffings."""
    stuffings: dict[int, Stuffing] = {}
    vectors: dict[int, Floats] = {}
    out = []
    for term in terms:
        part: Part = term.matrices
        numbers = part.stuffing.numbers
        if numbers is None:
            out.append(term)
            continue
        key = id(part.stuffing)
        if key not in stuffings:
            theta = vectors[key] = numbers.vector(values)
            entry, b = numbers.sums("entry", theta), numbers.sums("b", theta)
            stuffings[key] = replace(part.stuffing, entry=entry, b=b)
        cost = None if part.cost is None else numbers.cost(vectors[key])
        out.append(replace(term, matrices=Part(stuffings[key], part.blocks, cost)))
    return out, stuffings


def row_places(constraint: Any) -> Indices:
    """Return where each row of a constraint, argument by argument, stands in its cones."""
    args = constraint.args
    if type(constraint) is SOC:
        count, depth = args[0].size, args[1].shape[0] if args[1].shape else 1
        heads = np.arange(count) * (depth + 1)
        return np.concatenate([heads, (heads[:, None] + 1 + np.arange(depth)).ravel()])
    if type(constraint) in (ExpCone, PowCone3D):
        count = args[0].size
        return np.concatenate([3 * np.arange(count) + i for i in range(3)])
    return np.arange(height(constraint))


def columns_of(
    problem: Problem, names: Sequence[str], terms: Sequence[Canonical]
) -> tuple[dict[int, tuple[int, int]], tuple[tuple[str, int, int], ...], int]:
    """Return (first column, size) of each variable by id, what terms introduce, the width."""
    declared = {v.id for v in problem.variables.values()}
    columns: dict[int, tuple[int, int]] = {}
    auxiliary, width = [], 0
    for name, term in zip(names, terms, strict=True):
        for _, known, size in term.variables:
            if known not in columns:
                columns[known] = (width, size)
                if known not in declared:
                    auxiliary.append((name, width, width + size))
                width += size
    return columns, tuple(auxiliary), width


@dataclass(frozen=True)
class Blocks:
    """Canonical constraints in the order of their rows: whose, which of its, where."""

    term: list[int]
    which: list[int]  # among the constraints of the term
    own: list[int]  # among those of its stuffing
    start: list[int]
    size: list[int]


def blocks_of(terms: Sequence[Canonical]) -> Blocks:
    """Return the canonical constraints of terms in the order of their rows."""
    blocks = [
        (t.matrices.stuffing.ranks[c], i, k, c, t.matrices.stuffing.sizes[c])
        for i, t in enumerate(terms)
        for k, c in enumerate(t.matrices.blocks)
    ]
    blocks.sort(key=lambda block: block[:3])
    sizes = [int(block[4]) for block in blocks]
    return Blocks(
        [block[1] for block in blocks],
        [block[2] for block in blocks],
        [block[3] for block in blocks],
        [0, *accumulate(sizes)][: len(sizes)],
        sizes,
    )


def _maps(
    terms: Sequence[Canonical], columns: Mapping[int, tuple[int, int]]
) -> dict[int, tuple[Stuffing, Indices]]:
    """Return, for each stuffing, the column of the form at each of its columns, -1 for none."""
    maps: dict[int, tuple[Stuffing, Indices]] = {}
    done: set[tuple[int, int]] = set()
    for term in terms:
        s = term.matrices.stuffing
        if id(s) not in maps:
            maps[id(s)] = (s, np.full(s.width, -1, dtype=np.intp))
        across = maps[id(s)][1]
        for own, known, size in term.variables:
            if (id(s), own) not in done:
                done.add((id(s), own))
                here, there = s.variables[own], columns[known][0]
                across[here : here + size] = np.arange(there, there + size)
    return maps


def entries_of(
    terms: Sequence[Canonical], columns: Mapping[int, tuple[int, int]], blocks: Blocks, n: int
) -> tuple[Any, Floats]:
    """Stack the blocks: A and b in ``b - A x in K``."""
    m = blocks.start[-1] + blocks.size[-1] if blocks.size else 0
    firsts: dict[int, Indices] = {}
    for t, c, start in zip(blocks.term, blocks.own, blocks.start, strict=True):
        s = terms[t].matrices.stuffing
        if id(s) not in firsts:
            firsts[id(s)] = np.full(s.sizes.size, -1, dtype=np.intp)
        firsts[id(s)][c] = start
    b = np.zeros(m)
    entry, row, column = [np.zeros(0)], [np.zeros(0, np.intp)], [np.zeros(0, np.intp)]
    for i, (s, across) in _maps(terms, columns).items():
        if i not in firsts:
            continue
        first = np.repeat(firsts[i], s.sizes)
        down = np.where(first >= 0, first + s.place, -1)
        here = down >= 0
        b[down[here]] = s.b[here]
        keep = slice(None) if here.all() else here[s.row]
        entry.append(s.entry[keep])
        row.append(down[s.row[keep]])
        column.append(across[s.column[keep]])
    where = (np.concatenate(row), np.concatenate(column))
    return sp.csc_array((np.concatenate(entry), where), shape=(m, n)), b


def objective_of(
    names: Sequence[str], terms: Sequence[Canonical], columns: Mapping[int, tuple[int, int]], n: int
) -> tuple[dict[str, Any], Floats, float]:
    """Return the quadratic parts of the objective terms, and the sum of the rest."""
    # the last column is the constant
    column, entry = [np.zeros(0, dtype=np.intp)], [np.zeros(0)]
    squares: dict[str, Any] = {}
    costs = [(k, t) for k, t in zip(names, terms, strict=True) if t.matrices.cost is not None]
    maps = _maps([t for _, t in costs], columns)
    for name, term in costs:
        P, linear, constant = term.matrices.cost
        # columns of other terms of the stuffing have no cost here
        across = maps[id(term.matrices.stuffing)][1]
        here = across >= 0
        column.append(np.append(across[here], n))
        entry.append(np.append(linear[here], constant))
        if P is not None and P.nnz:
            at = across[P.row], across[P.col]
            squares[name] = sp.csc_array((P.data, at), shape=(n, n))
            squares[name].eliminate_zeros()  # a square whose weight is 0
    total = summed(np.concatenate(entry), np.concatenate(column), n + 1)
    return squares, total[:n], float(total[n])


@dataclass(frozen=True, eq=False)
class Plan:
    """Where the numbers of terms go in a form."""

    names: tuple[str, ...]
    terms: Sequence[Canonical]
    columns: Mapping[int, tuple[int, int]]
    blocks: Blocks
    n: int


class Moving:
    """A compiled problem whose parameters move: only numbers change, and warm starts stay.

    Parameters
    ----------
    first : Compiled
        At some values of the parameters.
    """

    def __init__(self, first: Compiled) -> None:
        self.first = first
        plan = first.plan
        if plan is None:
            return
        tags: dict[int, Stuffing] = {}
        at, self._spans = 1, dict[int, tuple[slice, slice]]()
        for term in plan.terms:
            s = term.matrices.stuffing
            if id(s) in tags:
                continue
            entry, b = at + np.arange(s.entry.size), at + s.entry.size + np.arange(s.b.size)
            at += s.entry.size + s.b.size
            if s.numbers is not None:
                self._spans[id(s)] = (
                    slice(int(entry[0]), int(entry[-1]) + 1) if entry.size else slice(0, 0),
                    slice(int(b[0]), int(b[-1]) + 1) if b.size else slice(0, 0),
                )
            tags[id(s)] = replace(s, entry=entry.astype(float), b=b.astype(float))
        tagged = [
            replace(t, matrices=replace(t.matrices, stuffing=tags[id(t.matrices.stuffing)]))
            for t in plan.terms
        ]
        A, b = entries_of(tagged, plan.columns, plan.blocks, plan.n)
        place = np.full((2, at), -1, dtype=np.intp)
        place[0, np.rint(A.data).astype(np.intp)] = np.arange(A.data.size)
        place[1, np.rint(b).astype(np.intp)] = np.arange(b.size)
        place[1, 0] = -1
        self._place = place

    def at(self, values: Mapping[int, Any]) -> Compiled:
        """Return the compiled problem at values by parameter id."""
        plan, form = self.first.plan, self.first.form
        if plan is None:
            return self.first
        terms, stuffings = moved(plan.terms, values)
        A, b = None, form.b.copy()
        for i, s in stuffings.items():
            entry, side = self._spans[i]
            where = self._place[1, side]
            b[where[where >= 0]] = s.b[where >= 0]
            where = self._place[0, entry]
            if (form.A.data[where[where >= 0]] != s.entry[where >= 0]).any():
                A = sp.csc_array(form.A, copy=True) if A is None else A
                A.data[where[where >= 0]] = s.entry[where >= 0]
        changes: dict[str, Any] = {"b": b} if A is None else {"b": b, "A": A}
        squares = self.first.curvature
        if any(t.matrices.stuffing.numbers is not None and t.matrices.cost for t in plan.terms):
            squares, q, offset = objective_of(plan.names, terms, plan.columns, plan.n)
            P = sp.csc_array(sum(squares.values(), sp.csc_array((plan.n, plan.n))))
            changes |= {"q": q, "offset": offset}
            same = P.nnz == form.P.nnz and np.array_equal(P.data, form.P.data)
            changes |= {} if same else {"P": P}
        return replace(self.first, form=form.moved(changes), curvature=squares, first=self.first)
