"""Maps between Gaussians, and between mixtures of Gaussians."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from optfair.core.composition import model_goal, model_term
from optfair.core.parameters import Datum
from optfair.core.solution import Solution
from optfair.core.term import ConstraintTerm, ObjectiveTerm
from optfair.errors import DataError, DeclarationError
from optfair.features.linear_score import LinearScore
from optfair.methods.group_counterfactuals.affine_maps import SymmetricMap
from optfair.methods.group_counterfactuals.group_problem import Moments
from optfair.methods.group_counterfactuals.map_problem import (
    Piece,
    loewner_bounds,
    renamed,
)
from optfair.methods.group_counterfactuals.transport_map import (
    SCHEMA,
    TransportMap,
    checked_rows,
    fitting_values,
    framed,
    read_map,
)
from optfair.numbers import (
    Floats,
    check_choice,
    check_flag,
    check_path,
    check_text,
    checked,
    floats,
)
from optfair.storage import write_archive

# A mixture of Gaussians as numbers, and which component a point belongs to.


@dataclass(frozen=True, eq=False)
class GaussianParts:
    r"""Weights and moments of the components of a Gaussian mixture.

    Parameters
    ----------
    weights : array (m,)
        Positive, of sum 1.
    moments : tuple of Moments
        Of each component, with covariances that are positive definite.
    """

    weights: Floats
    moments: tuple[Moments, ...]

    @classmethod
    def of(cls, components: Any, points: Floats) -> GaussianParts:
        """Return the mixture that somebody gave in one form or another.

        Parameters
        ----------
        components : fitted GaussianMixture, (weights, means, covariances), or labels (n,)
            Labels give one Gaussian for each, with the moments of its rows.
        points : array (n, d)
            The rows that labels belong to.

        Raises
        ------
        DataError
            What is given does not fit, or a component is flat.
        """
        if hasattr(components, "covariances_"):
            return cls._given(
                components.weights_, components.means_, _full(components), points.shape[1]
            )
        if isinstance(components, (tuple, list)) and [np.ndim(c) for c in components] == [1, 2, 3]:
            weights, means, covariances = components
            return cls._given(weights, means, covariances, points.shape[1])
        labels = np.asarray(components)
        if labels.shape != (points.shape[0],):
            raise DataError(
                "components are neither a mixture nor labels of the rows",
                f"an array of shape {labels.shape} for {points.shape[0]} rows",
                "give a fitted GaussianMixture, (weights, means, covariances), or one label per row",
            )
        rows = [points[labels == label] for label in np.unique(labels)]
        return cls._given(
            np.array([len(r) for r in rows], dtype=float),
            np.stack([r.mean(axis=0) for r in rows]),
            np.stack([np.cov(r.T, bias=True).reshape(r.shape[1], -1) for r in rows]),
            points.shape[1],
        )

    @classmethod
    def _given(cls, weights: Any, means: Any, covariances: Any, d: int) -> GaussianParts:
        w = floats(weights, "weights")
        mu, sigma = floats(means, "means"), floats(covariances, "covariances")
        m = w.size
        if mu.shape != (m, d) or sigma.shape != (m, d, d):
            raise DataError(
                f"the mixture does not fit {d} features",
                f"{m} weights, means {mu.shape}, covariances {sigma.shape}",
                f"give means ({m}, {d}) and covariances ({m}, {d}, {d})",
            )
        if not (np.isfinite(w).all() and (w > 0).all()):
            raise DataError(
                "the mixture has a component without weight", remedy="drop components of weight 0"
            )
        moments = tuple(Moments.given(mean, s) for mean, s in zip(mu, sigma, strict=True))
        flat = [j for j, one in enumerate(moments) if one.singular]
        if flat:
            raise DataError(
                f"component {flat[0]} of the mixture has no spread in some direction",
                f"its covariance has rank {moments[flat[0]].root.shape[1]} of {d}",
                "use fewer components, or add a little to the diagonal of its covariance",
            )
        return cls(np.asarray(w / w.sum()), moments)

    def log_densities(self, points: Floats) -> Floats:
        """Return log of weight times density, one column per component (n, m)."""
        columns = []
        for weight, one in zip(self.weights, self.moments, strict=True):
            lower = np.linalg.cholesky(one.covariance)
            scaled = solve_triangular(lower, (points - one.mean).T, lower=True)
            size = 2 * np.log(np.diag(lower)).sum() + one.mean.size * np.log(2 * np.pi)
            columns.append(np.log(weight) - 0.5 * (size + np.square(scaled).sum(axis=0)))
        return np.stack(columns, axis=1)

    def assign(self, points: Floats) -> NDArray[np.intp]:
        """Return the most probable component of each row."""
        return np.asarray(self.log_densities(points).argmax(axis=1), dtype=np.intp)


def _full(mixture: Any) -> Floats:
    """Return the covariances of a scikit-learn mixture as full matrices."""
    given = np.asarray(mixture.covariances_, dtype=float)
    m, d = np.shape(mixture.means_)
    kind = mixture.covariance_type
    if kind == "tied":
        return np.broadcast_to(given, (m, d, d))
    if kind == "diag":
        return np.stack([np.diag(row) for row in given])
    if kind == "spherical":
        return given[:, None, None] * np.eye(d)
    return given


class MixtureTransport:
    r"""The map :math:`g(x) = A_j x + b_j` with j the most probable component of x.

    It is affine within the region of a component and jumps between two, so it has no
    Lipschitz constant of its own: ``expansion`` and ``contraction`` are the largest of the
    components' and hold for points of the same one.

    Parameters
    ----------
    parts : GaussianParts
        The mixture.
    maps : sequence of TransportMap
        One for each component.

    Examples
    --------
    >>> import numpy as np
    >>> parts = GaussianParts.of(([0.5, 0.5], [[0.0], [9.0]], [[[1.0]], [[1.0]]]), np.zeros((1, 1)))
    >>> g = MixtureTransport(parts, [TransportMap([[1.0]], [2.0]), TransportMap([[0.5]], [0.0])])
    >>> g.components([[1.0], [8.0]]).tolist(), g.transform([[1.0], [8.0]]).tolist()
    ([0, 1], [[3.0], [4.0]])

    References
    ----------
    Valero-Leal et al.: Optimal transport group counterfactual explanations, Appendix B.1.
    """

    def __init__(self, parts: GaussianParts, maps: Sequence[TransportMap]) -> None:
        if len(maps) != parts.weights.size or len({g.features for g in maps}) != 1:
            raise DataError(
                f"{len(maps)} maps for {parts.weights.size} components",
                remedy="give one map of the same features for each component",
            )
        self.parts, self.maps = parts, tuple(maps)

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features."""
        return self.maps[0].features

    @property
    def expansion(self) -> float:
        """Largest factor by which distances within a component grow."""
        return max(g.expansion for g in self.maps)

    @property
    def contraction(self) -> float:
        """Largest factor by which distances within a component shrink."""
        return max(g.contraction for g in self.maps)

    def components(self, X: Any) -> NDArray[np.intp]:
        """Return the most probable component of each row."""
        return self.parts.assign(checked_rows(X, self.features))

    def transform(self, X: Any) -> Any:
        """Return g of each row; a data frame gives a data frame of the features."""
        rows = checked_rows(X, self.features)
        own = self.parts.assign(rows)
        moved = np.empty_like(rows)
        for j, g in enumerate(self.maps):
            moved[own == j] = rows[own == j] @ g.matrix.T + g.offset
        return framed(X, moved, self.features)

    def inverse_transform(self, Z: Any, components: Any = None) -> Any:
        """Return the points that the map sends to these.

        Parameters
        ----------
        Z : array-like or DataFrame (n, d)
            Images.
        components : int array (n,)
            The component each came from, which the images alone do not tell.

        Raises
        ------
        DeclarationError
            No components, or a map that is not invertible.
        """
        rows = checked_rows(Z, self.features)
        own = np.asarray(components)
        if components is None or own.shape != (rows.shape[0],):
            raise DeclarationError(
                "a map in pieces has an inverse only piece by piece",
                "images of two components may fall on the same point",
                "give components=, e.g. g.components(X) of the rows before the move",
            )
        back = np.empty_like(rows)
        for j, g in enumerate(self.maps):
            if (own == j).any():
                back[own == j] = g.inverse_transform(rows[own == j])
        return framed(Z, back, self.features)

    def jacobian(self, X: Any) -> Floats:
        """Return Dg at each row (n, d, d)."""
        return np.stack([g.matrix for g in self.maps])[self.components(X)]

    def table(self) -> Any:
        """Return the tables of the components, one below the other, as a pandas DataFrame."""
        import pandas as pd

        return pd.concat({j: g.table() for j, g in enumerate(self.maps)}, names=["component"])

    def __repr__(self) -> str:
        lines = [f"MixtureTransport of {len(self.maps)} components"]
        for j, (weight, g) in enumerate(zip(self.parts.weights, self.maps, strict=True)):
            lines.append(f"component {j}, weight {weight:.4g}: {g!r}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the arrays, ready for JSON."""
        return {"kind": "mixture", "features": list(self.features)}

    @checked(path=check_path, overwrite=check_flag)
    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write ``path.npz``; see `MixtureTransport.load`."""
        arrays = {
            "weights": self.parts.weights,
            "means": np.stack([m.mean for m in self.parts.moments]),
            "covariances": np.stack([m.covariance for m in self.parts.moments]),
            "matrices": np.stack([g.matrix for g in self.maps]),
            "offsets": np.stack([g.offset for g in self.maps]),
        }
        write_archive(path, {"schema": SCHEMA, **self.to_dict()}, arrays, overwrite)

    @classmethod
    @checked(path=check_path)
    def load(cls, path: str | Path) -> MixtureTransport:
        """Read a map that was saved, by its file name."""
        record, stored = read_map(path, "mixture")
        whole = (stored["weights"], stored["means"], stored["covariances"])
        parts = GaussianParts.of(whole, stored["means"])
        maps = [
            TransportMap(
                A, b, features=record["features"], mean=one.mean, covariance=one.covariance
            )
            for A, b, one in zip(stored["matrices"], stored["offsets"], parts.moments, strict=True)
        ]
        return cls(parts, maps)


FORMS = ("reduced", "lmi")


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

    @checked(mean=floats, covariance=floats, form=check_text)
    def located(
        self,
        X: Any,
        score: LinearScore,
        moments: Moments | None = None,
        *,
        mean: Any = None,
        covariance: Any = None,
        form: str = "reduced",
    ) -> dict[str, Any]:
        """Return members and moments, and how the distance is written."""
        check_choice(form, "form", FORMS)
        if (mean is None) != (covariance is None):
            raise DeclarationError(
                "mean and covariance belong together", remedy="give both or none"
            )
        given = None if mean is None else Moments.given(mean, covariance)
        return {**super().located(X, score, given), "form": form}

    def unknowns(self) -> dict[str, Any]:
        """Return mean, matrix, and the covariance of the image for the form "lmi"."""
        d = self.moments.mean.size
        own = super().unknowns()
        if self.data["form"] == "lmi":
            own["covariance"] = cp.Variable((d, d), name="covariance", symmetric=True)
        return own

    def pieces_in(self, variables: Mapping[str, Any]) -> tuple[Piece, ...]:
        """Return the map in these variables, with the covariance of its image."""
        return (self.piece(variables, image=variables.get("covariance")),)

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
        moved = cp.multiply(np.sqrt(costs), piece.mean - m.mean)
        spread = costs @ cp.diag(S) - 2 * cp.sum(cp.multiply(weighted.T, piece.matrix))
        latex = r"\|\mu' - \mu\|^2 + \operatorname{tr}(S - 2 A \Sigma + \Sigma)"
        return model_goal("transport cost", cp.sum_squares(moved) + spread + constant, latex)

    def _coupling(self, piece: Piece) -> ConstraintTerm:
        """Return the covariance of a point and its image, which is positive semidefinite."""
        m, S = piece.moments, piece.image
        # rows and columns in standard deviations, which changes no sign of an eigenvalue
        D = np.diag(1.0 / np.where(m.deviations > 0, m.deviations, 1.0))
        # Σ = L L^T and the corner that of L^-1 x: for a singular Σ the block keeps an interior
        corner, left = D @ m.covariance @ D, D @ m.covariance
        if m.singular:
            corner, left = np.eye(m.root.shape[1]), m.root.T
        joint = D @ S @ D
        if len(corner):
            A = left @ piece.matrix @ D
            joint = cp.bmat([[corner, A], [A.T, joint]])
        latex = r"\begin{pmatrix} \Sigma & \Sigma A \\ A \Sigma & S \end{pmatrix} \succeq 0"
        return model_term("coupling", joint >> 0, latex)

    def lift(self, values: Mapping[str, Any]) -> dict[str, Floats]:
        """Return values of the form "lmi" from a mean and a matrix."""
        A = np.asarray(values["matrix"], dtype=float)
        return {
            "mean": np.asarray(values["mean"], dtype=float),
            "matrix": A,
            "covariance": A @ self.moments.covariance @ A,
        }


BOUNDS = ("local", "global")
VALID = ("own", "every")


class MixtureMap(SymmetricMap):
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
        The paper asks for both, but the first implies the second; with "global" every
        :math:`A_j` is positive semidefinite all the same.
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

    @checked(bounds=check_text, valid=check_text)
    def located(
        self,
        X: Any,
        score: LinearScore,
        moments: Moments | None = None,
        *,
        components: Any = None,
        bounds: str = "local",
        valid: str = "own",
    ) -> dict[str, Any]:
        """Return members and moments, and the mixture."""
        check_choice(bounds, "bounds", BOUNDS)
        check_choice(valid, "valid", VALID)
        data = super().located(X, score, moments)
        points = data["centered"] + data["moments"].mean
        parts = GaussianParts.of(components, points)
        return {
            **data,
            "bounds": bounds,
            "valid": valid,
            "parts": parts,
            "own": parts.assign(points),
        }

    parts = Datum[GaussianParts]("The mixture of the group.")

    def unknowns(self) -> dict[str, Any]:
        """Return a mean and a symmetric matrix for every component."""
        d = self.moments.mean.size
        variables: dict[str, Any] = {}
        for j in range(self.parts.weights.size):
            variables[f"mean_{j}"] = cp.Variable(d, name=f"mean_{j}")
            variables[f"matrix_{j}"] = cp.Variable((d, d), name=f"matrix_{j}", symmetric=True)
        return variables

    def pieces_in(self, variables: Mapping[str, Any]) -> tuple[Piece, ...]:
        """Return the maps of the components with weight."""
        parts, every = self.parts, self.data["valid"] == "every"
        shifts = self.moments.mean - np.stack([m.mean for m in parts.moments])
        pieces = []
        for j, moments in enumerate(parts.moments):
            members = slice(None) if every else np.flatnonzero(self.data["own"] == j)
            weight = float(parts.weights[j])
            centered = self.data["centered"][members] + shifts[j]
            rest = {"weight": weight, "moments": moments, "centered": centered}
            pieces.append(self.piece(variables, f".{j}", **rest))
        return tuple(pieces)

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

        return (*semidefinite, *renamed("mean loewner", loewner_bounds(mean, K, k)))

    def map(self, solution: Solution) -> Any:
        """Return the map of a solution: every point moves with its most probable component."""
        values = fitting_values(self, solution)
        return MixtureTransport(
            self.parts, [self.kept(piece, solution, (values,)) for piece in self.pieces]
        )
