"""Affine maps with any matrix, with a semidefinite one, or between bounds on its singular values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, ClassVar

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from optfair.core.certificate import NonconvexityWitness
from optfair.core.composition import model_term
from optfair.core.expressions import Values
from optfair.core.problem_class import Evidence, ProblemClass, Structure
from optfair.core.solution import Solution
from optfair.core.term import ConstraintTerm
from optfair.errors import DataError, SolverFailure
from optfair.methods.group_counterfactuals.group_problem import (
    BOTH,
    as_far_as_feasible,
    nearest_to_identity,
)
from optfair.methods.group_counterfactuals.map_problem import (
    NOT_CONVEX,
    MapProblem,
    Piece,
    Reduction,
    closed_form,
    loewner_bounds,
    renamed,
)
from optfair.methods.group_counterfactuals.transport_map import TransportMap
from optfair.numbers import Floats, Indices

# Affine maps with any matrix, with or without a bound on how much they expand.


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

    structures: ClassVar[tuple[Structure, ...]] = closed_form("score-factors")

    takes: ClassVar[Mapping[str, float]] = {"K": 1.0}
    instead: ClassVar[Mapping[str, str]] = {"k": NOT_CONVEX}

    def bound_terms(self, pieces: Sequence[Piece]) -> tuple[ConstraintTerm, ...]:
        """Return the spectral bound, if there is one."""
        return renamed("spectral", self.spectrum(pieces[0], self.data["K"], None))

    def fixed(self, indices: Indices) -> Any:
        """Return the constraints that the map leaves these features as they are.

        With K = 1 the column of a row that is a unit vector is one, too, and no map is inside all
        bounds: stated, that leaves multipliers.
        """
        parts = super().fixed(indices)
        others = np.setdiff1d(np.arange(len(self.features)), indices)
        if self.data["K"] == 1.0 and others.size:
            (piece,) = self.pieces
            parts["columns"] = piece.matrix[others, :][:, indices] == 0.0
        return parts

    def reduction(self) -> Reduction:
        """Return the map in what it does to the score: the gradient v = A^T w of its score.

        For given v the cheapest matrix is I + C^-1 w (v - w)^T / (w^T C^-1 w).
        """
        w = self.normal
        pull = w / self.feature_costs
        Q = float(w @ pull)
        unit = float(2.0 ** np.round(np.log2(np.linalg.norm(w) or 1.0)))  # of the gradient

        def lift(mean: Floats, v: Floats) -> dict[str, Floats]:
            return {"mean": mean, "matrix": np.eye(w.size) + np.outer(pull, v * unit - w) / Q}

        return Reduction(
            turn=unit * np.eye(w.size),
            root=self.moments.root.T * (unit / np.sqrt(Q)),
            center=w / unit,
            lift=lift,
            factors=lambda values: np.asarray(values["matrix"], dtype=float).T @ w / unit,
        )


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

    def solved_by(self, ask: Callable[..., Solution]) -> Solution:
        """Return what ``ask`` finds, or say what may keep a matrix that nothing bounds from an optimum."""
        try:
            return super().solved_by(ask)
        except SolverFailure as e:
            flat = any(piece.moments.singular for piece in self.pieces)
            if e.claim or not flat or self.data["K"] is not None:
                raise
            raise SolverFailure(
                e.cause,
                "the group has no extent along some direction, where nothing bounds the matrix from"
                f" above: the least cost may be approached and not attained; {e.evidence}",
                f"give K (a large one, as K=100, takes away next to nothing); or {e.remedy}",
                solution=e.solution,
            ) from None


# Features from which on operator splitting is the faster route for `PSDMap` (measured).
MANY = 12
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

    structures: ClassVar[tuple[Structure, ...]] = closed_form("loewner-box")

    def structure_refusal(self, name: str) -> str:
        """Return why a structure does not stand; that of the bounds needs one scale and room."""
        if name != "loewner-box":
            return super().structure_refusal(name)
        d, costs = self.moments.mean.size, self.feature_costs
        reasons = {
            f"with fewer than {MANY} features rows are generated as fast": d < MANY,
            "features have different costs": bool(np.ptp(costs)),
            "the group has no extent along some direction": self.moments.singular,
            "the score is constant": not self.normal.any(),
            "K = k = 1 leaves one matrix": self.data["K"] == self.data["k"] == 1.0,
        }
        return next((why for why, holds in reasons.items() if holds), "") or (
            super().structure_refusal(name)
        )


QUADRATIC = ProblemClass(quadratic_constraint=True, curvature="unverified")
# How many mirrors are tried for a witness.
MIRRORS = 40
# Along how many single features the group is moved far enough for both ends of a witness.
WAYS = 5


class BiLipschitzMap(MapProblem):
    r"""Move a group over a linear score by any affine map with bounded singular values.

    .. math::
        \min_{A, \mu'}\; \|\mu' - \mu\|_C^2 + \operatorname{tr}(C (A - I) \Sigma (A - I)^T)
        \quad\text{s.t.}\quad w^T g(x_i) \ge t \;\forall i,\;
        \tfrac1k \le \sigma_{\min}(A),\; \sigma_{\max}(A) \le K

    The bounds are written with triangular factors L and M of what they leave,

    .. math:: A^T A = \tfrac1{k^2} I + L L^T = K^2 I - M M^T

    so that every constraint is a quadratic equality.

    Class: nonconvex QCQP. The mirror :math:`I - 2 u u^T` satisfies the bounds as the identity
    does, and halfway between them the map flattens everything along u.

    Parameters
    ----------
    X, score, probability, threshold, target_class, feature_costs
        As in `AffineMap`.
    k : float >= 1
        Bound on how much distances shrink; without one the problem is `AffineMap`.
    K : float >= 1, optional
        Bound on how much distances grow.

    Attributes
    ----------
    variables : ``mean`` (d,), ``matrix`` (d, d), ``floor`` and ``ceiling`` (d (d + 1) / 2,)

    Raises
    ------
    DataError, DeclarationError
        Rows, score, target, bounds or costs that do not fit.

    Notes
    -----
    A symmetric matrix between the bounds is feasible, so `PSDMap` gives an upper bound and,
    through `lift`, a point to start from; `AffineMap` with the same K gives a lower bound.

    Examples
    --------
    >>> import optfair as of
    >>> X = [[0.0, 0.0], [0.0, 2.0], [-1.0, 1.0], [1.0, 1.0]]
    >>> p = BiLipschitzMap(X, score=([1.0, 0.0], 0.0), threshold=2.0, K=2.0, k=2.0)
    >>> p.problem_class
    nonconvex QCQP
    >>> p.certificate.verify()
    verified

    References
    ----------
    Valero-Leal et al.: Optimal transport group counterfactual explanations, Propositions A.6
    and A.7.
    """

    takes = BOTH
    needs: ClassVar[tuple[str, ...]] = ("k",)
    instead: ClassVar[Mapping[str, str]] = {"k": "without it the problem is convex: use AffineMap"}

    def unknowns(self) -> dict[str, Any]:
        """Return mean, matrix, and the triangular factors of what the bounds leave."""
        d = self.moments.mean.size
        size = d * (d + 1) // 2
        sides = {name: cp.Variable(size, name=name) for name, _, _ in self._sides()}
        return {**super().unknowns(), **sides}

    def _sides(self) -> tuple[tuple[str, float, float], ...]:
        """Return (name, sign, bound²) of the factors: A^T A = bound² I + sign L L^T."""
        K, k = self.data["K"], self.data["k"]
        above = () if K is None else (("ceiling", -1.0, K**2),)
        return (("floor", 1.0, 1.0 / k**2), *above)

    def pieces_in(self, variables: Mapping[str, Any]) -> tuple[Piece, ...]:
        """Return the map in these variables."""
        sides = {name: variables[name] for name, _, _ in self._sides()}
        return (self.piece(variables, sides=sides),)

    def bound_terms(self, pieces: Sequence[Piece]) -> tuple[ConstraintTerm, ...]:
        """Return the quadratic equalities of the bounds."""
        return tuple(self._side_term(pieces[0], *side) for side in self._sides())

    def _side_term(self, piece: Piece, name: str, sign: float, square: float) -> ConstraintTerm:
        d = self.moments.mean.size
        upper = np.triu_indices(d)
        eye = square * np.eye(d)
        label = {"floor": "contraction", "ceiling": "expansion"}[name]
        factor, scatter = piece.sides[name], _scatter(d)

        A, L = piece.matrix, cp.reshape(scatter @ factor, (d, d), order="C")
        letter = "L L^T" if name == "floor" else "M M^T"
        word = "+" if sign > 0 else "-"
        return model_term(
            label,
            (A.T @ A - sign * (L @ L.T))[upper] == eye[upper],
            rf"A^T A = {square:.4g} I {word} {letter}",
            evidence=Evidence(label, "quadratic", "Zero", QUADRATIC, "a difference of squares"),
        )

    def lift(self, transport: TransportMap) -> dict[str, Floats]:
        """Return the values of an affine map, which are feasible if its singular values are.

        Parameters
        ----------
        transport : TransportMap
            For example ``psd.map(psd.solve())``.

        Raises
        ------
        DataError
            Its singular values are outside the bounds by more than rounding.
        """
        A = np.asarray(transport.matrix)
        values = {"mean": A @ self.moments.mean + transport.offset, "matrix": A}
        for name, sign, square in self._sides():
            left = sign * (A.T @ A - square * np.eye(A.shape[0]))
            eigenvalues, vectors = np.linalg.eigh((left + left.T) / 2)
            if eigenvalues[0] < -1e-6 * max(1.0, square):
                raise DataError(
                    "this map is outside the bounds on the singular values",
                    f"K = {transport.expansion:.6g}, k = {transport.contraction:.6g}",
                    f"give one within K = {self.data['K']}, k = {self.data['k']}",
                )
            root = vectors * np.sqrt(np.maximum(eigenvalues, 0.0))
            lower = np.asarray(np.linalg.qr(root.T, mode="r")).T
            values[name] = np.asarray(lower[np.tril_indices(A.shape[0])])
        return values

    def find_witness(self) -> NonconvexityWitness | None:
        """Return a map and its mirror image, both far enough: halfway they flatten a direction."""
        d, w = self.moments.mean.size, self.normal
        reach = np.abs(self.data["centered"]) @ np.abs(w)
        # far enough for both, whatever the mirror does to a member
        far = abs(self.level - float(w @ self.moments.mean)) + 2.0 * float(reach.max(initial=0.0))
        sizes = np.linalg.norm(self.data["centered"], axis=1) * np.linalg.norm(w)
        far += float(sizes.max(initial=0.0))
        others = {n: np.zeros(v.shape) for n, v in self.variables.items()}
        for u, ahead in product(_mirrors(w), _ways(w)):
            mean = self.moments.mean + far * ahead
            first, second = (
                {**others, **self.lift(TransportMap(A, mean - A @ self.moments.mean))}
                for A in (np.eye(d), np.eye(d) - 2.0 * np.outer(u, u))
            )
            witness = NonconvexityWitness(self, "contraction", first, second)
            if witness.verify():
                return witness
        return super().find_witness()


def _scatter(d: int) -> Any:
    """Return the matrix that writes d (d + 1) / 2 numbers into a lower triangle, row by row."""
    rows, columns = np.tril_indices(d)
    at = rows * d + columns
    return sp.csr_array((np.ones(at.size), (at, np.arange(at.size))), shape=(d * d, at.size))


def _ways(w: Floats) -> list[Floats]:
    """Return steps that raise the score by 1: along its gradient, and along single features."""
    strongest = np.argsort(-np.abs(w))[:WAYS]
    return [w / float(w @ w), *(np.eye(w.size)[j] / w[j] for j in strongest if w[j] != 0)]


def _mirrors(w: Floats) -> Iterator[Floats]:
    """Yield unit vectors, those that no score changes along first."""
    d = w.size
    pairs = [(i, j) for i in range(d) for j in range(i)][:MIRRORS]
    for i, j in pairs:
        u = np.zeros(d)
        u[i], u[j] = w[j], -w[i]
        if np.any(u):
            yield u / np.linalg.norm(u)
        else:
            u[i] = 1.0
            yield u
    for j in range(min(d, MIRRORS)):
        yield np.eye(d)[j]
