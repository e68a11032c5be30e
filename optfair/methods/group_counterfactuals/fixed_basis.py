"""Maps that stretch along given directions: diagonal, commutative Gaussian, scaled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from optfair.core.expressions import Values
from optfair.core.parameters import Datum
from optfair.core.problem_class import Structure
from optfair.core.term import ConstraintTerm
from optfair.features.linear_score import LinearScore
from optfair.methods.group_counterfactuals.group_problem import (
    BOTH,
    ROUNDING,
    Moments,
    as_far_as_feasible,
)
from optfair.methods.group_counterfactuals.limits import SUPPORT
from optfair.methods.group_counterfactuals.map_problem import (
    MapProblem,
    Piece,
    Reduction,
    closed_form,
    factor_bounds,
    renamed,
)
from optfair.numbers import Floats, Indices

# Maps that stretch along given directions: diagonal, commutative Gaussian, scaled.

# Entries of a unit vector below this are what rounding leaves of zero.
ZERO = 1e-12
# Up to so many features choices are branched on with a proof, as fast as by solvers (measured).
FEATURES = 16


class FixedBasisMap(MapProblem):
    r"""A problem of a map :math:`A = U \operatorname{diag}(a) U^T` with a given U.

    Its unknowns are ``mean`` and ``factors``, so everything that is linear in A is linear in
    d + d numbers, and bounds on the spectrum are bounds on numbers.
    """

    structures: ClassVar[tuple[Structure, ...]] = closed_form("score-factors")

    takes = BOTH

    def located(self, X: Any, score: LinearScore, moments: Moments | None = None) -> dict[str, Any]:
        """Return members and moments, and the directions."""
        data = super().located(X, score, moments)
        return {**data, "basis": self.basis_of(data)}

    def basis_of(self, data: Mapping[str, Any]) -> Floats:
        """Return U, orthogonal (d, d)."""
        return np.eye(data["moments"].mean.size)

    basis = Datum[Floats]("U, one direction per column (d, d).")

    def unknowns(self) -> dict[str, Any]:
        """Return mean and factors."""
        d = self.moments.mean.size
        return {"mean": cp.Variable(d, name="mean"), "factors": cp.Variable(d, name="factors")}

    def pieces_in(self, variables: Mapping[str, Any]) -> tuple[Piece, ...]:
        """Return the map in these variables."""
        U, a = self.basis, variables["factors"]

        diagonal = cp.diag(a) if self._plain else U @ cp.diag(a) @ U.T
        return (self.piece(variables, matrix=diagonal, factors=a),)

    @property
    def _plain(self) -> bool:
        """Whether the directions are the features."""
        return bool((self.basis == np.eye(self.basis.shape[0])).all())

    def direction(self, piece: Piece) -> Any:
        """Return A w = U (a * U^T w)."""
        U = self.basis
        return (U * (U.T @ self.normal)) @ piece.factors

    def turning(self, piece: Piece) -> Any:
        r"""Return the root of each factor's cost times its change.

        The cost is :math:`(a - 1)^T H (a - 1)` with
        :math:`H = (U^T \Sigma U) \circ (U^T C U)`, which is diagonal when one of the two is.
        """
        U = self.basis
        spread = np.square(piece.moments.root.T @ U).sum(axis=0)
        weight = self.feature_costs @ np.square(U)
        return cp.multiply(np.sqrt(piece.weight * spread * weight), piece.factors - 1.0)

    def fixed(self, indices: Indices) -> Any:
        """Return the constraints that the map leaves these features as they are.

        A feature stays when every direction that it is part of keeps its length.
        """
        (piece,) = self.pieces
        part_of = (np.abs(self.basis[indices]) > ZERO).any(axis=0)
        return {
            "mean": piece.mean[indices] == piece.moments.mean[indices],
            "factors": piece.factors[np.flatnonzero(part_of)] == 1.0,
        }

    def bound_terms(self, pieces: Sequence[Piece]) -> tuple[ConstraintTerm, ...]:
        """Return bounds on the factors; without k they are not negative."""
        K, k = self.data["K"], self.data["k"]
        return renamed("factor", self.spectrum(pieces[0], K, np.inf if k is None else k))

    def structure_refusal(self, name: str) -> str:
        """Return why a structure does not stand on this problem, empty if it does."""
        many = self.moments.mean.size > FEATURES
        if name == SUPPORT.name and self.problem_class.family == "QP" and many:
            return f"of more than {FEATURES} features the mixed-integer QP itself is solved sooner"
        return super().structure_refusal(name)

    def reduction(self) -> Reduction:
        """Return the map in its factors: only the score of the mean is left of the mean."""
        (piece,) = self.pieces
        U = self.basis
        spread = np.square(piece.moments.root.T @ U).sum(axis=0)
        return Reduction(
            turn=U * (U.T @ self.normal),
            root=np.diag(np.sqrt(spread * (self.feature_costs @ np.square(U)))),
            center=np.ones(U.shape[0]),
            lift=lambda mean, factors: {"mean": mean, "factors": factors},
            factors=lambda values: np.asarray(values["factors"], dtype=float),
            bounds=tuple(name for name in self.constraints if name.startswith("factor ")),
        )

    @property
    def flat(self) -> NDArray[np.bool_]:
        """Whether the group has no extent along each direction, but for the rounding of its features."""
        centered = self.data["centered"]
        extent = np.abs(centered @ self.basis).max(axis=0)
        size = np.abs(centered).max(axis=0) + np.abs(self.moments.mean)
        return np.asarray(extent <= ROUNDING * (size @ np.abs(self.basis)))

    def settled(self, values: Values) -> Values:
        """Return the values with factor 1 along directions in which the group has no extent."""
        if not self.flat.any():
            return values
        wanted = np.where(self.flat, 1.0, np.asarray(values["factors"], dtype=float))
        return as_far_as_feasible(self, values, {**values, "factors": wanted})

    def spectrum(self, piece: Piece, K: float | None, k: float | None) -> dict[str, ConstraintTerm]:
        """Return bounds on the factors, which are the eigenvalues of A."""
        return factor_bounds(piece.factors, K, k)


class DiagonalMap(FixedBasisMap):
    r"""Move a group over a linear score by scaling and shifting each feature.

    .. math::
        \min_{a, \mu'}\; \sum_j c_j (\mu'_j - \mu_j)^2 + \sum_j c_j \Sigma_{jj} (a_j - 1)^2
        \quad\text{s.t.}\quad w^T g(x_i) \ge t \;\forall i,\; \tfrac1k \le a_j \le K

    with :math:`g(x) = \mu' + a \circ (x - \mu)`.

    Class: QP.

    Parameters
    ----------
    X, score, probability, threshold, target_class, feature_costs
        As in `AffineMap`.
    K, k : float >= 1, optional
        Bounds on how much distances grow and shrink; no bound by default. Without k the
        factors are not negative.

    Attributes
    ----------
    variables : ``mean`` (d,), ``factors`` (d,)

    Raises
    ------
    DataError, DeclarationError
        Rows, score, target, bounds or costs that do not fit.

    Examples
    --------
    >>> import optfair as of
    >>> X = [[0.0, 0.0], [0.0, 2.0], [-1.0, 1.0], [1.0, 1.0]]
    >>> p = DiagonalMap(X, score=([1.0, 0.0], 0.0), threshold=2.0, K=2.0, k=2.0)
    >>> p.problem_class
    QP
    >>> s = p.solve(tolerance=1e-9)
    >>> round(s.objective, 6), (s["factors"] + 0.0).round(4).tolist()
    (6.375, [0.5, 1.0])

    References
    ----------
    Valero-Leal et al.: Optimal transport group counterfactual explanations, Proposition 3.5.
    """


class CommutativeGaussianMap(FixedBasisMap):
    r"""Move a group over a linear score by stretching it along its principal axes.

    .. math::
        \min_{a, \mu'}\; \|\mu' - \mu\|_C^2 + \sum_j h_j (a_j - 1)^2
        \quad\text{s.t.}\quad w^T g(x_i) \ge t \;\forall i,\; \tfrac1k \le a_j \le K

    with :math:`\Sigma = U \Lambda U^T`, :math:`A = U \operatorname{diag}(a) U^T` and
    :math:`h_j = \lambda_j` (times :math:`u_j^T C u_j` with feature costs). The image has the
    covariance :math:`U S^2 U^T` with :math:`s_j = a_j \sqrt{\lambda_j}`, which commutes
    with Σ, and the cost is the squared 2-Wasserstein distance of the two Gaussians,
    :math:`\|\mu' - \mu\|^2 + \sum_j (s_j - \sqrt{\lambda_j})^2`.

    Class: QP. The paper says QCQP and prints :math:`A = U (S / \Lambda)^{1/2} U^T`, which is not
    this map: :math:`A \Sigma A = U S^2 U^T` needs :math:`A = U S \Lambda^{-1/2} U^T`.

    Parameters
    ----------
    X, score, probability, threshold, target_class, feature_costs
        As in `AffineMap`.
    K, k : float >= 1, optional
        As in `DiagonalMap`.

    Attributes
    ----------
    variables : ``mean`` (d,), ``factors`` (d,)
    basis : array (d, d)
        U, eigenvectors of Σ in its columns, eigenvalues increasing.

    Raises
    ------
    DataError, DeclarationError
        Rows, score, target, bounds or costs that do not fit.

    Notes
    -----
    Equal eigenvalues leave U free within their space, and the optimum depends on the choice.
    Taken is what LAPACK returns for Σ, which is the features themselves when Σ is diagonal;
    `GaussianMap` has no such choice and is never worse.

    Examples
    --------
    >>> import optfair as of
    >>> X = [[0.0, 0.0], [0.0, 2.0], [-1.0, 1.0], [1.0, 1.0], [0.0, 1.0]]
    >>> p = CommutativeGaussianMap(X, score=([1.0, 0.0], 0.0), threshold=2.0, K=2.0, k=2.0)
    >>> round(p.solve(tolerance=1e-9).objective, 6)
    6.35

    References
    ----------
    Valero-Leal et al.: Optimal transport group counterfactual explanations, Theorem 3.8.
    """

    def basis_of(self, data: Mapping[str, Any]) -> Floats:
        """Return the eigenvectors of the covariance."""
        return np.asarray(np.linalg.eigh(data["moments"].covariance)[1])


# Maps that scale a group around its mean and move it.


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

    structures: ClassVar[tuple[Structure, ...]] = closed_form("uniform-scale")

    def unknowns(self) -> dict[str, Any]:
        """Return mean and scale."""
        d = self.moments.mean.size
        return {"mean": cp.Variable(d, name="mean"), "scale": cp.Variable(name="scale")}

    def pieces_in(self, variables: Mapping[str, Any]) -> tuple[Piece, ...]:
        """Return the map in these variables."""
        eye = np.eye(self.moments.mean.size)
        a = variables["scale"]

        return (self.piece(variables, matrix=a * eye, factors=a),)

    def direction(self, piece: Piece) -> Any:
        """Return a w."""
        return piece.factors * self.normal

    def turning(self, piece: Piece) -> Any:
        """Return the root of the scale's cost times its change."""
        spread = np.diag(piece.moments.covariance)
        return float(np.sqrt(self.feature_costs @ spread)) * (piece.factors - 1.0)

    def reduction(self) -> Reduction:
        """Return the map in its scale."""
        return replace(
            super().reduction(),
            turn=self.normal[:, None],
            root=np.sqrt([[self.feature_costs @ self.variances]]),
            center=np.ones(1),
            lift=lambda mean, factors: {"mean": mean, "scale": factors.reshape(())},
            factors=lambda values: np.asarray(values["scale"], dtype=float).reshape(1),
        )

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
