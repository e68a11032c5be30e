"""Rows of integers that leave none: equations with a remainder, and rows with no whole number between them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain
from math import ceil, floor, gcd, lcm
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from optfair.solution.conic_form import ConicForm

# Rows, and their entries, of which combinations are looked for.
FEWEST, ENTRIES = 100, 10_000
# Equations by which continuous columns are taken out of others.
MIXED = 30
# Share of the numbers in a sum of equations that a remainder must exceed: less may be the rounding
# of what was declared, as of 0.1 x + 0.2 y = 0.3, which no integers satisfy to the last digit.
ROUNDED = Fraction(1, 10**9)

# Entries and side of a row, and whether it is an equation.
Row = tuple[dict[int, Fraction], Fraction, bool]
Weights = tuple[tuple[int, Fraction], ...]
Sum = dict[int, Fraction]


@dataclass(frozen=True, eq=False)
class Remainder:
    r"""Rows of integers that add up to whole numbers on the left, with none that the right allows.

    As :math:`2 x + 4 y = 5`, halved: :math:`x + 2 y` is whole, and 5/2 is not; and as
    :math:`1 \le 6 x - 9 y \le 2`, divided by 3: no whole number is between 1/3 and 2/3. Continuous
    columns cancel in the sum.

    Attributes
    ----------
    rows : tuple of int
        Rows of a form.
    weights : tuple of Fraction
        What each is multiplied by, of what is no equation nonnegative: the sum is at most its side.
    opposite : tuple of (int, Fraction)
        The same of rows that add up to the negative of the same left side; empty where all rows are
        equations.
    """

    rows: tuple[int, ...]
    weights: tuple[Fraction, ...]
    opposite: Weights = ()

    @property
    def used(self) -> set[int]:
        """The rows of either side."""
        return {*self.rows, *(i for i, _ in self.opposite)}

    def excludes(self, form: ConicForm, whole: NDArray[np.int64]) -> bool:
        """Whether this is so, in fractions, of a form and its integer columns, by more than rounding."""
        known, integer = _rows_of(form), {*whole.tolist()}
        above = tuple(zip(self.rows, self.weights, strict=True))
        below = self.opposite or tuple((i, -w) for i, w in above)
        if not above or not all(_allowed(known, own) for own in (above, below)):
            return False
        (left, most, far), (back, least, near) = (_combined(known, own) for own in (above, below))
        if {j: -v for j, v in back.items()} != left:
            return False
        if any(v.denominator > 1 or j not in integer for j, v in left.items()):
            return False
        return floor(most + ROUNDED * far) < ceil(-least - ROUNDED * near)

    def summed(self, made: dict[int, Sum]) -> Remainder:
        """Return it in the rows that some of its rows are sums of."""
        above, below = (
            _in_rows(own, made)
            for own in (zip(self.rows, self.weights, strict=True), self.opposite)
        )
        return Remainder(tuple(above), tuple(above.values()), tuple(below.items()))

    def __str__(self) -> str:
        if not self.opposite:
            return "a sum of equations, whole on the left for integers and not on the right"
        return "a sum of rows, whole for integers, between bounds with no whole number between them"


def _in_rows(weights: Iterable[tuple[int, Fraction]], made: dict[int, Sum]) -> Sum:
    """Return weights of rows, of sums of them as those of what they are made of."""
    out: Sum = {}
    for i, w in weights:
        out = _plus(out, w, made.get(i, {i: Fraction(1)}))
    return out


def _allowed(known: dict[int, Row], weights: Weights) -> bool:
    """Whether rows are known, and what is no equation has no negative weight."""
    return all(i in known and (known[i][2] or w >= 0) for i, w in weights)


def _combined(
    known: dict[int, Row], weights: Weights
) -> tuple[dict[int, Fraction], Fraction, Fraction]:
    """Return the left and the right side of a sum of rows, and the size of its numbers."""
    left: dict[int, Fraction] = {}
    right = size = Fraction(0)
    for i, weight in weights:
        entries, side, _ = known[i]
        right += weight * side
        size += abs(weight) * (abs(side) + sum(map(abs, entries.values())))
        for j, a in entries.items():
            left[j] = left.get(j, Fraction(0)) + weight * a
    return {j: v for j, v in left.items() if v}, right, size


def remainder(form: ConicForm, whole: NDArray[np.int64]) -> Remainder | None:
    """Return what shows that no integers satisfy rows of a form, None where nothing does."""
    stated, integer = _rows_of(form), {*whole.tolist()}
    known = {i: row for i, row in stated.items() if row[0].keys() <= integer}
    if sum(len(entries) for entries, *_ in known.values()) > ENTRIES:
        return None
    looked: Iterator[Remainder] = chain(_of_equations(known), _between(known))
    made = _of_mixed(stated, integer)
    if made:  # of the others these are sums
        more = known | {i: _sum(stated, weights) for i, weights in made.items()}
        sums = (m.summed(made) for m in chain(_of_equations(more), _between(more)))
        looked = chain(looked, sums)
    return next((m for m in looked if m.excludes(form, whole)), None)


def _sum(known: dict[int, Row], weights: Sum) -> Row:
    """Return a sum of equations and at most one other row."""
    left, side, _ = _combined(known, tuple(weights.items()))
    return left, side, all(known[i][2] for i in weights)


def _of_mixed(known: dict[int, Row], integer: set[int]) -> dict[int, Sum]:
    """Return rows with continuous columns and the equations that take these out, as far as they do.

    Each equation is solved for a column and put into the others, which counts for little where
    there are more columns than equations.
    """
    rows = {i: dict(e) for i, (e, *_) in known.items() if e.keys() - integer}
    open_ones = [i for i in rows if known[i][2]]
    if not open_ones or len(open_ones) > MIXED or sum(map(len, rows.values())) > ENTRIES:
        return {}
    made: dict[int, Sum] = {i: {i: Fraction(1)} for i in rows}
    while open_ones:
        own = open_ones.pop(0)
        mixed = rows[own].keys() - integer
        if not mixed:
            continue
        users = {j: [i for i in rows if i != own and j in rows[i]] for j in mixed}
        j = min(mixed, key=lambda j: (len(users[j]), j))
        for i in users[j]:
            times = -rows[i][j] / rows[own][j]
            rows[i], made[i] = (
                _plus(a, times, b) for a, b in ((rows[i], rows[own]), (made[i], made[own]))
            )
        del rows[own], made[own]
    return {i: w for i, w in made.items() if rows[i] and not rows[i].keys() - integer}


def _plus(a: Sum, times: Fraction, b: Sum) -> Sum:
    """Return a vector and a multiple of another."""
    out = dict(a)
    for j, v in b.items():
        out[j] = out.get(j, Fraction(0)) + times * v
    return {j: v for j, v in out.items() if v}


def _between(known: dict[int, Row]) -> Iterator[Remainder]:
    """Yield pairs of parallel rows, divided by what their coefficients have in common, that exclude each other."""
    least: dict[Any, tuple[Fraction, int, Fraction]] = {}
    for i, (entries, side, equal) in known.items():
        scale = lcm(*(a.denominator for a in entries.values()))
        weight = Fraction(scale, gcd(*(int(a * scale) for a in entries.values())))
        for sign in (1, -1) if equal else (1,):
            g = tuple((j, int(sign * weight * a)) for j, a in sorted(entries.items()))
            bound = sign * weight * side
            if g not in least or bound < least[g][0]:
                least[g] = bound, i, sign * weight
    for g, (most, i, weight) in least.items():
        back = least.get(tuple((j, -a) for j, a in g))
        if back is not None and floor(most) < ceil(-back[0]):
            yield Remainder((i,), (weight,), ((back[1], back[2]),))


def _of_equations(known: dict[int, Row]) -> Iterator[Remainder]:
    """Yield the sum of equations that leaves a remainder, if there is one.

    Columns are added to one another until the matrix is triangular, L; then the entries of
    L w = b are whole for integers, and the first that is not has its line of the inverse of L.
    """
    known = {i: row for i, row in known.items() if row[2]}
    if not known or len(known) > FEWEST:
        return
    at = {j: k for k, j in enumerate(sorted({j for e, *_ in known.values() for j in e}))}
    columns = [[0] * len(known) for _ in at]
    rows, scales, sides = list(known), list[int](), list[int]()
    for k, i in enumerate(rows):
        entries, side, _ = known[i]
        scale = lcm(side.denominator, *(a.denominator for a in entries.values()))
        scales.append(scale)
        sides.append(int(side * scale))
        for j, a in entries.items():
            columns[at[j]][k] = int(a * scale)
    pivots: list[int] = []
    quotients: list[int] = []
    for k in range(len(rows)):
        r = len(pivots)
        while len(open_ones := [c for c in range(r, len(columns)) if columns[c][k]]) > 1:
            least = min(open_ones, key=lambda c: abs(columns[c][k]))
            for c in open_ones:
                if c != least:
                    times = columns[c][k] // columns[least][k]
                    columns[c] = [
                        a - times * b for a, b in zip(columns[c], columns[least], strict=True)
                    ]
        if not open_ones:
            continue  # it depends on those before
        columns[r], columns[open_ones[0]] = columns[open_ones[0]], columns[r]
        pivots.append(k)
        left = sides[k] - sum(w * columns[c][k] for c, w in enumerate(quotients))
        if left % columns[r][k]:
            weights = [Fraction(0)] * r + [Fraction(1, columns[r][k])]
            for c in reversed(range(r)):
                after = range(c + 1, r + 1)
                total = sum((weights[d] * columns[c][pivots[d]] for d in after), Fraction(0))
                weights[c] = -total / columns[c][pivots[c]]
            used = [(rows[i], w * scales[i]) for i, w in zip(pivots, weights, strict=True) if w]
            yield Remainder(tuple(i for i, _ in used), tuple(w for _, w in used))
            return
        quotients.append(left // columns[r][k])


def _rows_of(form: ConicForm) -> dict[int, Row]:
    """Return the linear rows, by row."""
    A = form.rows
    out: dict[int, Row] = {}
    for c in form.cones:
        for i in range(c.start, c.stop) if c.kind in ("zero", "nonneg") else ():
            part = slice(A.indptr[i], A.indptr[i + 1])
            entries = zip(A.indices[part].tolist(), A.data[part].tolist(), strict=True)
            row = {j: Fraction(a) for j, a in entries if a != 0.0}
            if row and np.isfinite(form.b[i]):  # an infinite side is none
                out[i] = row, Fraction(float(form.b[i])), c.kind == "zero"
    return out
