"""The compiled cone program and the residuals of a primal-dual pair on it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.proofs.bounds import LowerBound, Unpaid, lower_bound
from optfair.proofs.columns import declared_bounds, linear_rows
from optfair.proofs.cones import Cone
from optfair.proofs.definiteness import Definiteness, definiteness

Floats = NDArray[np.float64]

__all__ = ["ConicForm", "ConicResiduals"]


@dataclass(frozen=True)
class ConicResiduals:
    """Relative residuals of a primal-dual pair; all zero at an optimum.

    The bound holds in exact arithmetic, as far as ``unpaid`` says; it is -inf, with ``fault``,
    where nothing is proved. The estimate takes the multipliers at their word.
    """

    primal: float
    dual: float
    gap: float
    complementarity: float
    objective: float
    bound: float
    unpaid: Unpaid | None = None
    fault: str = ""
    estimate: float = -np.inf


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
        proved = self.lower_bound(x, z)
        unit = max(1.0, abs(objective))
        return ConicResiduals(
            primal=primal / (1.0 + _largest(self.b)),
            dual=max(stationarity, max(outside, default=0.0) / scale),
            gap=abs(objective - proved.value) / unit,
            complementarity=jordan / max(unit, scale),
            objective=objective,
            bound=proved.value,
            unpaid=proved.unpaid,
            fault=proved.fault,
            estimate=self.dual_objective(x, z) + self._least(r, x) - leak,
        )

    def _least(self, r: Floats, x: Floats) -> float:
        """Return what a dual residual costs at the size of x where no row bounds a column.

        No proof: it says what an answer is worth that is not proved.
        """
        lower, upper = self.column_bounds
        size = np.maximum(np.abs(x), float(np.abs(x).mean()) if x.size else 0.0)
        low = np.where(np.isfinite(lower), lower, -size)
        high = np.where(np.isfinite(upper), upper, size)
        return float(np.where(r > 0.0, r * low, r * high).sum())

    def lower_bound(self, x: Floats, z: Floats) -> LowerBound:
        """Return the bound that the pair proves, in exact arithmetic."""
        return lower_bound(self, x, z, self.objective(x))

    @cached_property
    def unit(self) -> float:
        """Least size an objective with these data is measured by: 1, or less for small numbers."""
        side = min(1.0, _largest(self.b)) or 1.0
        cost = max(_largest(self.q), _largest(self.P.data) * side) * side
        return min(1.0, cost) or 1.0

    @cached_property
    def curvature(self) -> Definiteness:
        """What is proved of the curvature of the objective."""
        return definiteness(self.P)

    @cached_property
    def columns_of_rows(self) -> Any:
        """The rows column by column: sparse csc (m, n)."""
        return sp.csc_array(self.A)

    @cached_property
    def column_bounds(self) -> tuple[Floats, Floats]:
        """Bounds on single columns that rows state, rounded outward."""
        return declared_bounds(linear_rows(self))

    def column_names(self, columns: NDArray[Any]) -> tuple[str, ...]:
        """Return the names of the variables that some columns belong to."""
        named = [
            name
            for name, at in self.columns.items()
            if ((columns >= at.start) & (columns < at.stop)).any()
        ]
        return tuple(named) or ("an auxiliary variable",)


def _largest(vector: Any) -> float:
    return float(np.abs(vector).max(initial=0.0))
