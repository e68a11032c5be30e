"""Maps of a mixture of Gaussians: one affine map for each component."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from optfair.core.solution import Solution
from optfair.core.term import ConstraintTerm, Values
from optfair.errors import DeclarationError, nearest
from optfair.methods.group_counterfactuals.maps.affine_map import matrix_piece
from optfair.methods.group_counterfactuals.maps.map_data import checked_bound, map_data
from optfair.methods.group_counterfactuals.maps.map_problem import (
    MapProblem,
    fitting_values,
    renamed,
)
from optfair.methods.group_counterfactuals.maps.piece import Piece
from optfair.methods.group_counterfactuals.maps.spectrum import loewner_bounds
from optfair.methods.group_counterfactuals.mixture import GaussianParts
from optfair.methods.group_counterfactuals.mixture_transport import MixtureTransport

Floats = NDArray[np.float64]

__all__ = ["MixtureMap"]

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
