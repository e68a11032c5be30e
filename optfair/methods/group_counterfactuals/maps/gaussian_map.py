"""The map between two Gaussians, of the group and of its counterfactuals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from optfair.core.evidence import Evidence
from optfair.core.problem_class import ProblemClass
from optfair.core.term import ConstraintTerm, ObjectiveTerm, Values
from optfair.errors import DeclarationError, nearest
from optfair.methods.group_counterfactuals.maps.map_data import checked_bound, map_data
from optfair.methods.group_counterfactuals.maps.moments import Moments
from optfair.methods.group_counterfactuals.maps.piece import Piece
from optfair.methods.group_counterfactuals.maps.psd_map import SymmetricMap
from optfair.methods.group_counterfactuals.maps.spectrum import SDP

Floats = NDArray[np.float64]

__all__ = ["GaussianMap"]

FORMS = ("reduced", "lmi")
QP = ProblemClass(quadratic_objective=True)


class GaussianMap(SymmetricMap):
    r"""Move a Gaussian over a linear score at least 2-Wasserstein distance.

    .. math::
        \min\; W_2^2\big(N(\mu, \Sigma), N(\mu', \Sigma')\big)
        \quad\text{s.t.}\quad w^T g(x_i) \ge t \;\forall i,\; \tfrac1k I \preceq A \preceq K I

    where g(x) = μ' + A (x − μ) is the optimal map between the two, Σ' = AΣA. In A the distance is
    a convex quadratic, and the form "reduced" is that: with the moments of the sample it is
    `PSDMap`, to the last digit. The paper's form "lmi" keeps Σ' = S as an unknown,

    .. math::
        W_2^2 = \|\mu' - \mu\|^2 + \operatorname{tr}(S - 2 A \Sigma + \Sigma),\qquad
        \begin{pmatrix} \Sigma & \Sigma A \\ A \Sigma & S \end{pmatrix} \succeq 0

    with S = AΣA at the optimum. Eq. (20) of the paper prints AΣ in the upper right block and its
    transpose below it; that is another problem, whose optimum is not a distance.

    Class: SDP.

    Parameters
    ----------
    X : array-like or DataFrame (n, d), optional
        Members that must reach the target. Without them nothing but further constraints
        classifies: add `chance`.
    score, probability, threshold, target_class, feature_costs
        As in `AffineMap`.
    mean, covariance : array-like (d,), (d, d), optional
        Moments μ, Σ of the group, both or none; those of the members by default (weight 1/n).
    K, k : float >= 1, optional
        As in `PSDMap`.
    form : {"reduced", "lmi"}
        How the distance is written.

    Attributes
    ----------
    variables : ``mean`` (d,), ``matrix`` (d, d); with "lmi" also ``covariance`` (d, d)

    Raises
    ------
    DataError, DeclarationError
        Rows, moments, score, target, bounds or costs that do not fit.

    Notes
    -----
    For a singular Σ = LLᵀ the matrix of the form "lmi" is written as
    ((I, LᵀA), (AL, S)), which says the same and has an interior. That form takes the distance
    as a difference of traces of the size of tr Σ: standardise the features, or use "reduced",
    when a short move of a wide group has to be exact.

    Examples
    --------
    >>> import optfair as of
    >>> X = [[0.0, 0.0], [0.0, 2.0], [-1.0, 1.0], [1.0, 1.0]]
    >>> p = GaussianMap(X, score=([1.0, 0.0], 0.0), threshold=2.0, K=2.0, k=2.0, form="lmi")
    >>> p
    GaussianMap: SDP
      variables    mean 2, matrix 2x2, covariance 2x2
      minimize     transport cost
      constraints  'classification', 'loewner upper', 'loewner lower', 'coupling'
    >>> round(p.solve(tolerance=1e-9).objective, 6)
    6.375

    References
    ----------
    Valero-Leal et al.: Optimal transport group counterfactual explanations, Theorem 3.7 and
    Proposition B.1.
    """

    title = "GaussianMap"

    def __init__(
        self,
        X: Any = None,
        *,
        score: Any,
        mean: Any = None,
        covariance: Any = None,
        probability: float | None = None,
        threshold: float | None = None,
        target_class: Any = None,
        K: float | None = None,
        k: float | None = None,
        feature_costs: Any = None,
        form: str = "reduced",
    ) -> None:
        if form not in FORMS:
            raise DeclarationError(f"unknown form {form!r}", remedy=nearest(str(form), FORMS))
        if (mean is None) != (covariance is None):
            raise DeclarationError(
                "mean and covariance belong together", remedy="give both or none"
            )
        bounds = {"K": checked_bound(K, "K"), "k": checked_bound(k, "k")}
        data = map_data(
            X,
            score,
            probability=probability,
            threshold=threshold,
            target_class=target_class,
            feature_costs=feature_costs,
            moments=None if mean is None else Moments.given(mean, covariance),
        )
        super().__init__({**data, **bounds, "form": form})

    def unknowns(self) -> dict[str, Any]:
        """Return mean, matrix, and the covariance of the image for the form "lmi"."""
        d = self.moments.mean.size
        own = super().unknowns()
        if self.data["form"] == "lmi":
            own["covariance"] = cp.Variable((d, d), name="covariance", symmetric=True)
        return own

    def pieces_in(self, variables: Mapping[str, Any]) -> tuple[Piece, ...]:
        """Return the map in these variables, with the covariance of its image."""
        (piece,) = super().pieces_in(variables)
        return (replace(piece, image=variables.get("covariance")),)

    def bound_terms(self, pieces: Sequence[Piece]) -> tuple[ConstraintTerm, ...]:
        """Return the Loewner bounds, and the coupling of the form "lmi"."""
        bounds = super().bound_terms(pieces)
        return bounds if self.data["form"] == "reduced" else (*bounds, self._coupling(pieces[0]))

    def cost_term(self, piece: Piece) -> ObjectiveTerm:
        """Return the squared distance in the form that was asked for."""
        if self.data["form"] == "reduced":
            return super().cost_term(piece)
        costs, m, S = self.feature_costs, piece.moments, piece.image
        sigma, weighted = m.covariance, m.covariance * costs
        constant = float(costs @ np.diag(sigma))

        def build() -> Any:
            moved = cp.multiply(np.sqrt(costs), piece.mean - m.mean)
            spread = costs @ cp.diag(S) - 2 * cp.sum(cp.multiply(weighted.T, piece.matrix))
            return cp.sum_squares(moved) + spread + constant

        def value(values: Values) -> float:
            mean, A = piece.read(values)
            image = np.diag(np.asarray(values["covariance"], dtype=float))
            crossed = float((weighted.T * A).sum())
            return float(costs @ np.square(mean - m.mean) + costs @ image - 2 * crossed + constant)

        name = "transport cost"
        return ObjectiveTerm(
            name,
            piece.variables | {"covariance"},
            Evidence(name, "convex quadratic", "minimize", QP),
            build=build,
            latex=r"\|\mu' - \mu\|^2 + \operatorname{tr}(S - 2 A \Sigma + \Sigma)",
            value=value,
        )

    def _coupling(self, piece: Piece) -> ConstraintTerm:
        """Return the covariance of a point and its image, which is positive semidefinite."""
        m, S = piece.moments, piece.image
        d = m.mean.size
        # rows and columns in standard deviations, which changes no sign of an eigenvalue
        D = np.diag(1.0 / np.where(m.deviations > 0, m.deviations, 1.0))
        # Σ = L L^T and the corner that of L^-1 x: for a singular Σ the block keeps an interior
        corner, left = D @ m.covariance @ D, D @ m.covariance
        if m.singular:
            corner, left = np.eye(m.root.shape[1]), m.root.T
        size = corner.shape[0] + d

        def block(A: Any, S: Any, bmat: Any) -> Any:
            return bmat([[corner, left @ A @ D], [D @ A @ left.T, D @ S @ D]])

        def outside(values: Values) -> Floats:
            A = piece.turned(values)
            joint = block(A, np.asarray(values["covariance"], dtype=float), np.block)
            if not np.isfinite(joint).all():
                return np.array(np.inf)
            return np.asarray(np.maximum(-np.linalg.eigvalsh((joint + joint.T) / 2)[0], 0.0))

        return ConstraintTerm(
            "coupling",
            frozenset({piece.scope[1], "covariance"}),
            Evidence("coupling", "affine", "PSD", SDP),
            build=lambda: block(piece.matrix, S, cp.bmat) >> 0,
            latex=r"\begin{pmatrix} \Sigma & \Sigma A \\ A \Sigma & S \end{pmatrix} \succeq 0",
            violation=outside,
            shape=(size, size),
            scale=1.0,
        )

    def lift(self, values: Mapping[str, Any]) -> dict[str, Floats]:
        """Return values of the form "lmi" from a mean and a matrix."""
        A = np.asarray(values["matrix"], dtype=float)
        return {
            "mean": np.asarray(values["mean"], dtype=float),
            "matrix": A,
            "covariance": A @ self.moments.covariance @ A,
        }
