"""A convex quadratic program again, from the rows that held with equality at its last optimum."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spla
from numpy.typing import NDArray

if TYPE_CHECKING:
    from optfair.numbers import Floats
    from optfair.solution.conic_form import ConicForm

# What keeps the equations of a degenerate set solvable; steps are repeated until it is gone.
REGULAR = 1e-9
# The place of a row that is not in the set.
AWAY = 1e14
# Passes that bring the largest entry of every column of the equations near 1.
BALANCING = 8
# Sets that are tried, and steps with one of them.
SETS, STEPS = 12, 6
# A slack or a multiplier of this share of the largest is one of 0; so is what a step leaves.
NIL, LEFT = 1e-11, 1e-14


class ActiveSet:
    r"""Optima of one quadratic program with other right-hand sides and costs.

    With W the equations and the inequalities that hold with equality,

    .. math::
        \begin{pmatrix} P + \delta I & A_W^T \\ A_W & -\delta I \end{pmatrix}
        \begin{pmatrix} \Delta x \\ \Delta z_W \end{pmatrix}
        = \begin{pmatrix} -q - P x - A_W^T z_W \\ b_W - A_W x \end{pmatrix}

    is solved until nothing is left, with one factorisation for as long as W, P and A stay. Where
    a row outside of W is then violated, or a multiplier has the wrong sign, W changes by these rows
    (the primal-dual active set method), a few times. Whoever calls checks what comes out.

    Parameters
    ----------
    form : ConicForm
        Points and half-lines only, with curvature.

    References
    ----------
    M. Hintermüller, K. Ito, K. Kunisch, The primal-dual active set strategy as a semismooth
    Newton method, SIAM J. Optim. 13 (2002).
    """

    def __init__(self, form: ConicForm) -> None:
        n, m = form.q.size, form.b.size
        # costs in a unit in which the largest curvature is near 1, as everything that comes out
        self._cost = float(np.exp2(-np.round(np.log2(np.abs(form.P.data).max()))))
        blocks = [[self._cost * form.P, form.rows.T], [form.rows, None]]
        K = sp.csc_array(sp.block_array(blocks, format="csc"))
        K.eliminate_zeros()
        self._units = _units(K)
        self._matrix = sp.csr_array(K)
        D = sp.diags_array(self._units)
        # with a place for every entry of the diagonal
        filled = sp.csc_array(D @ K @ D + sp.diags_array(np.full(n + m, 1e-300)))
        filled.sort_indices()
        column = np.repeat(np.arange(n + m), np.diff(filled.indptr))
        self._diagonal = np.flatnonzero(filled.indices == column)
        self._scaled = filled
        self._own = filled.data[self._diagonal].copy()
        self._regular = np.repeat([REGULAR, -REGULAR], [n, m])
        self._inequality = np.concatenate([np.zeros(n, dtype=bool), ~form.equal])
        self._solved: tuple[bytes, spla.SuperLU] | None = None
        self._point, self._out = np.zeros(n + m), self._inequality.copy()

    def start(self, form: ConicForm, x: Floats, z: Floats) -> None:
        """Start from an optimum of the program with some numbers."""
        rows = self._units[x.size :]
        self._point, self._out = np.concatenate([x, self._cost * z]), self._inequality.copy()
        self._out[x.size :] &= self._cost * z / rows <= form.slack(x) * rows

    def solve(self, form: ConicForm) -> tuple[Floats, Floats] | None:
        """Return an optimum of the program with other numbers, None where no set was right."""
        n, units = form.q.size, self._units
        rhs = np.concatenate([-self._cost * form.q, form.b])
        point, out, met = self._point.copy(), self._out.copy(), set[bytes]()
        for _ in range(SETS):
            key = out.tobytes()
            if key in met:
                return None
            met.add(key)
            factors = self._factors(key, out)
            if factors is None:
                return None
            point[out] = 0.0
            limit = LEFT * (1.0 + float(np.abs(units * rhs).max(initial=0.0)))
            for _ in range(STEPS):
                left = rhs - self._matrix @ point
                step = units * left
                step[out] = 0.0
                if np.abs(step).max(initial=0.0) <= limit:
                    break
                point += units * factors.solve(step)
                point[out] = 0.0
            if not np.abs(step).max(initial=0.0) <= NIL / LEFT * limit:  # they exclude each other
                return None
            scaled = point / units
            slack = (units * left)[n:]
            size = 1.0 + float(np.abs(scaled[:n]).max(initial=0.0))
            violated = out[n:] & (slack < -NIL * size)
            prices = scaled[n:]
            wrong = self._inequality[n:] & ~out[n:]
            wrong &= prices < -NIL * float(np.abs(prices).max(initial=0.0))
            if not (violated.any() or wrong.any()):
                self._point, self._out = point, out
                z = point[n:] / self._cost
                np.maximum(z, 0.0, out=z, where=self._inequality[n:])
                return point[:n].copy(), z
            out = out.copy()
            out[n:] = (out[n:] & ~violated) | wrong
        return None

    def _factors(self, key: bytes, out: NDArray[np.bool_]) -> spla.SuperLU | None:
        """Return the factorised equations of a set."""
        if self._solved is not None and self._solved[0] == key:
            return self._solved[1]
        place = np.where(out, -AWAY, self._regular)
        self._scaled.data[self._diagonal] = self._own + place
        try:
            with warnings.catch_warnings(action="ignore"):
                found = spla.splu(
                    self._scaled,
                    permc_spec="MMD_AT_PLUS_A",
                    diag_pivot_thresh=0.0,
                    options={"SymmetricMode": True},
                )
        except RuntimeError:  # singular to the last digit
            return None
        self._solved = (key, found)
        return found


def _units(K: sp.csc_array) -> Floats:
    """Return what rows and columns of a symmetric matrix are multiplied by to have entries near 1."""
    size = sp.coo_array(abs(K))
    units = np.ones(K.shape[0])
    for _ in range(BALANCING):
        largest = np.zeros(units.size)
        np.maximum.at(largest, size.row, size.data * units[size.row] * units[size.col])
        units /= np.sqrt(np.where(largest > 0.0, largest, 1.0))
    return units
