"""Counterfactuals of a group whose distances neither grow nor shrink beyond given factors, and a lower bound."""

from __future__ import annotations

from typing import Any, ClassVar

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from optfair.core.certificate import NonconvexityWitness
from optfair.core.problem import Declaration
from optfair.core.problem_class import LP, Evidence, ProblemClass
from optfair.core.term import ConstraintTerm, ObjectiveTerm, Values
from optfair.errors import ClassError, DeclarationError
from optfair.features.feature_problem import FeatureProblem
from optfair.methods.group_counterfactuals.members import GroupCounterfactuals, MemberPairs
from optfair.numbers import LARGEST, real

__all__ = [
    "BiLipschitzCounterfactuals",
    "GramBound",
    "check_factor",
]


# Counterfactuals of a group whose distances neither grow nor shrink beyond given factors.

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]


QCQP = ProblemClass(quadratic_constraint=True)


class BiLipschitzCounterfactuals(GroupCounterfactuals):
    r"""The cheapest counterfactuals that neither stretch nor shrink distances too much.

    .. math::
        \min_Z\; \tfrac1n \sum_i \|z_i - x_i\|^2 \quad\text{s.t.}\quad v^T z_i \ge t,\qquad
        \tfrac1{k^2} \|x_i - x_j\|^2 \le \|z_i - z_j\|^2 \le K^2 \|x_i - x_j\|^2
        \;\text{ for all } i < j

    Class: nonconvex QCQP. Z and its mirror image :math:`2c - Z` are both feasible for a
    center c far enough on the side of the target, and their midpoint puts every member on c. A
    local solver gives a value, `GramBound` a bound; `bi_lipschitz_baseline` puts both together.

    Parameters
    ----------
    X, score, probability, threshold, target_class, feature_costs
        As in `IndependentCounterfactuals`.
    K : float
        Largest factor by which a distance may grow, at least 1.
    k : float
        Largest factor by which a distance may shrink, at least 1.

    Attributes
    ----------
    variables : ``counterfactuals`` (n, d), in units of the features
    pairs : MemberPairs
        Pairs in the order of the rows of ``stretching`` and ``shrinking``.

    Raises
    ------
    DataError, DeclarationError
        Rows, score, target, weights or factors that do not fit.

    Examples
    --------
    >>> import optfair as of
    >>> X = [[0.0, 0.0], [-2.0, 0.0]]
    >>> p = of.group_counterfactuals.BiLipschitzCounterfactuals(X, score=([1.0, 0.0], -1.0), K=1.0, k=1.0)
    >>> p.problem_class, p.certificate.verify()
    (nonconvex QCQP, verified)

    References
    ----------
    Valero-Leal et al.: Optimal transport group counterfactual explanations, eq. (8) and
    Proposition A.2.
    """

    title = "BiLipschitzCounterfactuals"
    factors: ClassVar[tuple[str, ...]] = ("K", "k")

    def __init__(
        self,
        X: Any,
        *,
        score: Any,
        K: float,
        k: float,
        probability: float | None = None,
        threshold: float | None = None,
        target_class: Any = None,
        feature_costs: Any = None,
    ) -> None:
        super().__init__(
            X,
            score=score,
            probability=probability,
            threshold=threshold,
            target_class=target_class,
            feature_costs=feature_costs,
            K=check_factor(K, "K"),
            k=check_factor(k, "k"),
        )

    @property
    def pairs(self) -> MemberPairs:
        """All pairs of members."""
        found: MemberPairs | None = self.__dict__.get("_pairs")
        if found is None:
            found = MemberPairs(self.points)
            self._set(_pairs=found)
        return found

    def pair_terms(self, Z: Any) -> tuple[ConstraintTerm, ...]:
        """Return the quadratics of the pairs, one row each."""
        if self.points.shape[0] < 2:
            return ()
        pairs, K, k = self.pairs, float(self.data["K"]), float(self.data["k"])
        squares = np.square(pairs.distances)

        def spread() -> Any:
            every = pairs.differences(np.arange(pairs.count))
            return cp.sum(cp.square(every @ Z), axis=1)

        def stretched(values: Values) -> Floats:
            return np.maximum(np.square(pairs.of(values["counterfactuals"])) - K**2 * squares, 0.0)

        def shrunk(values: Values) -> Floats:
            return np.maximum(squares / k**2 - np.square(pairs.of(values["counterfactuals"])), 0.0)

        def term(name: str, function: str, pc: ProblemClass, **rest: Any) -> ConstraintTerm:
            evidence = Evidence(name, function, "Nonpositive", pc)
            return ConstraintTerm(
                name, frozenset({"counterfactuals"}), evidence, shape=(pairs.count,), **rest
            )

        return (
            term(
                "stretching",
                "convex quadratic",
                QCQP,
                build=lambda: spread() <= K**2 * squares,
                latex=r"\|z_i - z_j\|^2 \le K^2 \|x_i - x_j\|^2",
                violation=stretched,
                scale=K**2 * float(squares.max()),
            ),
            term(
                "shrinking",
                "concave quadratic",
                QCQP.with_curvature("unverified"),
                build=lambda: spread() >= squares / k**2,
                latex=r"\|z_i - z_j\|^2 \ge k^{-2} \|x_i - x_j\|^2",
                violation=shrunk,
                scale=float(squares.max()) / k**2,
            ),
        )

    def feasible_point(self) -> dict[str, Floats]:
        """Return a point that satisfies the model's own constraints: all members moved alike."""
        return {"counterfactuals": self.shifted(self.points)}

    def find_witness(self) -> NonconvexityWitness | None:
        """Return the group moved to the target and a mirror image of it.

        First about a center beyond the target: the midpoint is one point for all members. Then
        about its own axis along v, which keeps every score: the midpoint keeps that direction
        only. None where further constraints exclude both: the class is then unverified.
        """
        if self.points.shape[0] < 2:
            return None
        first = self.shifted(self.points)
        inner = first - first.mean(axis=0)
        along = np.outer(inner @ self.normal, self.normal) / float(self.normal @ self.normal)
        for second in (self.shifted(-self.points), first - 2.0 * (inner - along)):
            found = NonconvexityWitness(
                self, "shrinking", {"counterfactuals": first}, {"counterfactuals": second}
            )
            if found.verify():
                return found
        return None


def check_factor(value: Any, name: str) -> float:
    """Return K or k as a finite number of at least 1.

    Raises
    ------
    DeclarationError
        Below 1: a factor that excludes moving all members alike.
    """
    factor = real(value)
    if not 1.0 <= factor <= LARGEST:
        raise DeclarationError(
            f"{name}={value!r} is not a finite number of at least 1",
            "distances may grow by K and shrink by k; 1 keeps them",
            f"give {name} >= 1",
        )
    return factor


# A lower bound on bi-Lipschitz counterfactuals: their inner products, with the rank left free.

OWN = ("classification", "stretching", "shrinking")
SDP = ProblemClass(cones=frozenset({"psd"}))
QP = ProblemClass(quadratic_objective=True)


class GramBound(FeatureProblem):
    r"""Bound the bi-Lipschitz problem from below by relaxing the rank of a Gram matrix.

    .. math::
        \min_{Z, Y}\; \tfrac{1}{n} (\operatorname{tr} Y - 2 \langle X, Z\rangle + \|X\|^2)
        \;\;\text{s.t.}\;\; \begin{pmatrix} Y & Z \\ Z^T & I \end{pmatrix} \succeq 0,\;
        v^T z_i \ge t,\;
        \tfrac{d_{ij}^2}{k^2} \le Y_{ii} + Y_{jj} - 2 Y_{ij} \le K^2 d_{ij}^2

    With :math:`Y = Z Z^T` this is the problem itself: the squared distances are linear in the
    Gram matrix of :math:`z_1, \dots, z_n, e_1, \dots, e_d`. That its rank is d is dropped, so
    members may leave the space of the features, and the optimum is a bound. Y is of the points
    minus the mean of X, in units of their mean squared size, so that its entries are near 1.
    With feature costs c the part :math:`\min_j c_j` goes through Y, the rest is a convex
    quadratic of Z.

    Class: SDP of order n + d, for small groups; the pairs are generated as they are violated.

    Parameters
    ----------
    problem : BiLipschitzCounterfactuals
        What is bounded. Further convex constraints on its counterfactuals are kept.

    Attributes
    ----------
    variables : ``counterfactuals`` (n, d), ``gram`` (n, n) symmetric

    Raises
    ------
    DeclarationError
        Not a bi-Lipschitz problem, or one of its own constraints was removed.
    ClassError
        A further constraint is not convex, or a variable is integer.

    Examples
    --------
    >>> import optfair as of
    >>> X = [[0.0, 0.0], [-2.0, 0.0]]
    >>> p = of.group_counterfactuals.BiLipschitzCounterfactuals(X, score=([1.0, 0.0], -1.0), K=1.0, k=1.0)
    >>> bound = GramBound(p)
    >>> bound.problem_class, round(bound.solve().objective, 5)
    (SDP, 6.0)

    References
    ----------
    Valero-Leal et al.: Optimal transport group counterfactual explanations, eq. (8); the
    relaxation is that of Euclidean distance matrices, as in Alfakih, Khandani, Wolkowicz (1999).
    """

    title = "GramBound"

    def __init__(self, problem: BiLipschitzCounterfactuals) -> None:
        if not isinstance(problem, BiLipschitzCounterfactuals):
            raise DeclarationError(
                f"GramBound bounds bi-Lipschitz counterfactuals, not a {type(problem).__name__}",
                remedy="give a BiLipschitzCounterfactuals problem",
            )
        kept = [t for t in problem.constraints.values() if t.name not in OWN]
        for t in kept:
            if not t.evidence.problem_class.convex:
                raise ClassError(
                    f"{t.name!r} is not known to be convex",
                    str(t.evidence),
                    "remove it: without it the bound is lower, but still a bound",
                )
        lacking = [n for n in OWN if n not in problem.constraints and n in _own(problem)]
        if lacking:
            raise DeclarationError(
                f"{lacking[0]!r} was removed from the problem",
                "the bound is for all three of its constraints",
                "declare it again",
            )
        if problem.integers:
            raise ClassError(
                f"{sorted(problem.integers)[0]!r} is integer", remedy="bound the continuous problem"
            )
        super().__init__({"problem": problem, "further": tuple(kept), "features": problem.features})

    @property
    def original(self) -> BiLipschitzCounterfactuals:
        """The problem that is bounded."""
        problem: BiLipschitzCounterfactuals = self.data["problem"]
        return problem

    @property
    def objective_unit(self) -> float:
        """That of the problem that is bounded."""
        return self.original.objective_unit

    def lift(self, counterfactuals: Any) -> dict[str, Floats]:
        """Return the point of this problem that a point of the original is."""
        Z = np.asarray(counterfactuals, dtype=float)
        center, size = self._frame()
        inner = (Z - center) / size
        return {"counterfactuals": Z, "gram": inner @ inner.T}

    def _frame(self) -> tuple[Floats, float]:
        X = self.original.points
        center = X.mean(axis=0)
        size = float(np.sqrt(np.square(X - center).sum(axis=1).mean()))
        return center, size or 1.0

    def declare(self) -> Declaration:
        """Declare counterfactuals and Gram matrix; the pairs are rows."""
        p = self.original
        n, _ = p.points.shape
        Z = p["counterfactuals"]
        Y = cp.Variable((n, n), name="gram", symmetric=True)
        terms = [p.constraints["classification"], self._semidefinite(Z, Y)]
        if n > 1:
            terms += self._pair_terms(Y)
        return Declaration(
            {"counterfactuals": Z, "gram": Y},
            objective=self._cost(Z, Y),
            constraints=(*terms, *self.data["further"]),
        )

    def _cost(self, Z: Any, Y: Any) -> tuple[ObjectiveTerm, ...]:
        p = self.original
        X, c = p.points, p.feature_costs
        center, size = self._frame()
        least, n = float(c.min()), X.shape[0]
        shape = (X - center) / size
        unit = least * size**2 / n

        def linear(values: Values) -> float:
            moved = (np.asarray(values["counterfactuals"], dtype=float) - center) / size
            trace = float(np.trace(np.asarray(values["gram"], dtype=float)))
            return float(unit * (trace - 2.0 * np.sum(shape * moved) + np.sum(shape**2)))

        def build() -> Any:
            moved = cp.sum(cp.multiply(shape, (Z - center[None, :]) / size))
            return unit * (cp.trace(Y) - 2.0 * moved + float(np.sum(shape**2)))

        goals = [
            ObjectiveTerm(
                "transport cost",
                frozenset({"counterfactuals", "gram"}),
                Evidence("transport cost", "affine", "minimize", LP),
                build=build,
                latex=r"\tfrac1n (\operatorname{tr} Y - 2 \langle X, Z \rangle + \|X\|^2)",
                value=linear,
            )
        ]
        rest = c - least
        if rest.any():
            goals.append(
                ObjectiveTerm(
                    "feature costs",
                    frozenset({"counterfactuals"}),
                    Evidence("feature costs", "convex quadratic", "minimize", QP),
                    build=lambda: cp.sum_squares(cp.multiply(np.sqrt(rest)[None, :], Z - X)) / n,
                    latex=r"\tfrac1n \textstyle\sum_{ij} (c_j - \min c) (z_{ij} - x_{ij})^2",
                    value=lambda v: float(
                        rest @ np.square(np.asarray(v["counterfactuals"]) - X).sum(axis=0) / n
                    ),
                )
            )
        return tuple(goals)

    def _semidefinite(self, Z: Any, Y: Any) -> ConstraintTerm:
        center, size = self._frame()
        d = self.original.points.shape[1]

        def build() -> Any:
            moved = (Z - center[None, :]) / size
            return cp.bmat([[Y, moved], [moved.T, np.eye(d)]]) >> 0

        def violation(values: Values) -> Floats:
            moved = (np.asarray(values["counterfactuals"], dtype=float) - center) / size
            whole = np.block([[np.asarray(values["gram"]), moved], [moved.T, np.eye(d)]])
            if not np.isfinite(whole).all():
                return np.array([np.inf])
            return np.maximum(-np.linalg.eigvalsh((whole + whole.T) / 2)[:1], 0.0)

        order = self.original.points.shape[0] + d
        return ConstraintTerm(
            "gram of points",
            frozenset({"counterfactuals", "gram"}),
            Evidence("gram of points", "affine", "PSD", SDP),
            build=build,
            latex=r"\begin{pmatrix} Y & Z \\ Z^T & I \end{pmatrix} \succeq 0",
            violation=violation,
            shape=(order, order),
            scale=1.0,
        )

    def _pair_terms(self, Y: Any) -> list[ConstraintTerm]:
        p = self.original
        pairs, K, k = p.pairs, float(p.data["K"]), float(p.data["k"])
        squares = np.square(pairs.distances / self._frame()[1])
        every = pairs.ends(np.arange(pairs.count))

        def apart(values: Values) -> Floats:
            gram = np.asarray(values["gram"], dtype=float)
            i, j = every
            own = np.diag(gram)
            return np.asarray(own[i] + own[j] - 2.0 * gram[i, j])

        def entries(index: Indices) -> Any:
            i, j = pairs.ends(index)
            return cp.diag(Y)[i] + cp.diag(Y)[j] - 2.0 * Y[i, j]

        def term(name: str, build: Any, violation: Any, scale: float, latex: str) -> ConstraintTerm:
            return ConstraintTerm(
                name,
                frozenset({"gram"}),
                Evidence(name, "affine", "Nonpositive", LP),
                build=lambda: build(np.arange(pairs.count)),
                latex=latex,
                violation=violation,
                shape=(pairs.count,),
                scale=scale,
                rows=build,
            )

        largest = float(squares.max(initial=0.0))
        return [
            term(
                "stretching",
                lambda index: entries(index) <= K**2 * squares[index],
                lambda v: np.maximum(apart(v) - K**2 * squares, 0.0),
                K**2 * largest,
                r"Y_{ii} + Y_{jj} - 2 Y_{ij} \le K^2 d_{ij}^2",
            ),
            term(
                "shrinking",
                lambda index: entries(index) >= squares[index] / k**2,
                lambda v: np.maximum(squares / k**2 - apart(v), 0.0),
                largest / k**2,
                r"Y_{ii} + Y_{jj} - 2 Y_{ij} \ge k^{-2} d_{ij}^2",
            ),
        ]

    def feasible_point(self) -> dict[str, Floats]:
        """Return the group moved to the target as one."""
        return self.lift(self.original.feasible_point()["counterfactuals"])

    # rules write the same constraints here as on the original
    fixed = GroupCounterfactuals.fixed
    within = GroupCounterfactuals.within
    moves = GroupCounterfactuals.moves


def _own(problem: BiLipschitzCounterfactuals) -> tuple[str, ...]:
    return OWN if len(problem.points) > 1 else OWN[:1]
