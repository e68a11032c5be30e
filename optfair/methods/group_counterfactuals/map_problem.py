"""What all problems of maps share: moments, target, classification rows, bounds, and their form in d + 1 numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from optfair.core.composition import model_goal, model_term, rows_term
from optfair.core.expressions import Evaluator, Values
from optfair.core.parameters import Datum
from optfair.core.problem import Declaration, Problem
from optfair.core.problem_class import LAZY_ROWS, Structure
from optfair.core.solution import Solution
from optfair.core.term import ConstraintTerm, ObjectiveTerm
from optfair.errors import DataError, DeclarationError, Infeasible, SolverFailure
from optfair.features.linear_score import LinearScore
from optfair.methods.group_counterfactuals.group_problem import (
    ROUNDING,
    GroupProblem,
    Moments,
    with_attainable,
)
from optfair.methods.group_counterfactuals.limits import (
    SUPPORT,
    solved_within,
    support_refusal,
    without_guesses,
)
from optfair.methods.group_counterfactuals.transport_map import TransportMap, fitting_values
from optfair.numbers import Floats, Indices

# Bounds on the matrix of a map: Loewner order, factors of single directions, spectral norm.

Terms = dict[str, ConstraintTerm]


def loewner_bounds(matrix: Any, K: float | None, k: float | None) -> Terms:
    r"""Return :math:`A \preceq K I` and :math:`A \succeq I / k` of a symmetric matrix.

    With K = k = 1 the set is the identity alone and has no interior, which interior-point
    methods need: then it is an equality.

    Parameters
    ----------
    matrix : CVXPY expression (d, d)
        A, symmetric.
    K, k : float or None
        None for no bound.

    Returns
    -------
    dict
        By part: "upper", "lower" or "identity".
    """
    eye = np.eye(matrix.shape[0])
    if K == k == 1.0:
        return {"identity": model_term("identity", matrix == eye, "A = I")}
    parts = {}
    if K is not None:
        latex = rf"A \preceq {K:g} I"
        parts["upper"] = model_term("upper", K * eye - matrix >> 0, latex)
    if k is not None:
        latex = rf"A \succeq {1.0 / k:.4g} I"
        parts["lower"] = model_term("lower", matrix - eye / k >> 0, latex)
    return parts


def factor_bounds(factors: Any, K: float | None, k: float | None) -> Terms:
    r"""Return :math:`1/k \le a_j \le K` of the factors of single directions, as `loewner_bounds`."""
    if K == k == 1.0:
        return {"identity": model_term("identity", factors == 1.0, "a_j = 1")}
    parts = {}
    if K is not None:
        parts["upper"] = model_term("upper", factors <= K, rf"a_j \le {K:g}")
    if k is not None:
        parts["lower"] = model_term("lower", factors >= 1.0 / k, rf"a_j \ge {1.0 / k:.4g}")
    return parts


# Maps in d + 1 numbers: the score of the mean, and what the map does around it.


@dataclass(frozen=True, eq=False)
class Reduction:
    r"""How a map is written with its factors f and the score of the mean.

    The score of a member is :math:`s + (x_i - \mu)^T T f` and the cost of the matrix
    :math:`\|R (f - f_0)\|^2`; f_0 is the identity.

    Parameters
    ----------
    turn : array (d, m)
        T.
    root : array (r, m)
        R.
    center : array (m,)
        f_0.
    lift : callable
        Image of the mean and factors -> values of the problem, at least cost.
    factors : callable
        Values of the problem -> factors.
    bounds : tuple of str
        Names of the problem's bounds on the factors.
    """

    turn: Floats
    root: Floats
    center: Floats
    lift: Callable[[Floats, Floats], dict[str, Floats]]
    factors: Callable[[Values], Floats]
    bounds: tuple[str, ...] = ()

    def seen(self, centered: Floats, mean: Floats) -> NDArray[np.bool_]:
        """Return which factors the cost or a member sees, but for the rounding of a mean."""
        reach = np.abs(centered @ self.turn).max(axis=0, initial=0.0)
        rounding = 16.0 * np.finfo(float).eps * (np.abs(mean) @ np.abs(self.turn))
        return np.asarray(self.root.any(axis=0) | (reach > rounding))


class ScoreLine(Problem):
    r"""The reduced problem of a map.

    .. math::
        \min_{f, s}\; \theta \Bigl( \frac{(s - s_0)^2}{Q} + \|R (f - f_0)\|^2 \Bigr)
        \quad\text{s.t.}\quad s + (x_i - \mu)^T T f \ge t,\; l \le f \le u

    with the score :math:`s_0 = w^T \mu` of the mean, :math:`Q = w^T C^{-1} w`, and θ the power of 4
    near Q, so that the features may be in any units. The image of the
    mean is :math:`\mu + C^{-1} w (s - s_0) / Q`, the cheapest point of its score.

    Class: QP.

    Parameters
    ----------
    problem : AffineMap, DiagonalMap or CommutativeGaussianMap
        What to reduce.

    Attributes
    ----------
    variables : ``factors`` (m,), ``score`` scalar
    """

    structures: ClassVar[tuple[Structure, ...]] = (LAZY_ROWS,)

    def __init__(self, problem: Any) -> None:
        whole: Reduction = problem.reduction()
        seen = whole.seen(problem.data["centered"], problem.moments.mean)
        super().__init__(
            {
                "whole": whole,
                "reduction": replace(whole, turn=np.where(seen, whole.turn, 0.0)),
                "seen": seen,
                "centered": problem.data["centered"],
                "level": problem.level,
                "start": float(problem.normal @ problem.moments.mean),
                "weight": float(problem.normal @ (problem.normal / problem.feature_costs)),
                "unit": problem.objective_unit,
                "K": problem.data["K"],
                "k": problem.data.get("k"),
            }
        )

    seen = Datum[NDArray[np.bool_]](
        "Factors that rows or costs depend on; the others are free, and left out."
    )

    @property
    def unit(self) -> float:
        """A power of four by which the cost is multiplied, so that that of the score is near 1."""
        return float(4.0 ** np.round(np.log2(self.data["weight"]) / 2.0))

    @property
    def objective_unit(self) -> float:
        """That of the problem it reduces, as the cost is multiplied."""
        return float(self.data["unit"]) * self.unit

    def declare(self) -> Declaration:
        """Declare cost, rows and bounds."""
        r: Reduction = self.data["reduction"]
        t, start, Q = self.data["level"], self.data["start"], self.data["weight"]
        f, s = cp.Variable(r.center.size, name="factors"), cp.Variable(name="score")
        centered: Floats = self.data["centered"]
        root = self.unit**0.5
        cost = cp.square((s - start) * (root / np.sqrt(Q)))
        cost += cp.sum_squares((root * r.root) @ (f - r.center))
        rows = lambda index: (centered[index] @ r.turn) @ f + s >= t
        bounds: Terms = {}
        if r.bounds:
            k = np.inf if self.data["k"] is None else self.data["k"]
            bounds = factor_bounds(f, self.data["K"], k)
        classification = rows_term("classification", rows, len(centered), scale=abs(t))
        return Declaration(
            variables={"factors": f, "score": s},
            objective=(model_goal("transport cost", cost),),
            constraints=(classification, *bounds.values()),
        )


# One affine map within a problem, written in its variables.


@dataclass(frozen=True, eq=False)
class Piece:
    """One affine map of a problem, with the members it moves.

    Parameters
    ----------
    part : str
        Suffix of its term names: empty for the only piece, ``.0`` ... for components.
    weight : float
        Its weight in the cost.
    moments : Moments
        Of the distribution it moves.
    centered : array (m, d)
        Its members minus ``moments.mean``.
    mean : CVXPY expression (d,)
        Image of ``moments.mean``.
    matrix : CVXPY expression (d, d)
        A, affine in the variables.
    factors : CVXPY expression, optional
        Factors along given directions, for a matrix that is written with them.
    image : CVXPY expression, optional
        Covariance of the image, where it is an unknown.
    sides : mapping
        Factors of what bounds on the singular values leave, where they are unknowns.
    """

    part: str
    weight: float
    moments: Moments
    centered: Floats
    mean: Any
    matrix: Any
    factors: Any = None
    image: Any = None
    sides: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def _evaluated(self) -> tuple[Evaluator, Evaluator]:
        names = {v.id: v.name() for e in (self.mean, self.matrix) for v in e.variables()}
        return Evaluator(self.mean, names), Evaluator(self.matrix, names)

    def read(self, values: Values) -> tuple[Floats, Floats]:
        """Return mean and matrix as arrays."""
        mean, matrix = self._evaluated
        return mean.value(values), matrix.value(values)

    def offset(self, values: Values) -> Floats:
        """Return b of g(x) = A x + b."""
        mean, A = self.read(values)
        return np.asarray(mean - A @ self.moments.mean)


# What all problems of maps share: moments, target, classification rows, features.

# Why a lower bound on the singular values of any matrix is none of a convex problem.
NOT_CONVEX = "I and diag(1, -1) satisfy it, their midpoint is singular"
# The variables of a piece.
OF_PIECE = ("mean", "matrix")


def closed_form(name: str) -> tuple[Structure, ...]:
    """Return the structure of an algorithm for the model's own terms only, and that of all maps."""
    own = ("transport cost", "classification")
    return (Structure(name, own, frozenset(), "one of the model's own terms"), LAZY_ROWS)


class MapProblem(GroupProblem):
    """A problem whose unknown is one affine map, or one for each component of a group.

    Its variables say where the mean μ of a group goes, ``mean``, and what the map does around
    it: g(x) = mean + A (x - μ). The cost needs the group's moments only; the members enter
    through the classification, one linear row each.

    A subclass says in `pieces` how A is written in its variables.
    """

    structures: ClassVar[tuple[Structure, ...]] = (LAZY_ROWS,)
    #: whether the matrix is
    symmetric: ClassVar[bool] = False
    rules_on = "maps", "use it with AffineMap, PSDMap, GaussianMap or another problem of a map"

    # --- data ----------------------------------------------------------------------------

    def located(self, X: Any, score: LinearScore, moments: Moments | None = None) -> dict[str, Any]:
        """Return members and moments, those of the members unless others are given."""
        d = score.coef.size
        if X is None and moments is None:
            raise DeclarationError(
                "there is no group", "neither members X nor moments are given", "give X"
            )
        if moments is not None and moments.mean.size != d:
            raise DataError(
                f"the moments have {moments.mean.size} features, the score has {d}",
                remedy="give moments of the features of the score",
            )
        centered = np.zeros((0, d)) if X is None else score.check_points(X)
        mean = centered.mean(axis=0) if moments is None else moments.mean
        if moments is None:  # the mean of equal numbers is one of them, and not next to it
            mean = np.where(np.ptp(centered, axis=0) == 0.0, centered[0], mean)
        centered -= mean  # a copy already: the only one of the members that is kept
        own = Moments.of_rows(centered, mean) if moments is None else moments
        if moments is None:  # what has no variance moves no member
            centered[:, np.diag(own.covariance) == 0.0] = 0.0
        centered.flags.writeable = False
        return {"centered": centered, "moments": own, "plug in": moments is None}

    moments = Datum[Moments]("Moments that the cost is declared with.")

    @property
    def points(self) -> Floats:
        """Members of the group (n, d)."""
        return np.asarray(self.data["centered"] + self.moments.mean)

    @property
    def variances(self) -> Floats:
        """Variance of each feature in the group (d,)."""
        return np.diag(self.moments.covariance)

    @property
    def means(self) -> Floats:
        """Mean of each feature in the group (d,)."""
        return self.moments.mean

    # --- terms ---------------------------------------------------------------------------

    def unknowns(self) -> dict[str, Any]:
        """Return new variables by name: mean and matrix."""
        d = self.moments.mean.size
        matrix = cp.Variable((d, d), name="matrix", symmetric=self.symmetric)
        return {"mean": cp.Variable(d, name="mean"), "matrix": matrix}

    def structure_refusal(self, name: str) -> str:
        """Return why a structure does not stand; closed forms know the model's own terms only."""
        if name == SUPPORT.name:
            return support_refusal(self)
        for structure in self.structures:
            if structure.name == name != LAZY_ROWS.name:
                bounds = tuple(t.name for t in self.bound_terms(self.pieces))
                whole = replace(structure, needs=(*structure.needs, *bounds))
                terms = self.objective.values(), self.constraints.values()
                return whole.refusal(*terms, sorted(self.integers))
        return super().structure_refusal(name)

    def pieces_in(self, variables: Mapping[str, Any]) -> tuple[Piece, ...]:
        """Return the affine maps that variables of these names describe."""
        return (self.piece(variables),)

    def piece(self, variables: Mapping[str, Any], part: str = "", **given: Any) -> Piece:
        """Return the map of variables ``mean`` and ``matrix`` with a suffix: ``.0`` is ``_0``."""
        mean, matrix = (variables.get(f"{word}{part}".replace(".", "_")) for word in OF_PIECE)
        own = {"weight": 1.0, "moments": self.moments, "centered": self.data["centered"]}
        return Piece(**{"part": part, "mean": mean, "matrix": matrix, **own, **given})

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """The affine maps in this problem's variables."""
        return self.pieces_in(self.variables)

    def bound_terms(self, pieces: Sequence[Piece]) -> tuple[ConstraintTerm, ...]:
        """Return the model's own bounds on the matrices."""
        return ()

    def spectrum(self, piece: Piece, K: float | None, k: float | None) -> dict[str, ConstraintTerm]:
        """Return bounds on how a matrix of the map stretches, by the names of their parts.

        Here on the singular values of any matrix, where a lower one is not convex.
        """
        if k is not None:
            raise DeclarationError(
                "a bound k on the contraction of any matrix is not convex",
                NOT_CONVEX,
                "use PSDMap; a BiLipschitzMap takes k when it is made",
            )
        if K is None:
            return {}
        latex = rf"\sigma_{{\max}}(A) \le {K:g}"
        return {"upper": model_term("upper", cp.sigma_max(piece.matrix) <= K, latex)}

    def declare(self) -> Declaration:
        """Declare cost and classification from the moments; nothing of size n is built."""
        variables = self.unknowns()
        pieces = self.pieces_in(variables)
        goals = tuple(self.cost_term(piece) for piece in pieces)
        rows = tuple(self.classification_term(piece) for piece in pieces if len(piece.centered))
        return Declaration(
            variables=variables, objective=goals, constraints=(*rows, *self.bound_terms(pieces))
        )

    def cost_term(self, piece: Piece) -> ObjectiveTerm:
        """Return the transport cost of a piece, a quadratic of mean and matrix."""
        weights = np.sqrt(piece.weight * self.feature_costs)
        moved = cp.multiply(weights, piece.mean - piece.moments.mean)
        return model_goal(
            f"transport cost{piece.part}",
            cp.sum_squares(moved) + cp.sum_squares(self.turning(piece)),
            r"\|\mu' - \mu\|^2 + \operatorname{tr}((A - I) \Sigma (A - I)^T)",
        )

    def turning(self, piece: Piece) -> Any:
        """Return what the matrix does to the group, weighted: the sum of its squares is its cost."""
        weights = np.sqrt(piece.weight * self.feature_costs)
        eye = np.eye(weights.size)
        return cp.multiply(weights[:, None], (piece.matrix - eye) @ piece.moments.root)

    def classification_term(self, piece: Piece) -> ConstraintTerm:
        """Return the rows that send the members of a piece to the target."""
        t = self.level
        return rows_term(
            f"classification{piece.part}",
            lambda index: self.scores(piece, piece.centered[index]) >= t,
            len(piece.centered),
            r"w^T g(x_i) \ge t",
            scale=abs(t),
        )

    def scores(self, piece: Piece, centered: Floats) -> Any:
        """Return w·g(x) of centered members (m, d) as a CVXPY expression."""
        return centered @ self.direction(piece) + self.normal @ piece.mean

    def scored_at_least(self, level: Any) -> dict[str, Any]:
        """Return the classification with an expression in place of the level, by term name."""
        return {
            f"classification{piece.part}": self.scores(piece, piece.centered) >= level
            for piece in self.pieces
            if len(piece.centered)
        }

    def direction(self, piece: Piece) -> Any:
        """Return the gradient of the score of g(x): A^T w, as a CVXPY expression."""
        return piece.matrix.T @ self.normal

    # --- hooks of the rules on features ---------------------------------------------------

    def fixed(self, indices: Indices) -> Any:
        """Return the constraints that the map leaves these features as they are."""
        parts: dict[str, Any] = {}
        eye = np.eye(len(self.features))[indices]
        for piece in self.pieces:
            label = _label(" of ", piece)
            parts[f"mean{label}"] = piece.mean[indices] == piece.moments.mean[indices]
            parts[f"matrix{label}"] = piece.matrix[indices, :] == eye
        return parts

    def within(self, indices: Indices, lower: Floats, upper: Floats) -> Any:
        """Return one term per feature and bound, with a row for each member."""
        parts: dict[str, ConstraintTerm] = {}
        for j, low, high in zip(indices, lower, upper, strict=True):
            for sign, bound, word in ((-1.0, low, "lower"), (1.0, high, "upper")):
                if np.isfinite(bound):
                    for piece in self.pieces:
                        name = f"{self.features[j]} {word}{_label(' of ', piece)}"
                        parts[name] = self._feature_term(name, piece, j, sign, float(bound))
        return parts

    def moves(self, indices: Indices, sign: Floats) -> Any:
        """Return one term per feature, with a row for each member."""
        parts: dict[str, ConstraintTerm] = {}
        for j, s in zip(indices, sign, strict=True):
            word = "up" if s > 0 else "down"
            for piece in self.pieces:
                name = f"{self.features[j]} {word}{_label(' of ', piece)}"
                parts[name] = self._feature_term(name, piece, j, -float(s), None)
        return parts

    def _feature_term(
        self, name: str, piece: Piece, j: int, sign: float, bound: float | None
    ) -> ConstraintTerm:
        """Return sign g(x)_j <= sign bound for all members; without a bound, that of x_j."""
        unit, start = np.zeros(len(self.features)), bound
        if start is None:
            unit[j], start = 1.0, float(piece.moments.mean[j])

        def rows(index: Any) -> Any:
            moved = piece.centered[index] @ (piece.matrix[j, :] - unit) + (piece.mean[j] - start)
            return sign * moved <= 0

        # each row in the unit of its member's feature, or in that of the feature's spread
        own = np.abs(piece.centered[:, j] + piece.moments.mean[j])
        spread = float(np.sqrt(np.mean(np.square(piece.centered[:, j]))))
        return rows_term(name, rows, len(own), scale=np.maximum(own, max(abs(start), spread)))

    # --- results -------------------------------------------------------------------------

    def map(self, solution: Solution) -> Any:
        """Return the map of a solution, ready for new members.

        Parameters
        ----------
        solution : Solution
            Of this problem, or of one with further constraints.

        Returns
        -------
        TransportMap
            Or a `MixtureTransport` for a problem with components. It sends the members where
            the solution does.

        Raises
        ------
        SolverFailure
            The values break a constraint of this problem, or as a matrix and an offset the map
            misses the target by more than the solution.
        """
        (piece,) = self.pieces
        values = fitting_values(self, solution)
        return self.kept(piece, solution, (self.settled(values), values))

    def kept(self, piece: Piece, solution: Solution, choices: Sequence[Values]) -> TransportMap:
        """Return the map of the first values that sends the members to the target as declared."""
        short = 0.0
        for values in choices:
            transport = self.transport(piece, values)
            short = self.shortfall(piece, transport, solution)
            if short <= 0.0:
                return transport
        raise SolverFailure(
            "the map does not send the group where the solution does",
            f"as x -> A x + b it misses the target by {short:.2g} of the size of a score: "
            "the features lie too far from 0 for their deviations, or in units too far apart",
            "center the features and bring them to like units, e.g. standardise them",
        )

    def shortfall(self, piece: Piece, transport: TransportMap, solution: Solution) -> float:
        """Return by how much more than the solution a map misses the target, of a row's size.

        Beyond the tolerance of the solution, and what rounding does to a score; at most 0 when
        nothing is missed.
        """
        if f"classification{piece.part}" not in self.constraints or not len(piece.centered):
            return 0.0
        w, t, points = self.normal, self.level, piece.centered + piece.moments.mean
        mean, A = piece.read(solution.values)
        declared = np.maximum(t - (piece.centered @ (w @ A) + w @ mean), 0.0)
        missed = t - (points @ transport.matrix.T + transport.offset) @ w
        size = np.abs(piece.centered) @ (np.abs(w) @ np.abs(A)) + abs(t - float(w @ mean))
        spent = np.abs(points) @ np.abs(transport.matrix.T) + np.abs(transport.offset)
        rounding = ROUNDING * (spent @ np.abs(w) + abs(t))
        tolerance = float(solution.options.get("tolerance", 1e-7))
        beyond = missed - declared - tolerance * size - rounding
        return float((beyond / np.where(size > 0.0, size, 1.0)).max())

    def settled(self, values: Values) -> Values:
        """Return the values with the identity where neither cost nor members see the matrix.

        Where the group has no extent, every matrix within the bounds costs the same, and a
        solver returns any. New members are best left as they are in such directions.
        """
        return values

    def transport(self, piece: Piece, values: Values) -> TransportMap:
        """Return the map of a piece at values of the variables."""
        return TransportMap(
            piece.read(values)[1],
            piece.offset(values),
            features=self.features,
            mean=piece.moments.mean,
            covariance=piece.moments.covariance,
        )

    def explained(self, error: Infeasible) -> Infeasible:
        """Return the error with the largest target that is attainable however far features move."""
        return with_attainable(without_guesses(self), error)

    def solved_by(self, ask: Callable[..., Solution]) -> Solution:
        """Return what ``ask`` finds where no limit that a rule guessed can decide it."""
        return solved_within(self, ask)


def renamed(
    name: str, parts: Mapping[str, ConstraintTerm], suffix: str = ""
) -> tuple[ConstraintTerm, ...]:
    """Return terms by part as terms of their own: ``name part``."""
    labels = {part: f"{name} {part}{suffix}" for part in parts}
    return tuple(
        replace(t, name=labels[part], evidence=replace(t.evidence, term=labels[part]))
        for part, t in parts.items()
    )


def _label(lead: str, piece: Piece) -> str:
    return lead + piece.part.removeprefix(".") if piece.part else ""
