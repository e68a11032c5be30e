"""Affine maps with any matrix, with or without a bound on how much they expand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from optfair.core.structure import LAZY_ROWS, Structure
from optfair.core.term import ConstraintTerm, Values
from optfair.errors import DeclarationError
from optfair.methods.group_counterfactuals.maps.map_data import checked_bound, map_data
from optfair.methods.group_counterfactuals.maps.map_problem import (
    OWN,
    STRANGER,
    MapProblem,
    renamed,
)
from optfair.methods.group_counterfactuals.maps.piece import Piece
from optfair.methods.group_counterfactuals.maps.score_line import Reduction
from optfair.methods.group_counterfactuals.maps.spectrum import spectral_bound

Floats = NDArray[np.float64]

__all__ = ["AffineMap"]


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

    def __init__(
        self,
        X: Any,
        *,
        score: Any,
        probability: float | None = None,
        threshold: float | None = None,
        target_class: Any = None,
        K: float | None = None,
        feature_costs: Any = None,
    ) -> None:
        bound = checked_bound(K, "K")
        data = map_data(
            X,
            score,
            probability=probability,
            threshold=threshold,
            target_class=target_class,
            feature_costs=feature_costs,
        )
        super().__init__({**data, "K": bound})

    def unknowns(self) -> dict[str, Any]:
        """Return mean and matrix."""
        d = self.moments.mean.size
        return {"mean": cp.Variable(d, name="mean"), "matrix": cp.Variable((d, d), name="matrix")}

    def pieces_in(self, variables: Mapping[str, Any]) -> tuple[Piece, ...]:
        """Return the map in these variables."""
        return (matrix_piece(self, variables),)

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
                "I and diag(1, -1) satisfy it, their midpoint is singular",
                "use PSDMap, or BiLipschitzMap for the nonconvex problem",
            )
        scope = frozenset({piece.scope[1]})
        return {} if K is None else spectral_bound(piece.matrix, scope, piece.turned, K)


def matrix_piece(
    problem: MapProblem,
    variables: Mapping[str, Any],
    part: str = "",
    **given: Any,
) -> Piece:
    """Return the map of variables ``mean`` and ``matrix`` with a suffix: ``.0`` is ``_0``."""
    names = (f"mean{part}".replace(".", "_"), f"matrix{part}".replace(".", "_"))

    def read(values: Values) -> tuple[Floats, Floats]:
        mean, A = (np.asarray(values[name], dtype=float) for name in names)
        return mean, A

    rest = {
        "weight": 1.0,
        "moments": problem.moments,
        "centered": problem.data["centered"],
        **given,
    }
    return Piece(
        part=part,
        mean=variables[names[0]],
        matrix=variables[names[1]],
        scope=names,
        read=read,
        **rest,
    )
