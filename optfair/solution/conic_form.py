"""The compiled cone program and the residuals of a primal-dual pair on it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Floats = NDArray[np.float64]
ConeKind = Literal["zero", "nonneg", "soc", "psd", "exp", "pow"]

__all__ = ["Cone", "ConicForm", "ConicResiduals"]


@dataclass(frozen=True)
class Cone:
    """A block of rows of ``s = b - A x`` and the cone it lies in.

    Parameters
    ----------
    kind : str
        zero, nonneg, soc (rows ``t, x``), psd (scaled triangle), exp, pow.
    start, stop : int
        Rows of the block.
    order : int
        Matrix order of a psd block.
    upper : bool
        Whether a psd block lists the upper triangle column by column (else the lower one).
    power : float
        Exponent of a three-dimensional power cone.
    """

    kind: ConeKind
    start: int
    stop: int
    order: int = 0
    upper: bool = True
    power: float = 0.5

    def matrix(self, entries: Floats) -> Floats:
        """Return the symmetric matrix of a psd block from its scaled triangle."""
        full = np.zeros((self.order, self.order))
        rows, cols = np.triu_indices(self.order)
        if self.upper:  # column by column over the upper triangle = row by row over the lower
            rows, cols = np.tril_indices(self.order)
        full[rows, cols] = entries / np.where(rows == cols, 1.0, np.sqrt(2.0))
        return np.asarray(full + full.T - np.diag(np.diag(full)))

    def distance(self, entries: Floats, *, dual: bool = False) -> float:
        """Return how far a block is outside the cone (or its dual), in the largest entry."""
        if entries.size == 0:
            return 0.0
        if self.kind == "zero":
            return 0.0 if dual else float(np.abs(entries).max())
        if self.kind == "nonneg":
            return float(max(0.0, -entries.min()))
        if self.kind == "soc":
            return float(max(0.0, np.linalg.norm(entries[1:]) - entries[0]))
        if self.kind == "psd":
            return float(max(0.0, -np.linalg.eigvalsh(self.matrix(entries))[0]))
        if self.kind == "exp":
            return _exp_distance(entries, dual=dual)
        return _power_distance(entries, self.power, dual=dual)

    def complementarity(self, s: Floats, z: Floats) -> float:
        """Return the size of the Jordan product of slack and multiplier (0 at an optimum)."""
        if self.kind == "zero" or s.size == 0:
            return 0.0
        if self.kind == "nonneg":
            return float(np.abs(s * z).max())
        if self.kind == "soc":
            cross = s[0] * z[1:] + z[0] * s[1:]
            return float(max(abs(s @ z), np.abs(cross).max(initial=0.0)))
        if self.kind == "psd":
            product = self.matrix(s) @ self.matrix(z)
            return float(np.abs(product + product.T).max() / 2)
        return float(abs(s @ z))


@dataclass(frozen=True)
class ConicResiduals:
    """Relative residuals of a primal-dual pair; all zero at an optimum."""

    primal: float
    dual: float
    gap: float
    complementarity: float
    objective: float
    bound: float


@dataclass(frozen=True, eq=False)
class ConicForm:
    """Minimise ½xᵀPx + qᵀx + offset subject to Ax + s = b, s in a product of cones.

    Parameters
    ----------
    P : sparse (n, n)
        Symmetric, positive semidefinite; all zero for a linear objective.
    q, offset
        Linear part and constant of the objective.
    A, b
        Rows of the cone constraints.
    cones : tuple of Cone
        Blocks of rows, in order.
    columns : dict
        Variable name -> slice of x.
    sign : float
        -1 when the declared problem maximises, so declared objective = sign * compiled.
    """

    P: Any
    q: Floats
    offset: float
    A: Any
    b: Floats
    cones: tuple[Cone, ...]
    columns: dict[str, slice] = field(default_factory=dict)
    sign: float = 1.0

    @property
    def polyhedral(self) -> bool:
        """Whether every cone is a half-line or a point and the objective is linear."""
        return self.P.nnz == 0 and all(c.kind in ("zero", "nonneg") for c in self.cones)

    def objective(self, x: Floats) -> float:
        """Return the compiled objective at x, without the declared sign."""
        return float(0.5 * x @ (self.P @ x) + self.q @ x + self.offset)

    def slack(self, x: Floats) -> Floats:
        """Return s = b - A x."""
        return np.asarray(self.b - self.A @ x, dtype=float)

    def dual_objective(self, x: Floats, z: Floats) -> float:
        """Return the Lagrangian bound -½xᵀPx - bᵀz + offset of a dual feasible pair."""
        return float(-0.5 * x @ (self.P @ x) - self.b @ z + self.offset)

    def residuals(self, x: Floats, z: Floats) -> ConicResiduals:
        """Return the relative residuals of the pair (x, z).

        Feasibility is relative to 1 + the largest right-hand side or objective entry,
        the gap to max(1, abs(objective)).
        """
        s = self.slack(x)
        blocks = [(c, s[c.start : c.stop], z[c.start : c.stop]) for c in self.cones]
        primal = max((c.distance(si) for c, si, _ in blocks), default=0.0)
        Px = self.P @ x
        columns = self.A.T
        r = Px + self.q + columns @ z
        outside = [c.distance(zi, dual=True) for c, _, zi in blocks]
        jordan = max((c.complementarity(si, zi) for c, si, zi in blocks), default=0.0)
        # each column by its own scale, one large cost must not excuse the others; what large
        # multipliers leave by cancelling in double precision is no residual
        rounding = 16.0 * np.finfo(float).eps * (abs(columns) @ np.abs(z))
        own = np.maximum(np.abs(r) - rounding, 0.0) / (1.0 + np.abs(self.q) + np.abs(Px))
        stationarity = float(own.max(initial=0.0))
        scale = 1.0 + max(_largest(self.q), _largest(Px))
        leak = sum(
            o * float(np.abs(si).sum()) for o, (_, si, _) in zip(outside, blocks, strict=True)
        )
        objective = self.objective(x)
        bound = self.dual_objective(x, z) + self._least(r, x) - leak
        unit = max(1.0, abs(objective))
        return ConicResiduals(
            primal=primal / (1.0 + _largest(self.b)),
            dual=max(stationarity, max(outside, default=0.0) / scale),
            gap=abs(objective - bound) / unit,
            complementarity=jordan / max(unit, scale),
            objective=objective,
            bound=bound,
        )

    def _least(self, r: Floats, x: Floats) -> float:
        """Return the least value of r @ x over the bounds of x: what a dual residual costs.

        A column with a bound on the right side is exact (its multiplier could absorb r). For
        the others the size of x stands in for the bound nobody declared.
        """
        lower, upper = self.column_bounds
        size = np.maximum(np.abs(x), float(np.abs(x).mean()) if x.size else 0.0)
        low = np.where(np.isfinite(lower), lower, -size)
        high = np.where(np.isfinite(upper), upper, size)
        return float(np.where(r > 0.0, r * low, r * high).sum())

    @cached_property
    def column_bounds(self) -> tuple[Floats, Floats]:
        """Bounds on single columns that rows of the nonnegative cone state."""
        lower, upper = np.full(self.q.size, -np.inf), np.full(self.q.size, np.inf)
        rows = sp.csr_array(self.A)
        for c in self.cones:
            if c.kind != "nonneg":
                continue
            count = np.diff(rows.indptr[c.start : c.stop + 1])
            single = np.arange(c.start, c.stop)[count == 1]
            at = rows.indptr[single]
            column, entry = rows.indices[at], rows.data[at]
            keep = entry != 0.0
            column, entry, limit = column[keep], entry[keep], self.b[single][keep] / entry[keep]
            np.minimum.at(upper, column[entry > 0], limit[entry > 0])
            np.maximum.at(lower, column[entry < 0], limit[entry < 0])
        return lower, upper


def _largest(vector: Any) -> float:
    return float(np.abs(vector).max(initial=0.0))


def _exp_distance(v: Floats, *, dual: bool) -> float:
    """Violation of z >= y exp(x/y), or of its dual cone, over stacked triples."""
    x, y, z = v.reshape(-1, 3).T
    tiny = np.finfo(float).tiny
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        if dual:  # K* = {(u, v, w): u < 0, -u exp(v/u - 1) <= w} and {u = 0, v, w >= 0}
            inside = np.where(
                x < -tiny,
                -x * np.exp(y / np.minimum(x, -tiny) - 1.0) - z,
                np.maximum(x, -np.minimum(y, z)),
            )
        else:
            inside = np.where(
                y > tiny, y * np.exp(x / np.maximum(y, tiny)) - z, np.maximum(-y, np.maximum(x, -z))
            )
    return float(max(0.0, np.nan_to_num(inside, posinf=np.inf).max()))


def _power_distance(v: Floats, power: float, *, dual: bool) -> float:
    x, y, z = v
    if dual:
        x, y = x / power, y / (1.0 - power)
    base = max(x, 0.0) ** power * max(y, 0.0) ** (1.0 - power)
    return float(max(0.0, abs(z) - base, -x, -y))
