"""Affine maps with any matrix, or with a symmetric positive semidefinite one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from optfair.core.term import LAZY_ROWS, ConstraintTerm, Structure, Values
from optfair.errors import DeclarationError
from optfair.methods.group_counterfactuals.group_problem import BOTH
from optfair.methods.group_counterfactuals.map_problem import (
    OWN,
    STRANGER,
    MapProblem,
    Piece,
    renamed,
)
from optfair.methods.group_counterfactuals.moments import (
    as_far_as_feasible,
    nearest_to_identity,
)
from optfair.methods.group_counterfactuals.spectrum import (
    Reduction,
    loewner_bounds,
    spectral_bound,
)

# Affine maps with any matrix, with or without a bound on how much they expand.

Floats = NDArray[np.float64]
NOT_CONVEX = "I and diag(1, -1) satisfy it, their midpoint is singular"


class AffineMap(MapProblem):
    r"""Move a group over a linear score by the affine map of least cost.

    .. math::
        \min_{A, \mu'}\; \|\mu' - \mu\|_C^2 + \operatorname{tr}(C (A - I) \Sigma (A - I)^T)
        \quad\text{s.t.}\quad w^T g(x_i) \ge t \;\forall i,\;
        g(x) = \mu' + A (x - \mu),\; \sigma_{\max}(A) \le K

    The objective is the mean of :math:`\|g(x_i) - x_i\|_C^2` over the members, which depends on
    them through their mean μ and covariance Σ (weight 1/n) alone: the squared
    2-Wasserstein distance of the map. C holds the feature costs.

    Class: QP without K; SDP with it (the spectral norm).

    Parameters
    ----------
    X : array-like or DataFrame (n, d)
        Members of the group.
    score : LinearScore, (coef, intercept), or fitted linear classifier
        What the target is about; see `LinearScore.of`.
    probability : float in (0, 1), optional
        Probability α that members must reach; 0.5 by default.
    threshold : float, optional
        Score τ that they must reach, in place of ``probability``.
    target_class : label, optional
        Class they must reach; the second by default.
    K : float >= 1, optional
        Bound on how much any distance grows.
    feature_costs : array-like (d,) or dict, optional
        Weight of each feature in the cost; 1 by default.

    Attributes
    ----------
    variables : ``mean`` (d,), ``matrix`` (d, d)

    Raises
    ------
    DataError, DeclarationError
        Rows, score, target, bounds or costs that do not fit.

    Examples
    --------
    >>> import optfair as of
    >>> X = [[0.0, 0.0], [0.0, 2.0], [-1.0, 1.0], [1.0, 1.0]]
    >>> p = AffineMap(X, score=([1.0, 0.0], 0.0), threshold=2.0)
    >>> p.problem_class
    QP
    >>> s = p.solve(tolerance=1e-9)
    >>> round(s.objective, 6)  # everyone moves to the line: no bound keeps them apart
    4.5
    >>> (p.map(s).transform(X).round(3)[0] + 0.0).tolist()
    [2.0, 0.0]
    >>> AffineMap(X, score=([1.0, 0.0], 0.0), threshold=2.0, K=1.5).problem_class
    SDP

    References
    ----------
    Valero-Leal et al.: Optimal transport group counterfactual explanations, Propositions A.5
    and A.7.
    """

    title = "AffineMap"
    structures: ClassVar[tuple[Structure, ...]] = (
        Structure("score-factors", OWN, frozenset(), STRANGER),
        LAZY_ROWS,
    )

    takes: ClassVar[Mapping[str, float]] = {"K": 1.0}
    instead: ClassVar[Mapping[str, str]] = {"k": NOT_CONVEX}

    def bound_terms(self, pieces: Sequence[Piece]) -> tuple[ConstraintTerm, ...]:
        """Return the spectral bound, if there is one."""
        return renamed("spectral", self.spectrum(pieces[0], self.data["K"], None))

    def reduction(self) -> Reduction:
        """Return the map in what it does to the score: the gradient v = A^T w of its score.

        For given v the cheapest matrix is I + C^-1 w (v - w)^T / (w^T C^-1 w).
        """
        w = self.normal
        pull = w / self.feature_costs
        Q = float(w @ pull)

        def lift(mean: Floats, v: Floats) -> dict[str, Floats]:
            return {"mean": mean, "matrix": np.eye(w.size) + np.outer(pull, v - w) / Q}

        return Reduction(
            turn=np.eye(w.size),
            root=self.moments.root.T / np.sqrt(Q),
            center=w,
            lift=lift,
            factors=lambda values: np.asarray(values["matrix"], dtype=float).T @ w,
        )

    def spectrum(self, piece: Piece, K: float | None, k: float | None) -> dict[str, ConstraintTerm]:
        """Return bounds on the singular values; a lower one is not convex here."""
        if k is not None:
            raise DeclarationError(
                "a bound k on the contraction of any matrix is not convex",
                NOT_CONVEX,
                "use PSDMap, or BiLipschitzMap for the nonconvex problem",
            )
        return {} if K is None else spectral_bound(piece.matrix, K)


# Affine maps with a symmetric positive semidefinite matrix.


class SymmetricMap(MapProblem):
    """A problem of one map with a symmetric matrix; `PSDMap` and `GaussianMap` are such."""

    takes = BOTH
    symmetric = True

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
        return loewner_bounds(piece.matrix, K, k)


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
