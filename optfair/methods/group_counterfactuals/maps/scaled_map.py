"""Maps that scale a group around its mean and move it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from optfair.core.structure import LAZY_ROWS, Structure
from optfair.core.term import Values
from optfair.features.feature_problem import Indices
from optfair.methods.group_counterfactuals.maps.fixed_basis import FixedBasisMap, basis_piece
from optfair.methods.group_counterfactuals.maps.map_problem import OWN, STRANGER
from optfair.methods.group_counterfactuals.maps.null_space import as_far_as_feasible
from optfair.methods.group_counterfactuals.maps.piece import Piece

Floats = NDArray[np.float64]

__all__ = ["ScaledMap"]


class ScaledMap(FixedBasisMap):
    r"""Move a group over a linear score by one scale and a shift.

    .. math::
        \min_{a, \mu'}\; \|\mu' - \mu\|_C^2 + (a - 1)^2 \operatorname{tr}(C \Sigma)
        \quad\text{s.t.}\quad w^T g(x_i) \ge t \;\forall i,\; \tfrac1k \le a \le K

    with :math:`g(x) = \mu' + a (x - \mu)`. Only the member r farthest behind the mean counts,
    :math:`\rho = \max_i w^T (\mu - x_i)`. With the gap :math:`q = t - w^T \mu`,
    :math:`Q = w^T C^{-1} w` and :math:`T = \operatorname{tr}(C \Sigma)` the solution is

    .. math::
        a = \max\Big(\tfrac1k, \frac{T Q - \rho q}{T Q + \rho^2}\Big),\qquad
        \mu' = \mu + \frac{q + a \rho}{Q} C^{-1} w

    or the identity when :math:`q + \rho \le 0`. The scale is never above 1, so K is never active.

    Class: QP, in closed form.

    Parameters
    ----------
    X, score, probability, threshold, target_class, feature_costs
        As in `AffineMap`.
    K, k : float >= 1, optional
        As in `DiagonalMap`.

    Attributes
    ----------
    variables : ``mean`` (d,), ``scale`` scalar

    Raises
    ------
    DataError, DeclarationError
        Rows, score, target, bounds or costs that do not fit.

    Examples
    --------
    >>> import optfair as of
    >>> X = [[0.0, 0.0], [0.0, 2.0], [-1.0, 1.0], [1.0, 1.0]]
    >>> p = ScaledMap(X, score=([1.0, 0.0], 0.0), threshold=2.0, K=2.0, k=2.0)
    >>> s = p.solve()
    >>> s.solver, s.objective, float(s["scale"])
    ('scaled-map', 6.5, 0.5)

    References
    ----------
    Valero-Leal et al.: Optimal transport group counterfactual explanations, Proposition B.4
    (Theorem 3.9 prints a sum in place of the product).
    """

    title = "ScaledMap"
    structures: ClassVar[tuple[Structure, ...]] = (
        Structure("uniform-scale", OWN, frozenset(), STRANGER),
        LAZY_ROWS,
    )

    def unknowns(self) -> dict[str, Any]:
        """Return mean and scale."""
        d = self.moments.mean.size
        return {"mean": cp.Variable(d, name="mean"), "scale": cp.Variable(name="scale")}

    def pieces_in(self, variables: Mapping[str, Any]) -> tuple[Piece, ...]:
        """Return the map in these variables."""
        eye = np.eye(self.moments.mean.size)
        a = variables["scale"]

        def read(values: Values) -> tuple[Floats, Floats]:
            scale = float(np.asarray(values["scale"]))
            return np.asarray(values["mean"], dtype=float), np.asarray(scale * eye)

        return (basis_piece(self, variables, a * eye, read, "scale"),)

    def direction(self, piece: Piece) -> Any:
        """Return a w."""
        return piece.factors * self.normal

    def turning(self, piece: Piece) -> Any:
        """Return the root of the scale's cost times its change."""
        spread = np.diag(piece.moments.covariance)
        return float(np.sqrt(self.feature_costs @ spread)) * (piece.factors - 1.0)

    def settled(self, values: Values) -> Values:
        """Return the values with scale 1 when all members are equal: no scale moves them."""
        if not self.flat.all():
            return values
        return as_far_as_feasible(self, values, {**values, "scale": np.array(1.0)})

    def fixed(self, indices: Indices) -> Any:
        """Return that these features stay, which no other scale than 1 allows."""
        (piece,) = self.pieces
        return {
            "mean": piece.mean[indices] == piece.moments.mean[indices],
            "scale": piece.factors == 1.0,
        }
