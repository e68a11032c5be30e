"""Small linear programs settled in fractions: a simplex method in whole numbers that no rounding misleads."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import cast

import numpy as np
import scipy.sparse as sp

from optfair.solution.conic_form import ConicForm

Ratios = list[Fraction]

# Entries of a tableau, beyond which its whole numbers get too long.
ENTRIES = 6_000


@dataclass(frozen=True)
class Settled:
    r"""What a polyhedral form is: :math:`\min q^T x` subject to :math:`b - A x \in K`.

    Attributes
    ----------
    point : list of Fraction or None
        Optimal, or of a fall a feasible one; None where there is none.
    prices : list of Fraction or None
        Optimal multipliers, or where there is no point :math:`z \in K^*` with
        :math:`A^T z = 0,\; b^T z < 0`.
    direction : list of Fraction or None
        Along which the objective falls without limit.
    """

    point: Ratios | None
    prices: Ratios | None
    direction: Ratios | None = None


class Late(Exception):
    """The time is over."""


def settled(form: ConicForm, end: float = np.inf) -> Settled | None:
    """Return what a linear form is in fractions; None where it is large, or the time is over.

    Parameters
    ----------
    form : ConicForm
        Zero and nonnegative cones only. Its floats are taken as exact.
    end : float
        Of the clock of `time.perf_counter`.
    """
    m, n = form.A.shape
    equal = np.flatnonzero(form.equal).tolist()
    if not form.polyhedral or form.P.nnz or n * (n + m + len(equal) + 2) > ENTRIES:
        return None
    try:
        kind, x, z = _Tableau(form, equal, form.q).run(end)
        if kind == "optimal":
            return Settled(x, z)
        if kind == "excluded":
            return Settled(None, z)
        again, point, farkas = _Tableau(form, equal, np.zeros(n)).run(end)
    except Late:
        return None
    return Settled(None, farkas) if again == "excluded" else Settled(point, None, x)


class _Tableau:
    """The dual, min b'z subject to A'z = -q with z >= 0 but of equations, in whole numbers over one.

    Rows are scaled to whole numbers by themselves; the last two are costs, of artificial columns and
    of z. Pivots keep whole numbers, as every entry is a minor of the first matrix.
    """

    def __init__(self, form: ConicForm, equal: Sequence[int], q: np.ndarray) -> None:
        m, n = form.A.shape
        self.m, self.n, self.equal = m, n, list(equal)
        self.k = m + len(self.equal)
        columns = sp.csc_array(form.A)
        self.scale: list[Fraction] = []
        self.rows: list[list[int]] = []
        for j in range(n):
            own = slice(columns.indptr[j], columns.indptr[j + 1])
            line = [Fraction(0)] * m
            for i, a in zip(columns.indices[own].tolist(), columns.data[own].tolist(), strict=True):
                line[i] += Fraction(a)
            side = -Fraction(float(q[j]))
            line += [-line[i] for i in self.equal]
            unit = lcm(*(v.denominator for v in (*line, side))) * (-1 if side < 0 else 1)
            self.scale.append(Fraction(unit))
            own_one = [int(i == j) for i in range(n)]
            self.rows.append([int(v * unit) for v in line] + own_one + [int(side * unit)])
        b = [Fraction(float(v)) for v in form.b]
        b += [-b[i] for i in self.equal]
        self.unit = lcm(*(v.denominator for v in b)) if b else 1
        infeasible = [-sum(row[c] for row in self.rows) for c in range(self.k)]
        infeasible += [0] * n + [-sum(row[-1] for row in self.rows)]
        cost = [int(v * self.unit) for v in b] + [0] * (n + 1)
        self.rows += [infeasible, cost]
        self.basis = [self.k + j for j in range(n)]
        self.over = 1

    def run(self, end: float) -> tuple[str, Ratios, Ratios]:
        """Return (optimal, x, z), (excluded, [], z) or (falls, direction, []), if excluded is not, too."""
        n = self.n
        while (column := self._improving(-2)) is not None:
            # the sum of artificial columns has a limit
            self._pivot(cast("int", self._leaving(column)), column, end)
        if self.rows[-2][-1]:
            one = [Fraction(self.rows[-2][self.k + j], self.over) for j in range(n)]
            return "falls", [s * (1 - v) for s, v in zip(self.scale, one, strict=True)], []
        while (column := self._improving(-1)) is not None:
            row = self._leaving(column)
            if row is None:
                weights = [Fraction(0)] * self.k
                weights[column] = Fraction(1)
                for i, at in enumerate(self.basis):
                    if at < self.k:
                        weights[at] = Fraction(-self.rows[i][column], self.over)
                return "excluded", [], self._multipliers(weights)
            self._pivot(row, column, end)
        weights = [Fraction(0)] * self.k
        for i, at in enumerate(self.basis):
            if at < self.k:
                weights[at] = Fraction(self.rows[i][-1], self.over)
        below = self.over * self.unit
        x = [-s * Fraction(self.rows[-1][self.k + j], below) for j, s in enumerate(self.scale)]
        return "optimal", x, self._multipliers(weights)

    def _multipliers(self, weights: Ratios) -> Ratios:
        z = weights[: self.m]
        for i, v in zip(self.equal, weights[self.m :], strict=True):
            z[i] -= v
        return z

    def _improving(self, cost: int) -> int | None:
        """Return the first column that lowers a cost: of the first ones no cycle is made."""
        line = self.rows[cost]
        return next((c for c in range(self.k) if line[c] < 0), None)

    def _leaving(self, column: int) -> int | None:
        """Return the row that limits a column; an artificial column that is 0 leaves at once."""
        best: tuple[Fraction, int] | None = None
        row = None
        for i, at in enumerate(self.basis):
            entry, side = self.rows[i][column], self.rows[i][-1]
            if at >= self.k and side == 0 and entry:
                return i
            if entry > 0 and (best is None or (Fraction(side, entry), at) < best):
                best, row = (Fraction(side, entry), at), i
        return row

    def _pivot(self, row: int, column: int, end: float) -> None:
        if time.perf_counter() > end:
            raise Late
        own = self.rows[row]
        if own[column] < 0:
            own = self.rows[row] = [-v for v in own]
        pivot, over = own[column], self.over
        for i, line in enumerate(self.rows):
            if i != row and (at := line[column]):
                self.rows[i] = [
                    (v * pivot - at * w) // over for v, w in zip(line, own, strict=True)
                ]
            elif i != row and pivot != over:
                self.rows[i] = [v * pivot // over for v in line]
        self.basis[row], self.over = column, pivot
