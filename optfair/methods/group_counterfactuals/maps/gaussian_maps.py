"""Maps between Gaussians, and between mixtures of Gaussians."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from optfair.core.problem_class import Evidence, ProblemClass
from optfair.core.solution import Solution
from optfair.core.term import ConstraintTerm, ObjectiveTerm, Values
from optfair.errors import DeclarationError, nearest
from optfair.methods.group_counterfactuals.maps.affine_maps import SymmetricMap, matrix_piece
from optfair.methods.group_counterfactuals.maps.map_problem import (
    MapProblem,
    Piece,
    fitting_values,
    renamed,
)
from optfair.methods.group_counterfactuals.maps.moments import (
    GaussianParts,
    Moments,
    checked_bound,
    map_data,
)
from optfair.methods.group_counterfactuals.maps.spectrum import SDP, loewner_bounds
from optfair.methods.group_counterfactuals.transport_map import MixtureTransport
from optfair.numbers import check_text, checked, floats

__all__ = [
    "GaussianMap",
    "MixtureMap",
]


# The map between two Gaussians, of the group and of its counterfactuals.

Floats = NDArray[np.float64]


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

    @checked(mean=floats, covariance=floats, form=check_text)
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


# Maps of a mixture of Gaussians: one affine map for each component.

BOUNDS = ("local", "global")
VALID = ("own", "every")


class MixtureMap(MapProblem):
    r"""Move every component of a Gaussian mixture by a map of its own, at least total cost.

    .. math::
        \min\; \sum_j \pi_j \big(\|\mu'_j - \mu_j\|_C^2
            + \operatorname{tr}(C (A_j - I) \Sigma_j (A_j - I))\big)
        \quad\text{s.t.}\quad w^T g_{j(i)}(x_i) \ge t \;\forall i,\;
        \tfrac1k I \preceq A_j \preceq K I

    with :math:`g_j(x) = \mu'_j + A_j (x - \mu_j)`. A member is moved by the map of its most
    probable component j(i), in the problem as in the map that comes out of it. The map is
    bi-Lipschitz within a component, not across the border of two.

    Class: SDP.

    Parameters
    ----------
    X, score, probability, threshold, target_class, feature_costs
        As in `AffineMap`.
    components : fitted GaussianMixture, (weights, means, covariances), or labels (n,)
        The mixture; labels give one Gaussian for each, with the moments of its rows.
    K, k : float >= 1, optional
        As in `PSDMap`.
    bounds : {"local", "global"}
        Whether K and k bound every :math:`A_j`, or only their mean :math:`\sum_j \pi_j A_j`.
        The paper asks for both, but the first implies the second.
    valid : {"own", "every"}
        Whether a member must reach the target by the map of its own component, or by that of
        every component, for maps that are drawn by the responsibilities.

    Attributes
    ----------
    variables : ``mean_j`` (d,), ``matrix_j`` (d, d) symmetric, for every component j

    Raises
    ------
    DataError, DeclarationError
        Rows, mixture, score, target, bounds or costs that do not fit; a component without
        spread in some direction.

    Examples
    --------
    >>> import numpy as np, optfair as of
    >>> corners = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    >>> X = np.vstack([corners, corners + [-6.0, 0.0]])
    >>> labels = np.repeat([0, 1], 4)
    >>> p = MixtureMap(X, components=labels, score=([1.0, 0.0], 0.0), threshold=2.0, K=2.0, k=2.0)
    >>> list(p.variables), p.problem_class
    (['mean_0', 'matrix_0', 'mean_1', 'matrix_1'], SDP)
    >>> s = p.solve(tolerance=1e-9)
    >>> round(s.objective, 6)  # (1.75² + 1/16) / 2 + (7.75² + 1/16) / 2
    31.625

    References
    ----------
    Valero-Leal et al.: Optimal transport group counterfactual explanations, Appendix B.1.
    """

    title = "MixtureMap"

    @checked(bounds=check_text, valid=check_text)
    def __init__(
        self,
        X: Any,
        *,
        components: Any,
        score: Any,
        probability: float | None = None,
        threshold: float | None = None,
        target_class: Any = None,
        K: float | None = None,
        k: float | None = None,
        bounds: str = "local",
        valid: str = "own",
        feature_costs: Any = None,
    ) -> None:
        for value, known, what in ((bounds, BOUNDS, "bounds"), (valid, VALID, "valid")):
            if value not in known:
                raise DeclarationError(
                    f"unknown {what} {value!r}", remedy=nearest(str(value), known)
                )
        limits = {"K": checked_bound(K, "K"), "k": checked_bound(k, "k")}
        data = map_data(
            X,
            score,
            probability=probability,
            threshold=threshold,
            target_class=target_class,
            feature_costs=feature_costs,
        )
        points = data["centered"] + data["moments"].mean
        parts = GaussianParts.of(components, points)
        own = parts.assign(points)
        super().__init__(
            {**data, **limits, "bounds": bounds, "valid": valid, "parts": parts, "own": own}
        )

    @property
    def parts(self) -> GaussianParts:
        """The mixture of the group."""
        parts: GaussianParts = self.data["parts"]
        return parts

    def unknowns(self) -> dict[str, Any]:
        """Return a mean and a symmetric matrix for every component."""
        d = self.moments.mean.size
        found: dict[str, Any] = {}
        for j in range(self.parts.weights.size):
            found[f"mean_{j}"] = cp.Variable(d, name=f"mean_{j}")
            found[f"matrix_{j}"] = cp.Variable((d, d), name=f"matrix_{j}", symmetric=True)
        return found

    def pieces_in(self, variables: Mapping[str, Any]) -> tuple[Piece, ...]:
        """Return the maps of the components with weight."""
        parts, every = self.parts, self.data["valid"] == "every"
        shifts = self.moments.mean - np.stack([m.mean for m in parts.moments])
        found = []
        for j, moments in enumerate(parts.moments):
            members = slice(None) if every else np.flatnonzero(self.data["own"] == j)
            found.append(
                matrix_piece(
                    self,
                    variables,
                    f".{j}",
                    weight=float(parts.weights[j]),
                    moments=moments,
                    centered=self.data["centered"][members] + shifts[j],
                )
            )
        return tuple(found)

    def bound_terms(self, pieces: Sequence[Piece]) -> tuple[ConstraintTerm, ...]:
        """Return Loewner bounds on the matrices, or on their mean."""
        K, k = self.data["K"], self.data["k"]
        low = np.inf if k is None else k
        if self.data["bounds"] == "local":
            return tuple(
                t for p in pieces for t in renamed("loewner", self.spectrum(p, K, low), p.part)
            )
        semidefinite = tuple(
            t
            for p in pieces
            for t in renamed("semidefinite", self.spectrum(p, None, np.inf), p.part)
        )
        weights = [p.weight for p in pieces]
        mean = sum(w * p.matrix for w, p in zip(weights, pieces, strict=True))

        def read(values: Values) -> Floats:
            turned = (w * p.turned(values) for w, p in zip(weights, pieces, strict=True))
            return np.asarray(sum(turned))

        scope = frozenset(p.scope[1] for p in pieces)
        return (*semidefinite, *renamed("mean loewner", loewner_bounds(mean, scope, read, K, k)))

    def spectrum(self, piece: Piece, K: float | None, k: float | None) -> dict[str, ConstraintTerm]:
        """Return Loewner bounds on the matrix of a component."""
        return loewner_bounds(piece.matrix, frozenset({piece.scope[1]}), piece.turned, K, k)

    def map(self, solution: Solution) -> Any:
        """Return the map of a solution: every point moves with its most probable component."""
        values = fitting_values(self, solution)
        return MixtureTransport(
            self.parts, [self.kept(piece, solution, (values,)) for piece in self.pieces]
        )
