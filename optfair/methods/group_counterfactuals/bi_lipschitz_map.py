"""Affine maps with any matrix between bounds on its singular values: nonconvex."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, ClassVar

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.core.certificate import NonconvexityWitness
from optfair.core.classify import model_term
from optfair.core.problem_class import Evidence, ProblemClass
from optfair.core.term import ConstraintTerm
from optfair.errors import DataError, DeclarationError
from optfair.methods.group_counterfactuals.group_problem import BOTH
from optfair.methods.group_counterfactuals.map_problem import MapProblem, Piece
from optfair.methods.group_counterfactuals.spectrum import spectral_bound
from optfair.methods.group_counterfactuals.transport_map import TransportMap

Floats = NDArray[np.float64]


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

    title = "BiLipschitzMap"

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

    def spectrum(self, piece: Piece, K: float | None, k: float | None) -> dict[str, ConstraintTerm]:
        """Return a further bound on the singular values; a lower one is the model's own."""
        if k is not None:
            raise DeclarationError(
                "a bound k on the contraction of any matrix is not convex",
                "this model states one with variables of its own",
                "give k when the model is made",
            )
        return {} if K is None else spectral_bound(piece.matrix, K)

    def lift(self, found: TransportMap) -> dict[str, Floats]:
        """Return the values of an affine map, which are feasible if its singular values are.

        Parameters
        ----------
        found : TransportMap
            For example ``psd.map(psd.solve())``.

        Raises
        ------
        DataError
            Its singular values are outside the bounds by more than rounding.
        """
        A = np.asarray(found.matrix)
        values = {"mean": A @ self.moments.mean + found.offset, "matrix": A}
        for name, sign, square in self._sides():
            left = sign * (A.T @ A - square * np.eye(A.shape[0]))
            eigenvalues, vectors = np.linalg.eigh((left + left.T) / 2)
            if eigenvalues[0] < -1e-6 * max(1.0, square):
                raise DataError(
                    "this map is outside the bounds on the singular values",
                    f"K = {found.expansion:.6g}, k = {found.contraction:.6g}",
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
            found = NonconvexityWitness(self, "contraction", first, second)
            if found.verify():
                return found
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
