"""Affine maps with a symmetric positive semidefinite matrix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import cvxpy as cp
import numpy as np

from optfair.core.expressions import Values
from optfair.core.term import ConstraintTerm
from optfair.methods.group_counterfactuals.maps.affine_map import matrix_piece
from optfair.methods.group_counterfactuals.maps.map_data import checked_bound, map_data
from optfair.methods.group_counterfactuals.maps.map_problem import MapProblem, renamed
from optfair.methods.group_counterfactuals.maps.null_space import (
    as_far_as_feasible,
    nearest_to_identity,
)
from optfair.methods.group_counterfactuals.maps.piece import Piece
from optfair.methods.group_counterfactuals.maps.spectrum import loewner_bounds

__all__ = ["PSDMap", "SymmetricMap"]


class SymmetricMap(MapProblem):
    """A problem of one map with a symmetric matrix; `PSDMap` and `GaussianMap` are such."""

    def unknowns(self) -> dict[str, Any]:
        """Return mean and symmetric matrix."""
        d = self.moments.mean.size
        return {
            "mean": cp.Variable(d, name="mean"),
            "matrix": cp.Variable((d, d), name="matrix", symmetric=True),
        }

    def pieces_in(self, variables: Mapping[str, Any]) -> tuple[Piece, ...]:
        """Return the map in these variables."""
        return (matrix_piece(self, variables),)

    def bound_terms(self, pieces: Sequence[Piece]) -> tuple[ConstraintTerm, ...]:
        """Return the Loewner bounds; without k the matrix is at least semidefinite."""
        return renamed("loewner", self.spectrum(pieces[0], self.data["K"], self.data["k"] or NONE))

    def settled(self, values: Values) -> Values:
        """Return the values with the matrix nearest to I that moves the group alike."""
        root, A = self.moments.root, np.asarray(values["matrix"], dtype=float)
        if not self.moments.singular:
            return values
        wanted = nearest_to_identity(A, root, self.data["K"], self.data["k"])
        return as_far_as_feasible(self, values, {**values, "matrix": wanted})

    def spectrum(self, piece: Piece, K: float | None, k: float | None) -> dict[str, ConstraintTerm]:
        """Return Loewner bounds on the matrix."""
        return loewner_bounds(piece.matrix, frozenset({piece.scope[1]}), piece.turned, K, k)


# 1 / k of no bound: then the matrix is only semidefinite.
NONE = float("inf")


class PSDMap(SymmetricMap):
    r"""Move a group over a linear score by a symmetric map between Loewner bounds.

    .. math::
        \min_{A, \mu'}\; \|\mu' - \mu\|_C^2 + \operatorname{tr}(C (A - I) \Sigma (A - I))
        \quad\text{s.t.}\quad w^T g(x_i) \ge t \;\forall i,\;
        \tfrac1k I \preceq A \preceq K I

    with :math:`g(x) = \mu' + A (x - \mu)`. A symmetric matrix between these bounds is exactly
    an affine map that is (K, k)-bi-Lipschitz and the gradient of a convex function, so it is
    the optimal transport map to its image (Brenier).

    Class: SDP.

    Parameters
    ----------
    X, score, probability, threshold, target_class, feature_costs
        As in `AffineMap`.
    K, k : float >= 1, optional
        Bounds on how much distances grow and shrink; no bound by default. Without k the
        matrix is positive semidefinite and may send different points to the same one.

    Attributes
    ----------
    variables : ``mean`` (d,), ``matrix`` (d, d) symmetric

    Raises
    ------
    DataError, DeclarationError
        Rows, score, target, bounds or costs that do not fit.

    Notes
    -----
    Where the group has no extent (a singular covariance, as with fewer members than features)
    the cost leaves the matrix free: all such matrices send the members to the same points. The
    solution has one of them; ``map`` returns the one that is nearest to the identity there, so
    that new members are moved no more than the group asks for.

    Examples
    --------
    >>> import optfair as of
    >>> X = [[0.0, 0.0], [0.0, 2.0], [-1.0, 1.0], [1.0, 1.0]]
    >>> p = PSDMap(X, score=([1.0, 0.0], 0.0), threshold=2.0, K=2.0, k=2.0)
    >>> p
    PSDMap: SDP
      variables    mean 2, matrix 2x2
      minimize     transport cost
      constraints  'classification', 'loewner upper', 'loewner lower'
    >>> s = p.solve(tolerance=1e-9)
    >>> round(s.objective, 6)  # 2.5 forward on average, and half as wide
    6.375
    >>> g = p.map(s)
    >>> round(g.contraction, 4)
    2.0

    References
    ----------
    Valero-Leal et al.: Optimal transport group counterfactual explanations, Proposition 3.4.
    """

    title = "PSDMap"

    def __init__(
        self,
        X: Any,
        *,
        score: Any,
        probability: float | None = None,
        threshold: float | None = None,
        target_class: Any = None,
        K: float | None = None,
        k: float | None = None,
        feature_costs: Any = None,
    ) -> None:
        bounds = {"K": checked_bound(K, "K"), "k": checked_bound(k, "k")}
        data = map_data(
            X,
            score,
            probability=probability,
            threshold=threshold,
            target_class=target_class,
            feature_costs=feature_costs,
        )
        super().__init__({**data, **bounds})
